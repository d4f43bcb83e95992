"""A run on a SLURM cluster: each job is submitted with its dependencies, and SLURM schedules.

    ./run_all.sh paper --slurm clusters/slurm.yaml

The run follows its jobs by squeue, and by the events that they append to
artifacts/<run>/jobs/.<job>.events. A job is engine/job_process.py on its node. Jobs outlive a run
that is killed: the next start takes them on if what they make is still wanted.
"""

import getpass
import json
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from lib.errors import UserError, one_line
from lib.files import digest
from lib.paths import ROOT
from workflow.engine import job_key
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.progress import Board
from workflow.engine.slurm_options import first_error, sbatch_words
from workflow.machine import run_program

POLL_SECONDS = 5  # between two looks at the jobs
VISIBLE_SECONDS = 120  # until one node's files must be visible on another
CANCEL_SECONDS = 60  # until canceled jobs must have ended
# of a controller that is busy: sbatch may succeed a moment later, or has succeeded, and its answer
# was lost
PASSING = (
    "Socket timed out",
    "Unable to contact slurm controller",
    "Resource temporarily unavailable",
)
RETRY_SECONDS = (5, 20, 60)  # before each further try
LIMIT_SIGNAL = signal.SIGUSR1  # sent to a job before its time limit
LIMIT_SECONDS = 120


# ---- jobs in the queue


def name_prefix(run: Run) -> str:
    """Return the prefix of this run's job names, unique to this project folder."""
    plain_name = re.sub(r"[^A-Za-z0-9_-]", "-", run.name)
    return f"{plain_name[:30]}-{digest(str(ROOT))[:8]}_"


class Queued(NamedTuple):
    """A job that waits or runs."""

    name: str
    state: str


Queue = dict[str, Queued]  # by number


def list_queue(run: Run) -> Queue | None:
    """Return the run's jobs that wait or run; None if SLURM does not answer."""
    code, output = run_program("squeue", "-h", "-u", getpass.getuser(), "-o", "%A %T %j")
    if code:
        return None
    form = rf"^(\d+) (\S+) {re.escape(name_prefix(run))}(\S+)\s*$"
    rows = re.findall(form, output, flags=re.M)
    return {number: Queued(name, state) for number, state, name in rows}


def state_of_ended(number: str) -> str:
    """Return the state of a job that has ended, by squeue for some minutes, later by sacct if the
    cluster keeps accounts."""
    by_squeue = ["squeue", "-h", "-t", "all", "-o", "%T"]
    by_sacct = ["sacct", "-X", "-n", "-P", "-o", "State"]
    for words in (by_squeue, by_sacct):
        code, output = run_program(*words, "-j", number)
        if output and not code:
            return output.split()[0]
    return "FAILED"


def cancel(run: Run, numbers: list[str]) -> None:
    """Cancel jobs and wait until they have ended."""
    if numbers:
        run_program("scancel", *numbers)
    end = time.monotonic() + CANCEL_SECONDS
    while time.monotonic() < end:
        queue = list_queue(run) or {}
        if queue.keys().isdisjoint(numbers):
            break
        time.sleep(1)


def submit(run: Run, job: Job, words: list[str]) -> str:
    """Submit a job by sbatch and return its number. While the controller is busy, try again, but
    look first whether the job is in the queue: sbatch may have submitted it, and lost the answer.
    Raise UserError if SLURM refuses the job."""
    output = ""
    for seconds in (0, *RETRY_SECONDS):
        time.sleep(seconds)
        queue = list_queue(run) if output else {}
        if queue is None:  # it may hold the job
            continue
        number = find_in_queue(queue, job)
        if number:
            return number
        code, output = run_program("sbatch", *words, PYTHONPATH=str(ROOT))
        number = read_number(output)
        if number and not code:
            return number
        if not any(reason in output for reason in PASSING):
            break
    number = find_in_queue(list_queue(run) or {}, job)
    if number:
        return number
    if code:
        raise UserError(f"SLURM refuses {job.title}: {first_error(output)}")
    raise UserError(f"sbatch printed no number of a job for {job.title}, but: {one_line(output)}")


def read_number(output: str) -> str:
    """Return the number of a job in what `sbatch --parsable` printed: the last line of the form
    `4711` or `4711;cluster`, below what the site prints; empty without one."""
    numbers = re.findall(r"^(\d+)(?:;\S+)?\s*$", output, flags=re.M)
    return numbers[-1] if numbers else ""


def find_in_queue(queue: Queue, job: Job) -> str:
    """Return the last number of a job that waits or runs, by its name; empty if there is none."""
    for number, queued in reversed(queue.items()):
        if queued.name == job.process and queued.state != "COMPLETING":
            return number
    return ""


def take_on_or_cancel(run: Run, jobs: list[Job]) -> dict[str, str]:
    """Return the numbers, by name, of jobs and their helpers that run since an earlier start and
    make what is wanted now. Cancel all others."""
    wanted = {process.process: process for process in [*jobs, *list_helpers(jobs)]}
    taken = {}
    canceled = []
    for number, queued in (list_queue(run) or {}).items():
        job = wanted.get(queued.name)
        if job and queued.state == "RUNNING" and makes_what_is_wanted(job):
            taken[job.process] = number
        else:
            canceled.append(number)
    cancel(run, canceled)
    return taken


def list_helpers(jobs: Iterable[Job]) -> list[Job]:
    """Return the processes that help these jobs."""
    helpers: list[Job] = []
    for job in jobs:
        helpers += job.helpers
    return helpers


def makes_what_is_wanted(job: Job) -> bool:
    """Whether a job that runs was started with the key that it has now."""
    keys = [event["key"] for event in read_events(job) if event["event"] == "start"]
    return bool(keys) and keys[-1] == digest(job_key.key_parts(job))


# ---- the run


class Submission:
    """The jobs of a board on the cluster. `taken`: numbers, by name, of those that run already."""

    def __init__(self, run: Run, board: Board, taken: dict[str, str]):
        self.run = run
        self.board = board
        self.open = list(board.jobs)
        self.numbers = {}
        for process in [*board.jobs, *list_helpers(board.jobs)]:
            if process.process in taken:
                self.numbers[process] = taken[process.process]
        self.events_shown = dict.fromkeys(board.jobs, 0)

    def run_jobs(self) -> None:
        """Submit all jobs and follow them to the end. However that comes, no job of the run remains
        in the queue."""
        try:
            jobs = self.board.jobs
            for process in [*jobs, *list_helpers(jobs)]:  # who helps waits behind all others
                if process not in self.numbers:
                    self.submit(process)
            while self.open:
                time.sleep(POLL_SECONDS)
                self.look_at_jobs()
        finally:
            cancel(self.run, self.numbers_of(self.open) + self.helpers_of(self.board.jobs))

    def numbers_of(self, jobs: Iterable[Job]) -> list[str]:
        """Return the numbers of those of these jobs that are submitted."""
        return [self.numbers[job] for job in jobs if job in self.numbers]

    def helpers_of(self, jobs: Iterable[Job]) -> list[str]:
        """Return the numbers of the processes that help these jobs."""
        return self.numbers_of(list_helpers(jobs))

    def submit(self, job: Job) -> None:
        """Submit a job that starts once the jobs upstream have ended well."""
        for file in (ROOT / job.events, ROOT / job.log):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
        words = sbatch_words(self.run.slurm[job.notebook.name])
        upstream = self.numbers_of(job.upstream)
        if upstream:
            words.append(f"--dependency=afterok:{':'.join(upstream)}")
            words.append("--kill-on-invalid-dep=yes")
        limit_signal = LIMIT_SIGNAL.name.removeprefix("SIG")
        command = [sys.executable, "-m", "workflow.engine.job_process", self.run.name, job.process]
        words += [
            f"--job-name={name_prefix(self.run)}{job.process}",
            f"--output={job.log}.slurm",
            f"--signal=B:{limit_signal}@{LIMIT_SECONDS}",
            "--parsable",
            "--requeue",
            "--open-mode=append",
            f"--chdir={ROOT}",
            # a signal that comes before job_process.py handles it must not end the job
            f"--wrap=trap '' {limit_signal}; exec {shlex.join(command)}",
        ]
        self.numbers[job] = submit(self.run, job, words)

    def look_at_jobs(self) -> None:
        """Show what the jobs have told, and close those that ended, which may be without a word."""
        queue = list_queue(self.run)
        for job in list(self.open):
            events = read_events(job)
            for event in events[self.events_shown[job] :]:
                self.board.show(job, **event)
            self.events_shown[job] = len(events)
            if job in self.board.ended or job in self.board.failed:
                self.open.remove(job)
                self.end_helpers(job)
                (ROOT / f"{job.log}.slurm").unlink(missing_ok=True)
            elif queue is not None and self.numbers[job] not in queue:
                self.close(job, state_of_ended(self.numbers[job]))

    def end_helpers(self, job: Job) -> None:
        """Cancel the processes that help a job: it has ended, so nothing is left to do."""
        numbers = self.helpers_of([job])
        if numbers:
            run_program("scancel", *numbers)
        for helper in job.helpers:
            for event in read_events(helper):
                if event["event"] == "fail":
                    text = f"a process that helped ended: {one_line(event['text'])}"
                    self.board.show(job, "progress", text=text)
            (ROOT / f"{helper.log}.slurm").unlink(missing_ok=True)

    def close(self, job: Job, state: str) -> None:
        """Close a job that ended without an event: on its own, or since one upstream failed."""
        if state == "COMPLETED":  # the event is on its way through the shared folder
            return
        self.open.remove(job)
        if self.board.ended >= self.board.upstream(job):
            text = (
                f"{job.title}: ended by the cluster: {state} (job {self.numbers[job]}); "
                f"the same command goes on from here (log: {job.log}.slurm)"
            )
            self.board.show(job, "fail", text=text)


# ---- events


def append_event(job: Job, event: str, **facts: object) -> None:
    """Report an event of a job to the run on another machine."""
    with (ROOT / job.events).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, **facts}) + "\n")


def read_events(job: Job) -> list[dict]:
    """Return the events of a job so far. The last line may be incomplete."""
    events = []
    with suppress(OSError, ValueError):
        for line in (ROOT / job.events).read_text(encoding="utf-8").splitlines():
            events.append(json.loads(line))
    return events
