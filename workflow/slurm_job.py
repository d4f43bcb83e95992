"""One job of a SLURM cluster, on its node: `python -m workflow.slurm_job RUN JOB`.

It reports to the run that submitted it (slurm.py) by events. At its time limit it goes back into the queue.
"""

import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from lib.paths import ROOT, UserError
from workflow import fresh, hub, keys, notebook
from workflow.machine import list_gpus, run_program, short_tempdir
from workflow.pipeline import Job, Run
from workflow.progress import describe_system_error
from workflow.slurm import LIMIT_SIGNAL, VISIBLE_SECONDS, append_event, read_events


def main(words: list[str]) -> int:
    """Run a job on its node and return its exit code."""
    here = {"cores": int(os.environ.get("SLURM_CPUS_ON_NODE", 1)), "gpus": len(list_gpus())}
    job = replace(Run.load(words[0]), **here).job(words[1])
    tell = partial(append_event, job)
    signal.signal(LIMIT_SIGNAL, lambda number, frame: go_back_into_queue(job))
    try:
        hub.pin_revisions(job.run)
        wait_for_inputs(job)
        if why := fresh.decide_at_start(job):
            tell("kept", text=why)
            return 0
        parts = keys.key_parts(job)
    except (UserError, OSError) as problem:
        text = str(problem) if isinstance(problem, UserError) else describe_system_error(problem)
        tell("fail", text=f"{job.title}: {text}", code=1)
        return 1
    tell("start", key=keys.digest_of(parts))
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as scratch:
        return notebook.run_job(job, parts, Path(scratch), tell)


def go_back_into_queue(job: Job) -> None:
    """Start again later. A job without a finished shard would never end: it runs into its time limit."""
    kinds = [event["event"] for event in read_events(job)]
    if kinds[-1:] == ["progress"]:
        append_event(job, "progress", text="its time is over: back into the queue, to go on at its last shard")
        run_program("scontrol", "requeue", os.environ["SLURM_JOB_ID"])


def wait_for_inputs(job: Job) -> None:
    """Wait until the outputs of the jobs upstream are visible here: shared folders have delays."""
    end = time.monotonic() + VISIBLE_SECONDS
    while hidden := [above for above in job.upstream if not is_visible(above)]:
        if time.monotonic() > end:
            where = f"not complete on this node, {VISIBLE_SECONDS} s after they were written"
            raise UserError(f"the outputs of {hidden[0].title} are {where}: do all nodes share the project's folder?")
        time.sleep(1)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # the file is being written
        return bool(record := keys.read_record(ROOT / job.record, job)) and keys.is_intact(record)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
