"""When to answer by a column of a table of scores: thresholds with a guarantee, or how many more
labels one takes.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom, binomtest

from lib.analysis.judged_scores import mark_first_half
from lib.params import TableJudgment
from lib.random_streams import stream_seed
from lib.score.score_files import ScoreTable
from lib.score.selective import N_PROPOSED, selective_thresholds

TESTING_SHARE = 1 / 3  # of a table's rows: two thirds of its first half test thresholds
POWER = 0.8  # probability that so many labels are enough
SIZES = np.unique(np.geomspace(1, 100_000, 500).astype(int))  # of answers; more are no plan


def judge_thresholds(table: ScoreTable, settings: TableJudgment) -> pd.DataFrame:
    """Find a threshold for each column and target precision on the first half, and apply it to the
    second.

    Columns: column, target, threshold, answered, precision with its 95% interval (low, high), n,
    tested, held, reason, and `more_labels`: about how many would guarantee one; missing where the
    answers are not right often enough at any threshold, or where there is one. The test takes rows
    for independent, so one row of each group counts, drawn at random.
    """
    ranks = [stream_seed(settings.seed, "of group", name) for name in table.rows.id]
    used = table.rows.assign(rank=ranks).sort_values("rank").drop_duplicates("group").index
    used = used.sort_values()
    first = mark_first_half(table.rows.group, settings.seed)
    frames = []
    for name, column in table.scores.items():
        frame = table.rows.rename(columns={"id": "example_id"}).assign(
            model="", dataset=table.name, estimator=name, confidence=column
        )
        frame["split"] = np.where(first, "calibration", "evaluation")
        frames.append(frame.loc[used])
    thresholds = selective_thresholds(
        pd.concat(frames), settings.target_precisions, settings.precision_confidence, settings.seed
    )
    rows = []
    for row in thresholds.to_dict("records"):
        column = table.scores.loc[used, row["estimator"]]
        more = pd.NA
        if row["reason"]:
            more = count_more_labels(
                column.to_numpy(),
                table.rows.correct[used].to_numpy(bool),
                row["target"],
                settings.precision_confidence,
            )
        low, high = precision_interval(row)
        rows.append(row | {"low": low, "high": high, "more_labels": more})
    frame = pd.DataFrame(rows).rename(columns={"estimator": "column"})
    return frame.drop(columns=["model", "dataset"]).astype({"more_labels": "Int64"})


def precision_interval(row: dict[str, Any]) -> tuple[float, float]:
    """Return the exact 95% interval of the precision of a row of `selective_thresholds`; NaN
    without one."""
    if pd.isna(row["precision"]):
        return np.nan, np.nan
    answered = round(row["answered"] * row["n"])
    right = round(row["precision"] * answered)
    ends = binomtest(right, answered).proportion_ci()
    return float(ends.low), float(ends.high)


def count_more_labels(
    confidence: np.ndarray, correct: np.ndarray, target: float, certainty: float
) -> Any:
    """Return about how many more labels would guarantee a target precision at some threshold, with
    probability POWER, if answers stay as good as in these n rows; missing (NA) if at no threshold
    so many are right. 0: these are as many, and it was not to be.

    One wrong answer is added to each threshold's, so that few right ones promise little.

    Examples
    --------
    >>> scores = np.array([0.2] * 10 + [0.9] * 10)
    >>> correct = np.array([False] * 10 + [True] * 10)
    >>> count_more_labels(scores, correct, target=0.8, certainty=0.9)
    286
    >>> count_more_labels(scores, ~correct, target=0.8, certainty=0.9)
    <NA>
    """
    n = len(confidence)
    quantiles = np.arange(N_PROPOSED) / N_PROPOSED
    totals = []
    for threshold in np.unique(np.quantile(confidence, quantiles, method="lower")):
        is_answered = confidence >= threshold
        answered = int(is_answered.sum())
        wrong = int((~correct[is_answered]).sum()) + 1
        tested = count_needed_answers(wrong / (answered + 1), target, certainty)
        if tested:
            totals.append(tested / (answered / n) / TESTING_SHARE)
    if not totals:
        return pd.NA
    return max(0, int(np.ceil(min(totals))) - n)


def count_needed_answers(wrong_share: float, target: float, certainty: float) -> int:
    """Return about how many answers, each wrong with this probability, guarantee a precision with
    probability POWER; 0 if none do.

    Examples
    --------
    >>> count_needed_answers(0.0, target=0.8, certainty=0.9)  # .8^11 < .1
    11
    >>> count_needed_answers(0.3, target=0.8, certainty=0.9)
    0
    """
    if wrong_share >= 1 - target:
        return 0
    least_over = binom.ppf(1 - certainty, SIZES, 1 - target)  # wrong answers that are too many
    passed = binom.cdf(least_over - 1, SIZES, wrong_share)
    is_enough = passed >= POWER
    return int(SIZES[is_enough.argmax()]) if is_enough.any() else 0
