"""A job of a cluster on its node: the cores it counts there, the files it waits for, and what the run hears of it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from lib.paths import ROOT, UserError
from workflow import records
from workflow.fingerprint import checksum
from workflow.pipeline import Job, Run

POLL = 1  # seconds between two looks
PATIENCE = 120  # seconds in which files of one node appear on another


def with_local_cores(run: Run) -> Run:
    """The run as a job sees it where it runs: on a cluster with the cores that it was given there."""
    if not run.cluster:
        return run
    given = os.environ.get("SLURM_CPUS_ON_NODE") or os.environ.get("CALIBRATION_CORES") or "1"
    return replace(run, cores=int(given))


def wait_for_inputs(job: Job, patience: float = PATIENCE) -> None:
    """Wait until what the jobs upstream left is seen from here, to the byte: shared folders are slow to tell. Raises
    UserError for what does not come."""
    end = time.monotonic() + patience
    for above in job.upstream if job.run.cluster else ():
        while not is_visible(above):
            if time.monotonic() > end:
                where = f"is not whole where {job.title} runs, {patience:.0f} s after it was written"
                raise UserError(f"what {above.title} left {where}: is the project's folder shared by all nodes?")
            time.sleep(POLL)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # written at this moment
        record = records.read_record(ROOT / job.record, job)
        return bool(record) and all(checksum(path) == value for path, value in record["outputs"].items())
    return False


def append_event(line: str) -> None:
    """Have the run hear a line of this job, where it runs on another machine (CALIBRATION_EVENTS)."""
    if place := os.environ.get("CALIBRATION_EVENTS"):
        with suppress(OSError), open(place, "a", encoding="utf-8") as file:
            file.write(line)


@contextmanager
def follow_events(run: Run, hear: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """`hear`, which in the meantime is told what the jobs of a cluster say, too."""
    read, lock, done = {ROOT / job.events: 0 for job in run.jobs}, threading.Lock(), threading.Event()
    for path in read:
        path.unlink(missing_ok=True)

    def listen(line: str) -> None:
        with lock:
            hear(line)

    def follow() -> None:
        while not done.wait(POLL):
            pass_on(read, listen)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield listen
    finally:
        done.set()
        thread.join()
        pass_on(read, listen)


def pass_on(read: dict[Path, int], listen: Callable[[str], None]) -> None:
    """The whole lines that have come since the last look; `read` are files and how far each was read."""
    for path in read:
        with suppress(OSError), path.open("rb") as file:
            file.seek(read[path])
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            read[path] += len(whole)
            for line in whole.decode("utf-8", errors="replace").splitlines():
                listen(line)
