"""A process that imports the libraries of a run's notebooks once and forks a child for each job. A fork is ready at
once, while a new Python imports for ten seconds. The job forks its kernel, which therefore has the imports, too.

The Snakefile calls `python -S workflow/preload.py RUN JOB`, which sends a job to that process. If there is none (on a
cluster, on macOS, after a kill), it runs the job in a new Python. This file imports only the standard library, because
every job starts it. `python -m workflow.preload` is the process itself.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

JUPYTER = """papermill nbclient nbformat jupyter_client.ioloop ipykernel.kernelapp ipykernel.ipkernel
    IPython.core.completerlib matplotlib_inline.config psutil pydantic yaml filelock"""
CODE = b"@exit "  # prefix of the last line of a job's output
PARENT_DEATH = 1  # of Linux's prctl


def exit_with_parent(parent: int) -> None:
    """Start a thread that ends this process when its `parent` ends."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(143)

    threading.Thread(target=look, daemon=True).start()


def kill_with_parent(parent: int) -> None:
    """Make Linux kill this process when its `parent` ends for any reason."""
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(143)


# ---- the client ----------------------------------------------------------------------------------------------


def run_in_fork(door: str, words: list[str], write: Callable[[bytes], Any]) -> int | None:
    """Run a job in a fork and return its exit code; None if no process forks jobs. `write` gets its output by line."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(door)
        wire.sendall(json.dumps(words).encode() + b"\n")
        for line in wire.makefile("rb"):
            if line.startswith(CODE):
                return int(line[len(CODE) :])
            write(line)
    with suppress(OSError), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(door)
        return 1  # only the job was killed
    return None


def main(words: list[str]) -> int:
    exit_with_parent(os.getppid())
    door, said = os.environ.get("CALIBRATION_PRELOADED"), os.fdopen(1, "wb", buffering=0, closefd=False)
    code = run_in_fork(door, words, said.write) if door else None
    if code is None:
        os.execv(sys.executable, [sys.executable, "-m", "workflow.notebook", *words])
    return code


# ---- the server ------------------------------------------------------------------------------------------------


class Request(socketserver.StreamRequestHandler):
    """A job in a forked child. It writes its output to the client and ends with it."""

    def handle(self) -> None:
        kill_with_parent(self.server.pid)
        words, code = json.loads(self.rfile.readline() or "null"), 1
        if not words:
            return
        for stream in (1, 2):
            os.dup2(self.connection.fileno(), stream)
        threading.Thread(target=self.await_end, daemon=True).start()
        try:
            from workflow import notebook  # imported here, to have the current code

            code = notebook.main(words)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        self.wfile.write(b"\n%b%d\n" % (CODE, code))

    def await_end(self) -> None:
        self.connection.recv(1)  # returns only when the client is gone
        os._exit(143)


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children, block_on_close = 10_000, False

    def __init__(self, door: int):
        super().__init__("", Request, bind_and_activate=False)
        self.socket, self.pid = socket.socket(fileno=door), os.getpid()


def skip_unused_import() -> None:
    """Keep jsonschema, and so nbformat, from importing a URI grammar that nothing uses: it takes about a second."""
    sys.modules.setdefault("rfc3987_syntax", None)


def serve(door: int, parent: int, imports: list[str]) -> None:
    """Import the libraries, then fork a job for each connection to the socket `door`. End if forking is unsafe."""
    kill_with_parent(parent)
    skip_unused_import()
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # a kernel's backend, read at import
    gc.disable()  # imports leave no garbage, and searching for it takes a second
    for module in [*JUPYTER.split(), *imports]:
        with suppress(Exception):  # the notebook that needs it reports the error
            import_module(module)
    os.environ.pop("MPLBACKEND")
    gc.collect()
    gc.freeze()  # keeps this memory shared with the forks
    gc.enable()
    if can_fork():
        with Server(door) as server:
            server.serve_forever()


def can_fork() -> bool:
    """Whether this process has neither threads nor CUDA, which do not survive a fork."""
    torch = sys.modules.get("torch")
    return len(os.listdir("/proc/self/task")) == 1 and not (torch and torch.cuda.is_initialized())


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


if __name__ == "__main__" and __package__:
    from workflow import preload  # by its module name, because jobs import it too

    preload.serve(*json.loads(sys.argv[1]))
elif __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
