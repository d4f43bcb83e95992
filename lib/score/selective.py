"""Selective prediction: which share of the questions can be answered at which precision.

Learn-then-Test (arXiv 2110.01052) finds the threshold for a target precision in one fixed sequence
of thresholds. A third of the calibration rows proposes thresholds and the starting point. The other
rows test them one by one with the exact binomial tail, down to the first failure. For any scores,
the true precision of the returned threshold is below the target with probability at most 1 -
`certainty` (the parameter `precision_confidence`) over draws of calibration rows. MAPIE 1.6.0 has
the same test. But there a threshold that no row reaches gives a NaN p-value, after which Holm's
procedure finds nothing. Its rounding also overcounts errors by one in a third of the cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from lib.row_order import first_rows
from lib.score import metrics
from lib.store import KEYS, SCORE_CELL, calibration_rows, evaluation_rows

N_PROPOSED = 20  # proposed thresholds, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the learning or the testing rows

# ---- risk and coverage


def risk_coverage(confidence: Any, correct: Any) -> pd.DataFrame:
    """Return accuracy by coverage, most confident rows first: a row per distinct score, from the
    largest.

    Columns: `threshold`, `answered` (share of rows at or above it) and their `accuracy`.
    """
    c, y = metrics.validate_scores(confidence, correct)
    rows = (
        pd.DataFrame({"threshold": c, "correct": y})
        .groupby("threshold")
        .correct.agg(["size", "sum"])[::-1]
        .cumsum()
    )
    rows = rows.assign(
        answered=rows["size"] / c.size, accuracy=rows["sum"] / rows["size"]
    ).reset_index()
    return rows[["threshold", "answered", "accuracy"]]


def risk_coverage_curves(frame: pd.DataFrame, points: int = 100) -> pd.DataFrame:
    """Return `risk_coverage` of every estimator and method on the evaluation rows, thinned to
    `points` shares.

    Columns: PAIR, estimator, method, answered, accuracy.
    """
    by, parts = [*SCORE_CELL, "method"], []
    for key, part in evaluation_rows(frame).groupby(by, sort=False):
        curve = risk_coverage(part.confidence, part.correct)
        kept = curve[~np.ceil(curve.answered * points - 1e-9).duplicated(keep="last")]
        parts.append(kept.assign(**dict(zip(by, key, strict=True))))
    return pd.concat(parts, ignore_index=True)[[*by, "answered", "accuracy"]]


# ---- thresholds


def binomial_p_values(wrong: Any, answered: Any, precision: float) -> np.ndarray:
    """Return the probability of at most `wrong` errors among `answered` rows if the precision were
    not met, (k,).

    1 if no row is answered.
    """
    wrong, answered = np.asarray(wrong), np.asarray(answered)
    return np.where(answered > 0, binom.cdf(wrong, np.maximum(answered, 1), 1 - precision), 1.0)


def find_threshold(
    learning: Side, testing: Side, precision: float, certainty: float = 0.9
) -> float | None:
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
    # increasing
    proposed = np.unique(
        np.quantile(learning[0], np.arange(N_PROPOSED) / N_PROPOSED, method="lower")
    )
    down = proposed[p_values(learning, proposed).argmin() :: -1]
    passed = np.logical_and.accumulate(p_values(testing, down) <= 1 - certainty)
    return float(down[passed][-1]) if passed.any() else None


def min_rows_for_guarantee(precision: float, certainty: float = 0.9) -> int:
    """Return how many right answers, without a wrong one, guarantee a precision."""
    return int(np.ceil(np.log(1 - certainty) / np.log(precision)))


def mark_learning_rows(calibration: pd.DataFrame, tuned: pd.DataFrame, seed: int) -> np.ndarray:
    """Mark the calibration rows of one estimator that propose thresholds, (n,): the first third of
    the dataset's fixed random order, and those on which the estimator was tuned (KEYS)."""
    chosen = pd.concat([first_rows(calibration, max(1, len(calibration) // 3), seed)[KEYS], tuned])
    return pd.MultiIndex.from_frame(calibration[KEYS]).isin(pd.MultiIndex.from_frame(chosen))


def selective_thresholds(
    raw: pd.DataFrame,
    targets: Sequence[float],
    certainty: float = 0.9,
    seed: int = 0,
    tuned: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Find a threshold for each pair, estimator and target precision (`target`), and apply it to
    the evaluation rows.

    Columns: `answered`, the share of rows at or above it, and their `precision`; number of rows
    evaluated (`n`) and `tested`; `reason` if there is no threshold. `held` is False if the
    probability of so many errors is below 5% at the target.
    """
    rows: list[tuple] = []
    for key, part in raw.groupby(SCORE_CELL, sort=False):
        calibration, evaluation = calibration_rows(part), evaluation_rows(part)
        if evaluation.empty:
            continue
        learns = mark_learning_rows(
            calibration, (tuned or {}).get(key[-1], calibration.head(0))[KEYS], seed
        )
        learning, testing = (
            (side.confidence, side.correct) for side in (calibration[learns], calibration[~learns])
        )
        for target in targets:
            threshold, tested = (
                find_threshold(learning, testing, target, certainty),
                len(testing[0]),
            )
            lacking = (
                TOO_FEW_ROWS if tested < min_rows_for_guarantee(target, certainty) else NO_GUARANTEE
            )
            reason = lacking if threshold is None else ""
            outcome = apply_threshold(evaluation, threshold, target)
            rows.append((*key, float(target), threshold, *outcome, len(evaluation), tested, reason))
    types = dict.fromkeys(("threshold", "answered", "precision"), "Float64") | {"held": "boolean"}
    columns = [*SCORE_CELL, "target", *types, "n", "tested", "reason"]
    return pd.DataFrame(rows, columns=columns).astype(types)


def apply_threshold(evaluation: pd.DataFrame, threshold: float | None, target: float) -> tuple:
    """Return share answered, precision and whether the guarantee held, on evaluation rows; missing
    if unknown."""
    if threshold is None:
        return pd.NA, pd.NA, pd.NA
    right = evaluation.correct[evaluation.confidence >= threshold]
    if right.empty:
        return 0.0, pd.NA, pd.NA
    return (
        right.size / len(evaluation),
        right.mean(),
        binom.cdf(right.sum(), right.size, target) >= 0.05,
    )
