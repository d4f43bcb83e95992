"""Cases from the field, a line each, in the files of tests/field: what somebody has, and what is
made of it.

`answers.txt` holds the value of an answer (or `-` for none) and a response, in which `⟦ ⟧` stand
around what is read and `↵` ends a line. The other files hold JSON.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).with_name("field")
# words that a label, title, question or response may hold, and that are to stay words
STRINGS = json.loads(Path(__file__).with_name("hostile.json").read_text())


def read_cases(name: str, *fields: str) -> list[dict]:
    """The cases of a file that have one of these fields."""
    rows = [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]
    return [row for row in rows if not {*fields}.isdisjoint(row)]


def read_answers() -> Iterator[tuple[str | None, str, tuple[int, int] | None]]:
    """Of each response the value of its answer, its text, and where the answer stands."""
    for line in (FOLDER / "answers.txt").read_text("utf-8").splitlines():
        value, _, text = line.partition("\t")
        text = re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text).replace(
            "↵", "\n"
        )
        span = (text.index("⟦"), text.index("⟧") - 1) if "⟦" in text else None
        yield None if value == "-" else value, text.replace("⟦", "").replace("⟧", ""), span
