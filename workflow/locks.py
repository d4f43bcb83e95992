"""The lock and the scratch folder of a run."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lib.paths import ROOT, UserError
from workflow.fingerprint import digest
from workflow.pipeline import Run


@contextmanager
def run_lock(run: Run, patience: float = 2) -> Iterator[Path]:
    """Hold the run's lock and yield its scratch folder. Raise UserError while another process holds the lock."""
    folder, holder = ROOT / run.folder, ROOT / run.folder / ".running"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(patience)
    except Timeout:
        raise UserError(f"run '{run.name}' is running already, in process {holder.read_text()}") from None
    with lock:
        holder.write_text(str(os.getpid()))
        scratch, before = new_scratch_folder(run), tempfile.tempdir
        tempfile.tempdir = str(scratch)
        try:
            yield scratch
        finally:
            tempfile.tempdir = before
            shutil.rmtree(scratch, ignore_errors=True)
            holder.unlink(missing_ok=True)


def remove_partial_files(run: Run) -> None:
    """Remove the files that a killed run was writing (lib.files.write_atomically). The caller has the run's lock."""
    for folder in (run.folder, run.figures):
        for path in list((ROOT / folder).rglob(".*.partial")):
            path.unlink()


def new_scratch_folder(run: Run) -> Path:
    """Create the run's folder for temporary files, empty and private. Its name is that of the run's last start."""
    folder = short_tempdir() / f"run-{os.getuid()}-{digest(str(ROOT / run.folder))[:8]}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise UserError(f"{folder} is in the way: remove it, or set TMPDIR to another folder") from None
    return folder


def short_tempdir() -> Path:
    """Return the folder for temporary files, with a path short enough for sockets below it (104 bytes on macOS)."""
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 50 else "/tmp")
