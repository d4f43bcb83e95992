"""What ECE alone hides: whether scores are worth more than a constant, and whether they tell right from wrong.

A constant at the base rate is nearly calibrated and knows nothing (arXiv 2606.07822), so it stands in every comparison
as an estimator of its own, BASE; Brier skill is measured against it. `sample_weight` of shape (..., n),
such as the counts of bootstrap resamples, give results of shape (...)."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from lib.score import metrics
from lib.score.bootstrap import draw_resample_counts
from lib.store import PAIR

BASE = "base"  # the constant, in the column `estimator`
PROPER_MEASURES = ("ece", "ece_mass", "brier", "skill", "log_loss", "auroc", "augrc")
COMPARED = [*PAIR, "estimator", "method", "metric", "value", "low", "high", "n", "reason"]
ONE_CLASS = "one class only"


def base_rate(correct: Any) -> float:
    """(right + 1) / (n + 2): the constant that n calibration rows teach; 1/2 of none."""
    y = np.asarray(correct, dtype=float)
    return float((y.sum() + 1) / (y.size + 2))


# ---- measures of n scores


def log_losses(confidence: Any, correct: Any) -> np.ndarray:
    """-log of the probability given to what came true, (n,), nats. As in scikit-learn's `log_loss`, a probability is at
    least the float64 epsilon: a certain score that is wrong costs 36."""
    c, y = metrics.validate_scores(confidence, correct)
    least = np.finfo(float).eps
    return -np.log(np.clip(np.where(y > 0, c, 1 - c), least, 1 - least))


def equal_mass_index(confidence: Any, n_bins: int = 10) -> np.ndarray:
    """Which of `n_bins` bins of equally many rows each score falls in, (n,) int. Equal scores share a bin, whatever the
    order of rows: that of their mean rank."""
    ranks = rankdata(np.asarray(confidence, dtype=float))
    return np.floor((ranks - 0.5) * n_bins / ranks.size).astype(int)


def equal_mass_ece(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """ECE with these bins, which stay those of the unweighted rows."""
    c, y = metrics.validate_scores(confidence, correct)
    member = np.eye(n_bins)[equal_mass_index(c, n_bins)]
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return metrics.as_float_if_scalar(np.abs(w @ (member * (y - c)[:, None])).sum(axis=-1) / w.sum(axis=-1))


def augrc(auroc: Any, accuracy: Any) -> Any:
    """Area under the generalised risk-coverage curve (arXiv 2407.01032), the share of all rows that are answered and
    wrong, averaged over the share answered: (1 - AUROC) acc (1 - acc) + (1 - acc)^2 / 2. Equal scores count as answered
    in any order; without right or wrong rows, the first term is 0."""
    a = np.asarray(accuracy, dtype=float)
    return metrics.as_float_if_scalar((1 - np.nan_to_num(auroc)) * a * (1 - a) + (1 - a) ** 2 / 2)


def proper_measures(confidence: Any, correct: Any, base: float, n_bins: int = 10, closed: str = "right",
             sample_weight: Any = None) -> dict[str, Any]:  # fmt: skip
    """MEASURED by name. `skill` is 1 - Brier / Brier of the constant `base` on the same rows; scikit-learn's
    `d2_brier_score` is the same against the evaluation rows' own accuracy."""
    c, y = metrics.validate_scores(confidence, correct)
    brier = metrics.brier(c, y, sample_weight)
    order = metrics.auroc(c, y, sample_weight)
    return {"ece": metrics.ece(confidence, y, n_bins, closed, sample_weight),
            "ece_mass": equal_mass_ece(c, y, n_bins, sample_weight), "brier": brier,
            "skill": 1 - brier / metrics.brier(np.full_like(c, base), y, sample_weight),
            "log_loss": metrics.weighted_mean(log_losses(c, y), sample_weight), "auroc": order,
            "augrc": augrc(order, metrics.weighted_mean(y, sample_weight))}  # fmt: skip


# ---- over frames


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple, float]]:
    """`calibrated` (evaluation rows, with column `method`) and below it each pair's BASE; and the constants by pair,
    from the calibration rows of `raw`."""
    constants, parts = {}, [calibrated]
    known = raw.drop_duplicates([*PAIR, "split", "example_id"])
    for pair, rows in known.groupby(PAIR, sort=False):
        constants[pair] = base_rate(rows.correct[rows.split == "calibration"])
        evaluation = rows[rows.split == "evaluation"]
        parts.append(evaluation.assign(estimator=BASE, method="", confidence=constants[pair]))
    return pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore"), constants


def compare_with_base_rate(
    frame: pd.DataFrame,
    constants: Mapping[tuple, float],
    n_bins: int = 10,
    closed: str = "right",
    resamples: int = 5000,
    seed: int = 0,
) -> pd.DataFrame:
    """MEASURED of every estimator and method of a frame as `add_base_rate` returns it (COMPARED); of raw scores with
    95% percentile intervals, over the same draws of rows as `bootstrap.bootstrap`. What cannot be had is missing, with
    the reason."""
    rows: list[tuple] = []
    for key, part in frame.groupby([*PAIR, "estimator", "method"], sort=False):
        part = part.sort_values("example_id")  # the order in which `bootstrap` numbers rows
        measured = partial(
            proper_measures, part.confidence.to_numpy(), part.correct.to_numpy(), constants[key[:2]], n_bins, closed
        )
        found = measured()
        drawn = _resampled(measured, draw_resample_counts(len(part), resamples, seed)) if not key[3] else {}
        for metric in PROPER_MEASURES:
            value = found[metric]
            interval = (pd.NA, pd.NA) if metric not in drawn else _interval(drawn[metric])
            if np.isnan(value):
                rows.append((*key, metric, pd.NA, pd.NA, pd.NA, len(part), ONE_CLASS))
            else:
                rows.append((*key, metric, value, *interval, len(part), ""))
    return _typed(pd.DataFrame(rows, columns=COMPARED))


def _resampled(measured: Callable[..., dict[str, Any]], draws: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """MEASURED over blocks of draws, (resamples,) each."""
    blocks = [measured(sample_weight=block) for block in draws]
    return {name: np.concatenate([block[name] for block in blocks]) for name in PROPER_MEASURES}


def _interval(draws: np.ndarray) -> tuple[Any, Any]:
    """The middle 95% of the resamples in which a measure can be had."""
    there = draws[~np.isnan(draws)]
    if not there.size:
        return pd.NA, pd.NA
    low, high = np.percentile(there, [2.5, 97.5])
    return float(low), float(high)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(dict.fromkeys(("value", "low", "high"), "Float64"))
