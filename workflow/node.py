"""A cluster job on its node: its cores, its wait for input files, and the events that it reports."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from lib.paths import ROOT, UserError
from workflow import records
from workflow.fingerprint import checksum
from workflow.pipeline import Job, Run

POLL = 1  # seconds between two checks
PATIENCE = 120  # seconds until one node's files must be visible on another


def with_local_cores(run: Run) -> Run:
    """Return the run with the cores that the cluster allocated to this job."""
    if not run.cluster:
        return run
    given = os.environ.get("SLURM_CPUS_ON_NODE") or os.environ.get("CALIBRATION_CORES") or "1"
    return replace(run, cores=int(given))


def wait_for_inputs(job: Job, patience: float = PATIENCE) -> None:
    """Wait until the upstream jobs' outputs are fully visible here: shared folders have delays.

    Raise UserError if they are still incomplete after `patience` seconds.
    """
    end = time.monotonic() + patience
    for above in job.upstream if job.run.cluster else ():
        while not is_visible(above):
            if time.monotonic() > end:
                where = f"not complete on the node of {job.title}, {patience:.0f} s after they were written"
                raise UserError(f"the outputs of {above.title} are {where}: do all nodes share the project's folder?")
            time.sleep(POLL)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # the file is being written
        record = records.read_record(ROOT / job.record, job)
        current = (ROOT / job.done).read_text(encoding="utf-8") == checksum(job.record)  # not an older record
        return current and bool(record) and records.is_intact(record)
    return False


def append_event(job: Job, line: str) -> None:
    """Report a line of a cluster's job to the run on another machine."""
    with suppress(OSError), (ROOT / job.events).open("a", encoding="utf-8") as file:
        file.write(line)


@contextmanager
def follow_events(run: Run, hear: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Pass the lines that a cluster's jobs report to `hear`, and yield a thread-safe `hear` for the run's own lines."""
    read, lock, done = {ROOT / job.events: 0 for job in run.jobs}, threading.Lock(), threading.Event()  # bytes
    for path in read:
        path.unlink(missing_ok=True)

    def listen(line: str) -> None:
        with lock:
            hear(line)

    def follow() -> None:
        ended = False
        while not ended:
            ended = done.wait(POLL)  # then read once more
            for path, place in read.items():
                with suppress(OSError), path.open("rb") as file:
                    file.seek(place)
                    for line in file:
                        if line.endswith(b"\n"):
                            read[path] += len(line)
                            listen(line[:-1].decode("utf-8", errors="replace"))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield listen
    finally:
        done.set()
        thread.join()
