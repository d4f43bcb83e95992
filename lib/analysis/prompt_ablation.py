"""The same questions after the paper's example, after none, and as the run asked them (04b).

No table of the paper shows them.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.params import Demonstration
from lib.score.estimators import ans_avg
from lib.score.metrics import ece
from lib.store import KEYS, PAIR
from lib.tasks.answers import answer_span
from lib.tasks.grading import grade


def combine_arms(
    rows: pd.DataFrame,
    demonstration: Demonstration,
    asked_again: Mapping[Demonstration, pd.DataFrame],
) -> pd.DataFrame:
    """Return all answers to each question, with their Ans Avg: the run's own `rows` (`profile`) and
    each other arm."""
    parts = [rows.assign(demonstration=demonstration)]
    for arm, answers in asked_again.items():
        parts.append(answers.assign(demonstration=arm))
    every = pd.concat(parts, ignore_index=True)
    scores = []
    for row in every.itertuples():
        start, end = answer_span(row)
        scores.append(ans_avg(row.token_logprobs[start:end]))
    every["ans_avg"] = scores
    columns = [*KEYS, "reference", "answer", "finish_reason", "ans_avg", "demonstration"]
    return every[columns].assign(profile=every.demonstration == demonstration)


def summarize_arms(ablation: pd.DataFrame, grader: str = "numeric", bins: int = 10) -> pd.DataFrame:
    """Return by pair and arm: rows, `parsed` (share of answers found), accuracy, and the ECE of Ans
    Avg.

    The ECE is missing where a frame has no Ans Avg.
    """
    right = []
    for answer, reference in zip(ablation.answer, ablation.reference, strict=True):
        right.append(grade(answer, reference, grader))
    graded = ablation.assign(parsed=ablation.answer.notna(), accuracy=right)
    by = graded.groupby([*PAIR, "demonstration", "profile"], sort=False)
    summary = by.agg(
        rows=("answer", "size"), parsed=("parsed", "mean"), accuracy=("accuracy", "mean")
    )
    errors = []
    for _, arm in by:
        is_known = arm.ans_avg.notna().all()
        errors.append(ece(arm.ans_avg, arm.accuracy, bins) if is_known else np.nan)
    return summary.assign(ece=np.array(errors, dtype=float)).reset_index()
