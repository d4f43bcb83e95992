"""A run that dies at any step on the disk, in whichever of its processes takes it: the same command
ends with the same bytes, makes nothing twice that was finished, and leaves nothing half written
behind.

A hook in the first module that every process imports knows the steps of the small project. At the
first one of a kind the process stops where it stands, and all of the run's processes are killed;
the same command goes on to the first step of another kind, which may be one that mends what the
last kill left.
"""

import json
import time
from pathlib import Path

import pytest
from clone import kill
from small_project import Project, build

HOOK = """
import os, re, sys, time
from pathlib import Path

def halt(event, given):
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        place = f"{event} {Path(given[0]).absolute()}"
        # of whatever job, figure or process
        kind = re.sub(r"(tab|fig|\\d\\d)_\\w+|-\\d+-\\w+|\\d+", "", place)
        if re.search("/(artifacts|figures)/", place) and re.search(os.environ["CRASH_AT"], place):
            log = Path(os.environ["CRASH_LOG"])
            if kind not in log.read_text().splitlines():
                with log.open("a") as file:
                    file.write(kind + "\\n")
                time.sleep(600)

if "CRASH_LOG" in os.environ:
    sys.addaudithook(halt)
"""
KINDS = "figures/**/*.tex", "figures/**/*.png", "artifacts/demo/*/*.parquet"
UNFINISHED = "*.partial", ".*.json.[0-9]*", ".typeset-*"
# a record is about to be there, a job has just begun, tables are about to be there
SAMPLE = r"rename .*/jobs/\.01_|remove .*/notebooks/02_|rename .*/figures/.*\.tex"


def is_killed(project: Project, log: Path, wanted: str) -> bool:
    """Starts a run and kills all of it at the next step of another kind; whether there was one
    before it ended."""
    before = log.read_text()
    process = project.start(CRASH_LOG=str(log), CRASH_AT=wanted)
    while process.poll() is None and log.read_text() == before:
        time.sleep(0.01)
    halted = process.poll() is None
    if halted:
        kill(process)
    output = process.communicate(timeout=60)[0]
    assert "Traceback" not in output and (halted or process.returncode == 0), output
    return halted


def results(root: Path) -> dict[str, bytes]:
    """What a user reads of a run: its frames, and what it exports."""
    contents = {}
    for kind in KINDS:
        for path in root.glob(kind):
            contents[str(path.relative_to(root))] = path.read_bytes()
    return contents


def frames_of_finished_jobs(root: Path) -> dict[str, int]:
    """The frames of finished jobs, as their records name them, with the time at which each was
    written."""
    times = {}
    for record in root.glob("artifacts/demo/jobs/[0-9]*.json"):
        for name in json.loads(record.read_text())["outputs"]:
            path = root / name
            if path.suffix == ".parquet" and path.exists():
                times[str(path)] = path.stat().st_mtime_ns
    return times


@pytest.mark.parametrize("wanted, least", [
    pytest.param(SAMPLE, 3, id="sample"), pytest.param(".", 25, id="all", marks=pytest.mark.slow),
])  # fmt: skip
def test_crash_points(wanted, least, finished, tmp_path):
    project = Project(build(tmp_path / "a project"))
    log = tmp_path / "log"
    (project.root / "lib" / "__init__.py").write_text(HOOK)
    log.touch()
    before: dict[str, int] = {}
    while is_killed(project, log, wanted):
        before = frames_of_finished_jobs(project.root) | before
    where = f"after a kill at each of\n{log.read_text()}"
    assert where.count("\n") > least, where
    differing = results(project.root).items() ^ results(finished.root).items()
    changed = {name for name, _ in differing}
    assert not changed, f"missing, or other than without a kill: {', '.join(changed)}, {where}"
    assert before.items() <= frames_of_finished_jobs(project.root).items(), f"made twice {where}"
    for folder in (project.root / "artifacts", project.root / "figures"):
        for pattern in UNFINISHED:
            left = [path.name for path in folder.rglob(pattern)]
            assert not left, f"left {', '.join(left)} {where}"
