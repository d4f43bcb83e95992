"""GGUF files as weights: found in a folder or on the hub, and verified by their sha256 before the first job.

A model's file may name a GGUF file. The run looks for it in the folder `source`, in models/, in the hub's cache and in
the repository `source` on the hub. A link in artifacts/.models/<sha256>/ leads to the file that was verified. Each job
loads that file by transformers' `gguf_file`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from lib import params
from lib.files import write_atomically
from lib.parameter_types import Model
from lib.paths import ROOT, UserError, local_path, nearest
from workflow import hub
from workflow.fingerprint import checksum

Say = Callable[[str], None]


def is_elsewhere(spec: Model) -> bool:
    """Whether a model is a GGUF file that is yet to be fetched from the hub, or found nowhere."""
    try:
        return bool(spec.gguf) and not locate_file(spec)
    except UserError:  # reported when it is fetched
        return True


def fetch(names: list[str], say: Say) -> None:
    """Obtain, verify and link the GGUF files of these models. Raise UserError if one is not available."""
    for name, spec in ((name, params.load_model_config(name)) for name in names):
        if spec.gguf:
            link_file(spec, obtain_file(name, spec, say))


def obtain_file(name: str, spec: Model, say: Say) -> Path:
    """Return a local GGUF file or download it. Raise UserError if its sha256 is wrong or the disk is too full."""
    file = locate_file(spec)
    if not file:
        size = size_on_hub(spec)
        if lack := hub.lack_of_cache_room(size):
            raise UserError(lack)
        say(f"fetching {name}: {format_gigabytes(size)} from {spec.source}")
        file = hub.download_file(spec)
    verify_file(spec, file)
    return file


def locate_file(spec: Model) -> Path | None:
    """Return the GGUF file in the folder `source`, in models/ or in the hub's cache. None if it is on the hub alone.

    Raise UserError if `source` is a folder without it.
    """
    folder = local_path(spec.source)
    file = folder / str(spec.gguf)
    if folder.is_dir() and not file.is_file():
        there = [path.name for path in folder.glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(file.name, there)}")
    return next((place for place in (file, copy_of(spec)) if place.is_file()), None) or hub.cached_file(spec)


def copy_of(spec: Model) -> Path:
    """Return the place of a GGUF file that was fetched by other means."""
    return ROOT / "models" / Path(str(spec.gguf)).name


def size_on_hub(spec: Model) -> int:
    """Return the bytes of a GGUF file on the hub. Raise UserError if the hub lacks it."""
    try:
        return hub.file_size(spec)
    except UserError as problem:
        copy = copy_of(spec).relative_to(ROOT)
        raise UserError(f"{problem}; or put it at {copy} (sha256 {spec.sha256})") from None


def verify_file(spec: Model, file: Path) -> None:
    """Raise UserError if a file is not the one of the sha256."""
    if (found := checksum(str(file))) != spec.sha256:
        raise UserError(f"{spec.gguf} has sha256 {found}, expected {spec.sha256}: it is not used")


def link_file(spec: Model, file: Path) -> None:
    """Make the link by which the jobs find a verified file. It replaces an earlier one in one step."""
    write_atomically(spec.place / Path(str(spec.gguf)).name, lambda link: link.symlink_to(file.resolve()))


def format_gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"


def describe_weights(spec: Model) -> Iterator[tuple[str, str]]:
    """Yield the lines of `check`, (level, text): the source and size of a GGUF file, and disk space to fetch it."""
    if file := locate_file(spec):
        verify_file(spec, file)
        size = format_gigabytes(file.stat().st_size)
        yield "ok", f"{spec.gguf} of {spec.source}, {size}, is here and of the right sha256: every job unpacks it"
        return
    size_there = size_on_hub(spec)
    text = f"{spec.gguf} of {spec.source}, {format_gigabytes(size_there)} on the hub, is yet to be fetched"
    yield "note", f"{text}: its prompt, end tokens and kind are looked at after that, before the first job"
    if lack := hub.lack_of_cache_room(size_there):
        yield "wrong", lack
