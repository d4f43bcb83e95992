"""Calibration errors, proper scores and ranking of confidence scores, each registered once in
METRICS.

Bins follow `guo2017calibration`: equal width; gap = |accuracy - mean confidence| in a bin; empty
bins do not count. Scores on an edge matter here, since scores of exactly 1.0 and calibrated scores
k/n are common. Edges are the floats nearest to k/n_bins (`linspace(0, 1, 11)[3]` is not 0.3). A
score within a few rounding errors of its own type from an edge counts as on it, and belongs to the
bin below; 0 is in the first.

`sample_weight` of shape (..., n), such as the counts of bootstrap resamples, gives results of shape
(...).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata


def validate_scores(confidence: Any, correct: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and 0/1 outcomes, (n,) float64. ValueError: no rows, unequal lengths, NaN,
    outside [0, 1]."""
    c, y = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if c.ndim != 1 or c.shape != y.shape or c.size == 0:
        raise ValueError(
            f"confidence {c.shape} and correct {y.shape} must be equally long and not empty"
        )
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


def bin_sums(
    confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sums per bin, each (..., n_bins): number of rows, confidence, right answers."""
    c, y = validate_scores(confidence, correct)
    index = bin_index(confidence, n_bins)
    if sample_weight is None:
        count, sure, right = (
            np.bincount(index, column, minlength=n_bins) for column in (np.ones_like(c), c, y)
        )
        return count, sure, right
    member = np.eye(n_bins)[index]  # (n, n_bins)
    w = np.asarray(sample_weight, dtype=np.float64)
    return w @ member, w @ (member * c[:, None]), w @ (member * y[:, None])


def reliability_diagram(confidence: Any, correct: Any, n_bins: int = 10) -> pd.DataFrame:
    """Return a row per non-empty bin: lower, upper, count, confidence and accuracy (means), and its
    part of the ECE.

    `gap` is |accuracy - confidence|; the largest is the MCE. `share` is that of the rows. The
    `product` of both sums to the ECE.
    """
    count, sure, right = bin_sums(confidence, correct, n_bins)
    bins = pd.DataFrame(
        {"lower": np.arange(n_bins) / n_bins, "upper": np.arange(1, n_bins + 1) / n_bins}
    )
    bins = bins.assign(count=count.astype(int), confidence=sure, accuracy=right)[
        count > 0
    ].reset_index(drop=True)
    bins[["confidence", "accuracy"]] = bins[["confidence", "accuracy"]].div(bins["count"], axis=0)
    bins = bins.assign(
        gap=(bins.accuracy - bins.confidence).abs(), share=bins["count"] / count.sum()
    )
    return bins.assign(product=bins.gap * bins.share)


# ---- means


def weighted_mean(values: np.ndarray, sample_weight: Any = None) -> Any:
    """Return the weighted mean of n values."""
    if sample_weight is None:
        return values.mean()
    w = np.asarray(sample_weight, dtype=np.float64)
    return w @ values / w.sum(axis=-1)


def accuracy(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the share of right answers; the confidence is only validated."""
    return weighted_mean(validate_scores(confidence, correct)[1], sample_weight)


def mean_confidence(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean score; what is correct is only validated."""
    return weighted_mean(validate_scores(confidence, correct)[0], sample_weight)


# ---- calibration errors


def ece(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Expected calibration error: the mean gap of accuracy and confidence over bins, weighted by
    rows.

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
    count, sure, right = bin_sums(confidence, correct, n_bins, sample_weight)
    return np.abs(right - sure).sum(axis=-1) / count.sum(axis=-1)


def mce(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Maximum calibration error: largest gap over the non-empty bins."""
    count, sure, right = bin_sums(confidence, correct, n_bins, sample_weight)
    return (np.abs(right - sure) / np.where(count > 0, count, 1)).max(axis=-1)


def equal_mass_ece(
    confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None
) -> Any:
    """Return the ECE with bins of equally many unweighted rows.

    Equal scores share the bin of their mean rank, whatever the order of rows.
    """
    c, y = validate_scores(confidence, correct)
    index = np.floor((rankdata(c) - 0.5) * n_bins / c.size).astype(int)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    sums = w @ (np.eye(n_bins)[index] * (y - c)[:, None])
    return np.abs(sums).sum(axis=-1) / w.sum(axis=-1)


# ---- proper scores


def brier(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean squared difference of confidence and outcome."""
    c, y = validate_scores(confidence, correct)
    return weighted_mean((c - y) ** 2, sample_weight)


def log_loss(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean of -log of the probability of the outcome, nats.

    As in scikit-learn's `log_loss`, a probability is at least the float64 epsilon: a certain but
    wrong score costs 36.
    """
    c, y = validate_scores(confidence, correct)
    least = np.finfo(float).eps
    return weighted_mean(
        -np.log(np.clip(np.where(y > 0, c, 1 - c), least, 1 - least)), sample_weight
    )


def decompose_brier(confidence: Any, correct: Any) -> dict[str, float]:
    """Return the parts of the Brier score = `mcb` - `dsc` + `unc` (CORP, arXiv 2008.03033), without
    bins.

    Isotonic regression on the same rows gives the best scores in the order of these. Miscalibration
    (`mcb`) is what they gain over the scores, discrimination (`dsc`) what they gain over the rows'
    own accuracy, whose Brier score is the uncertainty (`unc`). No part is negative, and all rows of
    one score have no discrimination. On few rows chance raises both.
    """
    c, y = validate_scores(confidence, correct)
    _, place, count = np.unique(c, return_inverse=True, return_counts=True)
    best = isotonic_regression(np.bincount(place, y) / count, weights=count).x[place]
    recalibrated, unc = np.mean((best - y) ** 2), y.mean() * (1 - y.mean())
    parts = {"mcb": np.mean((c - y) ** 2) - recalibrated, "dsc": unc - recalibrated, "unc": unc}
    # rounding can leave -1e-17
    return {name: max(0.0, float(part)) for name, part in parts.items()}


# ---- ranking


def auroc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the probability that a right answer scores above a wrong one; ties count half.

    NaN if only right or only wrong answers have weight. Parameters as for `ece`.
    """
    c, y = validate_scores(confidence, correct)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    right, wrong, order = w[..., y > 0], w[..., y == 0], np.argsort(c[y == 0])
    # weight of the k lowest wrong answers
    lowest = np.insert(np.cumsum(wrong[..., order], axis=-1), 0, 0, axis=-1)
    places = (np.searchsorted(c[y == 0][order], c[y > 0], side) for side in ("left", "right"))
    below, not_above = (lowest[..., k] for k in places)
    with np.errstate(invalid="ignore"):
        return (right * (below + not_above) / 2).sum(axis=-1) / (
            right.sum(axis=-1) * wrong.sum(axis=-1)
        )


def augrc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the area under the generalized risk-coverage curve (arXiv 2407.01032).

    It is the share of all rows that are answered and wrong, averaged over coverage: (1 - AUROC) acc
    (1 - acc) + (1 - acc)^2 / 2. Equal scores may be answered in any order. If all rows are right,
    or all wrong, the first term is 0.
    """
    ranks, a = (
        np.nan_to_num(auroc(confidence, correct, sample_weight)),
        accuracy(confidence, correct, sample_weight),
    )
    return (1 - ranks) * a * (1 - a) + (1 - a) ** 2 / 2


# ---- by name

METRICS: dict[str, Callable[..., Any]] = {
    "acc": accuracy, "ece": ece, "mce": mce, "brier": brier, "auroc": auroc,
    "ece_mass": equal_mass_ece, "log_loss": log_loss, "augrc": augrc,
    "mean": mean_confidence,
}  # fmt: skip
WITH_BINS = ("ece", "mce", "ece_mass")


def measure(
    name: str, confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None
) -> Any:
    """Return one of METRICS; `n_bins` is for those WITH_BINS."""
    bins = {"n_bins": n_bins} if name in WITH_BINS else {}
    return METRICS[name](confidence, correct, sample_weight=sample_weight, **bins)
