"""Proper scores and ranking, beside those of a constant.

A constant at the base rate is nearly calibrated and uninformative (arXiv 2606.07822). So every comparison includes it
as an estimator, BASE. The parts of the Brier score say which of the two an estimator lacks.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata

from lib.score import metrics
from lib.score.bootstrap import RESULT_KEYS, draw_resample_counts
from lib.store import PAIR

BASE = "base"  # the constant, in the column `estimator`


def base_rate(correct: Any) -> float:
    """Return (right + 1) / (n + 2), the constant learned from n calibration rows; 1/2 without rows."""
    y = np.asarray(correct, dtype=float)
    return float((y.sum() + 1) / (y.size + 2))


def log_losses(confidence: Any, correct: Any) -> np.ndarray:
    """Return -log of the probability of the outcome, (n,), nats.

    As in scikit-learn's `log_loss`, a probability is at least the float64 epsilon: a certain but wrong score costs 36.
    """
    c, y = metrics.validate_scores(confidence, correct)
    least = np.finfo(float).eps
    return -np.log(np.clip(np.where(y > 0, c, 1 - c), least, 1 - least))


def equal_mass_ece(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """Return the ECE with bins of equally many unweighted rows.

    Equal scores share the bin of their mean rank, whatever the order of rows.
    """
    c, y = metrics.validate_scores(confidence, correct)
    index = np.floor((rankdata(c) - 0.5) * n_bins / c.size).astype(int)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    sums = w @ (np.eye(n_bins)[index] * (y - c)[:, None])
    return np.abs(sums).sum(axis=-1) / w.sum(axis=-1)


def augrc(auroc: Any, accuracy: Any) -> Any:
    """Return the area under the generalized risk-coverage curve (arXiv 2407.01032).

    It is the share of all rows that are answered and wrong, averaged over coverage:
    (1 - AUROC) acc (1 - acc) + (1 - acc)^2 / 2.
    Equal scores may be answered in any order. If all rows are right, or all wrong, the first term is 0.
    """
    a = np.asarray(accuracy, dtype=float)
    return (1 - np.nan_to_num(auroc)) * a * (1 - a) + (1 - a) ** 2 / 2


def decompose_brier(confidence: Any, correct: Any) -> dict[str, float]:
    """Return the parts of the Brier score = `mcb` - `dsc` + `unc` (CORP, arXiv 2008.03033), without bins.

    Isotonic regression on the same rows gives the best scores in the order of these. Miscalibration (`mcb`) is what
    they gain over the scores, discrimination (`dsc`) what they gain over the rows' own accuracy, whose Brier score is
    the uncertainty (`unc`). No part is negative, and all rows of one score have no discrimination. On few rows chance
    raises both.
    """
    c, y = metrics.validate_scores(confidence, correct)
    _, place, count = np.unique(c, return_inverse=True, return_counts=True)
    best = isotonic_regression(np.bincount(place, y) / count, weights=count).x[place]
    recalibrated, unc = np.mean((best - y) ** 2), y.mean() * (1 - y.mean())
    parts = {"mcb": np.mean((c - y) ** 2) - recalibrated, "dsc": unc - recalibrated, "unc": unc}
    return {name: max(0.0, float(part)) for name, part in parts.items()}  # rounding can leave -1e-17


def proper_measures(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> dict[str, Any]:
    """Return measures by name; `sample_weight` of shape (..., n), such as bootstrap counts, gives results of shape
    (...)."""
    c, y = metrics.validate_scores(confidence, correct)
    auroc = metrics.auroc(c, y, sample_weight)
    return {
        "ece": metrics.ece(confidence, y, n_bins, sample_weight),
        "ece_mass": equal_mass_ece(c, y, n_bins, sample_weight),
        "brier": metrics.brier(c, y, sample_weight),
        "log_loss": metrics.weighted_mean(log_losses(c, y), sample_weight),
        "auroc": auroc,
        "augrc": augrc(auroc, metrics.weighted_mean(y, sample_weight)),
    }


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> pd.DataFrame:
    """Append each pair's BASE, computed from the calibration rows of `raw`, to `calibrated` (evaluation rows, with
    column `method`)."""
    parts = [calibrated]
    for _, rows in raw.drop_duplicates([*PAIR, "split", "example_id"]).groupby(PAIR, sort=False):
        constant = base_rate(rows.correct[rows.split == "calibration"])
        evaluation = rows[rows.split == "evaluation"]
        parts.append(evaluation.assign(estimator=BASE, method="", confidence=constant))
    return pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore")


def compare_with_base_rate(frame: pd.DataFrame, n_bins: int = 10, resamples: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Return the `proper_measures` of every estimator and method of a frame, and `decompose_brier`.

    Columns: RESULT_KEYS, value, low, high, n, reason. The measures of raw scores have 95% percentile intervals over the
    draws of `bootstrap.bootstrap`, without resamples where a measure is undefined. An undefined value is missing, with
    a reason.
    """
    groups, parts = frame.groupby(RESULT_KEYS[:4], sort=False), []
    sizes = {n: draw_resample_counts(n, resamples, seed) for n in groups.size().unique()}
    draws = {n: [counts.astype(np.uint16) for counts in blocks] for n, blocks in sizes.items()}
    for key, part in groups:
        part = part.sort_values("example_id")  # the row order of `bootstrap`
        given = part.confidence.to_numpy(), part.correct.to_numpy()
        measured = proper_measures(*given, n_bins) | decompose_brier(*given)
        table = pd.Series(measured, name="value").rename_axis("metric").to_frame()
        table = table.assign(**dict(zip(RESULT_KEYS, key, strict=False)), low=np.nan, high=np.nan, n=len(part))
        if not table["method"].any():
            drawn = pd.concat([pd.DataFrame(proper_measures(*given, n_bins, counts)) for counts in draws[len(part)]])
            table.loc[drawn.columns, ["low", "high"]] = drawn.quantile([0.025, 0.975]).T.to_numpy()
        parts.append(table.reset_index())
    compared = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(("value", "low", "high"), "Float64"))
    compared["reason"] = np.where(compared.value.isna(), metrics.ONE_CLASS, "")
    return compared[[*RESULT_KEYS, "value", "low", "high", "n", "reason"]]
