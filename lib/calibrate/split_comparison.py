"""What calibration rows can correct (Finding 4): whether they are like those of evaluation, and on
random splits of a pair's rows, whether isotonic regression does better than a constant.
"""

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from lib.calibrate.calibration_sets import DataByPair
from lib.calibrate.calibrators import Isotonic
from lib.score.baselines import smoothed_base_rate
from lib.score.metrics import brier, ece
from lib.store import PAIR


def describe_splits(sets: DataByPair) -> pd.DataFrame:
    """Return by pair how its calibration rows differ from its evaluation rows.

    `calibration` and `evaluation` are the accuracies, and `p` is the two-sided p-value of their
    difference (chi-squared test of two shares). A calibrator's promise holds for questions like
    those of the calibration rows. `confident_errors` is the number of wrong calibration rows with
    an Ans Avg above .9, per 50 rows.

    Examples
    --------
    >>> from lib.calibrate.calibration_sets import CalibrationData, ScoredSplit
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a", "b", "c"]})
    >>> correct = np.array([False, True, True])
    >>> split = ScoredSplit(keys, np.array([0.2, 0.9, 0.6]), None, correct)
    >>> sets = {("m", "d"): CalibrationData(split, split)}
    >>> describe_splits(sets)[["calibration", "evaluation", "confident_errors"]].round(2)
       calibration  evaluation  confident_errors
    0         0.67        0.67               0.0
    """
    rows: list[tuple] = []
    for pair, (old, new) in sets.items():
        of_calibration = old.correct.mean()
        of_evaluation = new.correct.mean()
        p = compare_shares(old.correct, new.correct)
        is_confident_error = (old.confidence > 0.9) & ~old.correct
        per_fifty = 50 * is_confident_error.mean()
        rows.append((*pair, of_calibration, of_evaluation, p, per_fifty))
    return pd.DataFrame(rows, columns=[*PAIR, "calibration", "evaluation", "p", "confident_errors"])


def compare_shares(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p-value of the difference of two shares of true; NaN if all are
    alike.

    Examples
    --------
    >>> compare_shares(np.array([True, True, False]), np.array([True, True, False]))
    1.0
    """
    counts = np.array([len(first), len(second)])
    right = np.array([first.sum(), second.sum()])
    wrong = counts - right
    if not right.any() or not wrong.any():
        return np.nan
    table = np.column_stack([right, wrong])
    return float(chi2_contingency(table, correction=False).pvalue)


def compare_on_resplits(
    sets: DataByPair, n_bins: int = 10, splits: int = 300, seed: int = 0
) -> pd.DataFrame:
    """Compare isotonic regression of Ans Avg with a constant on random splits of a pair's rows.

    The rows of both splits are shuffled together and divided into as many calibration and
    evaluation rows as before, so one split, or easier calibration questions, cannot decide.

    Returns
    -------
    DataFrame
        PAIR; mean ECE over splits of isotonic regression (`isotonic`) and of the constant
        (`constant`); the share of splits in which the constant has the lower ECE
        (`constant_lower_ece`), and in which isotonic regression has the lower Brier score
        (`isotonic_lower_brier`).

    Examples
    --------
    >>> from lib.calibrate.calibration_sets import CalibrationData, ScoredSplit
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a", "b", "c"]})
    >>> correct = np.array([False, True, True])
    >>> split = ScoredSplit(keys, np.array([0.2, 0.9, 0.6]), None, correct)
    >>> sets = {("m", "d"): CalibrationData(split, split)}
    >>> list(compare_on_resplits(sets, splits=2))[2:4]
    ['isotonic', 'constant']
    """
    records = []
    for (model, dataset), (old, new) in sets.items():
        score = np.concatenate([old.confidence, new.confidence])
        correct = np.concatenate([old.correct, new.correct]).astype(float)
        rng = np.random.default_rng([seed, *model.encode(), *dataset.encode()])
        errors = _resplit_errors(score, correct, len(old.correct), n_bins, splits, rng)
        records.append(
            {
                "model": model,
                "dataset": dataset,
                "isotonic": errors.ece.mean(),
                "constant": errors.constant_ece.mean(),
                "constant_lower_ece": (errors.constant_ece < errors.ece).mean(),
                "isotonic_lower_brier": (errors.brier < errors.constant_brier).mean(),
            }
        )
    return pd.DataFrame(records)


def _resplit_errors(
    score: np.ndarray,
    correct: np.ndarray,
    n_calibration: int,
    n_bins: int,
    splits: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return the errors of isotonic regression and of a constant on random splits of n rows.

    Columns: ece, brier, constant_ece, constant_brier; a row per split.
    """
    fit = Isotonic().fit_many(score, correct)
    once = np.ones(n_calibration)
    errors = []
    for _ in range(splits):
        order = rng.permutation(len(correct))
        learning = order[:n_calibration]
        judging = order[n_calibration:]
        outcome = correct[judging]
        predict = fit(learning, once)
        fitted = predict(score[judging], False)
        base_rate = smoothed_base_rate(correct[learning])
        constant = np.full(len(judging), base_rate)
        errors.append(
            {
                "ece": ece(fitted, outcome, n_bins),
                "brier": brier(fitted, outcome),
                "constant_ece": ece(constant, outcome, n_bins),
                "constant_brier": brier(constant, outcome),
            }
        )
    return pd.DataFrame(errors)
