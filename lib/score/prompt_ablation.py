"""Prompt ablation: the same evaluation questions after the paper's example, after none, and as the run asked them.

The paper describes it in its text (one-shot demonstration) and prints no numbers.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.params import Demonstration
from lib.score.estimators import ans_avg
from lib.score.metrics import ece
from lib.store import KEYS, PAIR
from lib.tasks.answers import answer_span, grade
from lib.tasks.datasets import Example

ARMS: tuple[Demonstration, ...] = ("one", "none")  # asked again, unless it is the run's own


def choose_ablation_rows(generations: pd.DataFrame, rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a sample of one pair's evaluation rows, in their own order.

    It contains the first in the order of sha256("seed|dataset|example_id"), which is the same for every model.
    """
    evaluation = generations[generations.split == "evaluation"]
    names = [f"{seed}|{row.dataset}|{row.example_id}" for row in evaluation.itertuples()]
    rank = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    return evaluation.iloc[np.sort(np.argsort(rank)[:rows])]


def examples_of_rows(generations: pd.DataFrame) -> list[Example]:
    """Return the questions of a generations frame."""
    return [Example(*row) for row in generations[list(Example._fields)].itertuples(index=False)]


def combine_arms(
    rows: pd.DataFrame, demonstration: Demonstration, asked_again: Mapping[Demonstration, pd.DataFrame]
) -> pd.DataFrame:
    """Return all answers to each question, with their Ans Avg: the run's own `rows` (`profile`) and each other arm."""
    parts = []
    for arm, answers in ((demonstration, rows), *asked_again.items()):
        confidence = [ans_avg(row.token_logprobs[slice(*answer_span(row))]) for row in answers.itertuples()]
        told = answers[[*KEYS, "reference", "answer", "finish_reason"]].assign(ans_avg=confidence)
        parts.append(told.assign(demonstration=arm, profile=answers is rows))
    return pd.concat(parts, ignore_index=True)


def summarize_arms(ablation: pd.DataFrame, grader: str = "numeric", bins: int = 10) -> pd.DataFrame:
    """Return by pair and arm: rows, `parsed` (share of answers found), accuracy, and the ECE of Ans Avg.

    The ECE is missing where a frame has no Ans Avg.
    """
    right = [grade(*pair, grader) for pair in zip(ablation.answer, ablation.reference, strict=True)]
    graded = ablation.assign(parsed=ablation.answer.notna(), accuracy=right)
    by = graded.groupby([*PAIR, "demonstration", "profile"], sort=False)
    summary = by.agg(rows=("answer", "size"), parsed=("parsed", "mean"), accuracy=("accuracy", "mean"))
    errors = [ece(arm.ans_avg, arm.accuracy, bins) if arm.ans_avg.notna().all() else np.nan for _, arm in by]
    return summary.assign(ece=np.array(errors, dtype=float)).reset_index()
