"""Reading and writing files: whole or not at all, and a mistake in a user's file is one line."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lib.paths import UserError, first_line, relative_path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file, flush it to disk, then rename it, so readers never see a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(scratch)
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raise UserError if it can't be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        raise UserError(f"{relative_path(path)} can't be read: {getattr(error, 'strerror', None) or error}") from error


def parse_json(data: bytes, where: object, line: int = 1) -> Any:
    """Parse the bytes of a file or of one line. Raise UserError with the line."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # includes a wrong encoding
        line += getattr(error, "lineno", 1) - 1
        raise UserError(f"{where}, line {line}: not JSON ({getattr(error, 'msg', error)})") from error


class PlainLoader(yaml.SafeLoader):
    """YAML loader that refuses a duplicate key, of which YAML keeps the last.

    It reads whole numbers in decimals alone: `1:30`, which YAML takes for 90, and `0x400` stay
    texts, and are then refused by their key.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping. Raise ConstructorError for a duplicate key."""
        keys = [key for key, _ in node.value]
        for place, key in enumerate(keys):
            if key.value in [earlier.value for earlier in keys[:place]]:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' again", key.start_mark)
        return super().construct_mapping(node, deep)


def read_whole_number(_: PlainLoader, node: Any) -> int | str:
    """Return the number of a YAML node in decimal digits; another notation as its text."""
    try:
        return int(node.value)
    except ValueError:
        return str(node.value)


PlainLoader.add_constructor("tag:yaml.org,2002:int", read_whole_number)


def read_yaml(path: Path) -> Any:
    """Parse a YAML file. Raise UserError with the file and the line."""
    data = read_bytes(path)
    try:
        return yaml.load(data.decode("utf-8"), PlainLoader)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{relative_path(path)} is not YAML{line}: {problem or first_line(error)}") from None
