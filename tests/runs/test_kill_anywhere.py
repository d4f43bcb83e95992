"""A small demo killed four times, each time another of its processes at another point: its tables are those of a run
left alone, no shard that was finished is made again, and nothing half written is left.

Every step on the disk is tried on the small project, in tests/blackbox/test_killed_at_every_step.py.
"""

import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from clone import SMALL, assert_same_tables, copy_of_project, counts, edit, run, start

pytestmark = pytest.mark.slow

MADE = re.compile(r"(\w+ \S+ \S+) +(shard \d+/\d+: \d+ rows)")
POINTS = (("shards/01_*/[0-9]*.parquet", "all"), ("jobs/01_*.json", "snakemake"),
          ("shards/04_*/[0-9]*.parquet", "kernel"), ("jobs/05_*.json", "workflow.run"))  # fmt: skip
LEFT = (".*.partial", ".*.json.[0-9]*", "written", ".export-*")


def victims(everyone: list[psutil.Process], kind: str) -> list[psutil.Process]:
    """Those of a run's processes that are to be killed; a kernel is the child of a job, and that of what forks jobs."""
    if kind == "all":
        return everyone
    if kind == "kernel":
        parents = {one.pid: one.ppid() for one in everyone}
        forks = next(one.pid for one in everyone if "workflow.preload" in one.cmdline())
        return [one for one in everyone if parents.get(one.ppid()) == forks][:1]
    return [one for one in everyone if kind in one.cmdline()]


def killed(folder: Path, point: str, kind: str) -> str:
    """Starts a run, and kills one of its processes, or all, once there is a file; what the run said."""
    process = start(folder)
    while not any((folder / "artifacts/demo").glob(point)):
        assert process.poll() is None, f"it came to its end before {point}"
        time.sleep(0.01)
    top = psutil.Process(process.pid)
    everyone = [*top.children(recursive=True), top]
    for one in victims(everyone, kind):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    said = process.communicate(timeout=600)[0]
    assert not psutil.wait_procs(everyone, timeout=60)[1], f"orphans after killing {kind}"
    assert "Traceback" not in said, said
    return said


def test_killed_at_four_points(alone, tmp_path):
    left, told, _ = alone
    folder = copy_of_project(tmp_path / "a folder")
    edit(folder / "params" / "demo.yaml", **SMALL)
    before, said = {}, ""
    for point, kind in POINTS:
        said += killed(folder, point, kind)
        now = {path: path.stat().st_mtime_ns for path in folder.glob("artifacts/demo/shards/*/[0-9]*.parquet")}
        assert all(now.get(path, then) == then for path, then in before.items()), "a finished shard was made again"
        before = now
    said += run(folder)
    once = Counter(MADE.findall(told))
    assert sum(once.values()) > 10 and not Counter(MADE.findall(said)) - once, "a shard was made twice"
    assert_same_tables(left, folder)
    assert not [path for name in LEFT for part in ("artifacts", "figures") for path in (folder / part).rglob(name)]
    assert counts(run(folder))[0] == 0
