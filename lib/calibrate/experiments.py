"""Experiments on calibration (Finding 4): what can be corrected, from how many rows, and for which
other pairs.

Calibrators of Ans Avg are fitted on fewer rows, with or without oversampling of incorrect answers
(`fig:calibration_analysis` (c)), and applied to other model-dataset pairs
(`tab:calibration_transfer_full`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from lib.calibrate.calibration_sets import CalibrationData, DataByPair, ScoredSplit
from lib.calibrate.calibrators import METHODS, Isotonic, Refit
from lib.calibrate.fit_methods import Fit
from lib.params import Subsampling
from lib.score.baselines import smoothed_base_rate
from lib.score.metrics import brier, ece, measure
from lib.store import PAIR

SAMPLING = ("uniform", "more wrong, weighted", "more wrong, unweighted")
SOURCE = ["source_model", "source_dataset"]

# ---- before and after


def describe_splits(sets: DataByPair) -> pd.DataFrame:
    """Return by pair how its calibration rows differ from its evaluation rows.

    `calibration` and `evaluation` are the accuracies, and `p` is the two-sided p-value of their
    difference (chi-squared test of two shares). A calibrator's promise holds for questions like
    those of the calibration rows. `confident_errors` is the number of wrong calibration rows with
    an Ans Avg above .9, per 50 rows.

    Examples
    --------
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
        accuracies = (old.correct.mean(), new.correct.mean())
        p = compare_shares(old.correct, new.correct)
        is_confident_error = (old.confidence > 0.9) & ~old.correct
        rows.append((*pair, *accuracies, p, 50 * is_confident_error.mean()))
    return pd.DataFrame(rows, columns=[*PAIR, "calibration", "evaluation", "p", "confident_errors"])


def compare_shares(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p-value of the difference of two shares of true; NaN if all are
    alike.

    Examples
    --------
    >>> compare_shares(np.array([True, True, False]), np.array([True, True, False]))
    1.0
    """
    right = np.array([first.sum(), second.sum()])
    wrong = np.array([len(first), len(second)]) - right
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
        fitted = fit(learning, once)(score[judging], False)
        constant = np.full(len(judging), smoothed_base_rate(correct[learning]))
        errors.append(
            {
                "ece": ece(fitted, outcome, n_bins),
                "brier": brier(fitted, outcome),
                "constant_ece": ece(constant, outcome, n_bins),
                "constant_brier": brier(constant, outcome),
            }
        )
    return pd.DataFrame(errors)


# ---- fewer rows


def draw_rows(
    way: str, correct: np.ndarray, n: int, rng: np.random.Generator, incorrect_fraction: float
) -> tuple[np.ndarray, np.ndarray]:
    """Sample n calibration rows in one way of SAMPLING: their indices (n,) and weights (n,).

    Oversampling draws `incorrect_fraction` incorrect rows, or the overall fraction if larger, as
    far as enough rows of both classes exist. Weights restore each class's share in the whole set,
    so the calibrator stays unbiased.

    Examples
    --------
    >>> correct = np.array([True] * 9 + [False] * 3)
    >>> rng = np.random.default_rng(0)
    >>> rows, weights = draw_rows("more wrong, weighted", correct, 4, rng, 0.5)
    >>> correct[rows].tolist(), weights.tolist()
    ([False, False, True, True], [0.5, 0.5, 1.5, 1.5])
    """
    if way == "uniform":
        return rng.choice(len(correct), n, replace=False), np.ones(n)
    wrong = np.flatnonzero(~correct)
    right = np.flatnonzero(correct)
    n_wrong = round(n * max(incorrect_fraction, 1 - correct.mean()))
    n_wrong = max(min(n_wrong, len(wrong)), n - len(right))
    n_right = n - n_wrong
    drawn_wrong = rng.choice(wrong, n_wrong, replace=False)
    drawn_right = rng.choice(right, n_right, replace=False)
    rows = np.append(drawn_wrong, drawn_right)
    if way == "more wrong, unweighted":
        return rows, np.ones(n)
    of_wrong = len(wrong) / max(n_wrong, 1)
    of_right = len(right) / max(n_right, 1)
    weights = np.repeat([of_wrong, of_right], [n_wrong, n_right])
    return rows, weights * n / len(correct)


def learning_curves(
    sets: DataByPair, drawn: Subsampling, sampling: Sequence[str] = ("uniform",), n_bins: int = 10
) -> pd.DataFrame:
    """Measure the ECE of Ans Avg against the number of calibration rows (Finding 4).

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    drawn : Subsampling
        Set sizes and draws per size; all rows are always added last. Draws depend on (seed,
        dataset, size), so models and methods share them.
    sampling : sequence of str
        Entries of SAMPLING.
    n_bins
        As for `ece`.

    Returns
    -------
    DataFrame
        A row per draw: model, dataset, sampling, method ("" for the raw score), n, draw, ece, and
        `one_class`: whether the draw has a single class.

    Examples
    --------
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a", "b", "c"]})
    >>> correct = np.array([False, True, True])
    >>> split = ScoredSplit(keys, np.array([0.2, 0.9, 0.6]), None, correct)
    >>> sets = {("m", "d"): CalibrationData(split, split)}
    >>> curves = learning_curves(sets, Subsampling(calibration_sizes=[2], draws=1))
    >>> curves[["method", "n", "ece"]].round(2).to_numpy().tolist()
    [['', 3, 0.23], ['isotonic', 2, 0.14], ['isotonic', 3, 0.0]]
    """
    rows: list[tuple] = []
    for (model, dataset), pair in sets.items():
        correct = pair.evaluation.correct
        for draw, scores in scores_by_draw(pair, dataset, drawn, sampling).items():
            *key, one_class = draw
            rows.append((model, dataset, *key, ece(scores, correct, n_bins), one_class))
    columns = ["model", "dataset", "sampling", "method", "n", "draw", "ece", "one_class"]
    return pd.DataFrame(rows, columns=columns)


def scores_by_draw(
    pair: CalibrationData, dataset: str, drawn: Subsampling, sampling: Sequence[str]
) -> pd.DataFrame:
    """Return Ans Avg of a pair's evaluation rows, raw and calibrated on smaller sets by every
    method.

    Parameters
    ----------
    pair, dataset
        One item of the result of `calibration_data`.
    drawn, sampling
        As for `learning_curves`.

    Returns
    -------
    DataFrame
        A row per example_id, a column per (sampling, method, n, draw, one_class). For each way: the
        raw score, every draw of each smaller size, then all rows.

    Examples
    --------
    Both draws of a calibration set of two rows, of three:

    >>> keys = pd.DataFrame({"example_id": ["a", "b", "c"]})
    >>> confidence, correct = np.array([0.4, 0.6, 0.8]), np.array([False, True, True])
    >>> rows = ScoredSplit(keys, confidence, None, correct)
    >>> drawn = Subsampling(calibration_sizes=[2], draws=2)
    >>> scores = scores_by_draw(CalibrationData(rows, rows), "d", drawn, ["uniform"])
    >>> scores["uniform", "isotonic", 2].shape
    (3, 2)
    """
    old, new = pair
    methods = _prepare_methods(pair)
    total = len(old.correct)
    smaller = [n for n in drawn.calibration_sizes if n < total]
    scores = {}
    for way in sampling:
        scores[way, "", total, 0, False] = new.confidence
        for n in [*smaller, total]:
            rng = np.random.default_rng([drawn.seed, n, *dataset.encode()])
            for draw in range(drawn.draws if n < total else 1):
                rows, weights = draw_rows(way, old.correct, n, rng, drawn.incorrect_fraction)
                one_class = len(set(old.correct[rows])) < 2
                for name, (fit, new_score) in methods.items():
                    predict = fit(rows, weights)
                    scores[way, name, n, draw, one_class] = predict(new_score, False)
    columns = ["sampling", "method", "n", "draw", "one_class"]
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=columns)


def _prepare_methods(pair: CalibrationData) -> dict[str, tuple[Refit, Any]]:
    """Return by method its `fit_many` of a pair's calibration rows, and the input of its evaluation
    rows."""
    old, new = pair
    prepared = {}
    for name, method in METHODS.items():
        score = getattr(old, method.answer_input)
        new_score = getattr(new, method.answer_input)
        if score is not None and new_score is not None:  # None without stored logits
            calibrator = method.inputs[method.answer_input]()
            prepared[name] = (calibrator.fit_many(score, old.correct), new_score)
    return prepared


def summarize_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over draws, the band of the middle 80%, and the number of one-class draws.

    Examples
    --------
    >>> row = {"model": "m", "dataset": "d", "sampling": "uniform", "method": "isotonic", "n": 5}
    >>> draws = [row | {"ece": 0.1, "one_class": True}, row | {"ece": 0.3, "one_class": False}]
    >>> summarize_curves(pd.DataFrame(draws))[["mean", "one_class"]].to_numpy().tolist()
    [[0.2, 1.0]]
    """
    curves = curves.astype({"ece": float})  # an empty frame may have dtype object
    groups = curves.groupby(["model", "dataset", "sampling", "method", "n"], sort=False)
    bands = groups.agg(mean=("ece", "mean"), one_class=("one_class", "sum"))
    return bands.assign(low=groups.ece.quantile(0.1), high=groups.ece.quantile(0.9)).reset_index()


# ---- other pairs


def transfer(sets: DataByPair, fits: Iterable[Fit], n_bins: int = 10) -> pd.DataFrame:
    """Apply calibrators of Ans Avg that were fitted on one pair to every pair.

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    fits : iterable of Fit
        As `calibrate` returns them.
    n_bins
        As for `ece`.

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score),
        method, metric (ece, mce, brier, and `delta_ece` against the raw score), value, n.

    Examples
    --------
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a", "b", "c"]})
    >>> correct = np.array([False, True, True])
    >>> split = ScoredSplit(keys, np.array([0.2, 0.9, 0.6]), None, correct)
    >>> sets = {("m", "d"): CalibrationData(split, split)}
    >>> errors = transfer(sets, [])
    >>> errors[errors.metric == "ece"].value.round(2).tolist()
    [0.23]
    """
    rows: list[tuple] = []
    for target, data in sets.items():
        new = data.evaluation
        raw_error = ece(new.confidence, new.correct, n_bins)
        for source, scores in scores_by_source(new, fits).items():
            values = {}
            for metric in ("ece", "mce", "brier"):
                values[metric] = measure(metric, scores, new.correct, n_bins)
            values["delta_ece"] = values["ece"] - raw_error
            for metric, value in values.items():
                rows.append((*target, *source, metric, value, len(scores)))
    return pd.DataFrame(rows, columns=[*PAIR, *SOURCE, "method", "metric", "value", "n"])


def scores_by_source(new: ScoredSplit, fits: Iterable[Fit]) -> pd.DataFrame:
    """Return Ans Avg of evaluation rows, raw and calibrated by every pair's calibrators.

    The frame has a row per example_id and a column per (source_model, source_dataset, method). The
    raw score comes first, with empty names.

    Examples
    --------
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a"]})
    >>> new = ScoredSplit(keys, np.array([0.2]), None, np.array([False]))
    >>> scores_by_source(new, []).loc["a"].tolist()
    [0.2]
    """
    scores = {("", "", ""): new.confidence}
    for fit in fits:
        kind = fit.method.answer_input
        values = getattr(new, kind)
        is_of_ans_avg = fit.estimator in ("ans", "ans_avg") and fit.kind == kind
        if is_of_ans_avg and values is not None:
            scores[*fit.pair, fit.method.name] = fit.calibrator.predict(values)
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=[*SOURCE, "method"])
