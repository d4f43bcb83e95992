"""The project's folders, errors for its users, and paths as they name them and as messages show
them.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent  # site-packages, if lib is installed alone
ARTIFACTS = ROOT / "artifacts"
PARAMS = ROOT / "params"
MODELS = ARTIFACTS / ".models"  # GGUF files that were checked, each in a folder named by its sha256
SHIPPED = ARTIFACTS / "shipped" / "demo"

# tqdm warns in notebooks without ipywidgets, where its bars are text
warnings.filterwarnings("ignore", message="IProgress not found")


# ---- errors

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class UserError(ValueError):
    """User-correctable error: one line with what is wrong, where, and the nearest valid value."""

    def __init__(self, text: object):
        super().__init__(one_line(str(text)))


class MissingSignal(UserError):
    """A signal that a model can't give: its notebook ends here, and the cells of tables stay empty
    for this reason."""


def one_line(text: str, most: int = 280) -> str:
    """Return a text for a terminal: unprintable characters escaped, the middle of a long text
    removed."""
    text = "".join(map(escape_unprintable, text))
    return text if len(text) <= most else f"{text[: most - 105]} ... {text[-100:]}"


def escape_unprintable(character: str) -> str:
    """Return a character, or its escape (`\\x1b`, `\\ud800`) if it is unprintable."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def show_hidden(text: str) -> str:
    """Return a text for a page: control and bidirectional characters escaped."""
    return UNPRINTABLE.sub(lambda match: escape_unprintable(match[0]), text)


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


# ---- paths


def of_project(path: Path) -> Path:
    """Return a path below artifacts/ or params/. Raise UserError if `lib` is installed alone."""
    if not (ROOT / "run_all.sh").exists():
        folders = "artifacts/ and params/ are folders of the project"
        raise UserError(f"{folders}, and `lib` is installed without it: use a clone of the project")
    return path


def public_path(value: str) -> str:
    """Return a path without machine-specific parts: relative to the project's root, or only its
    last name outside it.

    Names on the hub are unchanged.
    """
    if os.path.isabs(value):
        value = os.path.relpath(os.path.realpath(value), os.path.realpath(ROOT))
    outside = os.path.normpath(value).startswith(f"..{os.sep}")
    return f".../{os.path.basename(os.path.normpath(value))}" if outside else value


def number_equal_names(names: Iterable[str]) -> list[str]:
    """Return the public paths of several files, numbered where two are the same: `.../a.csv`,
    `.../a.csv (2)`."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return numbered


def relative_path(path: Path) -> str:
    """Return a path for messages, relative to the project's root if inside it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def local_path(name: str) -> Path:
    """Return the path that a user wrote; it starts from the project's root, or from the home folder
    if it has a `~`."""
    return ROOT / os.path.expanduser(name)


def is_path(source: str) -> bool:
    """Whether a source is a path (existing or not) and not a name on the hub.

    Names that start with a folder of the project (`demo/...`), `~` or `models/` are paths.
    """
    first, *rest = source.split("/")
    inside = bool(rest) and (
        first in ("", ".", "..", "models") or first[0] == "~" or os.path.isdir(ROOT / first)
    )
    return inside or len(rest) > 1 or os.path.exists(ROOT / source)
