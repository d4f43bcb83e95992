"""One job: run a notebook with papermill in its own kernel, and record it.

The Snakefile calls `python -m workflow.notebook RUN JOB`. Lines on stdout that begin with @@ are events for the run.
The job has a lock. It ends with the process that started it, and its kernel ends with the job: otherwise a kernel could
go on writing after kill -9 (preload.py).
"""

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lib import params
from lib.paths import ROOT, UserError
from workflow import fresh, hub, keys, node, records
from workflow.fingerprint import read_cells
from workflow.gpus import list_gpus, take_gpu
from workflow.locks import job_lock, scratch_folder
from workflow.pipeline import MARK, PUBLISHED, Job, Run
from workflow.preload import exit_with_parent, fork_kernels, skip_unused_import
from workflow.progress import describe_system_error

if TYPE_CHECKING:
    from nbformat import NotebookNode


class Failure(Exception):
    """A failed job, as a one-line message for the user."""


def emit_event(job: Job, event: str, **facts) -> None:
    """Send run.py an event: start, progress, end, kept or fail. One write, because parallel jobs share the pipe."""
    line = json.dumps({"job": job.name, "event": event, **facts})
    if job.run.cluster:
        node.append_event(job, f"{MARK}{line}\n")
    sys.stdout.write(f"\n{MARK}{line}\n")  # print writes the newline separately if Python is unbuffered
    sys.stdout.flush()


def fixed_environment(job: Job) -> dict[str, str]:
    """Return the environment variables that libraries read at import."""
    threads = {f"{name}_NUM_THREADS": str(job.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    fetched = keys.is_local(job) or (
        job.run.cluster and job.model and hub.is_cached(params.load_model_config(job.model))
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if fetched else {}  # cluster nodes retry for minutes
    return {
        **threads,
        **offline,
        **(gpu_allocator_settings() if job.gpus else cpu_allocator_settings()),
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "SOURCE_DATE_EPOCH": "0",  # the same date in every PDF
        "TOKENIZERS_PARALLELISM": "false",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


def gpu_allocator_settings() -> dict[str, str]:
    """Return PyTorch's GPU allocator settings, unless the user sets them. Expandable segments can be reused by batches
    of any shape, while caches grow at every step."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return {} if any(name in os.environ for name in names) else {names[0]: "expandable_segments:True"}


def cpu_allocator_settings() -> dict[str, str]:
    """Return the C library's allocator settings, unless the user sets them. Freed memory is reused by the next layer:
    getting it from the system again would take 10% to 25% of a forward pass on CPU. Blocks above 32 MB go back to the
    system, to avoid fragmentation."""
    wanted = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
    return {} if any(name in os.environ for name in wanted) else wanted


def kernel_environment(job: Job, scratch: Path, content: keys.Parts) -> dict[str, str]:
    """Return the environment variables of the kernel: places, and the keys and revisions for `lib`."""
    return {
        **fixed_environment(job),
        "JUPYTER_RUNTIME_DIR": str(scratch),
        "IPYTHONDIR": str(scratch / "ipython"),  # without the user's start-up files
        "TMPDIR": str(scratch),
        "CALIBRATION_CODE": keys.code_key(job, content),
        "CALIBRATION_REVISIONS": json.dumps(params.REVISIONS),
    }


def can_fork_kernel(job: Job) -> bool:
    """Whether this forked process imported its libraries with the environment of the job's kernel."""
    alike = all(os.environ.get(name) == value for name, value in fixed_environment(job).items())
    return alike and not job.gpus


class Progress:
    """The file to which papermill writes the stdout of cells; lines that begin with 'shard' become events."""

    def __init__(self, job: Job):
        self.job, self.rest = job, ""

    def write(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.startswith("shard"):
                emit_event(self.job, "progress", text=line.strip())

    def flush(self) -> None:
        pass


def notebook_to_run(job: Job, scratch: Path) -> str:
    """Return the notebook to run; for `published` a copy without the cells tagged `run`, which need a run."""
    if job.run.name != PUBLISHED:
        return job.notebook.path
    import nbformat

    nb = nbformat.read(ROOT / job.notebook.path, as_version=4)
    nb.cells = [cell for cell in nb.cells if "run" not in cell.metadata.get("tags", [])]
    path = scratch / f"{job.notebook.name}.ipynb"
    nbformat.write(nb, path)
    return str(path)


def execute(job: Job, scratch: Path) -> "NotebookNode":
    """Run the notebook and return it executed; raise Failure or UserError if a cell fails or the kernel dies."""
    skip_unused_import()
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    from workflow import engine

    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of `takes`, which the cell does not declare
    options = {
        "parameters": job.parameters,
        "kernel_name": "python3",
        "engine_name": engine.NAME,
        "cwd": "notebooks",
        "progress_bar": False,
        "stdout_file": Progress(job),
        "start_timeout": 120,
        "config": Config({"KernelManager": {"transport": "ipc", "ip": str(scratch / "k")}}),
    }
    (ROOT / job.executed).unlink(missing_ok=True)
    try:
        return execute_notebook(notebook_to_run(job, scratch), job.executed, **options)
    except PapermillExecutionError as error:
        if error.ename != "MissingSignal":  # else the notebook has written why, and ended
            raise cell_failure(job, error) from None
    except DeadKernelError:
        raise dead_kernel_failure(job) from None


def first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].strip()[:500]


def cell_failure(job: Job, error) -> Exception:
    """Return the failure for a cell that raised; a UserError has its own message."""
    if error.ename == "UserError":
        return UserError(first_line(error.evalue))
    place = f"cell [{error.exec_count}] `{first_line(error.source)}`"
    return Failure(f"{job.executed} failed in {place}: {error.ename}: {first_line(error.evalue)}")


def dead_kernel_failure(job: Job) -> Failure:
    """Return the failure for a dead kernel, which nearly always ran out of memory."""
    saved = read_cells(job.executed) if (ROOT / job.executed).is_file() else []
    times = [cell for cell in saved if cell["metadata"].get("papermill", {}).get("start_time")]
    place = f" in the cell `{first_line(''.join(times[-1]['source']))}`" if times else ""
    return Failure(
        f"{job.executed}: the kernel died{place}, most likely out of memory: reduce max_batch_tokens in the "
        "profile, or use --cores 1 to run one notebook at a time"
    )


def run_job(job: Job, scratch: Path, forked: bool) -> None:
    """Run, export and record the job, unless its outputs are still valid."""
    began = time.monotonic()
    node.wait_for_inputs(job)
    if why := fresh.decide_at_start(job):
        records.mark_done(job)
        return emit_event(job, "kept", text=why)
    parts = keys.key_parts(job)
    emit_event(job, "start")
    with ExitStack() as stack:
        if job.gpus:
            names = list_gpus()
            count = len(names) if job.run.cluster else job.gpus  # on a cluster the job uses all GPUs it sees
            taken = take_gpu(stack, names, lambda text: emit_event(job, "progress", text=text), max(1, count))
            os.environ["CUDA_VISIBLE_DEVICES"] = taken
        if forked and can_fork_kernel(job):
            fork_kernels()
        os.environ.update(kernel_environment(job, scratch, parts))
        tempfile.tempdir = None  # read TMPDIR again
        # show figures inline, run no start-up file of the user, and find no other kernel spec
        for name in ("MPLBACKEND", "PYTHONSTARTUP", "JUPYTER_PATH"):
            os.environ.pop(name, None)
        (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
        nb = execute(job, scratch)
    outputs = job.outputs + job.loose
    if job.notebook.reports:
        from workflow import export

        export.export_for_report(nb, ROOT / job.exported)
        outputs.append(job.exported)
        if job.notebook.exports:
            outputs += [f"{job.run.figures}/{name}" for name in export.export(nb, ROOT / job.run.figures)]
    seconds = time.monotonic() - began
    records.write_record(job, parts, outputs, seconds)
    records.mark_done(job)
    emit_event(job, "end", seconds=seconds)


def main(argv: list[str], forked: bool = True) -> int:
    """Run one job and return its exit code. `forked`: by the preloaded process, which handles signals and its end."""
    os.chdir(ROOT)
    if not forked:
        exit_with_parent(os.getppid())
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    job = node.with_local_cores(Run.load(argv[0])).job(argv[1])
    hub.pin_revisions(job.run)
    scratch = scratch_folder()
    try:
        with job_lock(job):
            run_job(job, scratch, forked)
        return 0
    except (UserError, Failure) as problem:
        code = 2 if isinstance(problem, UserError) else 1
        emit_event(job, "fail", text=str(problem), code=code)
        return code
    except Exception as problem:  # a system error or a bug: the traceback goes to the log
        traceback.print_exc()
        system = isinstance(problem, OSError)
        why = describe_system_error(problem) if system else f"{type(problem).__name__}: {first_line(str(problem))}"
        emit_event(job, "fail", text=f"{job.title}: {why}", code=1)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], forked=False))
