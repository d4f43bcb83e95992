"""The marks around a model's thinking, and the switches of chat templates: thinking.yaml.

A response is read by the marks of all families: no model writes another's. A template is asked for
its own family, since a switch that it does not know would change nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Family:
    """How some models think: the fields of a row of thinking.yaml, as described there."""

    models: str
    opens: list[str]
    closes: list[str]
    at_once: str
    switch: str | None = None
    values: tuple[Any, Any] | None = None  # on and off

    def options(self, thinking: bool) -> dict[str, Any]:
        """Return the variables of a chat template that let the model think, or not."""
        if self.switch is None or self.values is None:
            return {}
        on, off = self.values
        return {self.switch: on if thinking else off}


def match_any(marks: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of any of these marks.

    Examples
    --------
    >>> match_any(["<think>", "[THINK]"]).search("Well, [THINK]").start()
    6
    """
    return re.compile("|".join(map(re.escape, dict.fromkeys(marks))))


_ROWS = yaml.safe_load(Path(__file__).with_name("thinking.yaml").read_text(encoding="utf-8"))
FAMILIES = [Family(**row) for row in _ROWS]
OPENS = list(chain.from_iterable(family.opens for family in FAMILIES))
CLOSES = list(chain.from_iterable(family.closes for family in FAMILIES))
OPENING = match_any(OPENS)
CLOSING = match_any(CLOSES)
CLOSING_TAG = "</think>"  # the most usual one
TAIL = 60  # characters at a prompt's end, in which a block may be opened


# ---- responses


def is_opening(token: str) -> bool:
    """Whether a response that begins with this token begins to think.

    Examples
    --------
    >>> is_opening("<think>"), is_opening("[TH"), is_opening(" ")
    (True, True, False)
    """
    start = token.strip()
    return bool(start) and any(mark.startswith(start) for mark in OPENS)


# ---- chat templates


def find_open_family(prompt: str) -> Family | None:
    """Return the family whose block of thinking a prompt has opened and not closed, if any.

    Examples
    --------
    >>> find_open_family("Solve this. [THINK]").closes
    ['[/THINK]']
    >>> find_open_family("Solve this. [THINK][/THINK]") is None
    True
    """
    tail = prompt[-TAIL:]
    for family in FAMILIES:
        place = max(tail.rfind(mark) for mark in family.opens)
        if place >= 0 and not CLOSING.search(tail, place):
            return family
    return None


def find_family(template: str, render: Callable[[Mapping[str, Any]], str]) -> Family | None:
    """Return the family of a chat template; None if it is of none.

    Its text, or a prompt, holds one of the family's marks. And the family's switch, if it has one,
    changes the prompt.

    Parameters
    ----------
    template : its text
    render : a function that returns a prompt, given some variables of the template

    Examples
    --------
    >>> find_family("...</think>...", lambda variables: f"Solve this. {variables}").switch
    'enable_thinking'
    """
    text = template + render({})
    for family in FAMILIES:
        if not any(mark in text for mark in [*family.opens, *family.closes]):
            continue
        if family.switch is None:
            return family
        if render(family.options(thinking=True)) != render(family.options(thinking=False)):
            return family
    return None
