"""What the system refuses: no room, a folder in the place of a file. One line, exit code 1, nothing
lost: the same command goes on once it is mended.
"""

import os
import shutil
import subprocess
import sys

import pytest
from small_project import PAIR, SMALL

pytestmark = pytest.mark.slow
GOES_ON = "once that is mended, the same command goes on from here"


def complaint(result: tuple[int, str]) -> str:
    """The last line of what a command said, which is the only complaint."""
    code, text = result
    (line,) = [line for line in text.splitlines() if line.startswith("run_all.sh: ")]
    assert code == 1 and "Traceback" not in text and text.endswith(f"{line}\n"), text
    return line


@pytest.mark.parametrize("name", ["artifacts/demo/.lock", "figures/demo"])
def test_what_is_in_the_way_is_named_and_nothing_is_lost(copy, name):
    """A folder in the place of a file, or a file in that of a folder; and the tables are to be made
    again."""
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")
    path, before = copy.root / name, copy.read(f"artifacts/demo/generations/{PAIR}.parquet")
    folder = path.is_dir()
    shutil.rmtree(path) if folder else path.unlink(missing_ok=True)
    path.touch() if folder else path.mkdir()
    assert path.name in complaint(copy.run())
    path.unlink() if folder else path.rmdir()
    assert copy.run()[0] == 0 and copy.read(f"artifacts/demo/generations/{PAIR}.parquet") == before


@pytest.mark.parametrize("where, code, message", [
    ("> /dev/full", 1, f"run_all.sh: No space left on device; {GOES_ON}\n"),
    ("| true", 0, ""),  # a listener who has left, as `| head -1` does
])  # fmt: skip
def test_a_stdout_that_takes_no_more(copy, where, code, message):
    command = f"'{sys.executable}' -m workflow.run {where}"
    env = os.environ | {"PYTHONPATH": str(copy.root)}
    done = subprocess.run(
        command, shell=True, cwd=copy.root, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_a_disk_that_may_only_be_read(copy):
    """A finished run is up to date, with checksums of big files yet to be remembered; what is to be
    done is refused."""
    copy.replace("workflow/engine/fingerprint.py", "BIG = 64e6", "BIG = 10")

    def run_read_only() -> tuple[int, str]:
        command = (
            "mount --bind . . && mount -o remount,bind,ro . && cd . && "
            f"'{sys.executable}' -m workflow.run"
        )
        words = ["unshare", "--mount", "sh", "-c", command]
        env = os.environ | {"PYTHONPATH": str(copy.root), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, cwd=copy.root, env=env, capture_output=True, text=True)
        if "mount" in done.stderr or "unshare" in done.stderr:
            pytest.skip("no folder can be mounted here to be read alone")
        return done.returncode, done.stdout + done.stderr

    code, text = run_read_only()
    assert code == 0 and text.startswith("demo: 0 of 4 jobs ran, 4 up to date, "), text
    assert "report: figures/demo/report.html\n" in text and text.count("\n") == 3
    copy.replace("notebooks/08_tables.ipynb", "UERG", "UERH")
    refused = "artifacts/demo may not be written: copy the project to where you may write"
    assert run_read_only() == (2, f"run_all.sh: 2 of 4 jobs are not up to date, and {refused}\n")


def test_a_full_disk(project):
    """A file system of 1 MB for what the run writes."""
    disk = project.root / "artifacts"
    if (
        os.getuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        shutil.copytree(SMALL / "artifacts", disk, dirs_exist_ok=True)
        project.add_cells(
            "02_single_pass", "_ = open('../artifacts/filling', 'wb').write(b'x' * 2_000_000)"
        )
        line = complaint(project.run())
        assert "No space left on device" in line and "02_single_pass" in line
        (disk / "filling").unlink()
        project.add_cells("02_single_pass", "pass")
        assert "3 of 4 jobs ran, 1 up to date" in project.run()[1]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
