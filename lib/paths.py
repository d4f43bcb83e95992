"""Where the project's folders are, mistakes that the user can mend, and files: written whole or not at all, read with
one line for what is wrong."""

import difflib
import json
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
PARAMS = ROOT / "params"
MODELS = ARTIFACTS / ".models"  # GGUF files, converted: a checkpoint by the name of each file's sha256
SHIPPED = ARTIFACTS / "shipped" / "demo"

# tqdm, which transformers brings, in a notebook without ipywidgets: its bars are text there, and that is all right
warnings.filterwarnings("ignore", message="IProgress not found")


MOST = 280  # characters of a message
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(ValueError):
    """A mistake that the user can mend: one line saying what was wrong, where, and the nearest right thing."""

    def __init__(self, text: object):
        super().__init__(one_line(str(text)))


def one_line(text: str, most: int = MOST) -> str:
    """A text as a terminal may show it: what does not print is escaped, and the middle of a long one left out."""

    def cut(part: str) -> str:
        return part if len(part) <= most else f"{part[: most - 105]} ... {part[-100:]}"

    return cut("".join(map(escape_unprintable, cut(text))))


def escape_unprintable(character: str) -> str:
    """A character, or the escape that stands for it (`\\x1b`, `\\ud800`) where it would not print."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def visible(text: str) -> str:
    """A text as a page may hold it: control characters, and those that turn what follows, are spelled out."""
    return HIDDEN.sub(lambda match: escape_unprintable(match[0]), text)


def first_line(error: BaseException) -> str:
    """What another's error says, in short; its name where it says nothing."""
    return f"{(str(error).strip() or type(error).__name__).splitlines()[0]:.200}"


def nearest(word: str, options: Iterable[str]) -> str:
    """Half a sentence that points from a wrong `word` to the right one, or lists what there is."""
    options = sorted(set(options))
    close = difflib.get_close_matches(str(word), options, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there is: {', '.join(options) or 'nothing'}"


def public_path(value: str) -> str:
    """A place as files and tables may name it: a path from the project's root, or of one outside it the last name
    alone. Names on the hub stay."""
    if os.path.isabs(value) and os.path.realpath(value).startswith(os.path.realpath(ROOT) + os.sep):
        return os.path.relpath(os.path.realpath(value), os.path.realpath(ROOT))
    place = os.path.normpath(os.path.join(ROOT, value))
    return value if not value or place.startswith(f"{ROOT}{os.sep}") else f".../{os.path.basename(place)}"


def is_path(source: str) -> bool:
    """Whether a source is a path, though nothing may be there, and no name on the hub: so is what begins in a folder of
    the project (`demo/...`) or in `models/`."""
    first, *rest = source.split("/")
    inside = bool(rest) and (first in ("", ".", "..", "~", "models") or os.path.isdir(ROOT / first))
    return inside or len(rest) > 1 or os.path.exists(ROOT / source)


def sync(path: Path) -> None:
    """Have the disk hold what a file says, or a folder lists: that is what outlives a loss of power."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:
        if not path.is_dir():  # not every file system can do that for a folder
            raise
    finally:
        os.close(number)


def commit(scratch: Path, path: Path) -> None:
    """Give what was written under another name its own: from now on it is there, whole."""
    sync(scratch)
    os.replace(scratch, path)
    sync(path.parent)


# ---- files that people write


def read_bytes(path: Path, where: object = None) -> bytes:
    """The bytes of a file. Raises UserError, which names it by `where`, where it can't be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise UserError(f"{where or path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def parse_json(data: bytes, where: object, line: int = 1) -> Any:
    """The value of a file's bytes, or of those of one line. Raises UserError naming the line, also for a key that an
    object holds twice."""
    try:
        return json.loads(data, object_pairs_hook=with_unique_keys)
    except (ValueError, RecursionError) as error:  # a wrong encoding is one, too
        line += getattr(error, "lineno", 1) - 1
        raise UserError(f"{where}, line {line}: not JSON ({getattr(error, 'msg', error)})") from error


def with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError for a key that comes twice: which of the two is meant?"""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key '{name}' again")
        found[name] = value
    return found


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML of plain values alone, whose mappings hold each key once: which of two would be meant?"""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """As PyYAML does. Raises ConstructorError for a key that comes twice."""
        keys = [key.value for key, _ in node.value]
        for place, (key, _) in enumerate(node.value):
            if key.value in keys[:place]:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' again", key.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, where: object = None) -> Any:
    """The value of a YAML file. Raises UserError naming the file, by `where`, and the line."""
    data = read_bytes(path, where)
    try:
        return yaml.load(data.decode("utf-8"), UniqueKeyLoader)
    except UnicodeDecodeError:
        raise UserError(f"{where or path} is not text in UTF-8") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{where or path} is not YAML{line}: {problem or first_line(error)}") from None
