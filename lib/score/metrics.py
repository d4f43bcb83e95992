"""Calibration errors, proper scores and ranking of confidence scores, each registered once in
METRICS.

Bins are those of lib.score.reliability. `sample_weight` of shape (..., n), such as the counts of
bootstrap resamples, gives results of shape (...).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata

from lib.score.reliability import bin_sums
from lib.score.validated_scores import row_weights, validate_scores, weighted_mean

# ---- means


def accuracy(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the share of right answers; the confidence is only validated.

    Examples
    --------
    >>> float(accuracy([0.5, 0.9], [0, 1]))
    0.5
    """
    _, y = validate_scores(confidence, correct)
    return weighted_mean(y, sample_weight)


def mean_confidence(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean score; what is correct is only validated.

    Examples
    --------
    >>> float(mean_confidence([0.5, 1.0], [0, 1]))
    0.75
    """
    c, _ = validate_scores(confidence, correct)
    return weighted_mean(c, sample_weight)


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

    Examples
    --------
    >>> float(ece([0.25, 0.75, 0.75, 0.75], [0, 1, 1, 0]))
    0.125
    """
    sums = bin_sums(confidence, correct, n_bins, sample_weight)
    return sums.gap.sum(axis=-1) / sums.rows.sum(axis=-1)


def mce(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Maximum calibration error: largest gap over the non-empty bins.

    Examples
    --------
    >>> float(mce([0.25, 0.75], [0, 0]))
    0.75
    """
    sums = bin_sums(confidence, correct, n_bins, sample_weight)
    rows = np.where(sums.rows > 0, sums.rows, 1)
    return (sums.gap / rows).max(axis=-1)


def equal_mass_ece(
    confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None
) -> Any:
    """Return the ECE with bins of equally many unweighted rows.

    Equal scores share the bin of their mean rank, whatever the order of rows.

    Examples
    --------
    >>> float(equal_mass_ece([0.5, 0.625, 0.75, 0.875], [0, 1, 1, 0], n_bins=2))
    0.1875
    """
    c, y = validate_scores(confidence, correct)
    rank = rankdata(c) - 0.5
    position = rank * n_bins / c.size
    index = np.floor(position).astype(int)
    member = np.eye(n_bins)[index]  # (n, n_bins)
    w = row_weights(sample_weight, c.size)
    excess = (y - c)[:, None]  # right answers beyond the confidence
    sums = w @ (member * excess)
    gaps = np.abs(sums)
    return gaps.sum(axis=-1) / w.sum(axis=-1)


# ---- proper scores


def brier(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean squared difference of confidence and outcome.

    Examples
    --------
    >>> float(brier([0.5, 1.0], [0, 1]))
    0.125
    """
    c, y = validate_scores(confidence, correct)
    return weighted_mean((c - y) ** 2, sample_weight)


def log_loss(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the mean of -log of the probability of the outcome, nats.

    As in scikit-learn's `log_loss`, a probability is at least the float64 epsilon: a certain but
    wrong score costs 36.

    Examples
    --------
    >>> round(float(log_loss([0.5, 1.0], [0, 1])), 4)  # log(2) / 2
    0.3466
    """
    c, y = validate_scores(confidence, correct)
    of_outcome = np.where(y > 0, c, 1 - c)
    least = np.finfo(float).eps
    probability = np.clip(of_outcome, least, 1 - least)
    loss = -np.log(probability)
    return weighted_mean(loss, sample_weight)


def decompose_brier(confidence: Any, correct: Any) -> dict[str, float]:
    """Return the parts of the Brier score = `mcb` - `dsc` + `unc` (CORP, arXiv 2008.03033), without
    bins.

    Isotonic regression on the same rows gives the best scores in the order of these. Miscalibration
    (`mcb`) is what they gain over the scores, discrimination (`dsc`) what they gain over the rows'
    own accuracy, whose Brier score is the uncertainty (`unc`). No part is negative, and all rows of
    one score have no discrimination. On few rows chance raises both.

    Examples
    --------
    >>> decompose_brier([0.5, 0.5, 1, 1], [0, 0, 1, 1])
    {'mcb': 0.125, 'dsc': 0.25, 'unc': 0.25}
    """
    c, y = validate_scores(confidence, correct)
    _, level, count = np.unique(c, return_inverse=True, return_counts=True)
    accuracy_of_level = np.bincount(level, y) / count
    best = isotonic_regression(accuracy_of_level, weights=count).x[level]
    best_brier = brier(best, y)
    accuracy_of_all = y.mean()
    uncertainty = accuracy_of_all * (1 - accuracy_of_all)
    miscalibration = brier(c, y) - best_brier
    discrimination = uncertainty - best_brier
    # rounding can leave -1e-17
    return {
        "mcb": max(0.0, float(miscalibration)),
        "dsc": max(0.0, float(discrimination)),
        "unc": float(uncertainty),
    }


# ---- ranking


def auroc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the probability that a right answer scores above a wrong one; ties count half.

    NaN if only right or only wrong answers have weight. Parameters as for `ece`.

    Examples
    --------
    >>> float(auroc([0.2, 0.5, 0.5, 0.9], [0, 0, 1, 1]))
    0.875
    """
    c, y = validate_scores(confidence, correct)
    w = row_weights(sample_weight, c.size)
    right = y > 0
    order = np.argsort(c[~right])
    wrong_scores = c[~right][order]
    wrong_weights = w[..., ~right][..., order]
    # weight of the k lowest wrong answers
    cumulative = np.cumsum(wrong_weights, axis=-1)
    cumulative = np.insert(cumulative, 0, 0, axis=-1)
    # of each right answer: how many wrong ones lie below it, and how many not above it
    n_below = np.searchsorted(wrong_scores, c[right], "left")
    n_not_above = np.searchsorted(wrong_scores, c[right], "right")
    below = cumulative[..., n_below]
    not_above = cumulative[..., n_not_above]
    right_weights = w[..., right]
    won = right_weights * (below + not_above) / 2
    pairs = right_weights.sum(axis=-1) * wrong_weights.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return won.sum(axis=-1) / pairs


def augrc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Return the area under the generalized risk-coverage curve (arXiv 2407.01032).

    It is the share of all rows that are answered and wrong, averaged over coverage: (1 - AUROC) acc
    (1 - acc) + (1 - acc)^2 / 2. Equal scores may be answered in any order. If all rows are right,
    or all wrong, the first term is 0.

    Examples
    --------
    >>> float(augrc([0.2, 0.5, 0.5, 0.9], [0, 0, 1, 1]))
    0.15625
    """
    ranking = np.nan_to_num(auroc(confidence, correct, sample_weight))
    right = accuracy(confidence, correct, sample_weight)
    wrong = 1 - right
    misranked = (1 - ranking) * right * wrong
    return misranked + wrong**2 / 2


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
    """Return one of METRICS; `n_bins` is for those WITH_BINS.

    Examples
    --------
    >>> float(measure("brier", [0.5, 1.0], [0, 1]))
    0.125
    """
    metric = METRICS[name]
    if name in WITH_BINS:
        return metric(confidence, correct, n_bins, sample_weight)
    return metric(confidence, correct, sample_weight)
