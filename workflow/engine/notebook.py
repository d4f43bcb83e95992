"""A notebook is executed by papermill, in a kernel of its own with a fixed environment.

A new Python takes ten seconds to import the libraries of the notebooks. So multiprocessing's fork
server imports this module, and with it the libraries, once per run. It forks a process for each
job, and the job forks its kernel.
"""

import asyncio
import ctypes
import gc
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from lib import params
from lib.errors import UserError
from lib.paths import ROOT
from lib.run_names import PUBLISHED
from workflow.engine import job_key
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.notebook_links import lead_links_to_project
from workflow.engine.notebook_table import NOTEBOOKS

if TYPE_CHECKING:  # slow to import
    from nbformat import NotebookNode
    from papermill.exceptions import PapermillExecutionError

Tell = Callable[..., None]  # called with the name of an event and its facts (progress.Board.show)
# the modules to import, separated by spaces; set for the fork server alone
VARIABLE = "CALIBRATION_PRELOAD"
PROCESS_OF_RUN = "CALIBRATION_RUN_PROCESS"
PARENT_DEATH = 1  # of Linux's prctl

FIXED = {  # variables that libraries read when they are imported
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "SOURCE_DATE_EPOCH": "0",  # the same date in every PDF
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # a process with threads is not forked
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own pools keep what is freed: 50 MB in 05 and 09
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # the hub is not asked: what a job needs of it was fetched before
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JUPYTER_PREFER_ENV_PATH": "1",
}
# Of memory, unless the user sets one of the variables. On a GPU, segments that grow can be reused
# by batches of any shape, while caches grow at every step.
GPU_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# Freed memory is reused by the next layer: getting it from the system again would take 10% to 25%
# of a forward pass. Blocks above 32 MB go back to the system, to avoid fragmentation.
CPU_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "268435456"}

# Modules that take a new Python ten seconds; what is missing here a job imports by itself, only
# later.
IMPORTS = [
    # of papermill and the kernel
    "papermill",
    "nbclient",
    "nbformat",
    "jupyter_client.ioloop",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "IPython.core.completerlib",
    "matplotlib_inline.config",
    # of lib and workflow
    "psutil",
    "pydantic",
    "yaml",
    "filelock",
    "pandas",
    "pyarrow.parquet",
    "jinja2",
    "latex2mathml.converter",
    "nbconvert.exporters",
    "tokenizers.decoders",
    "seaborn",
    "matplotlib.figure",
    "matplotlib.style",
    "scipy.stats",
    "scipy.optimize",
    "scipy.interpolate",
    "sklearn.isotonic",
    "sklearn.linear_model",
    "sklearn.preprocessing",
    "huggingface_hub.file_download",
]
IMPORTS_WITH_MODEL = [
    "torch.utils.flop_counter",
    "transformers.masking_utils",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen3.modeling_qwen3",
]


class NotebookError(Exception):
    """A failed job, as a one-line message for the user."""


# ---- environment


def fixed_environment(job: Job) -> dict[str, str]:
    """Return the environment variables that libraries read at import."""
    allocator = GPU_ALLOCATOR if job.gpus else CPU_ALLOCATOR
    is_set = any(name in os.environ for name in (*allocator, "PYTORCH_CUDA_ALLOC_CONF"))
    environment = FIXED | {"PYTHONPATH": str(ROOT)}
    for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"):
        environment[f"{name}_NUM_THREADS"] = str(job.threads)
    if not is_set:
        environment |= allocator
    return environment


def set_environment(job: Job, parts: job_key.Parts, scratch: Path) -> None:
    """Give this process, and so the kernel, the environment of a job."""
    os.environ.update(
        fixed_environment(job),
        JUPYTER_RUNTIME_DIR=str(scratch),
        IPYTHONDIR=str(scratch / "ipython"),  # without the user's start-up files
        TMPDIR=str(scratch),
        CALIBRATION_CODE=job_key.key_of_rows(job, parts),
        CALIBRATION_REVISIONS=json.dumps(params.REVISIONS),
        CALIBRATION_HELPS="1" if job.helper else "",
    )
    tempfile.tempdir = None  # read TMPDIR again
    # show figures inline, run no start-up file of the user, and find no other kernel spec
    for name in ("MPLBACKEND", "PYTHONSTARTUP", "JUPYTER_PATH"):
        os.environ.pop(name, None)


# ---- processes that have the libraries imported


def skip_unused_import() -> None:
    """Keep jsonschema, and so nbformat, from importing a URI grammar that nothing uses: it takes
    about a second."""
    if "rfc3987_syntax" not in sys.modules:
        # None is Python's word for what can't be imported
        sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]


def kill_with_parent(parent: int) -> None:
    """Make Linux kill this process when its `parent` ends for any reason."""
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(143)


def import_libraries(modules: list[str]) -> None:
    """Import modules without a word, and keep their memory shared with the processes that are
    forked."""
    kill_with_parent(int(os.environ.pop(PROCESS_OF_RUN)))  # else it would end only after these
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    skip_unused_import()
    # a kernel's backend, read at import
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    gc.disable()  # imports leave no garbage, and searching for it takes a second
    for module in modules:
        with suppress(Exception):  # the notebook that needs it reports the error
            import_module(module)
    del os.environ["MPLBACKEND"]
    for row in NOTEBOOKS:  # parse once what the key of each job covers
        with suppress(Exception):
            job_key.code_digests(Job(Run("", {}), row))
    gc.collect()
    gc.freeze()
    gc.enable()


class ForkedKernel(ForkProcess):
    """A forked kernel with the methods of Popen that jupyter_client uses."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return self.exitcode

    wait = poll  # called only after poll has returned an exit code


def fork_kernel(command: list[str], env: dict[str, str], **_: Any) -> ForkedKernel:
    """Fork a kernel from this process, as the leader of a group, like the new Python that
    jupyter_client starts."""
    job = os.getpid()

    def serve_cells() -> None:
        from ipykernel.kernelapp import IPKernelApp

        kill_with_parent(job)
        os.environ.clear()
        os.environ.update(env)
        asyncio.set_event_loop(None)
        # it comes before the end, and would be logged
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        arguments = command[command.index("-f") :]
        IPKernelApp.launch_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={job}"])
        os._exit(0)

    kernel = ForkedKernel(target=serve_cells)
    kernel.start()
    if kernel.pid:
        os.setpgid(kernel.pid, kernel.pid)
    return kernel


PRELOADED = os.environ.pop(VARIABLE, "").split()
IS_FORKED = bool(PRELOADED)  # or the server itself
if IS_FORKED:
    import_libraries(PRELOADED)


# ---- execution


def tell_progress(tell: Tell, text: str) -> None:
    """Report the lines of a cell's stdout on finished shards and drawn responses; others are read
    in the executed notebook."""
    for line in text.splitlines():
        if line.startswith("shard") or line.endswith(" drawn"):
            tell("progress", text=line.strip())


def execute(job: Job, parts: job_key.Parts, scratch: Path, tell: Tell) -> "NotebookNode | None":
    """Run the notebook and return it executed, or None if it has ended for want of a signal, or
    after helping another process. Raise NotebookError or UserError if a cell fails or the kernel
    dies."""
    skip_unused_import()
    from jupyter_client.provisioning import local_provisioner
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from papermill.iorw import write_ipynb
    from traitlets.config import Config

    set_environment(job, parts, scratch)
    launch: Callable[..., object] = local_provisioner.launch_kernel
    # as in the environment in which libraries were imported
    if IS_FORKED and job.threads == 1 and not job.gpus:
        launch = fork_kernel
    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of `undeclared` parameters
    (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
    output = str(scratch / "helper.ipynb") if job.helper else job.executed
    stdout = SimpleNamespace(write=partial(tell_progress, tell), flush=lambda: None)
    try:
        with mock.patch.object(local_provisioner, "launch_kernel", launch):
            executed = execute_notebook(
                job.notebook.path,
                output,
                job.parameters,
                kernel_name="python3",
                cwd="notebooks",
                # whose outputs have some megabytes
                request_save_on_cell_execute=not job.notebook.exports,
                progress_bar=False,
                stdout_file=stdout,
                start_timeout=120,
                # cells tagged `run` need one, and `published` is none
                skip_cells_with_tag="run" if job.run.name == PUBLISHED else "skip-execution",
                config=Config({"KernelManager": {"transport": "ipc", "ip": str(scratch / "k")}}),
            )
    except PapermillExecutionError as error:
        # a notebook that lacks a signal has written why, and ended
        if error.ename not in ("MissingSignalError", "HelperEnds"):
            raise cell_failure(job, error) from None
        executed = None
    except DeadKernelError:
        raise NotebookError(
            f"{job.executed}: the kernel died, most likely out of memory: "
            "reduce max_batch_tokens in the profile, "
            "or use --cores 1 to run one notebook at a time"
        ) from None
    if executed and lead_links_to_project(executed, ROOT / job.executed):
        write_ipynb(executed, job.executed)
    return executed


def cell_failure(job: Job, error: "PapermillExecutionError") -> Exception:
    """Return the failure for a cell that raised; a UserError has its own message."""
    message = start_of(error.evalue)
    if error.ename == "UserError":
        return UserError(message)
    return NotebookError(
        f"{job.executed} failed in cell [{error.exec_count}] `{start_of(error.source)}`: "
        f"{error.ename}: {message}"
    )


def start_of(text: str) -> str:
    """Return the first line of a text, of at most 500 characters."""
    return text.strip().partition("\n")[0][:500]
