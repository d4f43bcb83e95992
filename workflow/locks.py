"""Locks of runs and jobs, the scratch folders of those that hold them, and the end of what a run has started."""

import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from lib.paths import ROOT, UserError
from workflow.files import read_json, write_json
from workflow.pipeline import Job, Run

BEAT, SILENT = 20, 120  # seconds between two signs of life of a run, and without one until it counts as dead
GRACE = 2  # seconds in which what a killed run had started ends with it


@contextmanager
def run_lock(run: Run, patience: float = 30) -> Iterator[None]:
    """The run's lock, and its scratch folder. Refused while its holder lives; what a killed one had started is given
    time to end. Where locks are of each machine alone, that of another counts as long as its note is touched."""
    note, here = ROOT / run.folder / ".running", platform.node()
    note.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(ROOT / run.folder / ".lock").acquire(patience, cancel_check=lambda: alive(holder(note)["pid"]))
    except Timeout:
        raise going_on(run, holder(note)) from None
    with lock:
        left = holder(note)
        if left["machine"] not in ("", here) and time.time() - note.stat().st_mtime < SILENT:
            raise going_on(run, left)
        if left["machine"] == here:  # of a run that was killed
            time.sleep(GRACE)
            shutil.rmtree(short_tempdir() / left["scratch"], ignore_errors=True)
        scratch, ended = scratch_folder(), threading.Event()
        write_json(note, {"pid": os.getpid(), "scratch": scratch.name, "machine": here})
        threading.Thread(target=beat, args=[note, ended], daemon=True).start()
        os.environ["CALIBRATION_SCRATCH"] = str(scratch)
        try:
            yield
        finally:
            ended.set()
            del os.environ["CALIBRATION_SCRATCH"]
            shutil.rmtree(scratch, ignore_errors=True)
            note.unlink(missing_ok=True)


def holder(note: Path) -> dict:
    """Who has a run's lock, or had it when it was killed."""
    known, nobody = read_json(note), {"pid": 0, "scratch": "", "machine": ""}
    alike = isinstance(known, dict) and all(type(known.get(name)) is type(value) for name, value in nobody.items())
    return known if alike and Path(known["scratch"]).name == known["scratch"] != "" else nobody


def going_on(run: Run, held: dict) -> UserError:
    there = "" if held["machine"] in ("", platform.node()) else f" on {held['machine']}"
    since = f", or was killed there less than {SILENT // 60} minutes ago" if there else ""
    return UserError(f"run '{run.name}' is going on already, in process {held['pid']}{there}{since}")


def beat(note: Path, ended: threading.Event) -> None:
    """Touch the note of a run until that has ended."""
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(note)


@contextmanager
def job_lock(job: Job, patience: float = 20) -> Iterator[None]:
    """The job's lock; its holder is given time to end."""
    path = ROOT / job.run.folder / "jobs" / f".{job.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path).acquire(patience)
    except Timeout:
        raise UserError(f"{job.title} is running already, in another process") from None
    with lock:
        yield


# ---- scratch folders ---------------------------------------------------------------------------------------


def short_tempdir() -> Path:
    """The temporary folder of all runs, where paths are short enough for sockets (104 bytes on macOS)."""
    if scratch := os.environ.get("CALIBRATION_SCRATCH"):
        return Path(scratch).parent
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 60 else "/tmp")


def scratch_folder() -> Path:
    """A folder of one's own: a run's in the temporary folder, that of a job of the run inside it."""
    return Path(tempfile.mkdtemp(prefix="job", dir=os.environ.get("CALIBRATION_SCRATCH") or short_tempdir()))


def own_folder() -> Path:
    """The user's own in the shared temporary folder. Raises UserError where someone else made what bears its name."""
    folder = short_tempdir() / f"calibrated-confidence-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise UserError(f"{folder} is not a folder of yours alone: remove it, or set TMPDIR to another place")
    return folder


# ---- processes ---------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return pid > 0 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(process: subprocess.Popen, patience: float = 20, number: int = signal.SIGTERM) -> None:
    """End a scheduler (which leads its process group) and all below it: asked first, then killed."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    os.killpg(process.pid, number)
    _, survivors = psutil.wait_procs(family, timeout=patience)
    for survivor in survivors:
        survivor.kill()
    process.wait()
