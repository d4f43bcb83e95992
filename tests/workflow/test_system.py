"""What the system refuses: no room, a folder in the place of a file. One line, exit code 1, nothing
lost: the same command goes on once it is mended.
"""

import os
import shutil
import subprocess
import sys

import pytest
from small_project import FILES, PAIR, write

pytestmark = pytest.mark.slow
FRAME = f"artifacts/demo/generations/{PAIR}.parquet"


def run(project, where: str = "") -> subprocess.CompletedProcess:
    command, env = f"'{sys.executable}' -m workflow.run {where}", os.environ | {"PYTHONPATH": str(project.root)}
    return subprocess.run(command, shell=True, cwd=project.root, env=env, capture_output=True, text=True)


def complaint(done: subprocess.CompletedProcess) -> str:
    """The last line, which is the only complaint."""
    text = done.stdout + done.stderr
    (line,) = [line for line in text.splitlines() if line.startswith("run_all.sh: ")]
    assert done.returncode == 1 and "Traceback" not in text and text.strip().endswith(line), text
    return line


@pytest.mark.parametrize("name, folder", [
    ("artifacts/demo/.lock", True), ("figures/demo", False),
])  # fmt: skip
def test_what_is_in_the_way_is_named_and_nothing_is_lost(copy, name, folder):
    """A folder in the place of a file, or a file in that of a folder; and the tables are to be made again."""
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")
    before, path = (copy.root / FRAME).read_bytes(), copy.root / name
    path.unlink(missing_ok=True) if folder else shutil.rmtree(path)
    path.mkdir() if folder else path.touch()
    assert path.name in complaint(run(copy))
    path.rmdir() if folder else path.unlink()
    assert run(copy).returncode == 0 and (copy.root / FRAME).read_bytes() == before


def test_a_full_stdout(copy):
    said = "run_all.sh: No space left on device; once that is mended, the same command goes on from here"
    assert complaint(run(copy, "> /dev/full")) == said


def test_a_listener_who_has_left(copy):
    """As `| head -1` does."""
    done = run(copy, "| true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk(project):
    """A file system of 1 MB for what the run writes."""
    disk = project.root / "artifacts"
    disk.mkdir(exist_ok=True)
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        for name in ("paper.yaml", "reference.csv"):
            write(disk / name, FILES[f"artifacts/{name}"])
        project.add_cell("02_single_pass", "_ = open('../artifacts/filling', 'wb').write(b'x' * 2_000_000)")
        line = complaint(run(project))
        assert "No space left on device" in line and "02_single_pass" in line
        assert (disk / f"demo/jobs/01_generate__{PAIR}.json").exists()
        (disk / "filling").unlink()
        project.add_cell("02_single_pass", "pass")
        assert "3 of 4 jobs ran, 1 up to date" in run(project).stdout
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
