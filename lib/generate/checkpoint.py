"""What a checkpoint's files must be before a model is asked: whole, of one another, and without a number that is none.

transformers fills a tensor that the files lack with random numbers, and only logs it. Here that is refused, by name.
"""

import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from lib.project import UserError, first_line, parse_json, read_bytes

READ = (".json", ".safetensors", ".jinja", ".txt", ".model")  # files that transformers may open
POINTER = b"version https://git-lfs.github.com/spec/"
OBJECTS = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
           "model.safetensors.index.json")  # fmt: skip


# ---- files


def check_files(folder: Path, whole: bool = True) -> None:
    """Raises UserError for a file that would not be read to its end: no ordinary one, a pointer of git-lfs, JSON that
    is no object, safetensors cut short; and, where the folder should be whole, for weights that are not there."""
    for path in sorted(path for path in folder.iterdir() if path.suffix in READ):
        check_ordinary(path)
        if path.name in OBJECTS:
            check_object(path)
        if path.suffix == ".safetensors":
            check_header(path)
    if whole:
        check_parts(folder / "model.safetensors.index.json")


def check_ordinary(path: Path) -> None:
    """A file that can be opened without waiting, and is no stand-in for another."""
    try:
        ordinary = stat.S_ISREG(os.stat(path).st_mode)
        if ordinary:
            with path.open("rb") as file:
                start = file.read(len(POINTER))
    except OSError as error:
        raise UserError(f"{path.name} can't be read: {error.strerror}") from error
    if not ordinary:
        raise UserError(f"{path.name} is no ordinary file")
    if start == POINTER:
        raise UserError(f"{path.name} is a pointer of git-lfs: `git lfs pull` fetches the file itself")


def check_object(path: Path) -> None:
    read = parse_json(read_bytes(path, path.name), path.name)
    if not isinstance(read, dict):
        raise UserError(f"{path.name} must hold an object, not a {type(read).__name__}")


def check_header(path: Path) -> None:
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path.name} is no whole safetensors file: {first_line(error)}") from error


def check_parts(index: Path) -> None:
    """Every file that the index of the weights names is there, and holds what it says."""
    if not index.exists() or (index.parent / "model.safetensors").exists():  # transformers takes the one file then
        return
    files = json.loads(index.read_text(encoding="utf-8")).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise UserError(f"{index.name} has no `weight_map` of tensors and files")
    for file in sorted(set(files.values())):
        if not (index.parent / Path(file).name).is_file() or Path(file).name != file:
            raise UserError(f"{index.name} names {file}, which is not there")
        with safe_open(index.parent / file, framework="pt") as tensors:
            absent = {name for name in files if files[name] == file}.difference(tensors.keys())
        if absent:
            raise UserError(f"{index.name} says that {file} holds {some(absent)}, which it lacks")


# ---- tensors


def check_loaded(info: Mapping[str, Collection[Any]]) -> None:
    """Raises UserError where the files lack a tensor of the network, or hold one that it has not, by the loading info
    of transformers (`output_loading_info`)."""
    mismatched = [str(part[0]) for part in info.get("mismatched_keys", ())]
    for names, fault in ((info.get("missing_keys", ()), "lack"), (mismatched, "hold in another shape"),
                         (info.get("unexpected_keys", ()), "hold more than the network has:")):  # fmt: skip
        if names:
            raise UserError(f"its files {fault} {some(names)} ({len(names)} in all): they are not of this config.json")
    if info.get("error_msgs"):
        raise UserError(f"its files do not fit: {some(info['error_msgs'])}")


def some(names: Iterable[Any]) -> str:
    """The first of some names, two at most."""
    return ", ".join(sorted(map(str, names))[:2])


def check_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises UserError for a weight that is NaN or infinite."""
    for name, tensor in tensors:
        if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() < 2:
            continue  # numbers of eight bits have no least and greatest in torch
        if not all(torch.isfinite(end) for end in tensor.aminmax()):  # NaN passes through both
            raise UserError(f"its tensor {name} holds NaN or infinite weights")


def stored(folder: Path) -> Iterable[tuple[str, torch.Tensor]]:
    """Names and tensors of a folder's safetensors, one after the other."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (it is no mapping)
                yield name, file.get_tensor(name)


# ---- tokens


def end_tokens(generation: Any, tokenizer: Any, size: int) -> list[int]:
    """Every id that ends a response: of the generation settings, else of the tokenizer. Raises UserError where there is
    none, or one beyond the network's `size` tokens."""
    named = generation.eos_token_id
    named = tokenizer.eos_token_id if named is None or named == [] else named
    ends = named if isinstance(named, (list, tuple)) else [] if named is None else [named]
    if not ends:
        raise UserError("it has no end token: its responses would never end; name `eos_token_id` in its "
                        "generation_config.json")  # fmt: skip
    for end in ends:
        if type(end) is not int or not 0 <= end < size:
            raise UserError(f"its end token {end!r} is none of the network's {size} tokens")
    return list(ends)


def check_vocabulary(tokenizer: Any, size: int) -> None:
    """Raises UserError where the network, of `size` tokens, has no row for the padding token or for one that any text
    may be written with. Tokens that were added to the tokenizer and stand in no prompt may lack one."""
    own = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    token, index = max(own.items(), key=lambda pair: pair[1], default=("", -1))
    if index < 0:
        raise UserError("its tokenizer knows no token")
    if index >= size:
        raise UserError(f"its tokenizer writes {token!r} as {index}, but the network has {size} tokens")
    pad = tokenizer.pad_token_id
    if pad is None:
        raise UserError("its tokenizer names neither a padding token nor an end token, with which to pad")
    if not 0 <= pad < size:
        raise UserError(f"its padding token {tokenizer.pad_token!r} ({pad}) is none of the network's {size} tokens")
