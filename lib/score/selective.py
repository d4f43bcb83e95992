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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom

from lib.row_order import first_rows
from lib.score import validated_scores
from lib.store import KEYS, SCORE_CELL, calibration_rows, evaluation_rows

N_PROPOSED = 20  # proposed thresholds, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the learning or the testing rows


class Outcome(NamedTuple):
    """What a threshold gives on the evaluation rows; missing (NA) if unknown."""

    answered: Any = pd.NA  # share of the rows
    precision: Any = pd.NA
    held: Any = pd.NA  # whether so many errors are likely enough at the target


# ---- risk and coverage


def risk_coverage(confidence: Any, correct: Any) -> pd.DataFrame:
    """Return accuracy by coverage, most confident rows first: a row per distinct score, from the
    largest.

    Columns: `threshold`, `answered` (share of rows at or above it) and their `accuracy`.

    Examples
    --------
    >>> risk_coverage([0.5, 0.75, 1, 1], [0, 1, 1, 1])
       threshold  answered  accuracy
    0       1.00      0.50      1.00
    1       0.75      0.75      1.00
    2       0.50      1.00      0.75
    """
    c, y = validated_scores.validate_scores(confidence, correct)
    by_score = pd.Series(y).groupby(c).agg(["size", "sum"])
    above = by_score[::-1].cumsum()  # of the rows at or above each score
    curve = pd.DataFrame({"threshold": above.index})
    curve["answered"] = above["size"].array / c.size
    curve["accuracy"] = above["sum"].array / above["size"].array
    return curve


def risk_coverage_curves(frame: pd.DataFrame, points: int = 100) -> pd.DataFrame:
    """Return `risk_coverage` of every estimator and method on the evaluation rows, thinned to
    `points` shares.

    Columns: PAIR, estimator, method, answered, accuracy.

    Examples
    --------
    >>> frame = pd.DataFrame({"confidence": [0.5, 0.75, 1, 1], "correct": [0, 1, 1, 1]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="e", method="")
    >>> risk_coverage_curves(frame, points=2)[["answered", "accuracy"]]
       answered  accuracy
    0       0.5      1.00
    1       1.0      0.75
    """
    by = [*SCORE_CELL, "method"]
    parts = []
    for key, part in evaluation_rows(frame).groupby(by, sort=False):
        curve = risk_coverage(part.confidence, part.correct)
        share = np.ceil(curve.answered * points - 1e-9)
        curve = curve[~share.duplicated(keep="last")].copy()
        curve[by] = key
        parts.append(curve)
    return pd.concat(parts, ignore_index=True)[[*by, "answered", "accuracy"]]


# ---- thresholds


def binomial_p_values(wrong: Any, answered: Any, precision: float) -> np.ndarray:
    """Return the probability of at most `wrong` errors among `answered` rows if the precision were
    not met, (k,).

    1 if no row is answered.

    Examples
    --------
    >>> binomial_p_values([0, 0], [0, 3], 0.5)
    array([1.   , 0.125])
    """
    rows = np.asarray(answered)
    tail = binom.cdf(wrong, np.maximum(rows, 1), 1 - precision)
    return np.where(rows > 0, tail, 1.0)


def p_values_of_thresholds(side: Side, thresholds: np.ndarray, precision: float) -> np.ndarray:
    """Return `binomial_p_values` of thresholds (k,) on some rows.

    Examples
    --------
    >>> p_values_of_thresholds(([0.5, 0.75, 1], [0, 1, 1]), np.array([0.5, 0.75]), 0.5)
    array([0.5 , 0.25])
    """
    confidence, correct = side
    scores = np.asarray(confidence, dtype=float)
    is_wrong = ~np.asarray(correct, dtype=bool)
    answered = scores[:, None] >= thresholds  # (n, k)
    wrong = answered & is_wrong[:, None]
    return binomial_p_values(wrong.sum(axis=0), answered.sum(axis=0), precision)


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

    Examples
    --------
    >>> learning = [0.25, 0.75, 0.75], [0, 1, 1]
    >>> testing = [0.25, 0.75, 0.75, 0.75, 0.75], [0, 1, 1, 1, 1]
    >>> find_threshold(learning, testing, precision=0.5)
    0.75
    >>> find_threshold(learning, testing, precision=0.9) is None
    True
    """
    scores, _ = learning
    if not len(scores) or not len(testing[0]):
        return None
    quantiles = np.arange(N_PROPOSED) / N_PROPOSED
    proposed = np.unique(np.quantile(scores, quantiles, method="lower"))  # increasing
    start = p_values_of_thresholds(learning, proposed, precision).argmin()
    down = proposed[start::-1]
    passed = p_values_of_thresholds(testing, down, precision) <= 1 - certainty
    if not passed[0]:
        return None
    before_failure = np.logical_and.accumulate(passed)
    return float(down[before_failure][-1])


def min_rows_for_guarantee(precision: float, certainty: float = 0.9) -> int:
    """Return how many right answers, without a wrong one, guarantee a precision.

    Examples
    --------
    >>> min_rows_for_guarantee(0.5)  # .5^4 < .1
    4
    """
    # the smallest n of which precision^n <= 1 - certainty
    n = np.log(1 - certainty) / np.log(precision)
    return int(np.ceil(n))


def mark_learning_rows(calibration: pd.DataFrame, tuned: pd.DataFrame, seed: int) -> np.ndarray:
    """Mark the calibration rows of one estimator that propose thresholds, (n,): the first third of
    the dataset's fixed random order, and those on which the estimator was tuned (KEYS).

    Examples
    --------
    >>> rows = pd.DataFrame({"example_id": list("abcdef")})
    >>> rows = rows.assign(model="m", dataset="d", split="calibration")
    >>> int(mark_learning_rows(rows, tuned=rows.head(0), seed=0).sum())
    2
    """
    third = first_rows(calibration, max(1, len(calibration) // 3), seed)
    learning = pd.concat([third[KEYS], tuned[KEYS]])
    keys = pd.MultiIndex.from_frame(calibration[KEYS])
    return keys.isin(pd.MultiIndex.from_frame(learning))


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

    Examples
    --------
    >>> raw = pd.DataFrame({"split": ["calibration"] * 15 + ["evaluation"] * 5})
    >>> raw["example_id"] = raw.index.astype(str)
    >>> raw = raw.assign(model="m", dataset="d", estimator="e", confidence=0.75, correct=True)
    >>> selective_thresholds(raw, [0.5])[["target", "threshold", "answered", "precision", "tested"]]
       target  threshold  answered  precision  tested
    0     0.5       0.75       1.0        1.0      10
    """
    tuned = {} if tuned is None else tuned
    rows = []
    for key, part in raw.groupby(SCORE_CELL, sort=False):
        calibration = calibration_rows(part)
        evaluation = evaluation_rows(part)
        if evaluation.empty:
            continue
        estimator = key[-1]
        tuned_rows = tuned.get(estimator, calibration.head(0))
        learns = mark_learning_rows(calibration, tuned_rows, seed)
        learning = calibration[learns]
        testing = calibration[~learns]
        for target in targets:
            threshold = find_threshold(
                (learning.confidence, learning.correct),
                (testing.confidence, testing.correct),
                target,
                certainty,
            )
            outcome = apply_threshold(evaluation, threshold, target)
            reason = ""
            if threshold is None:
                reason = reason_without_threshold(len(testing), target, certainty)
            row = dict(zip(SCORE_CELL, key, strict=True))
            row |= {"target": float(target), "threshold": threshold} | outcome._asdict()
            row |= {"n": len(evaluation), "tested": len(testing), "reason": reason}
            rows.append(row)
    types = dict.fromkeys(("threshold", "answered", "precision"), "Float64")
    types["held"] = "boolean"
    columns = [*SCORE_CELL, "target", *types, "n", "tested", "reason"]
    return pd.DataFrame(rows, columns=columns).astype(types)


def reason_without_threshold(tested: int, target: float, certainty: float) -> str:
    """Say why no threshold guarantees a target precision from `tested` rows.

    Examples
    --------
    >>> reason_without_threshold(3, target=0.5, certainty=0.9)
    'too few calibration rows'
    """
    if tested < min_rows_for_guarantee(target, certainty):
        return TOO_FEW_ROWS
    return NO_GUARANTEE


def apply_threshold(evaluation: pd.DataFrame, threshold: float | None, target: float) -> Outcome:
    """Return what a threshold gives on evaluation rows, and whether its guarantee held.

    Examples
    --------
    >>> rows = pd.DataFrame({"confidence": [0.25, 0.75], "correct": [False, True]})
    >>> apply_threshold(rows, 0.5, target=0.8).answered
    0.5
    """
    if threshold is None:
        return Outcome()
    right = evaluation.correct[evaluation.confidence >= threshold]
    if right.empty:
        return Outcome(answered=0.0)
    held = binom.cdf(right.sum(), right.size, target) >= 0.05
    return Outcome(right.size / len(evaluation), right.mean(), held)
