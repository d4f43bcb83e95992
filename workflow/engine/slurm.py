"""A run on a SLURM cluster: each job is submitted with its dependencies, and SLURM schedules.

    ./run_all.sh paper --slurm clusters/slurm.yaml

The run follows its jobs by squeue, and by the events that they append to
artifacts/<run>/jobs/.<job>.events. A job is jobs.py on its node. Jobs outlive a run that is killed:
the next start takes them on if what they make is still wanted.
"""

import getpass
import json
import re
import shlex
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from lib.errors import UserError, nearest, one_line
from lib.files import digest, read_yaml
from lib.paths import ROOT
from workflow.engine import job_key
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.notebook_table import NOTEBOOKS
from workflow.engine.progress import Board
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
LIMIT_SIGNAL, LIMIT_SECONDS = signal.SIGUSR1, 120  # sent to a job before its time limit


# ---- the file of --slurm


def read_options(path: Path) -> dict[str, dict]:
    """Return sbatch's options by notebook: those of `all`, replaced by its own. Raise UserError for
    a mistake."""
    content, names = read_yaml(path), ["all", *(row.name for row in NOTEBOOKS)]
    content = content if isinstance(content, dict) else {"all": content}
    for name, options in content.items():
        if name not in names:
            raise UserError(
                f"{path.name} names '{name}', not a notebook: {nearest(str(name), names)}"
            )
        if not isinstance(options, dict):
            raise UserError(
                f"{path.name}: {name} must name options of sbatch and their values, as `partition: gpu`"
            )
    return {row.name: content.get("all", {}) | content.get(row.name, {}) for row in NOTEBOOKS}


def requests_gpu(options: dict) -> bool:
    return any(
        str(value) != "0"
        for name, value in options.items()
        if name.startswith("gpus") or "gpu" in str(value)
    )


def sbatch_words(options: dict) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()
    ]


def check(run: Run) -> None:
    """Raise UserError if SLURM would refuse the jobs of a notebook, for example for an unknown
    partition."""
    names = {tuple(sbatch_words(run.slurm[row.name])): row.name for row in reversed(run.notebooks)}
    for words, name in names.items():
        code, said = run_program("sbatch", "--test-only", *words, "--wrap=true")
        if code:
            raise UserError(f"SLURM refuses the jobs of {name}: {first_error(said)}")


def first_error(said: str) -> str:
    """Return the first error of what a program printed, among which may be banners and warnings."""
    lines = said.splitlines() or [""]
    line = next((line for line in lines if "error: " in line), lines[0])
    return line.removeprefix("sbatch: ").removeprefix("error: ")


# ---- jobs in the queue


def name_prefix(run: Run) -> str:
    """Return the prefix of this run's job names, unique to this project folder."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', run.name)[:30]}-{digest(str(ROOT))[:8]}_"


def list_queue(run: Run) -> dict[str, tuple[str, str]] | None:
    """Return name and state, by number, of the run's jobs that wait or run; None if SLURM does not
    answer."""
    code, said = run_program("squeue", "-h", "-u", getpass.getuser(), "-o", "%A %T %j")
    if code:
        return None
    rows = re.findall(rf"^(\d+) (\S+) {re.escape(name_prefix(run))}(\S+)\s*$", said, flags=re.M)
    return {number: (name, state) for number, state, name in rows}


def state_of_ended(number: str) -> str:
    """Return the state of a job that has ended, by squeue for some minutes, later by sacct if the
    cluster keeps accounts."""
    for words in (
        ["squeue", "-h", "-t", "all", "-o", "%T"],
        ["sacct", "-X", "-n", "-P", "-o", "State"],
    ):
        code, said = run_program(*words, "-j", number)
        if said and not code:
            return said.split()[0]
    return "FAILED"


def cancel(run: Run, numbers: list[str]) -> None:
    """Cancel jobs and wait until they have ended."""
    if numbers:
        run_program("scancel", *numbers)
    end = time.monotonic() + CANCEL_SECONDS
    while time.monotonic() < end and not set(numbers).isdisjoint(list_queue(run) or ()):
        time.sleep(1)


def submit(run: Run, job: Job, words: list[str]) -> str:
    """Submit a job by sbatch and return its number. While the controller is busy, try again, but
    look first whether the job is in the queue: sbatch may have submitted it, and lost the answer.
    Raise UserError if SLURM refuses the job."""
    said = ""
    for seconds in (0, *RETRY_SECONDS):
        time.sleep(seconds)
        queue = list_queue(run) if said else {}
        if queue is None:  # it may hold the job
            continue
        if number := find_in_queue(queue, job):
            return number
        code, said = run_program("sbatch", *words, PYTHONPATH=str(ROOT))
        if not code and (number := read_number(said)):
            return number
        if not any(reason in said for reason in PASSING):
            break
    if number := find_in_queue(list_queue(run) or {}, job):
        return number
    if code:
        raise UserError(f"SLURM refuses {job.title}: {first_error(said)}")
    raise UserError(f"sbatch printed no number of a job for {job.title}, but: {one_line(said)}")


def read_number(said: str) -> str:
    """Return the number of a job in what `sbatch --parsable` printed: the last line of the form
    `4711` or `4711;cluster`, below what the site prints; empty without one."""
    numbers = re.findall(r"^(\d+)(?:;\S+)?\s*$", said, flags=re.M)
    return numbers[-1] if numbers else ""


def find_in_queue(queue: dict[str, tuple[str, str]], job: Job) -> str:
    """Return the number of a job that waits or runs, by its name; empty if there is none."""
    submitted = [
        number
        for number, (name, state) in queue.items()
        if name == job.name and state != "COMPLETING"
    ]
    return submitted[-1] if submitted else ""


def take_on(run: Run, jobs: list[Job]) -> dict[str, str]:
    """Return the numbers, by name, of jobs that run since an earlier start and make what is wanted
    now. Cancel all others."""
    queue, taken = list_queue(run) or {}, {}
    running = {name: number for number, (name, state) in queue.items() if state == "RUNNING"}
    for job in (job for job in jobs if job.name in running):
        starts = [event["key"] for event in read_events(job) if event["event"] == "start"]
        if starts[-1:] == [digest(job_key.key_parts(job))]:
            taken[job.name] = running[job.name]
    cancel(run, [number for number in queue if number not in taken.values()])
    return taken


# ---- the run


class Submission:
    """The jobs of a board on the cluster. `taken`: numbers, by name, of those that run already."""

    def __init__(self, run: Run, board: Board, taken: dict[str, str]):
        self.run, self.board, self.open = run, board, list(board.jobs)
        self.numbers = {job: taken[job.name] for job in board.jobs if job.name in taken}
        self.shown = dict.fromkeys(board.jobs, 0)  # number of events

    def run_jobs(self) -> None:
        """Submit all jobs and follow them to the end. However that comes, no job of the run remains
        in the queue."""
        try:
            for job in self.board.jobs:
                if job not in self.numbers:
                    self.submit(job)
            while self.open:
                time.sleep(POLL_SECONDS)
                self.look_at_jobs()
        finally:
            cancel(self.run, [self.numbers[job] for job in self.open if job in self.numbers])

    def submit(self, job: Job) -> None:
        """Submit a job that starts once the jobs upstream have ended well."""
        for file in (ROOT / job.events, ROOT / job.log):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
        above = [self.numbers[one] for one in job.upstream if one in self.numbers]
        words = [
            *sbatch_words(self.run.slurm[job.notebook.name]),
            f"--job-name={name_prefix(self.run)}{job.name}",
            f"--output={job.log}.slurm",
            f"--signal=B:{LIMIT_SIGNAL.name.removeprefix('SIG')}@{LIMIT_SECONDS}",
            *(
                [f"--dependency=afterok:{':'.join(above)}", "--kill-on-invalid-dep=yes"]
                if above
                else []
            ),
            *("--parsable", "--requeue", "--open-mode=append", f"--chdir={ROOT}"),
            f"--wrap=exec {shlex.join([sys.executable, '-m', 'workflow.engine.jobs', self.run.name, job.name])}",
        ]
        self.numbers[job] = submit(self.run, job, words)

    def look_at_jobs(self) -> None:
        """Show what the jobs have told, and close those that ended, which may be without a word."""
        queue = list_queue(self.run)
        for job in list(self.open):
            events = read_events(job)
            for event in events[self.shown[job] :]:
                self.board.show(job, **event)
            self.shown[job] = len(events)
            if job in self.board.ended or job in self.board.failed:
                self.open.remove(job)
                (ROOT / f"{job.log}.slurm").unlink(missing_ok=True)
            elif queue is not None and self.numbers[job] not in queue:
                self.close(job, state_of_ended(self.numbers[job]))

    def close(self, job: Job, state: str) -> None:
        """Close a job that ended without an event: on its own, or since one upstream failed."""
        if state == "COMPLETED":  # the event is on its way through the shared folder
            return
        self.open.remove(job)
        if self.board.ended.issuperset(set(job.upstream) & set(self.board.jobs)):
            said = f"{state} (job {self.numbers[job]}); the same command goes on from here (log: {job.log}.slurm)"
            self.board.show(job, "fail", text=f"{job.title}: ended by the cluster: {said}")


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
