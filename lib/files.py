"""Reading and writing files: whole or not at all, and a mistake in a user's file is one line."""

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from lib.errors import UserError, first_line
from lib.paths import relative_path

MOST_YAML = 200_000  # bytes of a file of parameters
MOST_VALUES = 10_000  # in it
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # of a pair of UTF-16
# what its parser raises
NOT_YAML = (
    yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError,
)  # fmt: skip


def sha256(content: Path | bytes) -> str:
    """Return the SHA-256 of a file, or of bytes."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold; equal contents have equal digests."""
    return sha256(json.dumps(content, sort_keys=True, default=str).encode())


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders, sorted; none that is hidden, or in a hidden
    one as `.git`."""
    files = []
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        paths = [Path(parent, name) for name in names if not name.startswith(".")]
        files += [path for path in paths if path.is_file()]
    return sorted(files)


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file, flush it to disk, then rename it, so readers never see a partial
    file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(scratch)
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold a lock, unless another process does, and yield whether it was free. A process that is
    killed holds none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        except OSError:  # a file system without locks
            is_free = True
        yield is_free


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_atomically` does."""
    write_atomically(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def open_to_read(path: Path) -> BinaryIO:
    """Open a file. Raise UserError if it can't be read, or may have no end, as a pipe or
    /dev/zero."""
    where = relative_path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a folder raises, as it should
            return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{where} can't be read: {reason}") from error
    raise UserError(f"{where} is a pipe or a device: write its content to a file")


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raise UserError as `open_to_read`."""
    with open_to_read(path) as file:
        return file.read()


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, one at a time in memory. Raise UserError as `open_to_read`."""
    with open_to_read(path) as file:
        yield from file


def parse_json(data: bytes, where: object, line: int = 1) -> Any:
    """Parse the bytes of a file or of one line. Raise UserError with the line."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # includes a wrong encoding
        line += getattr(error, "lineno", 1) - 1
        reason = getattr(error, "msg", error)
        raise UserError(f"{where}, line {line}: not JSON ({reason})") from error


class PlainLoader(yaml.SafeLoader):
    """YAML loader that refuses a duplicate key, of which YAML keeps the last.

    It reads whole numbers in decimals alone: `1:30`, which YAML takes for 90, and `0x400` stay
    texts, and are then refused by their key.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping. Raise ConstructorError for a duplicate key."""
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                problem = f"the key '{name}' again"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_whole_number(_: PlainLoader, node: Any) -> int | str:
    """Return the number of a YAML node in decimal digits; another notation as its text."""
    try:
        return int(node.value)
    except ValueError:
        return str(node.value)


def read_yaml_text(_: PlainLoader, node: Any) -> str:
    """Return the text of a YAML node. Raise ConstructorError for half a character: YAML reads the
    two escapes that JSON writes for one character as two halves, which no file can hold."""
    text = str(node.value)
    if HALF_CHARACTER.search(text):
        problem = r"an escape from \ud800 to \udfff is half a character: write the character itself"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return text


PlainLoader.add_constructor("tag:yaml.org,2002:int", read_whole_number)
PlainLoader.add_constructor("tag:yaml.org,2002:str", read_yaml_text)


def count_values(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node of YAML stands for, those of an alias each time. `known`:
    counts by id of a node; one that holds itself counts as too many.
    """
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1
        parts: Iterable[Any] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = chain.from_iterable(node.value)
        known[id(node)] = 1 + sum(count_values(part, known) for part in parts)
    return known[id(node)]


def construct_yaml(text: str) -> Any:
    """Return what a text of YAML stands for. Raise UserError for so much that reading it would not
    end."""
    loader = PlainLoader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    if count_values(node, {}) > MOST_VALUES:
        raise UserError(
            f"it holds more than {MOST_VALUES:,} values, those of an alias (`*name`) each time"
        )
    return loader.construct_document(node)


def read_yaml(path: Path) -> Any:
    """Parse a YAML file. Raise UserError with the file and the line, or if it is too long."""
    data = read_bytes(path)
    where = relative_path(path)
    if len(data) > MOST_YAML:
        size = f"{len(data):,} bytes: a file of YAML may have {MOST_YAML:,}"
        raise UserError(f"{where} has {size}")
    try:
        return construct_yaml(data.decode("utf-8"))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{where} is not YAML{line}: {problem}") from None
