"""Files that people write: YAML and JSON, read within bounds, each key once, numbers as YAML 1.2 has them.

YAML 1.1, which PyYAML reads, has `yes` for true, 0100 for 64, 1:30 for 90 and 2024-01-01 for a date. Here the core
schema of YAML 1.2 holds (chapter 10.3 of its specification): these four are a text, 100, a text, a text.
"""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.scanner import ScannerError

from lib.project import UserError, first_line

LARGEST = {"yaml": 100_000, "json": 100_000_000}  # bytes of a file
DEEPEST = 20  # lists and mappings inside one another
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # a character beyond 16 bits, as JSON escapes it: in two halves
DIGITS = 400  # of a whole number: float has no more than 309
TAG = "tag:yaml.org,2002:"
SCALARS = [  # of the core schema: what a plain scalar is, and the characters that it may begin with
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
     list("-+.0123456789")),
]  # fmt: skip


def content(path: Path, most: int, where: object = None) -> bytes:
    """The bytes of an ordinary file, links followed. Raises UserError for anything else that may stand there (none of
    which is waited for), and for a file of more than `most` bytes. `where` is how a message names it."""
    where = where or path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            facts, data = os.fstat(descriptor), b""
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= most:
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL, or that no file can have
        raise UserError(f"{where} can't be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(facts.st_mode):
        raise UserError(f"{where} is {'a folder' if stat.S_ISDIR(facts.st_mode) else 'no ordinary file'}")
    if max(facts.st_size, len(data)) > most:
        raise UserError(f"{where} has {max(facts.st_size, len(data)):,} bytes; at most {most:,} are read")
    return data


def text(data: bytes, where: object) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{where} is not text in UTF-8") from None


# ---- YAML


class _Loader(yaml.SafeLoader):
    """The core schema of YAML 1.2, without tags: a file says what is there, never what it is made into."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # those of 1.1 put aside
    depth = 0

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= DEEPEST:  # here, before PyYAML looks at all of them for a key
            raise ScannerError(None, None, f"more than {DEEPEST} levels", self.get_mark())
        super().fetch_flow_collection_start(token)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise ComposerError(None, None, f"a tag ({event.tag})", event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            raise ComposerError(None, None, f"more than {DEEPEST} levels", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_scalar(self, node: Any) -> Any:
        """Two halves that are escaped make one character, since every file of JSON is one of YAML 1.2."""
        value = super().construct_scalar(node)
        return PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), value)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str) or not name.isprintable():
                raise ConstructorError(None, None, "a key that is no printable text", key.start_mark)
            if name in seen:
                raise ConstructorError(None, None, f"the key '{name}' again", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _whole(loader: _Loader, node: Any) -> int:
    if len(node.value) > DIGITS:
        raise ConstructorError(None, None, f"a number of {len(node.value)} digits", node.start_mark)
    return int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)


_Loader.add_constructor(f"{TAG}int", _whole)
for _name, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(f"{TAG}{_name}", re.compile(f"(?:{_pattern})$"), _first)


def read_yaml(path: Path, where: object = None) -> Any:
    """The value of a YAML file. Raises UserError naming file and line."""
    where = where or path
    data = text(content(path, LARGEST["yaml"], where), where)
    try:
        return yaml.load(data, _Loader)
    except yaml.YAMLError as error:
        line = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{where} is not YAML{f', line {line.line + 1}' if line else ''}: {problem}") from None


# ---- JSON


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError for a key that comes twice: which of the two is meant?"""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"the key '{twice}' again")
    return found


def parse_json(data: bytes, where: object, line: int = 1) -> Any:
    """The value of a file's bytes, or of those of one line. Raises UserError naming the line."""
    try:
        return json.loads(data, object_pairs_hook=once)
    except RecursionError:
        raise UserError(f"{where}, line {line}: not JSON (too many levels)") from None
    except ValueError as error:  # a wrong encoding is one, too
        line += getattr(error, "lineno", 1) - 1
        raise UserError(f"{where}, line {line}: not JSON ({getattr(error, 'msg', error)})") from error
