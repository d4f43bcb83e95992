"""What the confidence is good for: scores beside a constant, and when to answer.

A constant at the base rate is nearly calibrated and knows nothing (arXiv 2606.07822), so it stands in every comparison
as an estimator of its own, BASE; Brier skill is measured against it.

Above which confidence a wanted precision is guaranteed is told by Learn-then-Test (arXiv 2110.01052) with a split fixed
sequence: a third of the calibration rows proposes thresholds and where to begin, the others test them one by one, each
by the exact binomial tail, down to the first that fails. Whatever the scores are, a threshold is returned whose true
precision lies below the wanted one in at most 1 - `certainty` of the times that calibration rows are drawn. MAPIE 1.6.0
has the same test; but there a threshold that no row reaches makes a p-value NaN, after which Holm's procedure finds
nothing, and rounding counts an error too many in a third of the cases.
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
PROPER_MEASURES = ("ece", "ece_mass", "brier", "skill", "log_loss", "auroc", "augrc")
STEPS = 20  # thresholds proposed, at quantiles of the scores
NO_GUARANTEE = "no threshold can be guaranteed from these rows"
TOO_FEW_ROWS = "too few calibration rows"
Side = tuple[Any, Any]  # confidence (n,) and correct (n,) of the rows that propose, or that test


# ---- scores beside a constant


def base_rate(correct: Any) -> float:
    """(right + 1) / (n + 2): the constant that n calibration rows teach; 1/2 of none."""
    y = np.asarray(correct, dtype=float)
    return float((y.sum() + 1) / (y.size + 2))


def log_losses(confidence: Any, correct: Any) -> np.ndarray:
    """-log of the probability given to what came true, (n,), nats. As in scikit-learn's `log_loss`, a probability is at
    least the float64 epsilon: a certain score that is wrong costs 36."""
    c, y = metrics.validate_scores(confidence, correct)
    least = np.finfo(float).eps
    return -np.log(np.clip(np.where(y > 0, c, 1 - c), least, 1 - least))


def equal_mass_ece(confidence: Any, correct: Any, n_bins: int = 10, sample_weight: Any = None) -> Any:
    """ECE with bins of equally many of the unweighted rows. Equal scores share a bin, whatever the order of rows: that
    of their mean rank."""
    c, y = metrics.validate_scores(confidence, correct)
    index = np.floor((rankdata(c) - 0.5) * n_bins / c.size).astype(int)
    w = np.ones_like(c) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    sums = w @ (np.eye(n_bins)[index] * (y - c)[:, None])
    return metrics.as_float_if_scalar(np.abs(sums).sum(axis=-1) / w.sum(axis=-1))


def augrc(auroc: Any, accuracy: Any) -> Any:
    """Area under the generalised risk-coverage curve (arXiv 2407.01032), the share of all rows that are answered and
    wrong, averaged over the share answered: (1 - AUROC) acc (1 - acc) + (1 - acc)^2 / 2. Equal scores count as answered
    in any order; without right or wrong rows, the first term is 0."""
    a = np.asarray(accuracy, dtype=float)
    return metrics.as_float_if_scalar((1 - np.nan_to_num(auroc)) * a * (1 - a) + (1 - a) ** 2 / 2)


def proper_measures(
    confidence: Any, correct: Any, base: float, n_bins: int = 10, closed: str = "right", sample_weight: Any = None
) -> dict[str, Any]:
    """PROPER_MEASURES by name. `skill` is 1 - Brier / Brier of the constant `base` on the same rows; scikit-learn's
    `d2_brier_score` is the same against the evaluation rows' own accuracy. `sample_weight` of shape (..., n), such as
    the counts of bootstrap resamples, gives results of shape (...)."""
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
    """PROPER_MEASURES of every estimator and method of a frame as `add_base_rate` returns it: PAIR, estimator, method,
    metric, value, low, high, n, reason. Raw scores have 95% percentile intervals, over the same draws of rows as
    `bootstrap.bootstrap`, of the resamples in which a measure can be had. What cannot be had is missing, with the
    reason."""
    rows: list[tuple] = []
    for key, part in frame.groupby([*PAIR, "estimator", "method"], sort=False):
        part = part.sort_values("example_id")  # the order in which `bootstrap` numbers rows
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
    """Accuracy against the share of questions answered, the surest first: a row per distinct score, from the largest.
    `threshold`, `answered` (share of rows at or above it) and their `accuracy`."""
    c, y = metrics.validate_scores(confidence, correct)
    order = np.argsort(-c, kind="stable")
    last = np.flatnonzero(np.diff(-c[order], append=2.0))  # of the rows of each score
    count = last + 1
    return pd.DataFrame({"threshold": c[order][last], "answered": count / c.size,
                         "accuracy": np.cumsum(y[order])[last] / count})  # fmt: skip


def risk_coverage_curves(frame: pd.DataFrame, points: int = 100) -> pd.DataFrame:
    """`risk_coverage` of every estimator and method on the evaluation rows, thinned to `points` shares: PAIR,
    estimator, method, answered, accuracy."""
    by = [*PAIR, "estimator", "method"]
    parts = [pd.DataFrame(columns=[*by, "answered", "accuracy"])]
    for key, part in frame[frame.split == "evaluation"].groupby(by, sort=False):
        curve = risk_coverage(part.confidence, part.correct)
        kept = curve[~np.ceil(curve.answered * points - 1e-9).duplicated(keep="last")]
        parts.append(kept.assign(**dict(zip(by, key, strict=True)))[parts[0].columns])
    return pd.concat(parts[1:] or parts, ignore_index=True)


# ---- thresholds


def binomial_p_values(wrong: Any, answered: Any, precision: float) -> np.ndarray:
    """Probability of so few `wrong` among so many `answered` rows if precision were not met, (k,); 1 where none is
    answered."""
    wrong, answered = np.asarray(wrong), np.asarray(answered)
    return np.where(answered > 0, binom.cdf(wrong, np.maximum(answered, 1), 1 - precision), 1.0)


def find_threshold(
    learning: Side, testing: Side, precision: float, certainty: float = 0.9, steps: int = STEPS
) -> float | None:
    """Find the lowest threshold whose answers are right with a wanted precision, guaranteed.

    Parameters
    ----------
    learning, testing : (confidence (n,), correct (n,))
        Different calibration rows: the first propose thresholds, the others test them.
    precision : wanted share of right answers among those given
    certainty : in how many draws of calibration rows the promise holds
    steps : thresholds proposed

    Returns
    -------
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


def selective_thresholds(
    raw: pd.DataFrame,
    targets: Sequence[float],
    certainty: float = 0.9,
    seed: int = 0,
    tuned: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Find a threshold for each pair, estimator and wanted precision (`target`), and try it on the evaluation rows:
    `answered`, the share of them at or above it, and their `precision`; `held`, False where so many wrong answers have
    a probability below 5% at the wanted precision; rows evaluated (`n`) and `tested`; `reason` where there is none."""
    rows: list[tuple] = []
    for key, part in raw.groupby([*PAIR, "estimator"], sort=False):
        calibration, evaluation = (part[part.split == split] for split in ("calibration", "evaluation"))
        if evaluation.empty:
            continue
        learns = mark_learning_rows(calibration, tuned or {}, seed) if len(calibration) else pd.Series([], dtype=bool)
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
    """Share answered, precision and whether the promise held, on evaluation rows."""
    if found is None:
        return pd.NA, pd.NA, pd.NA
    answered = evaluation.confidence.to_numpy() >= found
    if not answered.any():
        return 0.0, pd.NA, pd.NA
    right = evaluation.correct.to_numpy(bool)[answered]
    held = bool(binom.cdf(right.sum(), right.size, target) >= 0.05)
    return float(answered.mean()), float(right.mean()), held
