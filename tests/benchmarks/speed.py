"""An old commit against a new one: whole runs and the tests. Run by hand, on a machine with nothing else to do:

    python tests/benchmarks/speed.py OLD_CLONE NEW_CLONE [--times 3] [--only demo replay ...]

Both clones use the active environment, and take turns. For each command: wall and processor seconds of all its
processes, their memory at most (proportional: what forks share counts once), and whether tables and figures came out
byte for byte the same. `demo`, `replay` and `published` start from nothing, `again` is a second start of the demo.
"""

import argparse
import resource
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import psutil

COMMANDS = {"demo": ["demo"], "again": ["demo"], "replay": ["replay"], "published": ["published"], "test": ["test"],
            "all": ["test", "--", "--all"]}  # fmt: skip


def forget(clone: Path, run: str) -> None:
    for path in (clone / "artifacts" / run, clone / "figures" / run):
        shutil.rmtree(path, ignore_errors=True)


def memory(process: subprocess.Popen, peak: list[float]) -> None:
    """Watches a process and all below it; proportional set size in MB, once a second."""
    while process.poll() is None:
        total = 0
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            try:
                total += one.memory_full_info().pss
            except (psutil.Error, AttributeError):  # ended meanwhile; or not Linux
                continue
        peak[0] = max(peak[0], total / 1e6)
        time.sleep(1)


def measured(clone: Path, words: list[str]) -> dict[str, float]:
    before, started, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), [0.0]
    process = subprocess.Popen([clone / "run_all.sh", *words], cwd=clone, stdout=subprocess.DEVNULL)
    watch = threading.Thread(target=memory, args=[process, peak])
    watch.start()
    if process.wait():
        raise SystemExit(f"{clone}: {' '.join(words)} failed")
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    watch.join()
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "memory": peak[0]}


def differing(old: Path, new: Path, run: str) -> list[str]:
    """Files that both have and that differ; the report may, for it says more from version to version."""
    names = [path.name for path in (old / "figures" / run).iterdir() if path.name != "report.html"]
    both = [name for name in names if (new / "figures" / run / name).exists()]
    return [name for name in both
            if (old / "figures" / run / name).read_bytes() != (new / "figures" / run / name).read_bytes()]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs=2, type=lambda text: Path(text).resolve())
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    asked = parser.parse_args()
    taken = defaultdict(list)
    for _ in range(asked.times):
        for name in asked.only:
            for which, clone in zip(("old", "new"), asked.clones, strict=True):
                if name in ("demo", "replay", "published"):
                    forget(clone, name)
                facts = measured(clone, COMMANDS[name])
                taken[name, which].append(facts)
                print(name, which, {key: round(value, 1) for key, value in facts.items()}, flush=True)
            if name in ("demo", "replay", "published"):
                print(name, "differs in", differing(*asked.clones, name) or "nothing", flush=True)
    for (name, which), rows in taken.items():
        print(f"{name:10}{which:4}", *(f"{key} {median(row[key] for row in rows):8.1f}" for key in rows[0]))


if __name__ == "__main__":
    main()
