"""Accuracy, calibration errors and AUROC of confidence scores, each registered once in METRICS.

Bins follow `guo2017calibration`: equal width; gap = |accuracy - mean confidence| in a bin; empty bins do not count.
Scores on an edge matter here, since scores of exactly 1.0 and calibrated scores k/n are common. Edges are the floats
nearest to k/n_bins (`linspace(0, 1, 11)[3]` is not 0.3). A score within a few rounding errors of its own type from an
edge counts as on it, and belongs to the bin below; 0 is in the first.

`sample_weight` of shape (..., n), such as the counts of bootstrap resamples, gives results of shape (...).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

RESULT = ["model", "dataset", "estimator", "metric", "value", "n", "reason"]


def validate_scores(confidence: Any, correct: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and 0/1 outcomes, (n,) float64. ValueError: no rows, unequal lengths, NaN, outside [0, 1]."""
    c, y = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if c.ndim != 1 or c.shape != y.shape or c.size == 0:
        raise ValueError(f"confidence {c.shape} and correct {y.shape} must be equally long and not empty")
    bad = ~((c >= 0) & (c <= 1))  # true for NaN, too
    if bad.any():
        raise ValueError(f"confidence must lie in [0, 1]: {c[bad][0]} at row {int(bad.argmax())}")
    if not np.isin(y, (0, 1)).all():
        raise ValueError("correct must hold only true and false")
    return c, y


# ---- reliability bins


def bin_index(confidence: Any, n_bins: int = 10) -> np.ndarray:
    """Find the bin of each score, (n,) int. A bin holds its right edge; the first holds 0, too."""
    given = np.asarray(confidence)
    c = given.astype(np.float64)
    rounding = 8 * np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
    edge = np.rint(c * n_bins)
    on_edge = np.abs(c - edge / n_bins) <= rounding
    index = np.where(on_edge, edge - 1, np.floor(c * n_bins))
    return np.clip(index, 0, n_bins - 1).astype(int)


@dataclass(frozen=True)
class ReliabilityBins:
    """Sums per bin, each (..., n_bins): number of rows, confidence, right answers."""

    count: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """|accuracy - mean confidence| per bin, (..., n_bins); 0 for empty bins."""
        return np.abs(self.correct - self.confidence) / np.where(self.count > 0, self.count, 1)

    def frame(self) -> pd.DataFrame:
        """Return the reliability diagram without empty bins: lower, upper, count, confidence, accuracy."""
        full, edges = self.count > 0, np.arange(len(self.count) + 1) / len(self.count)
        confidence, accuracy = (total[full] / self.count[full] for total in (self.confidence, self.correct))
        columns = {"lower": edges[:-1][full], "upper": edges[1:][full], "count": self.count[full]}
        return pd.DataFrame(columns | {"confidence": confidence, "accuracy": accuracy})


def reliability_bins(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> ReliabilityBins:
    """Sum rows, confidence and right answers by bin."""
    c, y = validate_scores(confidence, correct)
    index = bin_index(confidence, n_bins)
    if sample_weight is None:
        return ReliabilityBins(*(np.bincount(index, column, minlength=n_bins) for column in (np.ones_like(c), c, y)))
    member = np.eye(n_bins)[index]  # (n, n_bins)
    w = np.asarray(sample_weight, dtype=np.float64)
    return ReliabilityBins(w @ member, w @ (member * c[:, None]), w @ (member * y[:, None]))


# ---- metrics


def weighted_mean(values: np.ndarray, sample_weight: Any = None) -> Any:
    """Return the weighted mean of n values."""
    if sample_weight is None:
        return values.mean()
    w = np.asarray(sample_weight, dtype=np.float64)
    return w @ values / w.sum(axis=-1)


def accuracy(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the share of right answers; the confidence is only validated."""
    return weighted_mean(validate_scores(confidence, correct)[1], sample_weight)


def ece(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Expected calibration error: the mean gap of accuracy and confidence over bins, weighted by rows.

    Parameters
    ----------
    confidence : array of shape (n,)
        In [0, 1].
    correct : array of shape (n,)
        True or false, or 1 and 0.
    n_bins : int
        Bins of equal width.
    sample_weight : array of shape (..., n), optional

    Returns
    -------
    float, or array of shape (...)
    """
    table = reliability_bins(confidence, correct, n_bins, sample_weight)
    return (table.gap * table.count).sum(axis=-1) / table.count.sum(axis=-1)


def mce(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Maximum calibration error: largest gap over the non-empty bins."""
    return reliability_bins(confidence, correct, n_bins, sample_weight).gap.max(axis=-1)


def brier(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean squared difference of confidence and outcome."""
    c, y = validate_scores(confidence, correct)
    return weighted_mean((c - y) ** 2, sample_weight)


def auroc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the probability that a right answer scores above a wrong one; ties count half.

    NaN if only right or only wrong answers have weight. Parameters as for `ece`.
    """
    c, y = validate_scores(confidence, correct)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    order = np.argsort(c, kind="stable")
    starts = np.flatnonzero(np.diff(c[order], prepend=-1.0))
    right, wrong = (np.add.reduceat(w[..., order] * kind[order], starts, axis=-1) for kind in (y, 1 - y))
    above = (right * (np.cumsum(wrong, axis=-1) - wrong / 2)).sum(axis=-1)
    pairs = right.sum(axis=-1) * wrong.sum(axis=-1)
    return np.where(pairs > 0, above / np.where(pairs > 0, pairs, 1), np.nan)[()]  # a number if 0-dimensional


@dataclass(frozen=True)
class Metric:
    """`binned`: takes n_bins. `scored`: depends on the confidence, so one value per estimator."""

    name: str
    label: str
    function: Callable[..., Any]
    binned: bool = False
    scored: bool = True
    reason: str = ""  # reason for NaN

    def __call__(self, confidence: Any, correct: Any, n_bins: int) -> Any:
        if self.binned:
            return self.function(confidence, correct, n_bins)
        return self.function(confidence, correct)


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("acc", "Acc.", accuracy, scored=False),
        Metric("ece", "ECE", ece, binned=True),
        Metric("mce", "MCE", mce, binned=True),
        Metric("brier", "Brier", brier),
        Metric("auroc", "AUROC", auroc, reason="one class only"),
    )
}


# ---- over frames


def evaluate(
    frame: pd.DataFrame,
    n_bins: int = 10,
    split: str = "evaluation",
    names: Iterable[str] = METRICS,
) -> pd.DataFrame:
    """Evaluate every estimator of a confidence frame on one split.

    Parameters
    ----------
    frame : DataFrame
        From `confidence_frame`.
    n_bins
        As for `ece`.
    split : {"evaluation", "calibration"}
    names : iterable of str
        Of METRICS; all by default.

    Returns
    -------
    DataFrame
        model, dataset, estimator ("" for accuracy), metric, value, n (rows), and reason. A value that cannot be
        computed is missing (NA), and `reason` explains it.
    """
    rows: list[tuple] = []
    for pair, part in frame[frame.split == split].groupby(["model", "dataset"], sort=False):
        for estimator, group in [("", part.drop_duplicates("example_id")), *part.groupby("estimator", sort=False)]:
            given = group.confidence.to_numpy(), group.correct.to_numpy(), n_bins
            for metric in (METRICS[name] for name in names):
                if metric.scored == bool(estimator):
                    value = metric(*given)
                    reason = metric.reason if np.isnan(value) else ""
                    rows.append((*pair, estimator, metric.name, value, len(group), reason))
    return pd.DataFrame(rows, columns=RESULT).astype({"value": "Float64"})


def ablate_bins(frame: pd.DataFrame, n_bins_ablation: Iterable[int], names: Iterable[str] = METRICS) -> pd.DataFrame:
    """Run `evaluate` for each number of bins, given in column `bins` (`tab:bin_ablation`)."""
    parts = [evaluate(frame, n_bins, names=names).assign(bins=n_bins) for n_bins in n_bins_ablation]
    return pd.concat(parts, ignore_index=True)
