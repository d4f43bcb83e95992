"""GGUF files as weights: had from a folder or the hub, known by their sha256, converted once.

A model's file may name a GGUF file. The first place that has it serves: the folder that `source` names, the folder
models/, the repository of that name on the hub, into whose cache it is fetched. It is used if its sha256 is right.
Converted into artifacts/.models/<sha256>/ (lib/generate/gguf_file.py), it serves every run like any other checkpoint.
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

ROOM = 5  # times a file's bytes: the file, and weights of 16 bits for about 5 (1.1 GB make 3.5 GB)
Say = Callable[[str], None]


def pending(spec: Model) -> bool:
    """Whether a model's GGUF file is still to be converted."""
    return bool(spec.gguf) and not spec.place.is_dir()


def fetch(names: list[str], say: Say) -> None:
    """Have and convert what these models still lack. Raises UserError that says why one can't be had."""
    for name, spec in ((name, params.load_model_config(name)) for name in names):
        if pending(spec):
            with locked(spec, say) as lock:
                if pending(spec):  # whoever had the lock may have done it
                    convert(name, spec, obtain(name, spec, say), lock, say)


@contextmanager
def locked(spec: Model, say: Say) -> Iterator[IO]:
    """The lock of a model's conversion; who has it is waited for. A conversion inherits it from its run."""
    spec.place.parent.mkdir(parents=True, exist_ok=True)
    with open(spec.place.with_name(f".{spec.sha256}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another run, which converts {spec.gguf} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


# ---- having the file ---------------------------------------------------------------------------------------


def obtain(name: str, spec: Model, say: Say) -> Path:
    """The GGUF file, where it lies or in the hub's cache. Raises UserError for another file than the model's."""
    file = local_file(spec)
    if not file:
        size = size_on_hub(spec)
        look_for_room(spec, ROOM * size)
        say(f"fetching {name}: {gigabytes(size)} from {spec.source}")
        file = hub.download_file(spec)
    found = file_sha256(file)
    if found != spec.sha256:
        raise UserError(f"{spec.gguf} came with sha256 {found}, expected {spec.sha256}: it is not used")
    return file


def size_on_hub(spec: Model) -> int:
    """Bytes of the file on the hub. Raises UserError that says which file, of which sha256, would serve in which
    folder."""
    try:
        return hub.file_size(spec)
    except hub.OutOfReach as problem:
        raise UserError(f"{problem}; {served_by(spec)} (sha256 {spec.sha256}) would serve, too") from None


def served_by(spec: Model) -> str:
    """Where the file may lie, whatever `source` names."""
    return f"models/{Path(str(spec.gguf)).name}"


def local_file(spec: Model) -> Path | None:
    """A model's GGUF file in the folder that `source` names, or in models/. Raises UserError where the folder that is
    named lacks it."""
    folder, file = ROOT / spec.source, ROOT / spec.source / str(spec.gguf)
    if folder.is_dir() and not file.is_file():
        there = [path.name for path in folder.glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(file.name, there)}")
    return next((path for path in (file, ROOT / served_by(spec)) if path.is_file()), None)


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2g} GB"


# ---- converting it -----------------------------------------------------------------------------------------


def convert(name: str, spec: Model, file: Path, lock: IO, say: Say) -> None:
    """Make the checkpoint, in a process of its own, whose memory goes with it. It holds the lock, too: where the run
    that began it is killed, the next one waits for it."""
    from lib.generate import gguf_file  # here: nothing else of a run needs the package that reads such files

    dtype, count = gguf_file.measure_gguf(file)
    each = 4 if dtype == "float32" else 2
    shutil.rmtree(gguf_file.partial_folder_of(spec.place), ignore_errors=True)
    look_for_room(spec, each * count)
    say(f"converting {name} ({count / 1e9:.2g} billion weights) into {where(spec)}, once ...")
    command = [sys.executable, "-m", "lib.generate.gguf_file", str(file), str(spec.place)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
    with TemporaryFile("w+") as words:  # no pipe, which would break with this run
        streams = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words}
        done = subprocess.run(command, cwd=ROOT, env=env, pass_fds=[lock.fileno()], **streams)
        words.seek(0)
        said = words.read().strip() or f"{spec.gguf} can't be converted"
    if done.returncode < 0:
        need = f"it takes about {2e-9 * each * count:.2g} GB of it; the same command goes on"
        raise UserError(f"the conversion of {spec.gguf} was killed by signal {-done.returncode}, "
                        f"most likely for want of memory: {need}")  # fmt: skip
    if done.returncode:
        raise UserError(said.splitlines()[-1])


def where(spec: Model) -> str:
    return f"artifacts/.models/{str(spec.sha256)[:12]}.../"


def free(spec: Model) -> int:
    """Bytes free where checkpoints are kept."""
    there = next(folder for folder in spec.place.parents if folder.is_dir())
    return shutil.disk_usage(there).free


def look_for_room(spec: Model, wanted: int) -> None:
    """Raises UserError where the disk has too little."""
    if wanted > hub.FILLED * free(spec):
        there = f"the disk of artifacts/ has {free(spec) / 1e9:.1f} GB free"
        raise UserError(f"{spec.gguf} needs {wanted / 1e9:.1f} GB while it is converted: {there}")


# ---- what `check` says of it -------------------------------------------------------------------------------


def about(spec: Model) -> Iterator[tuple[str, str]]:
    """(level, text): where the file will come from, its size, and room for it; or that it is converted."""
    if not pending(spec):
        yield "ok", f"{spec.gguf} is converted, in {where(spec)}"
        return
    file = local_file(spec)
    size, place = (file.stat().st_size, "") if file else (size_on_hub(spec), "on the hub")
    text = f"{spec.gguf} of {spec.source}, {gigabytes(size)} {place}".rstrip()
    yield "note", f"{text}, is not converted yet: a run does that once, and `check` then says its hours, too"
    room = f"{free(spec) / 1e9:.0f} GB are free"
    level = "wrong" if ROOM * size > hub.FILLED * free(spec) else "ok"
    yield level, f"about {gigabytes(ROOM * size)} of disk will be needed for {where(spec)}, {room}"
