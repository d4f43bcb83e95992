"""What the text rests on without a table: the demonstration, the answer's format, the cost of a dropout pass.

The demonstration is taken out (or put in, where the profile has none) on a few evaluation questions of each pair; the
format is judged on the stored text, by a grader that also reads \\boxed{}.
"""

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib.store import KEYS
from lib.tasks import answers
from lib.tasks.datasets import Example

KEPT = [*KEYS, "reference", "answer", "text", "finish_reason"]
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")


def chosen(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The first evaluation rows of a generations frame."""
    return frame[frame.split == "evaluation"].head(rows)


def examples(frame: pd.DataFrame) -> list[Example]:
    """The questions of a generations frame, to be asked again."""
    return [Example(*row) for row in frame[list(Example._fields)].itertuples(index=False)]


def arms(with_profile: pd.DataFrame, other: pd.DataFrame, demonstration: bool) -> pd.DataFrame:
    """Both answers to each question: as the profile asks (`profile`), and with the demonstration the other way."""
    parts = [part[KEPT].assign(demonstration=shown, profile=shown == demonstration)
             for part, shown in ((with_profile, demonstration), (other, not demonstration))]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def boxed(text: str) -> str | None:
    """The number in the last \\boxed{} of a text, canonical; None without one."""
    found = _BOXED.findall(text)
    number = answers.parse_number(found[-1].replace(r"\text{", "").strip("{} ")) if found else None
    return None if number is None else answers.canonical(number)


def summary(frame: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """By pair and arm: rows, accuracy, share of answers found, and accuracy where \\boxed{} counts for a response
    without `####`."""
    lenient = [a if isinstance(a, str) else boxed(t) for a, t in zip(frame.answer, frame.text, strict=True)]
    graded = frame.assign(
        accuracy=[answers.grade(*pair, grader) for pair in zip(frame.answer, frame.reference, strict=True)],
        accuracy_boxed=[answers.grade(*pair, grader) for pair in zip(lenient, frame.reference, strict=True)],
        extracted=[isinstance(answer, str) for answer in frame.answer], rows=1)  # fmt: skip
    by = graded.groupby(["model", "dataset", "demonstration", "profile"], sort=False)
    return by.agg(rows=("rows", "sum"), **{name: (name, "mean") for name in ("accuracy", "extracted", "accuracy_boxed")}
                  ).reset_index()  # fmt: skip


def costs(facts: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """What `dropout.operations` left in manifests: model, dataset, passes, operations."""
    rows = [(*one["pair"], int(count), operations) for one in facts for count, operations in one["operations"].items()]
    return pd.DataFrame(rows, columns=["model", "dataset", "passes", "operations"])
