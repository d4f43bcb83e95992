"""The project's folders, and paths as users name them and as messages show them.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from lib.errors import UserError

ROOT = Path(__file__).resolve().parent.parent  # site-packages, if lib is installed alone
ARTIFACTS = ROOT / "artifacts"
PARAMS = ROOT / "params"
MODELS = ARTIFACTS / ".models"  # GGUF files that were checked, each in a folder named by its sha256
SHIPPED = ARTIFACTS / "shipped" / "demo"
SPELLINGS = ARTIFACTS / "shipped" / "spellings"  # the text of tokens, by id, a file per model

# tqdm warns in notebooks without ipywidgets, where its bars are text
warnings.filterwarnings("ignore", message="IProgress not found")


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
    path = os.path.normpath(value)
    if path.startswith(f"..{os.sep}"):
        return f".../{os.path.basename(path)}"
    return value


def number_equal_names(names: Iterable[str]) -> list[str]:
    """Return the public paths of several files, numbered where two are the same: `.../a.csv`,
    `.../a.csv (2)`."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        number = seen[name]
        numbered.append(name if number == 1 else f"{name} ({number})")
    return numbered


def relative_path(path: Path) -> str:
    """Return a path for messages, relative to the project's root if inside it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def local_path(name: str) -> Path:
    """Return the path that a user wrote; it starts from the project's root, or from the home folder
    if it has a `~`."""
    return ROOT / os.path.expanduser(name)


def is_path(source: str) -> bool:
    """Whether a source is a path (existing or not) and not a name on the hub.

    Names that start with a folder of the project (`demo/...`), `~` or `models/` are paths.
    """
    first, *rest = source.split("/")
    if len(rest) > 1 or os.path.exists(ROOT / source):
        return True
    if not rest:
        return False
    if first in ("", ".", "..", "models") or first.startswith("~"):
        return True
    return os.path.isdir(ROOT / first)
