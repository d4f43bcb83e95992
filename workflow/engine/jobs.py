"""Run jobs on this machine: upstream first, the longest chains first, as many at once as there are
cores and GPUs.

Each job is a process of multiprocessing's fork server, which has the libraries imported
(notebook.py). What it does is in job_process.py; it reports by a pipe.
"""

import multiprocessing
import os
import sys
from dataclasses import replace
from graphlib import TopologicalSorter
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from workflow import machine
from workflow.engine import notebook
from workflow.engine.job_process import run_in_process
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.notebook_table import NOTEBOOKS
from workflow.engine.progress import Board

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
    environment[notebook.PROCESS_OF_RUN] = str(os.getpid())
    CONTEXT.set_forkserver_preload(["workflow.engine.notebook", "workflow.engine.job_process"])
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
