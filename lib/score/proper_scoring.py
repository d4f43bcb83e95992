"""What ECE alone hides: whether scores are worth more than a constant, and whether they tell right from wrong.

A constant at the base rate is nearly calibrated and knows nothing (arXiv 2606.07822), so it stands in every comparison
as an estimator of its own, BASE; Brier skill is measured against it. ECE and Brier score grow and shrink with accuracy,
so models are also compared at one accuracy (`match_accuracy`; arXiv 2606.30814). `sample_weight` of shape (..., n),
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


def weighted_auroc(confidence: Any, correct: Any, sample_weight: Any = None) -> Any:
    """Probability that a right row scores above a wrong one, ties half; NaN where the weights leave one kind."""
    c, y = metrics.validate_scores(confidence, correct)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    order = np.argsort(c, kind="stable")
    starts = np.flatnonzero(np.diff(c[order], prepend=-1.0))
    right, wrong = (np.add.reduceat(w[..., order] * kind[order], starts, axis=-1) for kind in (y, 1 - y))
    above = (right * (np.cumsum(wrong, axis=-1) - wrong / 2)).sum(axis=-1)
    pairs = right.sum(axis=-1) * wrong.sum(axis=-1)
    return metrics.as_float_if_scalar(np.where(pairs > 0, above / np.where(pairs > 0, pairs, 1), np.nan))


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
    order = weighted_auroc(c, y, sample_weight)
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


# ---- at one accuracy


def match_accuracy(frame: pd.DataFrame, n_bins: int = 10, closed: str = "right", resamples: int = 1000, seed: int = 0
            ) -> pd.DataFrame:  # fmt: skip
    """ECE and Brier score of raw scores where all models are right equally often, by dataset: the mean of their
    accuracies, to which each model's right and wrong rows are weighted, in each resample, too; BASE is the constant at
    that accuracy. COMPARED and `accuracy`; metric `ece` and `brier` as measured, `ece_matched`, `brier_matched`. A
    dataset of one model has no rows."""
    rows: list[tuple] = []
    raw = frame[(frame.method == "") & (frame.split == "evaluation")]
    for (dataset, estimator), group in raw.groupby(["dataset", "estimator"], sort=False):
        parts = {model: part for model, part in group.groupby("model", sort=False)}
        level = float(np.mean([part.correct.mean() for part in parts.values()]))
        for model, part in parts.items() if len(parts) > 1 else ():
            scores, correct = part.confidence.to_numpy(), part.correct.to_numpy(float)
            drawn = [
                np.ones((1, len(part))),
                *draw_resample_counts(len(part), resamples, seed),
            ]  # first the rows as they are
            level_scores = np.full_like(scores, level) if estimator == BASE else scores
            sides = {
                "": (scores, drawn),
                "_matched": (level_scores, [reweight_to_accuracy(block, correct, level) for block in drawn]),
            }
            for suffix, (confidence, weights) in sides.items():
                for name, found in _errors(confidence, correct, weights, n_bins, closed).items():
                    there = not suffix or 0 < correct.mean() < 1
                    values = (float(found[0]), *_interval(found[1:])) if there else (pd.NA, pd.NA, pd.NA)
                    known = (len(part), "" if there else ONE_CLASS, level)
                    rows.append((model, dataset, estimator, "", name + suffix, *values, *known))
    return _typed(pd.DataFrame(rows, columns=[*COMPARED, "accuracy"]))


def _errors(confidence: np.ndarray, correct: np.ndarray, weights: list[np.ndarray], n_bins: int, closed: str
            ) -> dict[str, np.ndarray]:  # fmt: skip
    """ECE and Brier score under each of the weights, blocks (b, n)."""
    blocks = [block for block in weights if len(block)]
    errors = {"ece": [metrics.ece(confidence, correct, n_bins, closed, block) for block in blocks],
              "brier": [metrics.brier(confidence, correct, block) for block in blocks]}  # fmt: skip
    return {name: np.concatenate(values) if values else np.zeros(0) for name, values in errors.items()}


def reweight_to_accuracy(draws: np.ndarray, correct: np.ndarray, level: float) -> np.ndarray:
    """How often rows count, (b, n), so that a share `level` of them is right; draws of one kind are left out."""
    accuracy = draws @ correct / draws.sum(axis=1)
    both = (accuracy > 0) & (accuracy < 1)
    share = accuracy[both, None]
    return draws[both] * np.where(correct > 0, level / share, (1 - level) / (1 - share))
