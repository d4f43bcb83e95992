"""One job: run a notebook with papermill in its own kernel, and record it.

The process of a job ends with the run that started it, and its kernel ends with the job: otherwise a kernel could go on
writing after kill -9.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import ROOT, UserError, first_line
from workflow import hub, keys, preload
from workflow.pipeline import PUBLISHED, Job
from workflow.progress import describe_system_error, redact_paths

Tell = Callable[..., None]  # called with the name of an event and its facts (progress.Board.show)


class Failure(Exception):
    """A failed job, as a one-line message for the user."""


# ---- execution -------------------------------------------------------------------------------------------------


class Progress:
    """The file to which papermill writes the stdout of cells; lines that begin with 'shard' become events."""

    def __init__(self, tell: Tell):
        self.tell, self.rest = tell, ""

    def write(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.startswith("shard"):
                self.tell("progress", text=line.strip())

    def flush(self) -> None:
        pass


def execute(job: Job, scratch: Path, tell: Tell) -> Any:
    """Run the notebook and return it executed; raise Failure or UserError if a cell fails or the kernel dies."""
    preload.skip_unused_import()
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of `undeclared` parameters
    options = {
        "parameters": job.parameters,
        "kernel_name": "python3",
        "cwd": "notebooks",
        "request_save_on_cell_execute": not job.notebook.exports,  # whose outputs have some megabytes
        "progress_bar": False,
        "stdout_file": Progress(tell),
        "start_timeout": 120,
        # cells tagged `run` need one, and `published` is none
        "skip_cells_with_tag": "run" if job.run.name == PUBLISHED else "skip-execution",
        "config": Config({"KernelManager": {"transport": "ipc", "ip": str(scratch / "k")}}),
    }
    (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
    try:
        return execute_notebook(job.notebook.path, job.executed, **options)
    except PapermillExecutionError as error:
        if error.ename != "MissingSignal":  # else the notebook has written why, and ended
            raise cell_failure(job, error) from None
    except DeadKernelError:
        remedy = "reduce max_batch_tokens in the profile, or use --cores 1 to run one notebook at a time"
        raise Failure(f"{job.executed}: the kernel died, most likely out of memory: {remedy}") from None


def top_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]


def cell_failure(job: Job, error) -> Exception:
    """Return the failure for a cell that raised; a UserError has its own message."""
    if error.ename == "UserError":
        return UserError(top_line(error.evalue))
    place = f"cell [{error.exec_count}] `{top_line(error.source)}`"
    return Failure(f"{job.executed} failed in {place}: {error.ename}: {top_line(error.evalue)}")


# ---- the job ---------------------------------------------------------------------------------------------------


def run_in_process(job: Job, parts: keys.Parts, gpus: str, scratch: Path, channel: connection.Connection) -> None:
    """Run a job in this process, which multiprocessing has started, and tell the run how it goes on."""
    os.setsid()  # Ctrl-C in the terminal reaches the run alone
    threading.Thread(target=end_with_run, daemon=True).start()
    if job.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    run_job(job, parts, scratch, lambda event, **facts: channel.send((event, facts)))


def end_with_run() -> None:
    """End this process, and so its kernel, when the run's process ends for any reason."""
    connection.wait([parent_process().sentinel])
    os._exit(143)


def run_job(job: Job, parts: keys.Parts, scratch: Path, tell: Tell) -> int:
    """Run, export and record a job, and tell how it ends. Return its exit code: 2 if the user can fix a failure."""
    os.chdir(ROOT)
    own = Path(tempfile.mkdtemp(prefix="job", dir=scratch))
    with redirected_output(ROOT / job.log, own / "output"):
        try:
            seconds = make_outputs(job, parts, own, tell)
        except (UserError, Failure) as problem:
            code, why = 2 if isinstance(problem, UserError) else 1, str(problem)
        except Exception as problem:  # a system error or a bug: the traceback goes to the log
            traceback.print_exc()
            system = isinstance(problem, OSError)
            said = describe_system_error(problem) if system else f"{type(problem).__name__}: {first_line(problem)}"
            code, why = 1, f"{job.title}: {said}"
        else:
            code = 0
    shutil.rmtree(own, ignore_errors=True)
    tell("fail", text=why, code=code) if code else tell("end", seconds=seconds)
    return code


def make_outputs(job: Job, parts: keys.Parts, scratch: Path, tell: Tell) -> float:
    """Execute a job's notebook, export what it shows, and write the record. Return the seconds that it took. The job
    without a notebook writes the report."""
    began = time.monotonic()
    hub.pin_revisions(job.run)
    outputs = job.outputs
    if job.notebook.module:
        from workflow.report import write_report  # slow to import, as what exports

        write_report(ROOT / job.run.folder / "exported", ROOT / job.executed)
    else:
        nb = execute_in_kernel(job, parts, scratch, tell)
        outputs = outputs + job.extra_outputs + (export_outputs(job, nb) if job.notebook.reports else [])
    keys.write_record(job, parts, outputs)
    return time.monotonic() - began


def execute_in_kernel(job: Job, parts: keys.Parts, scratch: Path, tell: Tell) -> Any:
    """Execute the notebook in a kernel with an environment of its own."""
    if preload.can_fork_kernel(job):
        preload.fork_kernels()
    os.environ.update(preload.fixed_environment(job))
    os.environ.update(
        JUPYTER_RUNTIME_DIR=str(scratch),
        IPYTHONDIR=str(scratch / "ipython"),  # without the user's start-up files
        TMPDIR=str(scratch),
        CALIBRATION_CODE=keys.key_of_rows(job, parts),
        CALIBRATION_REVISIONS=json.dumps(params.REVISIONS),
    )
    tempfile.tempdir = None  # read TMPDIR again
    # show figures inline, run no start-up file of the user, and find no other kernel spec
    for name in ("MPLBACKEND", "PYTHONSTARTUP", "JUPYTER_PATH"):
        os.environ.pop(name, None)
    return execute(job, scratch, tell)


def export_outputs(job: Job, nb: Any) -> list[str]:
    """Write what an executed notebook shows for the report and for the paper; return the paths of the latter."""
    from workflow import export

    export.export_for_report(nb, ROOT / job.exported)
    names = export.export(nb, ROOT / job.run.figures) if job.notebook.exports else []
    return [f"{job.run.figures}/{name}" for name in names]


@contextmanager
def redirected_output(log: Path, raw: Path) -> Iterator[None]:
    """Write what this process and its kernel print to `raw`, and in the end to a log, without this machine's paths."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    before = [os.dup(stream) for stream in (1, 2)]
    with raw.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, number in zip((1, 2), before, strict=True):
            os.dup2(number, stream)
            os.close(number)
        lines = filter(str.strip, raw.read_text(encoding="utf-8", errors="replace").splitlines())
        with suppress(OSError):  # a full disk: the failure itself is told
            if text := "".join(map(redact_paths, lines)):
                log.write_text(text, encoding="utf-8")
