"""Locks and scratch folders of runs and jobs; running programs, and the termination of processes."""

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

BEAT, SILENT = 20, 120  # seconds between two heartbeats of a run; seconds without one until it counts as dead
GRACE = 2  # seconds until the processes of a killed run have ended


@contextmanager
def run_lock(run: Run, patience: float = 30) -> Iterator[None]:
    """Hold the run's lock and create its scratch folder. Raise UserError while another process holds the lock.

    The processes of a killed run get time to end. On file systems without shared locks, another machine's lock is valid
    as long as it touches its note.
    """
    note, here = ROOT / run.folder / ".running", platform.node()
    note.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(ROOT / run.folder / ".lock")
        taken = lock.acquire(patience, cancel_check=lambda: is_running(read_holder(note)["pid"]))
    except Timeout:
        raise running_error(run, read_holder(note)) from None
    with taken:
        left = read_holder(note)
        if left["machine"] not in ("", here) and time.time() - note.stat().st_mtime < SILENT:
            raise running_error(run, left)
        if left["machine"] == here:  # the run was killed
            time.sleep(GRACE)
            shutil.rmtree(short_tempdir() / left["scratch"], ignore_errors=True)
        scratch, ended = scratch_folder(), threading.Event()
        write_json(note, {"pid": os.getpid(), "scratch": scratch.name, "machine": here})
        threading.Thread(target=keep_touching, args=[note, ended], daemon=True).start()
        os.environ["CALIBRATION_SCRATCH"] = str(scratch)
        try:
            yield
        finally:
            ended.set()
            del os.environ["CALIBRATION_SCRATCH"]
            shutil.rmtree(scratch, ignore_errors=True)
            note.unlink(missing_ok=True)


def read_holder(note: Path) -> dict:
    """Return who holds a run's lock, or held it when the run was killed."""
    known, nobody = read_json(note), {"pid": 0, "scratch": "", "machine": ""}
    alike = isinstance(known, dict) and all(type(known.get(name)) is type(value) for name, value in nobody.items())
    return known if alike and Path(known["scratch"]).name == known["scratch"] != "" else nobody


def running_error(run: Run, held: dict) -> UserError:
    there = "" if held["machine"] in ("", platform.node()) else f" on {held['machine']}"
    since = f", or was killed there less than {SILENT // 60} minutes ago" if there else ""
    return UserError(f"run '{run.name}' is running already, in process {held['pid']}{there}{since}")


def keep_touching(note: Path, ended: threading.Event) -> None:
    """Touch the note of a run until the run has ended."""
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(note)


@contextmanager
def job_lock(job: Job, patience: float = 20) -> Iterator[None]:
    """Hold the job's lock, after giving another holder time to end."""
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
    """Return the temporary folder of all runs, with paths short enough for sockets (104 bytes on macOS)."""
    if scratch := os.environ.get("CALIBRATION_SCRATCH"):
        return Path(scratch).parent
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 60 else "/tmp")


def scratch_folder() -> Path:
    """Create a scratch folder: a run's in the temporary folder, a job's inside its run's."""
    return Path(tempfile.mkdtemp(prefix="job", dir=os.environ.get("CALIBRATION_SCRATCH") or short_tempdir()))


def own_folder() -> Path:
    """Return the user's private folder in the shared temporary folder. Raise UserError if another user owns it."""
    folder = short_tempdir() / f"calibrated-confidence-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise UserError(f"{folder} is not your private folder: remove it, or set TMPDIR to another folder")
    return folder


# ---- processes ---------------------------------------------------------------------------------------------


def is_running(pid: int) -> bool:
    try:
        return pid > 0 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_program(*command: str, **more: str) -> tuple[int, str]:
    """Run a program with extra environment variables and return its exit code and its output, or its error."""
    env = {**os.environ, **more}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stderr if done.returncode else done.stdout).strip()


def stop_processes(process: subprocess.Popen, patience: float = 20, number: int = signal.SIGTERM) -> None:
    """End a scheduler (the leader of its process group) and its children: by a signal first, then by a kill."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    os.killpg(process.pid, number)
    _, survivors = psutil.wait_procs(family, timeout=patience)
    for survivor in survivors:
        survivor.kill()
    process.wait()
