"""A process that imports once what the notebooks of a run import, and forks a child for each job: a fork is ready where
a new Python would import for ten seconds. A job forks its kernel in turn, which has the imports, too.

`python -S workflow/preload.py RUN JOB`, as the Snakefile calls it, has that process do a job, or does it in a Python of
its own where there is none: on a cluster, on macOS, after it was killed. This file needs the standard library alone,
for it is started once a job. `python -m workflow.preload` is the process.
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
from types import SimpleNamespace
from typing import Any

JUPYTER = """import papermill, nbclient, nbformat, jupyter_client.ioloop, ipykernel.kernelapp, ipykernel.ipkernel
import IPython.core.completerlib, matplotlib_inline.config, psutil, pydantic, yaml, filelock"""
CODE = b"@exit "  # begins the last line of what a job says
PARENT_DEATH = 1  # of Linux's prctl


def follow(parent: int) -> None:
    """Start the thread that ends this process once its `parent` is gone."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(143)

    threading.Thread(target=look, daemon=True).start()


def end_with(parent: int) -> None:
    """Have Linux kill this process when its `parent` ends, however that ends."""
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # which may have been before
        os._exit(143)


# ---- who asks ------------------------------------------------------------------------------------------------


def ask(door: str, words: list[str], write: Callable[[bytes], Any]) -> int | None:
    """Exit code of a job that is done in a fork; `write` gets each line that it says. None where nothing forks jobs."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(door)
        wire.sendall(json.dumps(words).encode() + b"\n")
        for line in wire.makefile("rb"):
            if line.startswith(CODE):
                return int(line[len(CODE) :])
            write(line)
    with suppress(OSError), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(door)
        return 1  # the job alone was killed
    return None


def main(words: list[str]) -> int:
    follow(os.getppid())
    door, said = os.environ.get("CALIBRATION_PRELOADED"), os.fdopen(1, "wb", buffering=0, closefd=False)
    code = ask(door, words, said.write) if door else None
    if code is None:
        os.execv(sys.executable, [sys.executable, "-m", "workflow.notebook", *words])
    return code


# ---- who forks -------------------------------------------------------------------------------------------------


class Request(socketserver.StreamRequestHandler):
    """In a forked child: a job, which tells who asked what it says, and ends when that is gone."""

    def handle(self) -> None:
        end_with(self.server.pid)
        words, code = json.loads(self.rfile.readline() or "null"), 1
        if not words:
            return
        for stream in (1, 2):
            os.dup2(self.connection.fileno(), stream)
        threading.Thread(target=self.await_end, daemon=True).start()
        try:
            from workflow import notebook  # as it is now

            code = notebook.main(words)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        self.wfile.write(b"\n%b%d\n" % (CODE, code))

    def await_end(self) -> None:
        self.connection.recv(1)  # who asks says nothing more
        os._exit(143)


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children, block_on_close = 10_000, False

    def __init__(self, door: int):
        super().__init__("", Request, bind_and_activate=False)
        self.socket, self.pid = socket.socket(fileno=door), os.getpid()


def serve(door: int, parent: int, imports: list[str]) -> None:
    """Import, and fork for each that asks at the socket `door`; where this process can't be forked, end."""
    end_with(parent)
    sys.modules.setdefault("rfc3987_syntax", None)  # a grammar of URIs: 1.5 s of import that no notebook needs
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # a kernel's own, read at import
    gc.disable()  # what is imported stays: looking for garbage in it takes a second
    for statement in [*JUPYTER.splitlines(), *imports]:
        with suppress(Exception):  # whoever needs it will say why it fails
            exec(statement, {})
    os.environ.pop("MPLBACKEND")
    gc.collect()
    gc.freeze()  # memory that the collector leaves alone stays shared
    gc.enable()
    if can_fork():
        with Server(door) as server:
            server.serve_forever()


def can_fork() -> bool:
    """Not beside what does not survive it: threads, CUDA."""
    torch = sys.modules.get("torch")
    return len(os.listdir("/proc/self/task")) == 1 and not (torch and torch.cuda.is_initialized())


# ---- kernels ---------------------------------------------------------------------------------------------------


class ForkedKernel:
    """Of a kernel that was forked, what jupyter_client asks of a Popen."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, serve_cells: Callable[[], None]):
        job, self.pid = os.getpid(), os.fork()
        if not self.pid:
            try:
                end_with(job)
                serve_cells()
            finally:
                os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    wait = poll  # which has said that it ended when this is called

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def fork_kernels() -> None:
    """Have jupyter_client fork its kernels from this process instead of starting a Python for each."""
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
    factory.provisioners["forking"] = SimpleNamespace(name="forking", load=lambda: Forking)  # as an entry point
    factory.default_provisioner_name = "forking"


if __name__ == "__main__" and __package__:
    from workflow import preload  # by its own name, for jobs import it too

    preload.serve(*json.loads(sys.argv[1]))
elif __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
