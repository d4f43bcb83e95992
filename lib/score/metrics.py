"""Accuracy, calibration errors and AUROC of confidence scores, each registered once in METRICS.

Bins follow `guo2017calibration`: equal width; gap = |accuracy - mean confidence| in a bin; empty bins do not count.
Scores on an edge matter here, since scores of exactly 1.0 and calibrated scores k/n are common. Edges are the floats
nearest to k/n_bins (`linspace(0, 1, 11)[3]` is not 0.3). A score within a few rounding errors of its own type from an
edge counts as on it, and belongs to the bin below; 0 is in the first.

`sample_weight` of shape (..., n), such as the counts of bootstrap resamples, gives results of shape (...).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from lib.store import PAIR

ONE_CLASS = "one class only"  # the reason of a missing AUROC


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


def bin_sums(
    confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sums per bin, each (..., n_bins): number of rows, confidence, right answers."""
    c, y = validate_scores(confidence, correct)
    index = bin_index(confidence, n_bins)
    if sample_weight is None:
        count, sure, right = (np.bincount(index, column, minlength=n_bins) for column in (np.ones_like(c), c, y))
        return count, sure, right
    member = np.eye(n_bins)[index]  # (n, n_bins)
    w = np.asarray(sample_weight, dtype=np.float64)
    return w @ member, w @ (member * c[:, None]), w @ (member * y[:, None])


def reliability_diagram(confidence: Any, correct: Any, n_bins: int = 10) -> pd.DataFrame:
    """Return a row per non-empty bin: lower, upper, count, confidence and accuracy (means), and its part of the ECE.

    `gap` is |accuracy - confidence|; the largest is the MCE. `share` is that of the rows. The `product` of both sums to
    the ECE.
    """
    count, sure, right = bin_sums(confidence, correct, n_bins)
    bins = pd.DataFrame({"lower": np.arange(n_bins) / n_bins, "upper": np.arange(1, n_bins + 1) / n_bins})
    bins = bins.assign(count=count.astype(int), confidence=sure, accuracy=right)[count > 0].reset_index(drop=True)
    bins[["confidence", "accuracy"]] = bins[["confidence", "accuracy"]].div(bins["count"], axis=0)
    bins = bins.assign(gap=(bins.accuracy - bins.confidence).abs(), share=bins["count"] / count.sum())
    return bins.assign(product=bins.gap * bins.share)


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
    count, sure, right = bin_sums(confidence, correct, n_bins, sample_weight)
    return np.abs(right - sure).sum(axis=-1) / count.sum(axis=-1)


def mce(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Maximum calibration error: largest gap over the non-empty bins."""
    count, sure, right = bin_sums(confidence, correct, n_bins, sample_weight)
    return (np.abs(right - sure) / np.where(count > 0, count, 1)).max(axis=-1)


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
    right, wrong, order = w * y, w * (1 - y), np.argsort(c)
    total = np.cumsum(wrong[..., order], axis=-1)
    total = np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1)  # weight of wrong rows among the k lowest
    below, not_above = (total[..., np.searchsorted(c[order], c, side)] for side in ("left", "right"))
    above = (right * (below + not_above) / 2).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return above / (right.sum(axis=-1) * wrong.sum(axis=-1))


METRICS: dict[str, Callable[..., Any]] = {  # functions of confidence, correct, the number of bins and the weights
    "acc": lambda confidence, correct, n_bins, sample_weight=None: accuracy(confidence, correct, sample_weight),
    "ece": ece,
    "mce": mce,
    "brier": lambda confidence, correct, n_bins, sample_weight=None: brier(confidence, correct, sample_weight),
    "auroc": lambda confidence, correct, n_bins, sample_weight=None: auroc(confidence, correct, sample_weight),
}


# ---- over frames


def evaluate(
    frame: pd.DataFrame, n_bins: int = 10, split: str = "evaluation", names: Collection[str] = METRICS
) -> pd.DataFrame:
    """Evaluate every estimator of a confidence frame, and every method if it has that column, on one split.

    Parameters
    ----------
    frame : DataFrame
        From `confidence_frame`, or with a column `method` ("" for raw scores) from `fitting.calibrate`.
    n_bins
        As for `ece`.
    split : {"evaluation", "calibration"}
    names : collection of str
        Of METRICS; all by default.

    Returns
    -------
    DataFrame
        model, dataset, estimator (and method), metric, value, n (rows), and reason. The accuracy has a row per pair, of
        estimator "". A value that cannot be computed is missing (NA), and `reason` explains it. With methods, also
        `relative`, the share by which a method lowers the raw ECE.
    """
    by = [name for name in ("estimator", "method") if name in frame]
    rows: list[tuple] = []
    for pair, part in frame[frame.split == split].groupby(PAIR, sort=False):
        everyone = part.drop_duplicates("example_id")
        if "acc" in names:
            rows.append((*pair, *[""] * len(by), "acc", everyone.correct.mean(), len(everyone)))
        for key, group in part.groupby(by, sort=False):
            given = group.confidence.to_numpy(), group.correct.to_numpy(), n_bins
            rows += [(*pair, *key, name, METRICS[name](*given), len(group)) for name in names if name != "acc"]
    results = pd.DataFrame(rows, columns=[*PAIR, *by, "metric", "value", "n"]).astype({"value": "Float64"})
    results["reason"] = np.where(results.value.isna(), ONE_CLASS, "")
    return add_relative_gain(results) if "method" in by else results


def add_relative_gain(results: pd.DataFrame) -> pd.DataFrame:
    """Return results with `relative`, the share by which a method lowers the raw ECE; missing elsewhere."""
    cell = [*PAIR, "estimator"]
    errors = results[results.metric == "ece"]
    raw = errors[(errors["method"] == "") & (errors.value > 0)].set_index(cell).value
    before = raw.reindex(pd.MultiIndex.from_frame(errors[cell])).array
    return results.assign(relative=(1 - errors.value / before).where(errors["method"] != ""))


def ablate_bins(frame: pd.DataFrame, n_bins_ablation: Iterable[int], names: Collection[str] = METRICS) -> pd.DataFrame:
    """Run `evaluate` for each number of bins, given in column `bins` (`tab:bin_ablation`)."""
    parts = [evaluate(frame, n_bins, names=names).assign(bins=n_bins) for n_bins in n_bins_ablation]
    return pd.concat(parts, ignore_index=True)
