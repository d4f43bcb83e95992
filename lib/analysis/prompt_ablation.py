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
from lib.tasks.answers import answer_span, grade


def combine_arms(
    rows: pd.DataFrame,
    demonstration: Demonstration,
    asked_again: Mapping[Demonstration, pd.DataFrame],
) -> pd.DataFrame:
    """Return all answers to each question, with their Ans Avg: the run's own `rows` (`profile`) and
    each other arm."""
    arms = {demonstration: rows, **asked_again}
    both = pd.concat(
        [rows.assign(demonstration=arm) for arm, rows in arms.items()], ignore_index=True
    )
    both["ans_avg"] = [
        ans_avg(row.token_logprobs[slice(*answer_span(row))]) for row in both.itertuples()
    ]
    told = both[[*KEYS, "reference", "answer", "finish_reason", "ans_avg", "demonstration"]]
    return told.assign(profile=both.demonstration == demonstration)


def summarize_arms(ablation: pd.DataFrame, grader: str = "numeric", bins: int = 10) -> pd.DataFrame:
    """Return by pair and arm: rows, `parsed` (share of answers found), accuracy, and the ECE of Ans
    Avg.

    The ECE is missing where a frame has no Ans Avg.
    """
    right = [grade(*pair, grader) for pair in zip(ablation.answer, ablation.reference, strict=True)]
    graded = ablation.assign(parsed=ablation.answer.notna(), accuracy=right)
    by = graded.groupby([*PAIR, "demonstration", "profile"], sort=False)
    summary = by.agg(
        rows=("answer", "size"), parsed=("parsed", "mean"), accuracy=("accuracy", "mean")
    )
    errors = [
        ece(arm.ans_avg, arm.accuracy, bins) if arm.ans_avg.notna().all() else np.nan
        for _, arm in by
    ]
    return summary.assign(ece=np.array(errors, dtype=float)).reset_index()
