"""Where the project's folders are, mistakes that the user can mend, and files that are there whole or not at all."""

import difflib
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

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
    """A text as a terminal may show it: what does not print is spelt out, and of a long one the middle is left out."""

    def cut(part: str) -> str:
        return part if len(part) <= most else f"{part[: most - 105]} ... {part[-100:]}"

    return cut("".join(map(spelt, cut(text))))


def spelt(character: str) -> str:
    """A character, or the escape that stands for it (`\\x1b`, `\\ud800`) where it would not print."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def visible(text: str) -> str:
    """A text as a page may hold it: control characters, and those that turn what follows, are spelt out."""
    return HIDDEN.sub(lambda match: spelt(match[0]), text)


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
