"""Beyond calibration: proper scores and ranking beside those of a constant, and selective prediction.

A constant at the base rate is nearly calibrated and uninformative (arXiv 2606.07822). So every comparison includes it
as an estimator, BASE; Brier skill is relative to it.

Learn-then-Test (arXiv 2110.01052) finds the threshold for a target precision in one fixed sequence of thresholds. A
third of the calibration rows proposes thresholds and the starting point. The other rows test them one by one with the
exact binomial tail, down to the first failure. For any scores, the true precision of the returned threshold is below
the target with probability at most 1 - `certainty` (the parameter `precision_confidence`) over draws of calibration
rows. MAPIE 1.6.0 has the same test. But there a threshold that no row reaches gives a NaN p-value, after which Holm's
procedure finds nothing. Its rounding also overcounts errors by one in a third of the cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom, rankdata

from lib.random_streams import first_rows
from lib.score import metrics
from lib.score.bootstrap import RESULT_KEYS, draw_resample_counts
from lib.store import KEYS, PAIR

BASE = "base"  # the constant, in the column `estimator`
STEPS = 20  # proposed thresholds, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the learning or the testing rows


# ---- proper scores


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
    confidence: Any, correct: Any, base: float, n_bins: int = 10, sample_weight: Any = None
) -> dict[str, Any]:
    """Return measures by name; `sample_weight` of shape (..., n), such as bootstrap counts, gives results of shape
    (...).

    `skill` is 1 - Brier / Brier of the constant `base` on the same rows. scikit-learn's `d2_brier_score` uses the
    accuracy of the evaluation rows as the constant.
    """
    c, y = metrics.validate_scores(confidence, correct)
    brier, auroc = metrics.brier(c, y, sample_weight), metrics.auroc(c, y, sample_weight)
    return {
        "ece": metrics.ece(confidence, y, n_bins, sample_weight),
        "ece_mass": equal_mass_ece(c, y, n_bins, sample_weight),
        "brier": brier,
        "skill": 1 - brier / metrics.brier(np.full_like(c, base), y, sample_weight),
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
    """Return the `proper_measures` of every estimator and method of a frame from `add_base_rate`.

    Columns: RESULT_KEYS, value, low, high, n, reason. Raw scores have 95% percentile intervals over the draws of
    `bootstrap.bootstrap`, without resamples where a measure is undefined. An undefined value is missing, with a reason.
    """
    constants = frame[frame.estimator == BASE].groupby(PAIR).confidence.first()
    parts = []
    for key, part in frame.groupby(RESULT_KEYS[:4], sort=False):
        part = part.sort_values("example_id")  # the row order of `bootstrap`
        given = part.confidence.to_numpy(), part.correct.to_numpy(), constants[key[:2]], n_bins
        table = pd.Series(proper_measures(*given), name="value").rename_axis("metric").to_frame()
        table = table.assign(**dict(zip(RESULT_KEYS, key, strict=False)), low=np.nan, high=np.nan, n=len(part))
        if not table["method"].any():
            blocks = [proper_measures(*given, block) for block in draw_resample_counts(len(part), resamples, seed)]
            table[["low", "high"]] = pd.concat(map(pd.DataFrame, blocks)).quantile([0.025, 0.975]).T.to_numpy()
        parts.append(table.reset_index())
    compared = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(("value", "low", "high"), "Float64"))
    compared["reason"] = np.where(compared.value.isna(), metrics.ONE_CLASS, "")
    return compared[[*RESULT_KEYS, "value", "low", "high", "n", "reason"]]


# ---- risk and coverage


def risk_coverage(confidence: Any, correct: Any) -> pd.DataFrame:
    """Return accuracy by coverage, most confident rows first: a row per distinct score, from the largest.

    Columns: `threshold`, `answered` (share of rows at or above it) and their `accuracy`.
    """
    c, y = metrics.validate_scores(confidence, correct)
    rows = pd.DataFrame({"correct": y}).groupby(c).correct.agg(["size", "sum"])[::-1].cumsum()
    accuracy = rows["sum"] / rows["size"]
    return pd.DataFrame({"threshold": rows.index, "answered": rows["size"] / c.size, "accuracy": accuracy}).reset_index(
        drop=True
    )


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

    def p_values(side: Side, thresholds: np.ndarray) -> np.ndarray:
        answered = np.asarray(side[0], dtype=float)[:, None] >= thresholds
        wrong = answered & ~np.asarray(side[1], dtype=bool)[:, None]
        return binomial_p_values(wrong.sum(axis=0), answered.sum(axis=0), precision)

    if not len(learning[0]) or not len(testing[0]):
        return None
    proposed = np.unique(np.quantile(learning[0], np.arange(STEPS) / STEPS, method="lower"))  # increasing
    down = proposed[p_values(learning, proposed).argmin() :: -1]
    passed = np.logical_and.accumulate(p_values(testing, down) <= 1 - certainty)
    return float(down[passed][-1]) if passed.any() else None


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
        learning, testing = ((side.confidence, side.correct) for side in (calibration[learns], calibration[~learns]))
        tested = len(testing[0])
        for target in targets:
            threshold = find_threshold(learning, testing, target, certainty)
            reason = "" if threshold is not None else NO_GUARANTEE
            if reason and tested < min_rows_for_guarantee(target, certainty):
                reason = TOO_FEW_ROWS
            outcome = apply_threshold(evaluation, threshold, target)
            rows.append((*key, float(target), threshold, *outcome, len(evaluation), tested, reason))
    types = dict.fromkeys(("threshold", "answered", "precision"), "Float64") | {"held": "boolean"}
    columns = [*PAIR, "estimator", "target", *types, "n", "tested", "reason"]
    return pd.DataFrame(rows, columns=columns).astype(types)


def apply_threshold(evaluation: pd.DataFrame, threshold: float | None, target: float) -> tuple:
    """Return share answered, precision and whether the guarantee held, on evaluation rows; missing if unknown."""
    if threshold is None:
        return pd.NA, pd.NA, pd.NA
    right = evaluation.correct[evaluation.confidence >= threshold]
    if right.empty:
        return 0.0, pd.NA, pd.NA
    return right.size / len(evaluation), right.mean(), binom.cdf(right.sum(), right.size, target) >= 0.05
