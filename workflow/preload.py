"""Processes that have the libraries of a run's notebooks imported, which takes a new Python ten seconds.

multiprocessing's fork server imports this module, and with it the libraries, once per run. It forks a process for each
job, and the job forks its kernel.
"""

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

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


# ---- kernels ---------------------------------------------------------------------------------------------------


class ForkedKernel:
    """A forked kernel with the methods of Popen that jupyter_client uses."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, serve_cells: Callable[[], None]):
        job, self.pid = os.getpid(), os.fork()
        if not self.pid:
            try:
                kill_with_parent(job)
                serve_cells()
            finally:
                os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    wait = poll  # called only after poll has returned an exit code

    def send_signal(self, number: int) -> None:
        if number != signal.SIGINT:  # which comes before every end, and would be logged as an error
            os.kill(self.pid, number)


def fork_kernels() -> None:
    """Make jupyter_client fork its kernels from this process instead of starting a new Python."""
    from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

    class Forking(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict:
            def serve_cells() -> None:
                from ipykernel.kernelapp import IPKernelApp

                os.environ.clear()
                os.environ.update(kwargs["env"])
                os.chdir(kwargs.get("cwd") or ".")
                asyncio.set_event_loop(None)
                parent = f"--IPKernelApp.parent_handle={os.getppid()}"
                IPKernelApp.launch_instance(argv=[*cmd[cmd.index("-f") :], parent])

            self.process = ForkedKernel(serve_cells)
            self.pid, self.pgid = self.process.pid, None
            return self.connection_info

    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forking"] = SimpleNamespace(name="forking", load=lambda: Forking)  # like an entry point
    factory.default_provisioner_name = "forking"


IS_DONE = bool(modules := os.environ.pop(VARIABLE, ""))
if IS_DONE:
    import_libraries(modules.split())
