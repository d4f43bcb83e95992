"""From how many rows a calibrator can be learned (Finding 4).

Calibrators of Ans Avg are fitted on fewer rows, with or without oversampling of incorrect answers
(`fig:calibration_analysis` (c)).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.calibrate.calibration_sets import CalibrationData, DataByPair
from lib.calibrate.calibrator_base import Refit
from lib.calibrate.calibrators import METHODS
from lib.params import Subsampling
from lib.score.metrics import ece

SAMPLING = ("uniform", "more wrong, weighted", "more wrong, unweighted")


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
    fraction = max(incorrect_fraction, 1 - correct.mean())
    n_wrong = min(round(n * fraction), len(wrong))
    n_wrong = max(n_wrong, n - len(right))
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
    >>> from lib.calibrate.calibration_sets import ScoredSplit
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
            error = ece(scores, correct, n_bins)
            rows.append((model, dataset, *key, error, one_class))
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

    >>> from lib.calibrate.calibration_sets import ScoredSplit
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
            draws = drawn.draws if n < total else 1
            for draw in range(draws):
                rows, weights = draw_rows(way, old.correct, n, rng, drawn.incorrect_fraction)
                classes = set(old.correct[rows])
                one_class = len(classes) < 2
                for name, (fit, new_score) in methods.items():
                    predict = fit(rows, weights)
                    scores[way, name, n, draw, one_class] = predict(new_score, False)
    columns = ["sampling", "method", "n", "draw", "one_class"]
    frame = pd.DataFrame(scores, index=new.keys.example_id)
    return frame.rename_axis(columns=columns)


def _prepare_methods(pair: CalibrationData) -> dict[str, tuple[Refit, Any]]:
    """Return by method its `fit_many` of a pair's calibration rows, and the input of its evaluation
    rows."""
    old, new = pair
    prepared = {}
    for name, method in METHODS.items():
        score = getattr(old, method.answer_input)
        new_score = getattr(new, method.answer_input)
        if score is not None and new_score is not None:  # None without stored logits
            if method.answer_input == "answers":
                score = score.without_caches()
                new_score = new_score.without_caches()
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
    bands["low"] = groups.ece.quantile(0.1)
    bands["high"] = groups.ece.quantile(0.9)
    return bands.reset_index()
