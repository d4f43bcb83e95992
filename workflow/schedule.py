"""Run jobs on this machine: upstream first, the longest chains first, as many at once as there are cores and GPUs.

Each job is a process of multiprocessing's fork server, which has the libraries imported (preload.py). It reports by a
pipe, and ends with the run. Whether a job still has to run is decided when its turn comes.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from graphlib import TopologicalSorter
from multiprocessing import connection, forkserver
from pathlib import Path

from workflow import fresh, keys, machine, notebook, preload
from workflow.pipeline import Job, Run
from workflow.progress import Board

CAN_FORK = sys.platform == "linux"  # on macOS, a fork after the first use of Accelerate may hang
CONTEXT = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")


def start_fork_server(run: Run, jobs: list[Job], scratch: Path) -> None:
    """Have the libraries imported in another process, while this one prepares the models."""
    if not CAN_FORK or not jobs:
        return
    heavy = any(job.model and not job.gpus for job in jobs)
    modules = f"{preload.JUPYTER} {preload.LIGHT} {preload.HEAVY if heavy else ''}"
    own = {preload.VARIABLE: modules, "TMPDIR": str(scratch), "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    multiprocessing.current_process()._config["tempdir"] = str(scratch)  # of its socket, which a kill would leave
    CONTEXT.set_forkserver_preload(["workflow.preload"])
    with changed_environment(preload.fixed_environment(run.jobs[-1]) | own):
        forkserver.ensure_running()


@contextmanager
def changed_environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Schedule:
    """The jobs of a board, which are waiting, ready, running or ended."""

    def __init__(self, run: Run, board: Board, scratch: Path):
        self.run, self.board, self.scratch = run, board, scratch
        self.order = TopologicalSorter({job: set(job.upstream) & set(board.jobs) for job in board.jobs})
        self.order.prepare()
        self.ready: list[Job] = []
        self.running: dict[connection.Connection, tuple[Job, multiprocessing.Process, list[str]]] = {}
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
        """Start as many jobs as find room. A job whose outputs are valid by now is done at once."""
        while job := self.next_job():
            if why := fresh.decide_at_start(job):
                self.board.show(job, "kept", text=why)
                self.order.done(job)
            else:
                self.start(job)

    def next_job(self) -> Job | None:
        """Return the most urgent of the jobs for which there is room."""
        self.ready += self.order.get_ready()
        fitting = [job for job in self.ready if self.has_room(job)]
        if not fitting:
            return None
        job = max(fitting, key=lambda one: self.run.urgency[one.name])
        self.ready.remove(job)
        return job

    def has_room(self, job: Job) -> bool:
        used = sum(other.threads for other, *_ in self.running.values())
        return not self.running or used + job.threads <= self.run.cores and job.gpus <= len(self.free_gpus)

    def start(self, job: Job) -> None:
        taken, self.free_gpus = self.free_gpus[: job.gpus], self.free_gpus[job.gpus :]
        channel, end = CONTEXT.Pipe(duplex=False)
        words = (job, keys.key_parts(job), ",".join(taken), self.scratch, end)
        process = CONTEXT.Process(target=notebook.run_in_process, args=words)
        process.start()
        end.close()
        self.running[channel] = job, process, taken
        self.board.show(job, "start")

    def receive(self, channel: connection.Connection) -> None:
        """Show what a job reports. Once its end of the pipe is closed, it has ended."""
        job, process, taken = self.running[channel]
        try:
            event, facts = channel.recv()
        except EOFError:
            del self.running[channel]
            process.join()
            self.free_gpus += taken
            if job in self.board.ended:
                self.order.done(job)
            elif job not in self.board.failed:
                said = "killed before it could say why, most likely out of memory; the same command goes on from here"
                self.board.show(job, "fail", text=f"{job.title}: {said}, with --cores 1 one notebook at a time")
            return
        self.board.show(job, event, **facts)
