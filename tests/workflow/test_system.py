"""What the system refuses: no room, no permission, a folder in the place of a file, a kernel that stops. One line, exit
code 1, nothing lost: the same command goes on once it is mended.
"""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest
from small_project import PAIR, with_cell

pytestmark = pytest.mark.slow


def one_line(text: str) -> str:
    """The last line, which is the only complaint."""
    lines = text.strip().splitlines()
    assert "Traceback" not in text and lines[-1].startswith("run_all.sh: "), text
    assert len([line for line in lines if line.startswith("run_all.sh: ")]) == 1, text
    return lines[-1]


def in_the_way(path, folder: bool):
    """A folder in the place of a file, or a file in that of a folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.mkdir(parents=True) if folder else path.write_text("in the way")


@pytest.mark.parametrize("name, folder", [
    ("artifacts/demo/run.json", True), ("artifacts/demo/notebooks", False), ("figures/demo", False),
])  # fmt: skip
def test_what_is_in_the_way_is_named_and_nothing_is_lost(copy, name, folder):
    before = (copy.root / f"artifacts/demo/generations/{PAIR}.parquet").read_bytes()
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")  # something is to be done
    in_the_way(copy.root / name, folder)
    code, text = copy.run()
    assert code == 1 and name.split("/")[-1] in one_line(text), text
    in_the_way(copy.root / name, True)
    (copy.root / name).rmdir()
    code, text = copy.run()
    assert code == 0 and (copy.root / f"artifacts/demo/generations/{PAIR}.parquet").read_bytes() == before
    assert (copy.root / "figures/demo/tab_estimators.tex").exists()


BOUNDED, CAPABILITIES = 24, (1, 2)  # of Linux: take from the bounding set; to write and to read whatever the modes say


def as_anyone() -> None:
    """In a child before its program begins: permissions count for root, too."""
    for capability in CAPABILITIES if not os.getuid() else ():
        ctypes.CDLL(None).prctl(BOUNDED, capability, 0, 0, 0)


@pytest.fixture(scope="module")
def permissions(tmp_path_factory):
    """Skips where permissions do not count for who runs this, and can't be made to."""
    closed = tmp_path_factory.mktemp("permissions") / "closed"
    closed.touch(mode=0)
    program = [sys.executable, "-c", f"open({str(closed)!r})"]
    if not subprocess.run(program, preexec_fn=as_anyone, capture_output=True).returncode:
        pytest.skip("permissions do not count for this user")


@pytest.mark.parametrize("name, mode", [
    ("artifacts/demo", 0o555), ("figures/demo", 0o555), (f"artifacts/demo/generations/{PAIR}.parquet", 0),
    (f"artifacts/demo/jobs/01_generate__{PAIR}.json", 0)])  # fmt: skip
def test_what_may_not_be_read_or_written_is_named_and_nothing_is_lost(copy, permissions, name, mode):
    def run():
        done = subprocess.run(
            [sys.executable, "-m", "workflow.run"],
            cwd=copy.root,
            preexec_fn=as_anyone,
            text=True,
            capture_output=True,
            env=copy.environment(PYTHONPATH=str(copy.root)),
        )
        return done.returncode, done.stdout + done.stderr

    generated = copy.root / f"artifacts/demo/generations/{PAIR}.parquet"
    before, made = generated.read_bytes(), generated.stat().st_mtime_ns
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")  # something is to be done
    usual = (copy.root / name).stat().st_mode
    (copy.root / name).chmod(mode)
    code, text = run()
    (copy.root / name).chmod(usual)
    assert code == 1 and f"Permission denied (./{name}" in one_line(text), text
    code, text = run()
    assert code == 0 and "1 of 3 jobs ran, 2 up to date" in text, text
    assert generated.read_bytes() == before and generated.stat().st_mtime_ns == made


@pytest.mark.parametrize("where, code", [("> /dev/full", 1), (">&-", 0), (">&- 2>&-", 0)])
def test_a_full_or_closed_stdout(copy, where, code):
    done = subprocess.run(
        f"'{sys.executable}' -m workflow.run {where}",
        shell=True,
        cwd=copy.root,
        text=True,
        capture_output=True,
        env=copy.environment(PYTHONPATH=str(copy.root)),
    )
    assert done.returncode == code, done
    if code:
        assert one_line(done.stderr) == (
            "run_all.sh: No space left on device; once that is mended, the same command goes on from here"
        )
    else:
        assert done.stderr == ""


def test_a_full_disk(project, tmp_path):
    """A file system of 1 MB for what the run writes."""
    disk = project.root / "artifacts"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        filling = "_ = open('../artifacts/filling', 'wb').write(b'x' * 2_000_000)"
        with_cell(project, "02_single_pass", filling)
        code, text = project.run()
        line = one_line(text)
        assert code == 1 and "No space left on device" in line and "02_single_pass" in line
        assert (disk / f"demo/jobs/01_generate__{PAIR}.json").exists()
        (disk / "filling").unlink()
        with_cell(project, "02_single_pass", "pass")
        code, text = project.run()
        assert code == 0 and "2 of 3 jobs ran, 1 up to date" in text, text
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
