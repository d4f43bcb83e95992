"""Processes that have the libraries of a run's notebooks imported, which takes a new Python ten seconds, in the
environment of its kernels.

multiprocessing's fork server imports this module, and with it the libraries, once per run. It forks a process for each
job, and the job forks its kernel.
"""

import asyncio
import ctypes
import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.context import ForkProcess
from types import SimpleNamespace
from typing import Any

from lib.paths import ROOT
from workflow import keys
from workflow.pipeline import Job

VARIABLE = "CALIBRATION_PRELOAD"  # the modules to import, separated by spaces; set for the fork server alone
JUPYTER = """papermill nbclient nbformat jupyter_client.ioloop ipykernel.kernelapp ipykernel.ipkernel
    IPython.core.completerlib matplotlib_inline.config psutil pydantic yaml filelock"""
# What the notebooks import, without and with a model. A job imports what is missing here by itself, only later.
LIGHT = """pandas pyarrow.parquet jinja2 latex2mathml.converter nbconvert.exporters tokenizers.decoders seaborn
    matplotlib.figure matplotlib.style scipy.stats scipy.optimize scipy.interpolate sklearn.isotonic
    sklearn.linear_model sklearn.preprocessing huggingface_hub.file_download"""
HEAVY = """torch.utils.flop_counter transformers.masking_utils transformers.generation.utils
    transformers.models.auto.modeling_auto transformers.models.auto.tokenization_auto
    transformers.models.llama.modeling_llama transformers.models.qwen3.modeling_qwen3"""
PARENT_DEATH = 1  # of Linux's prctl


def skip_unused_import() -> None:
    """Keep jsonschema, and so nbformat, from importing a URI grammar that nothing uses: it takes about a second."""
    sys.modules.setdefault("rfc3987_syntax", None)


def kill_with_parent(parent: int) -> None:
    """Make Linux kill this process when its `parent` ends for any reason."""
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(143)


def import_libraries(modules: list[str]) -> None:
    """Import modules without a word, and keep their memory shared with the processes that are forked."""
    kill_with_parent(os.getppid())  # else it would end only after the imports
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    skip_unused_import()
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # a kernel's backend, read at import
    gc.disable()  # imports leave no garbage, and searching for it takes a second
    for module in modules:
        with suppress(Exception):  # the notebook that needs it reports the error
            import_module(module)
    del os.environ["MPLBACKEND"]
    gc.collect()
    gc.freeze()
    gc.enable()


# ---- environment -----------------------------------------------------------------------------------------------

# Segments that grow can be reused by batches of any shape, while caches grow at every step.
GPU_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# Freed memory is reused by the next layer: getting it from the system again would take 10% to 25% of a forward pass.
# Blocks above 32 MB go back to the system, to avoid fragmentation.
CPU_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


def fixed_environment(job: Job) -> dict[str, str]:
    """Return the environment variables that libraries read at import."""
    threads = {f"{name}_NUM_THREADS": str(job.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if keys.is_local(job) or job.run.slurm else {}
    return {
        **threads,
        **offline,
        **allocator_settings(job),
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


def allocator_settings(job: Job) -> dict[str, str]:
    """Return settings of PyTorch's GPU allocator or of the C library's, unless the user sets some."""
    wanted = GPU_ALLOCATOR if job.gpus else CPU_ALLOCATOR
    return {} if any(name in os.environ for name in (*wanted, "PYTORCH_CUDA_ALLOC_CONF")) else wanted


def can_fork_kernel(job: Job) -> bool:
    """Whether this process was forked with the libraries imported, in the environment of the job's kernel."""
    alike = all(os.environ.get(name) == value for name, value in fixed_environment(job).items())
    return IS_DONE and alike and not job.gpus


# ---- kernels ---------------------------------------------------------------------------------------------------


class ForkedKernel(ForkProcess):
    """A forked kernel with the methods of Popen that jupyter_client uses."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return self.exitcode

    wait = poll  # called only after poll has returned an exit code

    def send_signal(self, number: int) -> None:
        if number != signal.SIGINT:  # which comes before every end, and would be logged as an error
            os.kill(self.pid, number)


def fork_kernels() -> None:
    """Make jupyter_client fork its kernels from this process instead of starting a new Python."""
    from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

    class Forking(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict:
            job = os.getpid()

            def serve_cells() -> None:
                from ipykernel.kernelapp import IPKernelApp

                kill_with_parent(job)
                os.environ.clear()
                os.environ.update(kwargs["env"])
                os.chdir(kwargs.get("cwd") or ".")
                asyncio.set_event_loop(None)
                parent = f"--IPKernelApp.parent_handle={job}"
                IPKernelApp.launch_instance(argv=[*cmd[cmd.index("-f") :], parent])
                os._exit(0)

            self.process = ForkedKernel(target=serve_cells)
            self.process.start()
            self.pid, self.pgid = self.process.pid, None
            return self.connection_info

    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forking"] = SimpleNamespace(name="forking", load=lambda: Forking)  # like an entry point
    factory.default_provisioner_name = "forking"


IS_DONE = bool(modules := os.environ.pop(VARIABLE, ""))
if IS_DONE:
    import_libraries(modules.split())
