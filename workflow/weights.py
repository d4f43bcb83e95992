"""GGUF files as weights: found in a folder or on the hub, verified by their sha256, converted once.

A model's file may name a GGUF file. The run looks for it in the folder `source`, in models/, and in the repository
`source` on the hub. Its sha256 must be right. lib/generate/gguf_file.py converts it into artifacts/.models/<sha256>/,
and every run uses this checkpoint like any other.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

from lib import params
from lib.configs import Model
from lib.paths import ROOT, UserError, local_path, nearest, sha256
from workflow import hub

ROOM = 5  # disk space in multiples of the file: the file and its 16-bit weights (1.1 GB becomes 3.5 GB)
Say = Callable[[str], None]


def needs_conversion(spec: Model) -> bool:
    """Whether a model's GGUF file is not converted yet."""
    return bool(spec.gguf) and not spec.place.is_dir()


def fetch(names: list[str], say: Say) -> None:
    """Obtain and convert the GGUF files of these models. Raise UserError if one is not available."""
    for name, spec in ((name, params.load_model_config(name)) for name in names):
        if needs_conversion(spec):
            convert(name, spec, obtain_file(name, spec, say), say)


# ---- finding the file --------------------------------------------------------------------------------------


def obtain_file(name: str, spec: Model, say: Say) -> Path:
    """Return a local GGUF file or download it. Raise UserError if its sha256 is wrong or the disk is too full."""
    file, size = locate_file(spec)
    if lack := lack_of_room(spec, size):
        raise UserError(lack)
    if not file:
        say(f"fetching {name}: {format_gigabytes(size)} from {spec.source}")
        file = hub.download_file(spec)
    found = sha256(file)
    if found != spec.sha256:
        raise UserError(f"{spec.gguf} has sha256 {found}, expected {spec.sha256}: it is not used")
    return file


def locate_file(spec: Model) -> tuple[Path | None, int]:
    """Return the GGUF file in the folder `source` or in models/, and its size; no file but its size on the hub.

    Raise UserError if `source` is a folder without it, or if the hub lacks it.
    """
    folder, copy = local_path(spec.source), f"models/{Path(str(spec.gguf)).name}"
    file = folder / str(spec.gguf)
    if folder.is_dir() and not file.is_file():
        there = [path.name for path in folder.glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(file.name, there)}")
    for place in (file, ROOT / copy):
        if place.is_file():
            return place, place.stat().st_size
    try:
        return None, hub.file_size(spec)
    except UserError as problem:
        raise UserError(f"{problem}; or put it at {copy} (sha256 {spec.sha256})") from None


def format_gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"


# ---- conversion --------------------------------------------------------------------------------------------


def convert(name: str, spec: Model, file: Path, say: Say) -> None:
    """Convert the file in a separate process, which frees its memory at the end.

    The process holds a lock, so that another run, also after a kill of this one, waits for it.
    """
    say(f"converting {name} ({format_gigabytes(file.stat().st_size)}) into {checkpoint_folder(spec)}, once ...")
    command = [sys.executable, "-m", "lib.generate.gguf_file", str(file), str(spec.place)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
    with TemporaryFile("w+") as words:  # not a pipe, which would break if this run is killed
        streams = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words}
        done = subprocess.run(command, cwd=ROOT, env=env, **streams)
        words.seek(0)
        said = words.read().strip() or f"{spec.gguf} can't be converted"
    if done.returncode < 0:
        killed = (
            f"the conversion of {spec.gguf} was killed by signal {-done.returncode}, most likely for lack of memory"
        )
        raise UserError(f"{killed}; the same command resumes")
    if done.returncode:
        raise UserError(said.splitlines()[-1])


def checkpoint_folder(spec: Model) -> str:
    return f"artifacts/.models/{str(spec.sha256)[:12]}.../"


def lack_of_room(spec: Model, size: int) -> str:
    """Return why the disk has too little room to convert a file of this size; empty if it has enough."""
    return hub.lack_of_room(f"the conversion of {spec.gguf}", ROOM * size, spec.place.parent)


# ---- the lines of `check` ----------------------------------------------------------------------------------


def describe_weights(spec: Model) -> Iterator[tuple[str, str]]:
    """Yield (level, text): the file's source, size and disk space, or that it is converted."""
    if not needs_conversion(spec):
        yield "ok", f"{spec.gguf} is converted, in {checkpoint_folder(spec)}"
        return
    file, size = locate_file(spec)
    text = f"{spec.gguf} of {spec.source}, {format_gigabytes(size)}" + ("" if file else " on the hub")
    yield "note", f"{text}, is not converted yet: a run does so once, and `check` then also estimates its hours"
    if lack := lack_of_room(spec, size):
        yield "wrong", lack
