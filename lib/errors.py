"""Errors for users: one line with what is wrong, where, and the nearest valid value.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class UserError(ValueError):
    """User-correctable error: one line with what is wrong, where, and the nearest valid value."""

    def __init__(self, text: object):
        super().__init__(one_line(str(text)))


class MissingSignalError(UserError):
    """A signal that a model can't give: its notebook ends here, and the cells of tables stay empty
    for this reason.
    """


class HelperEnds(Exception):  # noqa: N818  # nothing is wrong
    """A process that shares the rows of a job with others comes to where one of them goes on alone:
    to writing the frame."""


def one_line(text: str, most: int = 280) -> str:
    """Return a text for a terminal: unprintable characters escaped, the middle of a long text
    removed."""
    text = "".join(map(escape_unprintable, text))
    if len(text) <= most:
        return text
    start = text[: most - 105]
    return f"{start} ... {text[-100:]}"


def escape_unprintable(character: str) -> str:
    """Return a character, or its escape (`\\x1b`, `\\ud800`) if it is unprintable."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def show_hidden(text: str) -> str:
    """Return a text for a page: control and bidirectional characters escaped."""
    return UNPRINTABLE.sub(lambda match: escape_unprintable(match[0]), text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if empty."""
    message = str(error).strip() or type(error).__name__
    return message.splitlines()[0][:200]


def nearest(word: str, options: Iterable[str]) -> str:
    """Return a suggestion for a wrong `word`: the closest option, or a list of all."""
    names = sorted(set(options))
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there is: {', '.join(names) or 'nothing'}"


def check_choice(name: str, value: Any, choices: Iterable[str]) -> Any:
    """Return the value of an argument. Raise UserError, with all choices, if it is none of them."""
    valid = list(choices)
    if value not in valid:
        raise UserError(f"{name} is {value!r}; choose one of {', '.join(map(repr, valid))}")
    return value
