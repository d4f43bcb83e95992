"""What the system refuses: no room, no permission, a folder in the place of a file. One line, exit code 1, nothing
lost: the same command goes on once it is mended.
"""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest
from small_project import PAIR, with_cell

pytestmark = pytest.mark.slow
FRAME = f"artifacts/demo/generations/{PAIR}.parquet"
BOUNDED, CAPABILITIES = 24, (1, 2)  # of Linux: take from the bounding set; to write and to read whatever the modes say


def as_anyone() -> None:
    """In a child before its program begins: permissions count for root, too."""
    for capability in CAPABILITIES if not os.getuid() else ():
        ctypes.CDLL(None).prctl(BOUNDED, capability, 0, 0, 0)


def run(project, where: str = "") -> subprocess.CompletedProcess:
    command, env = f"'{sys.executable}' -m workflow.run {where}", project.environment(PYTHONPATH=str(project.root))
    more = {"capture_output": True, "text": True, "preexec_fn": as_anyone}
    return subprocess.run(command, shell=True, cwd=project.root, env=env, **more)


def complaint(done: subprocess.CompletedProcess) -> str:
    """The last line, which is the only complaint."""
    text = done.stdout + done.stderr
    (line,) = [line for line in text.splitlines() if line.startswith("run_all.sh: ")]
    assert done.returncode == 1 and "Traceback" not in text and text.strip().endswith(line), text
    return line


@pytest.fixture
def changed(copy):
    """A finished run, in which something is to be done again."""
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")
    return copy


@pytest.mark.parametrize("name, folder", [
    ("artifacts/demo/run.json", True), ("artifacts/demo/notebooks", False), ("figures/demo", False),
])  # fmt: skip
def test_what_is_in_the_way_is_named_and_nothing_is_lost(changed, name, folder):
    """A folder in the place of a file, or a file in that of a folder."""
    before, path = (changed.root / FRAME).read_bytes(), changed.root / name
    path.unlink() if folder else shutil.rmtree(path)
    path.mkdir() if folder else path.touch()
    assert path.name in complaint(run(changed))
    path.rmdir() if folder else path.unlink()
    assert run(changed).returncode == 0 and (changed.root / FRAME).read_bytes() == before
    assert (changed.root / "figures/demo/tab_estimators.tex").exists()


@pytest.fixture(scope="module")
def permissions(tmp_path_factory):
    """Skips where permissions do not count for who runs this, and can't be made to."""
    closed = tmp_path_factory.mktemp("permissions") / "closed"
    closed.touch(mode=0)
    program = [sys.executable, "-c", f"open({str(closed)!r})"]
    if not subprocess.run(program, preexec_fn=as_anyone, capture_output=True).returncode:
        pytest.skip("permissions do not count for this user")


@pytest.mark.parametrize("name, mode", [
    ("artifacts/demo", 0o555), ("figures/demo", 0o555),
    (FRAME, 0), (f"artifacts/demo/jobs/01_generate__{PAIR}.json", 0),
])  # fmt: skip
def test_what_may_not_be_read_or_written_is_named_and_nothing_is_lost(changed, permissions, name, mode):
    frame, path = changed.root / FRAME, changed.root / name
    before, made, usual = frame.read_bytes(), frame.stat().st_mtime_ns, path.stat().st_mode
    path.chmod(mode)
    done = run(changed)
    path.chmod(usual)
    assert f"Permission denied (./{name}" in complaint(done)
    assert "1 of 3 jobs ran, 2 up to date" in run(changed).stdout
    assert frame.read_bytes() == before and frame.stat().st_mtime_ns == made


def test_a_full_stdout(copy):
    said = "run_all.sh: No space left on device; once that is mended, the same command goes on from here"
    assert complaint(run(copy, "> /dev/full")) == said


@pytest.mark.parametrize("where", [">&-", ">&- 2>&-"])
def test_a_closed_stdout(copy, where):
    done = run(copy, where)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk(project):
    """A file system of 1 MB for what the run writes."""
    disk = project.root / "artifacts"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        filling = "_ = open('../artifacts/filling', 'wb').write(b'x' * 2_000_000)"
        with_cell(project, "02_single_pass", filling)
        line = complaint(run(project))
        assert "No space left on device" in line and "02_single_pass" in line
        assert (disk / f"demo/jobs/01_generate__{PAIR}.json").exists()
        (disk / "filling").unlink()
        with_cell(project, "02_single_pass", "pass")
        assert "2 of 3 jobs ran, 1 up to date" in run(project).stdout
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
