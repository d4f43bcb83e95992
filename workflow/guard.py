"""What keeps jobs apart: locks, a watch that ends a job whose run is gone, and one GPU for each."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from lib.project import ROOT, UserError
from workflow.jobs import Job

MARK = "@@"  # begins those lines on a job's stdout that are events for the runner
POLL = 0.5  # seconds


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def chain() -> list[psutil.Process]:
    """Ancestors up to the run.py that started this job (RUN_PID); empty if started by hand."""
    pid = int(os.environ.get("RUN_PID", 0))
    if not pid:
        return []
    parents = psutil.Process().parents()
    if pid not in [parent.pid for parent in parents]:
        raise SystemExit("the run that started this job is gone")
    return parents[: [parent.pid for parent in parents].index(pid) + 1]


def end(code: int, scratch: Path, parents: list[psutil.Process] = ()) -> None:
    """Kill the kernel and all below, and the schedulers above that lost their run, and exit at once."""
    for process in [*psutil.Process().children(recursive=True), *parents[:-1]]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(code)


def watch(scratch: Path, lock) -> None:
    """Start the thread that ends this job when an ancestor is gone, and notes its kernel in the lock file."""
    parents = chain()

    def look() -> None:
        noted: list = []
        while True:
            if any(map(gone, parents)):
                end(143, scratch, parents)
            with suppress(psutil.Error):  # a child that ended meanwhile
                children = [[child.pid, child.create_time()] for child in psutil.Process().children()]
                if children != noted:
                    noted = note(lock, children)
            time.sleep(POLL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, frame: end(128 + received, scratch))
    threading.Thread(target=look, daemon=True).start()


def note(lock, children: list) -> list:
    """Write the ids and times of birth of the job's processes into its lock file."""
    lock.seek(0)
    lock.truncate()
    lock.write(json.dumps(children))
    lock.flush()
    return children


@contextmanager
def job_lock(job: Job, patience: float = 20):
    """The job's lock file, locked. Its holder is given time to end; a kernel left behind is killed."""
    path = ROOT / job.run.folder / "jobs" / f".{job.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as lock:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise UserError(f"{job.title} is running already, in another process") from None
                time.sleep(POLL)
        lock.seek(0)
        with suppress(ValueError):  # killed while it wrote
            for pid, born in json.loads(lock.read()):
                kill_orphan(pid, born)
        yield lock
        lock.truncate(0)


def kill_orphan(pid: int, born: float) -> None:
    """Kill a kernel of an earlier, killed job if it still lives (same process id and time of birth)."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if abs(process.create_time() - born) < 0.01:
            process.kill()
            process.wait(10)


def gpus() -> list[str]:
    """NVIDIA GPUs to use: those that CUDA_VISIBLE_DEVICES names, else all that nvidia-smi lists."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not count or chosen is None:
        return [str(index) for index in range(count)]
    return [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]


def take_gpu(stack: ExitStack, names: list[str]) -> str:
    """The first GPU whose lock is free, held until the job ends; waits while other jobs have them all."""
    while True:
        for name in names:
            path = Path(tempfile.gettempdir()) / f"calibrated-confidence-{os.getuid()}-gpu-{name}.lock"
            file = open(path, "w")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.enter_context(file)
                return name
            except OSError:
                file.close()
        time.sleep(POLL)
