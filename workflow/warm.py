"""A process that has imported the libraries of a run once, and forks its jobs and their kernels: a fork is ready where
a new Python would import for ten seconds more. Started by run.py, as `python -m workflow.warm PLAN`.

Only what others publish is imported here; each job reads the project's own modules anew, which may have been edited.
Nothing may run before a fork that does not survive it (threads, CUDA): where something does, and on macOS, whose
libraries do not bear forks, jobs and kernels are processes of their own, as they are by hand and in JupyterLab.
"""

import gc
import importlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import traceback
from contextlib import suppress

JUPYTER = """import papermill, nbclient, nbformat, jupyter_client.ioloop, ipykernel.kernelapp, ipykernel.ipkernel
import IPython.core.completerlib, matplotlib_inline.config, psutil, pydantic, yaml"""


def preload(statements: list[str]) -> bool:
    """Carry out import statements, those that can be; whether this process can be forked afterwards."""
    sys.modules.setdefault("rfc3987_syntax", None)  # a grammar of URIs: 1.5 s of import that no notebook needs
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # a kernel's own, read at import
    gc.disable()  # what is imported stays: looking for garbage in it takes a second
    for statement in [*JUPYTER.splitlines(), *statements]:
        with suppress(Exception):  # whoever needs it will say why it fails
            exec(statement, {})
    os.environ.pop("MPLBACKEND")
    gc.collect()
    gc.freeze()  # memory that the collector leaves alone stays shared
    gc.enable()
    return forkable()


def forkable() -> bool:
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return False
    torch = sys.modules.get("torch")
    return not (torch and torch.cuda.is_initialized())


def fork_job(module: str, words: list[str], asker: int = 0, streams: list[int] = (), inherited: list = ()) -> int:
    """The id of a process that does what `workflow.<module>` makes of these words, its stdout and stderr being
    `streams`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for file in inherited:
            file.close()
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.environ["CALIBRATION_ASKER"] = str(asker)
        kernel = Kernel()  # before this process has threads
        code = importlib.import_module(f"workflow.{module}").main(words, kernel)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


class Kernel:
    """A process that waits to become a kernel; to jupyter_client it is what subprocess.Popen returns."""

    stdin = stdout = stderr = None

    def __init__(self):
        reading, self.writing = os.pipe()
        self.pid, self.returncode, self.started = os.fork(), None, False
        if not self.pid:
            os.close(self.writing)
            os.setsid()
            with open(reading, encoding="utf-8") as pipe:
                order = pipe.read()  # empty where the job ends without a kernel
            if order:
                serve_cells(**json.loads(order))
            os._exit(0)
        os.close(reading)

    def start(self, command: list[str], env: dict[str, str], cwd: str) -> None:
        self.started = True
        options = [*command[command.index("-f") :], f"--IPKernelApp.parent_handle={os.getpid()}"]
        with open(self.writing, "w", encoding="utf-8") as pipe:
            json.dump({"options": options, "env": env, "cwd": str(cwd)}, pipe)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    wait = poll  # which has said that it ended when this is called

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def serve_cells(options: list[str], env: dict[str, str], cwd: str) -> None:
    """A kernel, as a new Python would be one."""
    from workflow import kernel

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    kernel.serve(options)
    sys.stdout.flush()


def serve(door: socket.socket) -> None:
    """A job for each that asks, who is told its exit code; until stdin closes, with the run."""
    jobs: dict[int, socket.socket] = {}
    while True:
        ready = select.select([door, 0], [], [], 0.05 if jobs else None)[0]
        if 0 in ready:
            return
        if door in ready:
            wire, _ = door.accept()
            message, streams, *_ = socket.recv_fds(wire, 65536, 2)
            if message:
                jobs[fork_job(*json.loads(message), streams, [door, wire, *jobs.values()])] = wire
            for stream in streams:
                os.close(stream)
        for pid in list(jobs):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                with jobs.pop(pid) as wire, suppress(OSError):  # who asked may be gone
                    wire.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def do_all(run: str, jobs: dict[str, list[str]], cores: int, forks: bool) -> int:
    """Jobs, each with those that it waits for, as many at once as there are cores; 1 if one failed, else 0."""
    going: dict[int, str] = {}
    done: set[str] = set()
    waiting = dict(jobs)
    started = []  # kept: of a Popen that is dropped, the next one would reap the process, and with it how it ended
    while True:
        for name in [name for name, above in waiting.items() if done.issuperset(above)][: cores - len(going)]:
            del waiting[name]
            if forks:
                going[fork_job("notebook", [run, name])] = name
            else:
                started.append(subprocess.Popen([sys.executable, "-m", "workflow.notebook", run, name]))
                going[started[-1].pid] = name
        if not going:
            return int(len(done) < len(jobs))
        pid, status = os.wait()
        name = going.pop(pid)
        if status == 0:
            done.add(name)


def main(argv: list[str]) -> int:
    """PLAN is JSON: import statements, and either jobs to do or the number of a socket to serve."""
    plan = json.loads(argv[0])
    if plan["jobs"]:
        forks = preload(plan["imports"]) if sys.platform == "linux" else False
        return do_all(plan["run"], plan["jobs"], plan["cores"], forks)
    with socket.socket(fileno=plan["door"]) as door:
        if preload(plan["imports"]):
            serve(door)
            shutil.rmtree(os.path.dirname(door.getsockname()), ignore_errors=True)  # the run may have been killed
    return 0


if __name__ == "__main__":
    from workflow import warm  # by its own name, for pipeline import it too

    sys.exit(warm.main(sys.argv[1:]))
