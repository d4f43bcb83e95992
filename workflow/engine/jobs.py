"""Run jobs on this machine: upstream first, the longest chains first, as many at once as there are
cores and GPUs.

Each job is a process of multiprocessing's fork server, which has the libraries imported
(notebook.py). It reports by a pipe. It ends with the run, and its kernel with the job: otherwise a
kernel could go on writing after kill -9. On a node of a SLURM cluster the process of a job is
`python -m workflow.engine.jobs RUN JOB`. It outlives the run.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from multiprocessing import connection, forkserver, parent_process
from pathlib import Path
from unittest import mock

from lib.errors import UserError, first_line
from lib.files import digest
from lib.paths import ROOT
from workflow import hub, machine
from workflow.engine import freshness, job_key, notebook, slurm
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.notebook_table import NOTEBOOKS
from workflow.engine.progress import Board, describe_system_error, redact_paths

CAN_FORK = sys.platform == "linux"  # on macOS, a fork after the first use of Accelerate may hang
CONTEXT = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")


def start_fork_server(run: Run, jobs: list[Job], scratch: Path) -> None:
    """Have the libraries imported in another process, while this one prepares the models."""
    if not CAN_FORK or not jobs:
        return
    runs_model = any(job.model and not job.gpus for job in jobs)
    imports = notebook.IMPORTS + notebook.IMPORTS_WITH_MODEL * runs_model
    own = {notebook.VARIABLE: " ".join(imports), "TMPDIR": str(scratch)}
    # of its socket, which a kill would leave
    multiprocessing.current_process()._config["tempdir"] = str(scratch)
    CONTEXT.set_forkserver_preload(["workflow.engine.notebook", "workflow.engine.jobs"])
    # of one thread and no GPU, as all jobs whose kernels are forked
    alike = Job(run, NOTEBOOKS[-1])
    # not of this process
    with mock.patch.dict(os.environ, notebook.fixed_environment(alike) | own):
        forkserver.ensure_running()


class Schedule:
    """The jobs of a board, which are waiting, ready, running or ended."""

    def __init__(self, run: Run, board: Board, scratch: Path):
        self.run, self.board, self.scratch = run, board, scratch
        self.order = TopologicalSorter(
            {job: set(job.upstream) & set(board.jobs) for job in board.jobs}
        )
        self.order.prepare()
        self.ready: list[Job] = []
        self.running: dict[
            connection.Connection, tuple[Job, multiprocessing.Process, list[str]]
        ] = {}
        self.free_gpus = machine.list_gpus() if run.gpus else []

    def run_jobs(self) -> None:
        """Run until no job can start any more: what follows a failed job stays undone."""
        try:
            self.start_jobs()
            while self.running:
                for channel in connection.wait(self.running):
                    self.receive(channel)
                self.start_jobs()
        finally:
            for _, process, _ in self.running.values():
                process.kill()
                process.join()

    def start_jobs(self) -> None:
        """Start the most urgent jobs for which there is room."""
        self.ready = sorted([*self.ready, *self.order.get_ready()], key=lambda job: -job.urgency)
        for job in list(self.ready):
            threads = job.threads + sum(other.threads for other, *_ in self.running.values())
            if not self.running or threads <= self.run.cores and job.gpus <= len(self.free_gpus):
                self.ready.remove(job)
                self.start(job)

    def start(self, job: Job) -> None:
        taken, self.free_gpus = self.free_gpus[: job.gpus], self.free_gpus[job.gpus :]
        channel, end = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(
            target=run_in_process, args=(job, ",".join(taken), self.scratch, end)
        )
        process.start()
        end.close()
        self.running[channel] = job, process, taken

    def receive(self, channel: connection.Connection) -> None:
        """Show what a job reports. Once its end of the pipe is closed, it has ended."""
        job, process, taken = self.running[channel]
        try:
            event, facts = channel.recv()
            self.board.show(job, event, **facts)
        except EOFError:
            del self.running[channel]
            process.join()
            self.free_gpus += taken
            if job in self.board.ended:
                self.order.done(job)
            elif job not in self.board.failed:
                said = "killed before it could say why, most likely out of memory; the same command goes on from here"
                self.board.show(
                    job, "fail", text=f"{job.title}: {said}, with --cores 1 one notebook at a time"
                )


# ---- the process of a job


def run_in_process(job: Job, gpus: str, scratch: Path, channel: connection.Connection) -> None:
    """Run a job in this process, which multiprocessing has started, and tell the run how it goes
    on."""
    os.setsid()  # Ctrl-C in the terminal reaches the run alone
    threading.Thread(target=end_with_run, daemon=True).start()
    if job.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    with tempfile.TemporaryDirectory(prefix="job", dir=scratch, ignore_cleanup_errors=True) as own:
        run_job(job, Path(own), lambda event, **facts: channel.send((event, facts)))


def end_with_run() -> None:
    """End this process, and so its kernel, when the run's process ends for any reason."""
    connection.wait([parent_process().sentinel])
    os._exit(143)


def run_on_node(run: str, name: str) -> int:
    """Run a job on its node and return its exit code."""
    here = {"cores": int(os.environ.get("SLURM_CPUS_ON_NODE", 1)), "gpus": len(machine.list_gpus())}
    job = replace(Run.load(run), **here).job(name)
    signal.signal(slurm.LIMIT_SIGNAL, lambda number, frame: go_back_into_queue(job))
    with tempfile.TemporaryDirectory(
        dir=machine.short_tempdir(), ignore_cleanup_errors=True
    ) as scratch:
        return run_job(job, Path(scratch), partial(slurm.append_event, job))


def run_job(job: Job, scratch: Path, tell: notebook.Tell) -> int:
    """Make a job's outputs unless they are valid by now, and tell how it goes on and ends. Return
    its exit code: 2 if the user can fix a failure."""
    os.chdir(ROOT)
    with (scratch / "output").open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    try:
        hub.pin_revisions(job.run)
        if job.run.slurm:
            wait_for_inputs(job)
        if why := freshness.decide_at_start(job):
            tell("kept", text=why)
            return 0
        began = time.monotonic()
        make_outputs(job, scratch, tell)
        from workflow.output.first_numbers import first_numbers

        last = {"event": "end", "text": f"{time.monotonic() - began:.1f} s{first_numbers(job)}"}
    except (UserError, notebook.Failure) as problem:
        last = {
            "event": "fail",
            "text": str(problem),
            "code": 2 if isinstance(problem, UserError) else 1,
        }
    except Exception as problem:  # a system error or a bug: the traceback goes to the log
        traceback.print_exc()
        system = isinstance(problem, OSError)
        said = (
            describe_system_error(problem)
            if system
            else f"{type(problem).__name__}: {first_line(problem)}"
        )
        last = {"event": "fail", "text": f"{job.title}: {said}", "code": 1}
    write_log(scratch / "output", ROOT / job.log)
    tell(**last)
    return last.get("code", 0)


def make_outputs(job: Job, scratch: Path, tell: notebook.Tell) -> None:
    """Execute a job's notebook, export what it shows, and write the record. The job without a
    notebook writes the report."""
    parts, outputs = job_key.key_parts(job), job.outputs
    tell("start", key=digest(parts))
    if job.notebook.module:
        from workflow.output.report import write_report  # slow to import, as what exports

        write_report(ROOT / job.run.folder / "exported", ROOT / job.executed)
    else:
        nb = notebook.execute(job, parts, scratch, tell)
        outputs += job.extra_outputs
        if job.exported:
            from workflow.output import paper_files

            paper_files.export_for_report(nb, ROOT / job.exported)
        if job.notebook.exports:
            outputs += [
                f"{job.run.figures}/{name}"
                for name in paper_files.export(nb, ROOT / job.run.figures)
            ]
    job_key.write_record(job, parts, outputs)


def write_log(output: Path, log: Path) -> None:
    """Write what this process and its kernel printed to the log, without this machine's paths."""
    sys.stdout.flush()
    lines = filter(str.strip, output.read_text(encoding="utf-8", errors="replace").splitlines())
    with suppress(OSError):  # a full disk: the failure itself is told
        log.unlink(missing_ok=True)
        if text := "".join(map(redact_paths, lines)):
            log.parent.mkdir(exist_ok=True)
            log.write_text(text, encoding="utf-8")


# ---- on a node of a cluster


def go_back_into_queue(job: Job) -> None:
    """Start again later. A job without a finished shard would never end: it runs into its time
    limit."""
    kinds = [event["event"] for event in slurm.read_events(job)]
    if kinds[-1:] == ["progress"]:
        slurm.append_event(
            job,
            "progress",
            text="its time is over: back into the queue, to go on at its last shard",
        )
        machine.run_program("scontrol", "requeue", os.environ["SLURM_JOB_ID"])


def wait_for_inputs(job: Job) -> None:
    """Wait until the outputs of the jobs upstream are visible here: shared folders have delays."""
    end = time.monotonic() + slurm.VISIBLE_SECONDS
    while hidden := [above for above in job.upstream if not is_visible(above)]:
        if time.monotonic() > end:
            where = f"not complete on this node, {slurm.VISIBLE_SECONDS} s after they were written"
            raise UserError(
                f"the outputs of {hidden[0].title} are {where}: do all nodes share the project's folder?"
            )
        time.sleep(1)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # the file is being written
        return bool(record := job_key.read_record(ROOT / job.record, job)) and job_key.is_intact(
            record
        )
    return False


if __name__ == "__main__":
    sys.exit(run_on_node(*sys.argv[1:]))
