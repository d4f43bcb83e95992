"""The project's folders, user errors, and file input and output: atomic writes, reads with one-line errors."""

import difflib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
PARAMS = ROOT / "params"
MODELS = ARTIFACTS / ".models"  # GGUF files that were checked, each in a folder named by its sha256
SHIPPED = ARTIFACTS / "shipped" / "demo"

# tqdm warns in notebooks without ipywidgets, where its bars are text
warnings.filterwarnings("ignore", message="IProgress not found")


MOST = 280  # characters of a message
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(ValueError):
    """User-correctable error: one line with what is wrong, where, and the nearest valid value."""

    def __init__(self, text: object):
        super().__init__(one_line(str(text)))


class MissingSignal(UserError):
    """A signal that a model can't give: its notebook ends here, and the cells of tables stay empty for this reason."""


def one_line(text: str, most: int = MOST) -> str:
    """Return a text for a terminal: unprintable characters escaped, the middle of a long text removed."""

    def cut(part: str) -> str:
        return part if len(part) <= most else f"{part[: most - 105]} ... {part[-100:]}"

    return cut("".join(map(escape_unprintable, cut(text))))


def escape_unprintable(character: str) -> str:
    """Return a character, or its escape (`\\x1b`, `\\ud800`) if it is unprintable."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def visible(text: str) -> str:
    """Return a text for a page: control and bidirectional characters escaped."""
    return HIDDEN.sub(lambda match: escape_unprintable(match[0]), text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if empty."""
    return f"{(str(error).strip() or type(error).__name__).splitlines()[0]:.200}"


def nearest(word: str, options: Iterable[str]) -> str:
    """Return a suggestion for a wrong `word`: the closest option, or a list of all."""
    options = sorted(set(options))
    close = difflib.get_close_matches(str(word), options, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there is: {', '.join(options) or 'nothing'}"


def check_choice(name: str, value: Any, choices: Iterable[str]) -> Any:
    """Return the value of an argument. Raise UserError, with all choices, if it is none of them."""
    if value not in (choices := list(choices)):
        raise UserError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")
    return value


def public_path(value: str) -> str:
    """Return a path without machine-specific parts: relative to the project's root, or only its last name outside it.

    Names on the hub are unchanged.
    """
    if os.path.isabs(value) and os.path.realpath(value).startswith(os.path.realpath(ROOT) + os.sep):
        return os.path.relpath(os.path.realpath(value), os.path.realpath(ROOT))
    place = os.path.normpath(os.path.join(ROOT, value))
    return value if not value or place.startswith(f"{ROOT}{os.sep}") else f".../{os.path.basename(place)}"


def relative_path(path: Path) -> str:
    """Return a path for messages, relative to the project's root if inside it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def local_path(name: str) -> Path:
    """Return the path that a user wrote; it starts from the project's root, or from the home folder if it has a `~`."""
    return ROOT / os.path.expanduser(name)


def is_path(source: str) -> bool:
    """Whether a source is a path (existing or not) and not a name on the hub.

    Names that start with a folder of the project (`demo/...`), `~` or `models/` are paths.
    """
    first, *rest = source.split("/")
    inside = bool(rest) and (first in ("", ".", "..", "models") or first[0] == "~" or os.path.isdir(ROOT / first))
    return inside or len(rest) > 1 or os.path.exists(ROOT / source)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or a folder's listing to disk, so that it survives a power loss."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder
            raise
    finally:
        os.close(number)


def commit(scratch: Path, path: Path) -> None:
    """Rename a complete scratch file to its final name, durably."""
    sync(scratch)
    os.replace(scratch, path)
    sync(path.parent)


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file, flush it to disk, then rename it, so readers never see a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(scratch)
        commit(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


# ---- files written by users


def read_bytes(path: Path, where: object = None) -> bytes:
    """Return the bytes of a file. Raise UserError, with `where` as its name, if it can't be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        raise UserError(f"{where or path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def parse_json(data: bytes, where: object, line: int = 1) -> Any:
    """Parse the bytes of a file or of one line. Raise UserError with the line, also for a duplicate key."""
    try:
        return json.loads(data, object_pairs_hook=with_unique_keys)
    except (ValueError, RecursionError) as error:  # includes a wrong encoding
        line += getattr(error, "lineno", 1) - 1
        raise UserError(f"{where}, line {line}: not JSON ({getattr(error, 'msg', error)})") from error


def with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs. Raise ValueError for a duplicate key."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key '{name}' again")
        found[name] = value
    return found


PLAIN_VALUES = {
    "null": "|~|null|Null|NULL",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class PlainLoader(yaml.SafeLoader):
    """YAML loader for which a value is what it looks like, close to the core schema of YAML 1.2.

    Numbers are decimal, without leading zeros; `true`, `false`, `null` and `~` are no texts. All else is text: `yes`,
    `1:30`, `0o17`, `007`, `1_000`, `2024-07-26`, `<<`, and every key. Tags and duplicate keys are refused.
    """

    yaml_implicit_resolvers = {
        None: [(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{form})\Z")) for kind, form in PLAIN_VALUES.items()]
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node. Raise ComposerError for a tag, such as `!!int`, which may change a value."""
        event = self.peek_event()
        if tag := (getattr(event, "tag", None) or "").replace("tag:yaml.org,2002:", "!!"):
            raise yaml.composer.ComposerError(None, None, f"leave out the tag '{tag}'", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping. Raise ConstructorError for a duplicate key."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' again", key.start_mark)
            seen.add(key.value)
            key.tag = self.DEFAULT_SCALAR_TAG  # a text, also `1` and `on`
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, where: object = None) -> Any:
    """Parse a YAML file. Raise UserError with the file, as `where`, and the line."""
    data = read_bytes(path, where)
    try:
        return yaml.load(data.decode("utf-8"), PlainLoader)
    except UnicodeDecodeError:
        raise UserError(f"{where or path} is not text in UTF-8") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{where or path} is not YAML{line}: {problem or first_line(error)}") from None
