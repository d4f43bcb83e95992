"""The names of runs, and of their folders in artifacts/ and figures/: `demo`, `replay`,
`replay-small`, `published`, `lab`, `lab-mine`.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT = "demo"  # the profile if none is given
MAKE, REPLAY, PUBLISHED, LAB = "make", "replay", "published", "lab"


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
