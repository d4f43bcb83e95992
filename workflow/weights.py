"""GGUF files as weights: found in a folder or on the hub, verified by their sha256, converted once.

A model's file may name a GGUF file. The run looks for it in the folder `source`, in models/, and in the repository
`source` on the hub. Its sha256 must be right. lib/generate/gguf_file.py converts it into artifacts/.models/<sha256>/,
and every run uses this checkpoint like any other.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from lib import params
from lib.configs import Model
from lib.paths import ROOT, UserError, nearest
from workflow import hub
from workflow.fingerprint import file_sha256

ROOM = 5  # disk space in multiples of the file: the file and its 16-bit weights (1.1 GB becomes 3.5 GB)
Say = Callable[[str], None]


def pending(spec: Model) -> bool:
    """Whether a model's GGUF file is not converted yet."""
    return bool(spec.gguf) and not spec.place.is_dir()


def fetch(names: list[str], say: Say) -> None:
    """Obtain and convert the GGUF files of these models. Raise UserError if one is not available."""
    for name, spec in ((name, params.load_model_config(name)) for name in names):
        if pending(spec):
            with locked(spec, say) as lock:
                if pending(spec):  # another run may have converted it
                    convert(name, spec, obtain(name, spec, say), lock, say)


@contextmanager
def locked(spec: Model, say: Say) -> Iterator[IO]:
    """Wait for and hold the lock of a model's conversion, whose process inherits it."""
    spec.place.parent.mkdir(parents=True, exist_ok=True)
    with open(spec.place.with_name(f".{spec.sha256}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another run to convert {spec.gguf} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


# ---- finding the file --------------------------------------------------------------------------------------


def obtain(name: str, spec: Model, say: Say) -> Path:
    """Return a local GGUF file or download it. Raise UserError if its sha256 is wrong."""
    file = local_file(spec)
    if not file:
        size = size_on_hub(spec)
        look_for_room(spec, ROOM * size)
        say(f"fetching {name}: {gigabytes(size)} from {spec.source}")
        file = hub.download_file(spec)
    found = file_sha256(file)
    if found != spec.sha256:
        raise UserError(f"{spec.gguf} has sha256 {found}, expected {spec.sha256}: it is not used")
    return file


def size_on_hub(spec: Model) -> int:
    """Return the bytes of the file on the hub. The UserError names the folder for a local copy and its sha256."""
    try:
        return hub.file_size(spec)
    except UserError as problem:
        raise UserError(f"{problem}; or put it at {served_by(spec)} (sha256 {spec.sha256})") from None


def served_by(spec: Model) -> str:
    """Return the file's path in models/, which is valid for any `source`."""
    return f"models/{Path(str(spec.gguf)).name}"


def local_file(spec: Model) -> Path | None:
    """Return a model's GGUF file in the folder `source` or in models/, or None.

    Raise UserError if `source` is a folder without it.
    """
    folder, file = ROOT / spec.source, ROOT / spec.source / str(spec.gguf)
    if folder.is_dir() and not file.is_file():
        there = [path.name for path in folder.glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(file.name, there)}")
    return next((path for path in (file, ROOT / served_by(spec)) if path.is_file()), None)


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2g} GB"


# ---- conversion --------------------------------------------------------------------------------------------


def convert(name: str, spec: Model, file: Path, lock: IO, say: Say) -> None:
    """Convert the file in a separate process, which frees its memory at the end.

    The process inherits the lock, so that after a kill of its run the next run waits for it.
    """
    from lib.generate import gguf_file  # imported here, because nothing else needs the GGUF reader

    dtype, count = gguf_file.measure_gguf(file)
    each = 4 if dtype == "float32" else 2
    shutil.rmtree(gguf_file.partial_folder_of(spec.place), ignore_errors=True)
    look_for_room(spec, each * count)
    say(f"converting {name} ({count / 1e9:.2g} billion weights) into {where(spec)}, once ...")
    command = [sys.executable, "-m", "lib.generate.gguf_file", str(file), str(spec.place)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
    with TemporaryFile("w+") as words:  # not a pipe, which would break if this run is killed
        streams = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words}
        done = subprocess.run(command, cwd=ROOT, env=env, pass_fds=[lock.fileno()], **streams)
        words.seek(0)
        said = words.read().strip() or f"{spec.gguf} can't be converted"
    if done.returncode < 0:
        need = f"it needs about {2e-9 * each * count:.2g} GB; the same command resumes"
        raise UserError(f"the conversion of {spec.gguf} was killed by signal {-done.returncode}, "
                        f"most likely for lack of memory: {need}")  # fmt: skip
    if done.returncode:
        raise UserError(said.splitlines()[-1])


def where(spec: Model) -> str:
    return f"artifacts/.models/{str(spec.sha256)[:12]}.../"


def free(spec: Model) -> int:
    """Return the free bytes on the disk of the checkpoints."""
    return hub.free_bytes(spec.place.parent)


def look_for_room(spec: Model, wanted: int) -> None:
    """Raise UserError if the disk has too little free space."""
    if wanted > hub.FILLED * free(spec):
        there = f"the disk of artifacts/ has {free(spec) / 1e9:.1f} GB free"
        raise UserError(f"the conversion of {spec.gguf} needs {wanted / 1e9:.1f} GB: {there}")


# ---- the lines of `check` ----------------------------------------------------------------------------------


def about(spec: Model) -> Iterator[tuple[str, str]]:
    """Yield (level, text): the file's source, size and disk space, or that it is converted."""
    if not pending(spec):
        yield "ok", f"{spec.gguf} is converted, in {where(spec)}"
        return
    file = local_file(spec)
    size, place = (file.stat().st_size, "") if file else (size_on_hub(spec), "on the hub")
    text = f"{spec.gguf} of {spec.source}, {gigabytes(size)} {place}".rstrip()
    yield "note", f"{text}, is not converted yet: a run does so once, and `check` then also estimates its hours"
    room = f"{free(spec) / 1e9:.0f} GB are free"
    level = "wrong" if ROOM * size > hub.FILLED * free(spec) else "ok"
    yield level, f"about {gigabytes(ROOM * size)} of disk will be needed for {where(spec)}, {room}"
