"""A small demo killed twenty times, at seeded moments and at the worst ones: its tables are those of a run left alone,
and no shard that was finished is made again.
"""

import random
import re
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from clone import SMALL, assert_same_tables, copy_of_project, counts, edit, start

pytestmark = pytest.mark.slow

SEED, KILLS = 20, 20
MADE = re.compile(r"(\w+ \S+ \S+) +(shard \d+/\d+: \d+ rows)")
# what is awaited before the kill: seconds, or a file that is there for a moment only
MOMENTS = ("", "", "", "shards/*/written", "shards/*/.*.partial", "*/.*.parquet.*.partial", "jobs/.*.json.*")
VICTIMS = ("all", "all", "all", "run", "snakemake", "kernel", "preload")


def made(said: str) -> Counter:
    """Shards that a run says it made, by job and place."""
    return Counter(MADE.findall(said))


def family(process) -> list[psutil.Process]:
    try:
        top = psutil.Process(process.pid)
        return [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return []


def victims(process, kind: str) -> list[psutil.Process]:
    """Those of a run's processes that are to be killed; a kernel is the child of a job, and that of what forks jobs."""
    everyone = family(process)
    if kind == "all" or not everyone:
        return everyone
    if kind == "run":
        return everyone[-1:]
    preloaded = [one for one in everyone if "workflow.preload" in " ".join(one.cmdline())]
    if kind == "kernel":
        parents = {one.pid: one.ppid() for one in everyone}
        depth = {pid: 1 + (above in parents) + (parents.get(above) in parents) for pid, above in parents.items()}
        return [one for one in preloaded if depth[one.pid] == 3][:1]
    named = [one for one in everyone if "snakemake" in one.cmdline()]
    return named if kind == "snakemake" else preloaded[:1]


def wait_until(folder: Path, process, moment: str, seconds: float) -> None:
    """Some seconds, or until a file appears, which is there for a moment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if moment and any((folder / "artifacts/demo").glob(moment)):
            return
        time.sleep(0.002 if moment else 0.05)


def shards(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("artifacts/demo/shards/*/[0-9]*.parquet")}


def killed(folder: Path, rng: random.Random, longest: float) -> str:
    """What a run said until it was killed, or ended."""
    kind, moment, seconds = rng.choice(VICTIMS), rng.choice(MOMENTS), rng.uniform(0, longest)
    process = start(folder)
    wait_until(folder, process, moment, longest if moment else seconds)
    everyone = family(process)
    try:
        for one in victims(process, kind):
            one.kill()
    except psutil.NoSuchProcess:
        pass
    said = process.communicate(timeout=1800)[0]
    _, alive = psutil.wait_procs(everyone, timeout=60)
    assert not alive, f"orphans after killing {kind}"
    assert "Traceback" not in said, said
    return said


def test_killed_twenty_times(alone, tmp_path):
    left, told, seconds = alone
    once = made(told)
    assert sum(once.values()) > 10
    rng, kills, rounds = random.Random(SEED), 0, 0
    while kills < KILLS:
        folder = copy_of_project(tmp_path / f"round {rounds}")
        edit(folder / "params" / "demo.yaml", **SMALL)
        before, said, done = {}, "", False
        while not done and kills < KILLS:
            said += killed(folder, rng, seconds / 3)
            kills += 1
            now = shards(folder)
            assert all(now.get(path, then) == then for path, then in before.items()), "a finished shard was made again"
            before, done = now, "here and in the paper:" in said
        process = start(folder)
        last = process.communicate()[0]
        assert process.returncode == 0, last
        said += last
        twice = made(said) - once
        assert not twice, twice
        assert_same_tables(left, folder)
        again = start(folder).communicate()[0]
        assert counts(again)[0] == 0, again
        rounds += 1
    print(f"{kills} kills in {rounds} rounds")
