"""Statistics for claims of the text without a table: the demonstration, and the answer's format.

The format is assessed with a grader that also reads \\boxed{}.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from lib.score.ablation import BEGINNINGS
from lib.store import PAIR
from lib.tasks.grading import grade


def grade_all(answers: Iterable[Any], references: Iterable[str], grader: str) -> list[bool]:
    """Return whether each answer is right; missing answers are wrong."""
    return [grade(answer, reference, grader) for answer, reference in zip(answers, references, strict=True)]


def add_outcomes(ablation: pd.DataFrame, grader: str) -> pd.DataFrame:
    """Add `extracted`, whether an answer was found, and `accuracy`, whether it is right."""
    extracted = [isinstance(answer, str) for answer in ablation.answer]
    return ablation.assign(extracted=extracted, accuracy=grade_all(ablation.answer, ablation.reference, grader))


def summarize_ablation(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """Return by pair and arm: rows, accuracy, share of answers found (`extracted`), and `accuracy_boxed`.

    The latter accepts \\boxed{} in responses without `####`.
    """
    graded = add_outcomes(ablation, grader)
    lenient = ablation.answer.where(graded.extracted, ablation.boxed)
    graded["accuracy_boxed"] = grade_all(lenient, ablation.reference, grader)
    by = graded.groupby([*PAIR, "demonstration", "profile"], sort=False)
    shares = {name: (name, "mean") for name in ("accuracy", "extracted", "accuracy_boxed")}
    return by.agg(rows=("answer", "size"), **shares).reset_index()


def compare_demonstrations(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """Compare the paper's example (`one`) with `none`, question by question.

    Columns: pair, outcome (accuracy, extracted), rows, and the rows where it is true only `with` the example or only
    `without` it. `p` is the two-sided p-value of McNemar's exact test.
    """
    records = []
    for pair, rows in add_outcomes(ablation, grader).groupby(PAIR, sort=False):
        for outcome in ("accuracy", "extracted"):
            arms = rows.pivot(index="example_id", columns="demonstration", values=outcome)
            arms = arms.reindex(columns=["one", "none"]).dropna().astype(bool)
            if arms.empty:  # a model may not support both prompts
                continue
            only, other = int((arms.one & ~arms.none).sum()), int((~arms.one & arms.none).sum())
            p = float(binomtest(only, only + other).pvalue) if only + other else 1.0
            records.append((*pair, outcome, len(arms), only, other, p))
    return pd.DataFrame(records, columns=[*PAIR, "outcome", "rows", "with", "without", "p"])


def grade_by_arm(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """Return whether the answer to each question (rows, by id) is right in each arm (columns)."""
    return add_outcomes(ablation, grader).pivot(index="example_id", columns="demonstration", values="accuracy")


def find_changed_answer(ablation: pd.DataFrame, own: str, grader: str = "numeric") -> tuple[str, str]:
    """Return a question whose answer is right in only one of the run's `own` arm and another arm, and the other arm.

    If there is none, return the first question and any other arm (`own` itself if there is no other).
    """
    right = grade_by_arm(ablation, grader)
    others = [arm for arm in BEGINNINGS if arm != own and arm in right]
    for other in others:
        changed = right.index[right[other] != right[own]]
        if len(changed):
            return str(changed[0]), other
    return str(right.index[0]), others[0] if others else own


def select_responses(example_id: str, frames: Mapping[str, pd.DataFrame], arms: Sequence[str]) -> dict[str, str]:
    """Return the texts of the responses to one question by arm, from `frames` of generations by arm.

    Answers from a smaller run have no text.
    """
    texts = {
        arm: frames[arm].reindex(columns=["example_id", "text"]).set_index("example_id").text[example_id]
        for arm in arms
    }
    return {arm: text if isinstance(text, str) else "(not kept)" for arm, text in texts.items()}
