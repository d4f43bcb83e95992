"""Reliability bins: how many rows have about the same confidence, and how many of them are right.

Bins follow `guo2017calibration`: equal width; gap = |accuracy - mean confidence| in a bin; empty
bins do not count. Scores on an edge matter here, since scores of exactly 1.0 and calibrated scores
k/n are common. Edges are the floats nearest to k/n_bins (`linspace(0, 1, 11)[3]` is not 0.3). A
score within a few rounding errors of its own type from an edge counts as on it, and belongs to the
bin below; 0 is in the first.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.score.validated_scores import row_weights, validate_scores
from lib.store import SCORE_CELL


class BinSums(NamedTuple):
    """Sums over the rows of each bin, each of shape (..., n_bins)."""

    rows: np.ndarray
    confidence: np.ndarray
    right: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """|accuracy - mean confidence|, times the number of rows."""
        return np.abs(self.right - self.confidence)


def bin_index(confidence: Any, n_bins: int = 10) -> np.ndarray:
    """Find the bin of each score, (n,) int. A bin holds its right edge; the first holds 0, too.

    Examples
    --------
    >>> bin_index([0, 0.1, 0.11, 1])
    array([0, 0, 1, 9])
    """
    scores = np.asarray(confidence)
    c = scores.astype(np.float64)
    precision = scores.dtype if scores.dtype.kind == "f" else np.float64
    rounding = 8 * np.finfo(precision).eps
    position = c * n_bins
    edge = np.rint(position)
    on_edge = np.abs(c - edge / n_bins) <= rounding
    index = np.where(on_edge, edge - 1, np.floor(position))
    return np.clip(index, 0, n_bins - 1).astype(int)


def bin_sums(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> BinSums:
    """Return the number of rows of each bin, and the sums of their confidence and right answers.

    Examples
    --------
    >>> bin_sums([0.25, 0.75, 1], [0, 1, 1], n_bins=2).confidence
    array([0.25, 1.75])
    """
    c, y = validate_scores(confidence, correct)
    index = bin_index(confidence, n_bins)
    if sample_weight is None:
        rows = np.bincount(index, minlength=n_bins)
        confidence_in_bin = np.bincount(index, c, minlength=n_bins)
        right_in_bin = np.bincount(index, y, minlength=n_bins)
        return BinSums(rows, confidence_in_bin, right_in_bin)
    w = row_weights(sample_weight, c.size)
    member = np.eye(n_bins)[index]  # (n, n_bins)
    confidence_in_bin = member * c[:, None]
    right_in_bin = member * y[:, None]
    return BinSums(w @ member, w @ confidence_in_bin, w @ right_in_bin)


def reliability_diagram(confidence: Any, correct: Any, n_bins: int = 10) -> pd.DataFrame:
    """Return a row per non-empty bin: lower, upper, count, confidence and accuracy (means), and its
    part of the ECE.

    `gap` is |accuracy - confidence|; the largest is the MCE. `share` is that of the rows. The
    `product` of both sums to the ECE.

    Examples
    --------
    >>> reliability_diagram([0.25, 0.75, 1], [0, 1, 1], n_bins=2)[["count", "confidence", "gap"]]
       count  confidence    gap
    0      1       0.250  0.250
    1      2       0.875  0.125
    """
    sums = bin_sums(confidence, correct, n_bins)
    used = sums.rows > 0
    count = sums.rows[used]
    number = np.flatnonzero(used)
    bins = pd.DataFrame()
    bins["lower"] = number / n_bins
    bins["upper"] = (number + 1) / n_bins
    bins["count"] = count
    bins["confidence"] = sums.confidence[used] / count
    bins["accuracy"] = sums.right[used] / count
    bins["gap"] = (bins.accuracy - bins.confidence).abs()
    bins["share"] = count / count.sum()
    bins["product"] = bins.gap * bins.share
    return bins


def reliability_by_method(
    calibrated: pd.DataFrame, model: str, dataset: str, n_bins: int = 10, estimator: str = "ans_avg"
) -> dict[str, pd.DataFrame]:
    """Return the reliability diagram of an estimator on one pair, by method.

    Examples
    --------
    >>> row = {"model": "m", "dataset": "d", "estimator": "ans_avg", "method": ""}
    >>> scores = pd.DataFrame([row | {"confidence": 0.9, "correct": False}])
    >>> reliability_by_method(scores, "m", "d")[""].gap.round(2).tolist()
    [0.9]
    """
    cell = pd.Series([model, dataset, estimator], index=SCORE_CELL)
    in_cell = (calibrated[SCORE_CELL] == cell).all(axis=1)
    rows = calibrated[in_cell]
    diagrams = {}
    for method, part in rows.groupby("method", sort=False):
        diagrams[method] = reliability_diagram(part.confidence, part.correct, n_bins)
    return diagrams
