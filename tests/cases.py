"""Cases from the field, a line each, in the files of tests/field: what somebody has, and what is
made of it.

`answers.txt` holds the value of an answer (or `-` for none) and a response, in which `⟦ ⟧`
stand around what is read and `↵` ends a line. The other files hold JSON, with an `id` that names
the case and its test.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).with_name("field")
# words that a label, title, question or response may hold, and that are to stay words
STRINGS = json.loads(Path(__file__).with_name("hostile.json").read_text())


def read_cases(file: str, *fields: str) -> list[dict]:
    """The cases of a file that have one of these fields."""
    cases = []
    for line in (FOLDER / file).read_text("utf-8").splitlines():
        case = json.loads(line)
        if not case.keys().isdisjoint(fields):
            cases.append(case)
    return cases


def cases_with(*fields: str, file: str) -> pytest.MarkDecorator:
    """A test for each case of a file that has one of these fields, with its id."""
    cases = read_cases(file, *fields)
    names = [case["id"] for case in cases]
    assert len(set(names)) == len(names), "ids are there once"
    return pytest.mark.parametrize("case", cases, ids=names)


class Answer(NamedTuple):
    """What a response's answer is (None for none), the response, and where the answer stands."""

    value: str | None
    text: str
    span: tuple[int, int] | None


def read_answers() -> list[Answer]:
    """The answers of answers.txt."""
    answers = []
    for line in (FOLDER / "answers.txt").read_text("utf-8").splitlines():
        value, _, text = line.partition("\t")
        text = re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)
        text = text.replace("↵", "\n")
        span = None
        if "⟦" in text:
            span = (text.index("⟦"), text.index("⟧") - 1)
            text = text.replace("⟦", "").replace("⟧", "")
        answers.append(Answer(None if value == "-" else value, text, span))
    return answers
