"""Selective prediction: scores compared with a constant, and thresholds with a guaranteed precision.

A constant at the base rate is nearly calibrated and uninformative (arXiv 2606.07822). So every comparison includes it
as an estimator, BASE; Brier skill is relative to it.

Learn-then-Test (arXiv 2110.01052) with a split fixed sequence finds the threshold for a target precision. A third of
the calibration rows proposes thresholds and the starting point. The other rows test them one by one with the exact
binomial tail, down to the first failure. For any scores, the true precision of the returned threshold is below the
target with probability at most 1 - `certainty` over draws of calibration rows. MAPIE 1.6.0 has the same test. But there
a threshold that no row reaches gives a NaN p-value, after which Holm's procedure finds nothing. Its rounding also
counts an error too many in a third of the cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom, rankdata

from lib.random_streams import first_rows
from lib.score import metrics
from lib.score.bootstrap import draw_resample_counts
from lib.store import KEYS, PAIR

BASE = "base"  # the constant, in the column `estimator`
STEPS = 20  # proposed thresholds, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the learning or the testing rows


# ---- scores beside a constant


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


def proper_measures(
    confidence: Any, correct: Any, base: float, n_bins: int = 10, closed: str = "right", sample_weight: Any = None
) -> dict[str, Any]:
    """Return measures by name; `sample_weight` of shape (..., n), such as bootstrap counts, gives results of shape
    (...).

    `skill` is 1 - Brier / Brier of the constant `base` on the same rows. scikit-learn's `d2_brier_score` uses the
    accuracy of the evaluation rows as the constant.
    """
    c, y = metrics.validate_scores(confidence, correct)
    brier, auroc = metrics.brier(c, y, sample_weight), metrics.auroc(c, y, sample_weight)
    return {
        "ece": metrics.ece(confidence, y, n_bins, closed, sample_weight),
        "ece_mass": equal_mass_ece(c, y, n_bins, sample_weight),
        "brier": brier,
        "skill": 1 - brier / metrics.brier(np.full_like(c, base), y, sample_weight),
        "log_loss": metrics.weighted_mean(log_losses(c, y), sample_weight),
        "auroc": auroc,
        "augrc": augrc(auroc, metrics.weighted_mean(y, sample_weight)),
    }


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple, float]]:
    """Append each pair's BASE to `calibrated` (evaluation rows, with column `method`).

    Also return the constants by pair, computed from the calibration rows of `raw`.
    """
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
    """Return the `proper_measures` of every estimator and method of a frame from `add_base_rate`.

    Columns: PAIR, estimator, method, metric, value, low, high, n, reason. Raw scores have 95% percentile intervals over
    the draws of `bootstrap.bootstrap`, without resamples where a measure is undefined. An undefined value is missing,
    with a reason.
    """
    rows: list[tuple] = []
    for key, part in frame.groupby([*PAIR, "estimator", "method"], sort=False):
        part = part.sort_values("example_id")  # the row order of `bootstrap`
        given = part.confidence.to_numpy(), part.correct.to_numpy(), constants[key[:2]], n_bins, closed
        found, low, high = proper_measures(*given), {}, {}
        if not key[3]:
            blocks = [proper_measures(*given, block) for block in draw_resample_counts(len(part), resamples, seed)]
            low, high = pd.concat(map(pd.DataFrame, blocks)).quantile([0.025, 0.975]).to_dict("records")
        for name, value in found.items():
            reason = "one class only" if np.isnan(value) else ""
            rows.append((*key, name, value, low.get(name), high.get(name), len(part), reason))
    columns = [*PAIR, "estimator", "method", "metric", "value", "low", "high", "n", "reason"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("value", "low", "high"), "Float64"))


# ---- risk and coverage


def risk_coverage(confidence: Any, correct: Any) -> pd.DataFrame:
    """Return accuracy by coverage, most confident rows first: a row per distinct score, from the largest.

    Columns: `threshold`, `answered` (share of rows at or above it) and their `accuracy`.
    """
    c, y = metrics.validate_scores(confidence, correct)
    order = np.argsort(-c, kind="stable")
    last = np.flatnonzero(np.diff(-c[order], append=2.0))  # last row of each score
    count = last + 1
    return pd.DataFrame({"threshold": c[order][last], "answered": count / c.size,
                         "accuracy": np.cumsum(y[order])[last] / count})  # fmt: skip


def risk_coverage_curves(frame: pd.DataFrame, points: int = 100) -> pd.DataFrame:
    """Return `risk_coverage` of every estimator and method on the evaluation rows, thinned to `points` shares.

    Columns: PAIR, estimator, method, answered, accuracy.
    """
    by = [*PAIR, "estimator", "method"]
    parts = [pd.DataFrame(columns=[*by, "answered", "accuracy"])]
    for key, part in frame[frame.split == "evaluation"].groupby(by, sort=False):
        curve = risk_coverage(part.confidence, part.correct)
        kept = curve[~np.ceil(curve.answered * points - 1e-9).duplicated(keep="last")]
        parts.append(kept.assign(**dict(zip(by, key, strict=True)))[parts[0].columns])
    return pd.concat(parts[1:] or parts, ignore_index=True)


# ---- thresholds


def binomial_p_values(wrong: Any, answered: Any, precision: float) -> np.ndarray:
    """Return the probability of at most `wrong` errors among `answered` rows if the precision were not met, (k,).

    1 if no row is answered.
    """
    wrong, answered = np.asarray(wrong), np.asarray(answered)
    return np.where(answered > 0, binom.cdf(wrong, np.maximum(answered, 1), 1 - precision), 1.0)


def find_threshold(learning: Side, testing: Side, precision: float, certainty: float = 0.9) -> float | None:
    """Find the lowest threshold that guarantees a target precision of the answers.

    Parameters
    ----------
    learning, testing : (confidence (n,), correct (n,))
        Disjoint calibration rows: the first propose thresholds, the others test them.
    precision : target share of right answers among those given
    certainty : probability of the guarantee over draws of calibration rows

    Returns
    -------
    None if no threshold can be guaranteed.
    """
    scores = np.asarray(learning[0], dtype=float)
    if not scores.size or not len(testing[0]):
        return None
    proposed = np.unique(np.quantile(scores, np.arange(STEPS) / STEPS, method="lower"))  # increasing
    begin = int(binomial_p_values(*_counted(*learning, proposed), precision).argmin())
    down = proposed[begin::-1]
    passed = np.logical_and.accumulate(binomial_p_values(*_counted(*testing, down), precision) <= 1 - certainty)
    return float(down[passed][-1]) if passed.any() else None


def _counted(confidence: Any, correct: Any, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of wrong rows and of all rows at or above each of k thresholds, (k,) each."""
    answered = np.asarray(confidence, dtype=float)[:, None] >= thresholds
    return (answered & ~np.asarray(correct, dtype=bool)[:, None]).sum(axis=0), answered.sum(axis=0)


def min_rows_for_guarantee(precision: float, certainty: float = 0.9) -> int:
    """Return how many right answers, without a wrong one, guarantee a precision."""
    return int(np.ceil(np.log(1 - certainty) / np.log(precision)))


def mark_learning_rows(calibration: pd.DataFrame, tuned: Mapping[str, pd.DataFrame], seed: int) -> pd.Series:
    """Mark the calibration rows of one estimator that propose thresholds, bool by row.

    They are the first third of the dataset's fixed random order. Rows on which the estimator was tuned (KEYS by its
    name) are added.
    """
    keys = pd.MultiIndex.from_frame(calibration[KEYS])
    chosen = [first_rows(calibration, max(1, len(calibration) // 3), seed)[KEYS]]
    chosen += [tuned[name][KEYS] for name in calibration.estimator.unique() if name in tuned]
    return pd.Series(keys.isin(pd.MultiIndex.from_frame(pd.concat(chosen))), calibration.index)


def selective_thresholds(
    raw: pd.DataFrame,
    targets: Sequence[float],
    certainty: float = 0.9,
    seed: int = 0,
    tuned: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Find a threshold for each pair, estimator and target precision (`target`), and apply it to the evaluation rows.

    Columns: `answered`, the share of rows at or above it, and their `precision`; number of rows evaluated (`n`) and
    `tested`; `reason` if there is no threshold. `held` is False if the probability of so many errors is below 5% at the
    target.
    """
    rows: list[tuple] = []
    for key, part in raw.groupby([*PAIR, "estimator"], sort=False):
        calibration, evaluation = (part[part.split == split] for split in ("calibration", "evaluation"))
        if evaluation.empty:
            continue
        learns = mark_learning_rows(calibration, tuned or {}, seed)
        sides = calibration[learns], calibration[~learns]
        learning, testing = ((side.confidence.to_numpy(float), side.correct.to_numpy(float)) for side in sides)
        tested = len(testing[0])
        for target in targets:
            found = find_threshold(learning, testing, target, certainty)
            outcome, reason = _outcome_on_evaluation(evaluation, target, found), ""
            if found is None:
                reason = TOO_FEW_ROWS if tested < min_rows_for_guarantee(target, certainty) else NO_GUARANTEE
            rows.append((*key, float(target), found, *outcome, len(evaluation), tested, reason))
    types = dict.fromkeys(("threshold", "answered", "precision"), "Float64") | {"held": "boolean"}
    columns = [*PAIR, "estimator", "target", *types, "n", "tested", "reason"]
    return pd.DataFrame(rows, columns=columns).astype(types)


def _outcome_on_evaluation(evaluation: pd.DataFrame, target: float, found: float | None) -> tuple:
    """Return share answered, precision and whether the guarantee held, on evaluation rows."""
    if found is None:
        return pd.NA, pd.NA, pd.NA
    answered = evaluation.confidence.to_numpy() >= found
    if not answered.any():
        return 0.0, pd.NA, pd.NA
    right = evaluation.correct.to_numpy(bool)[answered]
    held = bool(binom.cdf(right.sum(), right.size, target) >= 0.05)
    return float(answered.mean()), float(right.mean()), held
