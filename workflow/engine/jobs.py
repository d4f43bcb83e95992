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
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from multiprocessing import connection, forkserver, parent_process
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple
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
CONTEXT: ForkServerContext | SpawnContext = multiprocessing.get_context("spawn")
if CAN_FORK:
    CONTEXT = multiprocessing.get_context("forkserver")


def start_fork_server(run: Run, jobs: list[Job], scratch: Path) -> None:
    """Have the libraries imported in another process, while this one prepares the models."""
    if not CAN_FORK or not jobs:
        return
    imports = list(notebook.IMPORTS)
    if any(job.model for job in jobs):  # which of them are small is not known yet
        imports += notebook.IMPORTS_WITH_MODEL
    # of one thread and no GPU, as all jobs whose kernels are forked
    environment = notebook.fixed_environment(Job(run, NOTEBOOKS[-1]))
    environment |= {notebook.VARIABLE: " ".join(imports), "TMPDIR": str(scratch)}
    CONTEXT.set_forkserver_preload(["workflow.engine.notebook", "workflow.engine.jobs"])
    # of the server's socket, which a kill would leave elsewhere
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    config["tempdir"] = str(scratch)
    with mock.patch.dict(os.environ, environment):  # of the server, not of this process
        forkserver.ensure_running()


HELPER_LINES = {
    "start": "another process helps with its rows",
    "fail": "a process that helped ended: {text}",
}


class Running(NamedTuple):
    """A job that runs or is helped, its process, and the GPUs that it has taken."""

    job: Job
    process: BaseProcess
    gpus: list[str]


class Schedule:
    """The jobs of a board, which are waiting, ready, running or ended."""

    def __init__(self, run: Run, board: Board, scratch: Path):
        self.run = run
        self.board = board
        self.scratch = scratch
        self.order = TopologicalSorter({job: board.upstream(job) for job in board.jobs})
        self.order.prepare()
        self.ready: list[Job] = []
        self.running: dict[connection.Connection, Running] = {}
        self.helpers: set[Job] = set()  # that were started
        self.free_gpus = machine.list_gpus() if run.gpus else []

    def run_jobs(self) -> None:
        """Run until no job can start any more: what follows a failed job stays undone."""
        try:
            self.start_jobs()
            while self.running:
                reporting = connection.wait(self.running)
                for channel in list(self.running):
                    if channel in reporting:
                        self.receive(channel)
                self.start_jobs()
        finally:
            for running in self.running.values():
                running.process.kill()
                running.process.join()

    def start_jobs(self) -> None:
        """Start the most urgent jobs for which there is room."""
        self.ready += self.order.get_ready()
        self.ready.sort(key=lambda job: job.urgency, reverse=True)
        for job in list(self.ready):
            if self.has_room(job):
                self.ready.remove(job)
                self.start(job)
        for helper in self.waiting_helpers():  # which take what no job can
            if self.has_room(helper):
                self.start(helper)

    def waiting_helpers(self) -> list[Job]:
        """Return the processes that may help the jobs that run, the most urgent first. Each is
        started once at most: one that ends has found no more rows to make."""
        running = [running.job for running in self.running.values()]
        helpers = []
        for job in sorted(running, key=lambda job: job.urgency, reverse=True):
            if not job.helper:
                helpers += [helper for helper in job.helpers if helper not in self.helpers]
        return helpers

    def has_room(self, job: Job) -> bool:
        """Whether a job can start beside those that run. One alone always can."""
        if not self.running:
            return True
        if job.gpus:  # it leaves the cores to others
            return job.gpus <= len(self.free_gpus)
        beside = [running.job for running in self.running.values()]
        threads = sum(other.threads for other in beside if not other.gpus)
        return threads + job.threads <= self.run.cores

    def start(self, job: Job) -> None:
        gpus = self.free_gpus[: job.gpus]
        self.free_gpus = self.free_gpus[job.gpus :]
        channel, end = CONTEXT.Pipe(duplex=False)
        arguments = (job, ",".join(gpus), self.scratch, end)
        process = CONTEXT.Process(target=run_in_process, args=arguments)
        process.start()
        end.close()
        self.running[channel] = Running(job, process, gpus)
        if job.helper:
            self.helpers.add(job)

    def receive(self, channel: connection.Connection) -> None:
        """Show what a job reports. Once its end of the pipe is closed, it has ended."""
        job, process, gpus = self.running[channel]
        try:
            event, facts = channel.recv()
        except EOFError:
            del self.running[channel]
            process.join()
            self.free_gpus += gpus
            if not job.helper:
                self.stop_helpers(job)
                self.close(job)
        else:
            if not job.helper:
                self.board.show(job, event, **facts)
            elif event in HELPER_LINES:
                self.show_helper(replace(job, helper=0), HELPER_LINES[event].format(**facts))

    def show_helper(self, job: Job, text: str) -> None:
        """Show what a process reports that helps a job, unless the job has ended."""
        if job not in self.board.ended and job not in self.board.failed:
            self.board.show(job, "progress", text=text)

    def stop_helpers(self, job: Job) -> None:
        """End the processes that help a job: it has ended, so nothing is left to do."""
        for running in self.running.values():
            if running.job in job.helpers:
                running.process.kill()

    def close(self, job: Job) -> None:
        """Let the jobs downstream start, if a job whose process has ended said that it is done."""
        if job in self.board.ended:
            self.order.done(job)
        elif job not in self.board.failed:
            text = (
                f"{job.title}: killed before it could say why, most likely out of memory; "
                "the same command goes on from here, with --cores 1 one notebook at a time"
            )
            self.board.show(job, "fail", text=text)


# ---- the process of a job


def run_in_process(job: Job, gpus: str, scratch: Path, channel: connection.Connection) -> None:
    """Run a job in this process, which multiprocessing has started, and tell the run how it goes
    on."""
    os.setsid()  # Ctrl-C in the terminal reaches the run alone
    threading.Thread(target=end_with_run, daemon=True).start()
    if job.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    with machine.temporary_folder(scratch) as folder:
        run_job(job, folder, lambda event, **facts: channel.send((event, facts)))


def end_with_run() -> None:
    """End this process, and so its kernel, when the run's process ends for any reason."""
    run = parent_process()
    if run:
        connection.wait([run.sentinel])
        os._exit(143)


def run_on_node(run: str, name: str) -> int:
    """Run a job on its node and return its exit code."""
    cores = int(os.environ.get("SLURM_CPUS_ON_NODE", 1))
    gpus = len(machine.list_gpus())
    job = replace(Run.load(run), cores=cores, gpus=gpus).job(name)
    signal.signal(slurm.LIMIT_SIGNAL, lambda number, frame: go_back_into_queue(job))
    with machine.temporary_folder(machine.short_tempdir()) as scratch:
        return run_job(job, scratch, partial(slurm.append_event, job))


def run_job(job: Job, scratch: Path, tell: notebook.Tell) -> int:
    """Make a job's outputs unless they are valid by now, and tell how it goes on and ends. Return
    its exit code: 2 if the user can fix a failure."""
    os.chdir(ROOT)
    with (scratch / "output").open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    code = 1
    try:
        hub.pin_revisions(job.run)
        if job.run.slurm:
            wait_for_inputs(job)
        if job.helper:
            help_with_rows(job, scratch, tell)
            return 0
        why = freshness.decide_at_start(job)
        if why:
            tell("kept", text=why)
            return 0
        text = make_outputs(job, scratch, tell)
        code = 0
    except UserError as problem:
        text = str(problem)
        code = 2
    except notebook.NotebookError as problem:
        text = str(problem)
    except Exception as problem:  # a system error or a bug: the traceback goes to the log
        traceback.print_exc()
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        if isinstance(problem, OSError):
            reason = describe_system_error(problem)
        text = f"{job.title}: {reason}"
    write_log(scratch / "output", ROOT / job.log)
    if code:
        tell("fail", text=text, code=code)
    else:
        tell("end", text=text)
    return code


def help_with_rows(job: Job, scratch: Path, tell: notebook.Tell) -> None:
    """Execute a job's notebook up to where its frame is written, which another process does."""
    if freshness.assess(job).needs_run:  # on a cluster the other may be done
        parts = job_key.key_parts(job)
        tell("start", key=digest(parts))
        notebook.execute(job, parts, scratch, tell)
    tell("end")


def make_outputs(job: Job, scratch: Path, tell: notebook.Tell) -> str:
    """Execute a job's notebook, export what it shows, and write the record. The job without a
    notebook writes the report. Return what ends its line."""
    started = time.monotonic()
    parts = job_key.key_parts(job)
    outputs = job.outputs
    tell("start", key=digest(parts))
    if job.notebook.module:
        write_page(job)
    else:
        nb = notebook.execute(job, parts, scratch, tell)
        outputs += job.extra_outputs
        if job.exported and nb:
            from workflow.output import paper_files

            paper_files.export_for_report(nb, ROOT / job.exported)
        if job.notebook.exports and nb:
            names = paper_files.export(nb, ROOT / job.run.figures)
            outputs += [f"{job.run.figures}/{name}" for name in names]
    job_key.write_record(job, parts, outputs)
    from workflow.output.first_numbers import first_numbers

    return f"{time.monotonic() - started:.1f} s{first_numbers(job)}"


def write_page(job: Job) -> None:
    """Write the report of a run, of a user's model, or of a table of scores."""
    exported = ROOT / job.run.folder / "exported"
    if job.run.table:
        from workflow.output.table_report import write_table_report  # slow to import

        write_table_report(exported, ROOT / job.executed)
    elif job.notebook.of_model:
        from workflow.output.model_report import write_model_report  # slow to import, too

        write_model_report(job.run, ROOT / job.executed)
    else:
        from workflow.output.report import write_report  # slow to import, as what exports

        write_report(exported, ROOT / job.executed)


def write_log(output: Path, log: Path) -> None:
    """Write what this process and its kernel printed to the log, without this machine's paths."""
    sys.stdout.flush()
    printed = output.read_text(encoding="utf-8", errors="replace")
    lines = [redact_paths(line) for line in printed.splitlines() if line.strip()]
    with suppress(OSError):  # a full disk: the failure itself is told
        log.unlink(missing_ok=True)
        if lines:
            log.parent.mkdir(exist_ok=True)
            log.write_text("".join(lines), encoding="utf-8")


# ---- on a node of a cluster


def go_back_into_queue(job: Job) -> None:
    """Start again later. A job without a finished shard would never end: it runs into its time
    limit."""
    events = slurm.read_events(job)
    if events and events[-1]["event"] == "progress":
        text = "its time is over: back into the queue, to go on at its last shard"
        slurm.append_event(job, "progress", text=text)
        machine.run_program("scontrol", "requeue", os.environ["SLURM_JOB_ID"])


def wait_for_inputs(job: Job) -> None:
    """Wait until the outputs of the jobs upstream are visible here: shared folders have delays."""
    end = time.monotonic() + slurm.VISIBLE_SECONDS
    for above in job.upstream:
        while not is_visible(above):
            if time.monotonic() > end:
                raise UserError(
                    f"the outputs of {above.title} are not complete on this node, "
                    f"{slurm.VISIBLE_SECONDS} s after they were written: "
                    "do all nodes share the project's folder?"
                )
            time.sleep(1)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # the file is being written
        record = job_key.read_record(ROOT / job.record, job)
        return record is not None and job_key.is_intact(record)
    return False


if __name__ == "__main__":
    sys.exit(run_on_node(*sys.argv[1:]))
