"""When to answer: how often answers are right if only the surest are given, and above which confidence a wanted
precision is guaranteed.

The guarantee is that of Learn-then-Test (arXiv 2110.01052) with a split fixed sequence: a third of the calibration rows
proposes thresholds and where to begin, the others test them one by one, each by the exact binomial tail, down to the
first that fails. Whatever the scores are, a threshold is returned whose true precision lies below the wanted one in at
most 1 - `certainty` of the times that calibration rows are drawn. MAPIE 1.6.0 has the same test; but there a threshold
that no row reaches makes a p-value NaN, after which Holm's procedure finds nothing, and rounding counts an error too
many in a third of the cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from lib.score.metrics import validate_scores
from lib.store import KEYS, PAIR
from lib.streams import first_rows

STEPS = 20  # thresholds proposed, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the rows that propose, or that test
THRESHOLD_COLUMNS = [
    *PAIR,
    "estimator",
    "target",
    "threshold",
    "answered",
    "precision",
    "held",
    "n",
    "tested",
    "reason",
]


# ---- curves


def risk_coverage(confidence: Any, correct: Any) -> pd.DataFrame:
    """Trace accuracy against the share of questions answered, the surest first.

    Returns
    -------
    DataFrame
        A row per distinct score, from the largest: `threshold`, `answered` (share of rows at or above it) and their
        `accuracy`. Equal scores are answered together.
    """
    c, y = validate_scores(confidence, correct)
    order = np.argsort(-c, kind="stable")
    last = np.flatnonzero(np.diff(-c[order], append=2.0))  # of the rows of each score
    count = last + 1
    return pd.DataFrame({"threshold": c[order][last], "answered": count / c.size,
                         "accuracy": np.cumsum(y[order])[last] / count})  # fmt: skip


def risk_coverage_curves(frame: pd.DataFrame, points: int = 100) -> pd.DataFrame:
    """`risk_coverage` of every estimator and method on the evaluation rows, thinned to `points` shares: PAIR,
    estimator, method, answered, accuracy."""
    parts = [pd.DataFrame(columns=[*PAIR, "estimator", "method", "answered", "accuracy"])]
    for key, part in frame[frame.split == "evaluation"].groupby([*PAIR, "estimator", "method"], sort=False):
        curve = risk_coverage(part.confidence, part.correct)
        kept = ~np.ceil(curve.answered * points - 1e-9).duplicated(keep="last")
        parts.append(pd.DataFrame(dict(zip([*PAIR, "estimator", "method"], key, strict=True))
                                  | {name: curve.loc[kept, name] for name in ("answered", "accuracy")}))  # fmt: skip
    return pd.concat(parts[1:] or parts, ignore_index=True)


# ---- thresholds


def binomial_p_values(wrong: Any, answered: Any, precision: float) -> np.ndarray:
    """Probability of so few `wrong` among so many `answered` rows if precision were not met, (k,); 1 where none is
    answered."""
    wrong, answered = np.asarray(wrong), np.asarray(answered)
    return np.where(answered > 0, binom.cdf(wrong, np.maximum(answered, 1), 1 - precision), 1.0)


def find_threshold(learning: Side, testing: Side, precision: float, certainty: float = 0.9, steps: int = STEPS
              ) -> float | None:  # fmt: skip
    """Find the lowest threshold whose answers are right with a wanted precision, guaranteed.

    Parameters
    ----------
    learning, testing : (confidence (n,), correct (n,))
        Different calibration rows: the first propose thresholds, the others test them.
    precision : float
        Wanted share of right answers among those given.
    certainty : float
        In how many draws of calibration rows the promise holds.
    steps : int
        Thresholds proposed.

    Returns
    -------
    float or None
        None where no threshold can be guaranteed.
    """
    scores = np.asarray(learning[0], dtype=float)
    if not scores.size or not len(testing[0]):
        return None
    proposed = np.unique(np.quantile(scores, np.arange(steps) / steps, method="lower"))  # rising
    begin = int(binomial_p_values(*_counted(*learning, proposed), precision).argmin())
    down = proposed[begin::-1]
    passed = np.logical_and.accumulate(binomial_p_values(*_counted(*testing, down), precision) <= 1 - certainty)
    return float(down[passed][-1]) if passed.any() else None


def _counted(confidence: Any, correct: Any, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wrong rows, and rows, at or above each of k thresholds, (k,) each."""
    answered = np.asarray(confidence, dtype=float)[:, None] >= thresholds
    return (answered & ~np.asarray(correct, dtype=bool)[:, None]).sum(axis=0), answered.sum(axis=0)


def min_rows_for_guarantee(precision: float, certainty: float = 0.9) -> int:
    """How many right answers in a row, and no wrong one, guarantee a precision."""
    return int(np.ceil(np.log(1 - certainty) / np.log(precision)))


def mark_learning_rows(calibration: pd.DataFrame, tuned: Mapping[str, pd.DataFrame], seed: int) -> pd.Series:
    """Which calibration rows of one estimator propose, bool by row: the first third of the dataset's one random order,
    and those on which the estimator itself was tuned (KEYS by its name)."""
    keys = pd.MultiIndex.from_frame(calibration[KEYS])
    chosen = [first_rows(calibration, max(1, len(calibration) // 3), seed)[KEYS]]
    chosen += [tuned[name][KEYS] for name in calibration.estimator.unique() if name in tuned]
    return pd.Series(keys.isin(pd.MultiIndex.from_frame(pd.concat(chosen))), calibration.index)


def selective_thresholds(raw: pd.DataFrame, targets: Sequence[float], certainty: float = 0.9, seed: int = 0,
               tuned: Mapping[str, pd.DataFrame] | None = None) -> pd.DataFrame:  # fmt: skip
    """Find a threshold for each pair, estimator and wanted precision, and try it on the evaluation rows.

    Returns
    -------
    DataFrame
        `threshold`; `answered`, the share of evaluation rows at or above it, and their `precision`; `held`, False where
        so
        many wrong answers have a probability below 5% at the wanted precision; rows evaluated (`n`) and `tested`;
        `reason`
        where there is no threshold.
    """
    rows: list[tuple] = []
    for key, part in raw.groupby([*PAIR, "estimator"], sort=False):
        calibration, evaluation = (part[part.split == split] for split in ("calibration", "evaluation"))
        if evaluation.empty:
            continue
        learns = mark_learning_rows(calibration, tuned or {}, seed) if len(calibration) else pd.Series([], dtype=bool)
        learning, testing = (calibration[chosen][["confidence", "correct"]].to_numpy(float).T
                             for chosen in (learns, ~learns))  # fmt: skip
        for target in targets:
            found = find_threshold((learning[0], learning[1]), (testing[0], testing[1]), target, certainty)
            reason = (
                ""
                if found is not None
                else TOO_FEW_ROWS
                if len(testing[0]) < min_rows_for_guarantee(target, certainty)
                else NO_GUARANTEE
            )
            shown = _outcome_on_evaluation(evaluation, target, found)
            rows.append((*key, float(target), found, *shown, len(evaluation), len(testing[0]), reason))
    types = dict.fromkeys(("threshold", "answered", "precision"), "Float64") | {"held": "boolean"}
    return pd.DataFrame(rows, columns=THRESHOLD_COLUMNS).astype(types)


def _outcome_on_evaluation(evaluation: pd.DataFrame, target: float, found: float | None) -> tuple:
    """Share answered, precision and whether the promise held, on evaluation rows."""
    if found is None:
        return pd.NA, pd.NA, pd.NA
    answered = evaluation.confidence.to_numpy() >= found
    if not answered.any():
        return 0.0, pd.NA, pd.NA
    right = evaluation.correct.to_numpy(bool)[answered]
    held = bool(binom.cdf(right.sum(), right.size, target) >= 0.05)
    return float(answered.mean()), float(right.mean()), held
