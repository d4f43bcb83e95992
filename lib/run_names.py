"""The names of runs, and of their folders in artifacts/ and figures/: `demo`, `replay`,
`replay-small`, `published`, `lab`, `lab-mine`; and `mine`, a user's own run.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lib.errors import UserError

DEFAULT = "demo"  # the profile if none is given
MAKE, REPLAY, PUBLISHED, LAB = "make", "replay", "published", "lab"
RESERVED = ("shipped", "stale")  # folders of the project
OF_PAPER = ("demo", "paper", "pilot", "small")  # profiles whose report judges the paper's claims
LONGEST = 100  # characters of a run's name


@dataclass(frozen=True)
class RunName:
    """What a run does, and with which profile. MAKE runs a profile's models, and its name is that
    of the profile."""

    verb: str
    profile: str = DEFAULT

    @classmethod
    def parse(cls, name: str) -> RunName:
        """Return the parts of a name. Of an interactive run (LAB) any word may follow the verb."""
        verb, _, profile = name.partition("-")
        if verb in (REPLAY, PUBLISHED, LAB):
            return cls(verb, profile or DEFAULT)
        return cls(MAKE, name)

    def __str__(self) -> str:
        if self.verb == MAKE:
            return self.profile
        if self.profile == DEFAULT:
            return self.verb
        return f"{self.verb}-{self.profile}"

    @property
    def command(self) -> str:
        """The words after `./run_all.sh` that make the run; empty for an interactive one."""
        if self.verb == LAB:
            return ""
        if self.verb == REPLAY and self.profile != DEFAULT:
            return f"{REPLAY} {self.profile}"
        return str(self)

    @property
    def shipped(self) -> str:
        """The profile whose shipped frames it reads where it has none of its own; empty for
        none."""
        if self.verb == REPLAY:
            return self.profile
        return DEFAULT if self.verb == LAB else ""


# ---- a user's own run


def shows_paper(name: str) -> bool:
    """Whether the report of a run judges the paper's claims first; that of any other answers for
    the user's models.

    Examples
    --------
    >>> shows_paper("small"), shows_paper("replay-small"), shows_paper("mine")
    (True, True, False)
    """
    run = RunName.parse(name)
    return run.verb != MAKE or run.profile in OF_PAPER


def is_word(name: str) -> bool:
    """Whether a name can be part of the names of jobs and folders, which join names by `__`.

    Examples
    --------
    >>> is_word("my-model.2"), is_word("my__model"), is_word("a/b")
    (True, False, False)
    """
    return bool(re.fullmatch(r"\w[\w.-]*", name)) and "__" not in name


def make_word(text: str) -> str:
    """Return the nearest word to the name of a file or of a server's model; empty if there is none.

    Examples
    --------
    >>> make_word("scores of May (2)"), make_word("Qwen/Qwen3-4B:free")
    ('scores-of-May-2', 'Qwen3-4B-free')
    """
    last = text.rstrip("/").split("/")[-1]
    word = re.sub(r"[^\w.-]+", "-", last)
    return re.sub("__+", "_", word).strip("-._")


def join_names(names: Iterable[str]) -> str:
    """Return the name of a run with these models and datasets of the user, each once.

    Examples
    --------
    >>> join_names(["mine", "own-questions", "mine"])
    'mine-own-questions'
    """
    return "-".join(dict.fromkeys(names))


def check_own_name(name: str, others: Iterable[str]) -> str:
    """Return the name of a user's own run.

    Raise UserError if it can't be a folder's name, or if a profile, a verb (`others`) or another
    kind of run has it.
    """
    lowered = name.lower()  # some disks do not distinguish them
    if not is_word(name) or len(name) > LONGEST:
        raise UserError(
            f"run '{name:.{LONGEST}}': its name needs letters, digits, '.', '-' and single '_', "
            f"at most {LONGEST}: choose another by --name"
        )
    if lowered in (*others, *RESERVED) or RunName.parse(lowered).verb != MAKE:
        raise UserError(
            f"run '{name}': a profile, a verb or a folder of the project has this name: "
            "choose another by --name"
        )
    return name
