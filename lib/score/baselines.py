"""What scores are held against: perfectly calibrated scores, whose ECE is chance, and a constant.

A constant at the base rate is nearly calibrated and uninformative (arXiv 2606.07822). So
comparisons include it as an estimator, BASE.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.score.bootstrap import block_sizes
from lib.score.evaluation import RESULT_KEYS, SCORE, evaluate
from lib.score.metrics import decompose_brier, ece
from lib.score.reliability import bin_index
from lib.score.validated_scores import row_weights
from lib.store import PAIR, calibration_rows, evaluation_rows

COMPARED = ("ece", "ece_mass", "brier", "log_loss", "auroc", "augrc")  # with a constant
BASE = "base"  # the constant, in the column `estimator`
ROUNDING = 1e-12  # of a sum, where errors of one bin are multiples of 1 / n


# ---- what chance alone gives


def draw_chance_errors(
    confidence: Any, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> np.ndarray:
    """Return the ECE that these scores would have if they were perfectly calibrated, (draws,).

    Each draw takes the outcome of every row from its confidence: right with probability c. In a bin
    with rows B, the sum of c - outcome then has mean 0 and variance sum c (1 - c) over B, so the
    ECE is about sqrt(2 / pi) / n times the sum of sqrt(sum c (1 - c)) over bins, and not 0. The
    fewer bins hold rows, the lower.

    Examples
    --------
    >>> draw_chance_errors([0.5], draws=3)  # right or wrong, one row is off by a half
    array([0.5, 0.5, 0.5])
    """
    scores = np.asarray(confidence)
    member = np.eye(n_bins)[bin_index(scores, n_bins)]
    c = scores.astype(float)
    rng = np.random.default_rng([seed, c.size])
    errors = []
    for size in block_sizes(c.size, draws):
        right = rng.random((size, c.size)) < c
        gaps = np.abs((right - c) @ member)
        errors.append(gaps.sum(axis=1) / c.size)
    return np.concatenate(errors)


def compare_with_chance(
    frame: pd.DataFrame, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return the ECE of every estimator and method beside what chance alone gives; arguments as for
    `draw_chance_errors`.

    Columns: RESULT_KEYS, value, n, and of `draw_chance_errors` the mean (`chance`) and the 95%
    point (`chance_high`). `calibrated`: whether the value is no higher than that point, so that it
    cannot be told from calibrated scores.

    Examples
    --------
    >>> frame = pd.DataFrame({"confidence": [0.5, 0.5], "correct": [True, False]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="e", method="")
    >>> compare_with_chance(frame, draws=10)[["value", "n", "chance_high", "calibrated"]]
       value  n  chance_high  calibrated
    0    0.0  2          0.5        True
    """
    rows = []
    for key, part in evaluation_rows(frame).groupby(SCORE, sort=False):
        c = part.confidence.to_numpy()
        value = ece(c, part.correct, n_bins)
        by_chance = draw_chance_errors(c, n_bins, draws, seed)
        high = np.percentile(by_chance, 95)
        calibrated = value <= high + ROUNDING
        row = dict(zip(SCORE, key, strict=True))
        row |= {"metric": "ece", "value": value, "n": len(c)}
        row |= {"chance": by_chance.mean(), "chance_high": high, "calibrated": calibrated}
        rows.append(row)
    columns = [*RESULT_KEYS, "value", "n", "chance", "chance_high", "calibrated"]
    return pd.DataFrame(rows, columns=columns)


# ---- beside a constant


def smoothed_base_rate(correct: Any, sample_weight: Any = None) -> Any:
    """Return (right + 1) / (n + 2), the constant learned from n calibration rows; 1/2 without
    rows.

    `sample_weight` (..., n) as for `ece`, such as how often each row is in each resample.

    Examples
    --------
    >>> float(smoothed_base_rate([True, True, False]))
    0.6
    >>> smoothed_base_rate([True, False], [[1, 1], [0, 2]])
    array([0.5 , 0.25])
    """
    y = np.asarray(correct, dtype=float)
    w = row_weights(sample_weight, y.size)
    right = w @ y
    n = w.sum(axis=-1)
    return (right + 1) / (n + 2)


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> pd.DataFrame:
    """Append each pair's BASE, computed from the calibration rows of `raw`, to `calibrated`
    (evaluation rows, with column `method`).

    Examples
    --------
    >>> raw = pd.DataFrame({"split": ["calibration", "evaluation"], "example_id": ["a", "b"]})
    >>> raw = raw.assign(model="m", dataset="d", estimator="e", confidence=0.5, correct=True)
    >>> add_base_rate(raw, raw[1:].assign(method=""))[["estimator", "confidence"]]
      estimator  confidence
    0         e    0.500000
    1      base    0.666667
    """
    examples = raw.drop_duplicates([*PAIR, "split", "example_id"])
    parts = [calibrated]
    for _, rows in examples.groupby(PAIR, sort=False):
        constant = smoothed_base_rate(calibration_rows(rows).correct)
        evaluation = evaluation_rows(rows)
        parts.append(evaluation.assign(estimator=BASE, method="", confidence=constant))
    return pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore")


def compare_with_base_rate(
    frame: pd.DataFrame, n_bins: int = 10, resamples: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return `evaluate` by the COMPARED metrics, with intervals of raw scores, and
    `decompose_brier`.

    Columns: RESULT_KEYS, value, low, high, n, reason.

    Examples
    --------
    >>> frame = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 1], "correct": [0, 1]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="e", method="")
    >>> compared = compare_with_base_rate(frame, resamples=10)
    >>> compared[["metric", "value"]].head(3)
         metric  value
    0       ece   0.25
    1  ece_mass   0.25
    2     brier  0.125
    """
    raw = frame["method"] == ""
    with_intervals = evaluate(frame[raw], n_bins, names=COMPARED, resamples=resamples, seed=seed)
    without_intervals = evaluate(frame[~raw], n_bins, names=COMPARED)
    parts = [with_intervals, without_intervals]
    for key, part in frame.groupby(SCORE, sort=False):
        brier_parts = pd.Series(decompose_brier(part.confidence, part.correct), name="value")
        rows = brier_parts.rename_axis("metric").reset_index()
        rows[SCORE] = key
        parts.append(rows.assign(n=len(part), reason=""))
    order = frame[SCORE].drop_duplicates()
    compared = order.merge(pd.concat(parts), on=SCORE)
    compared = compared.astype({"low": "Float64", "high": "Float64"})
    return compared[[*RESULT_KEYS, "value", "low", "high", "n", "reason"]]
