"""Finding 4 on Ans Avg: calibrators fitted on fewer rows, with or without oversampling of incorrect answers
(`fig:calibration_analysis` (c))."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.calibrate.fitting import CalibrationData, DataByPair
from lib.params import Subsampling
from lib.score.metrics import ece

SAMPLING = ("uniform", "more wrong, weighted", "more wrong, unweighted")


def draw_rows(
    way: str, correct: np.ndarray, n: int, rng: np.random.Generator, incorrect_fraction: float
) -> tuple[np.ndarray, np.ndarray]:
    """Sample n calibration rows in one way of SAMPLING: their indices (n,) and weights (n,).

    Oversampling draws `incorrect_fraction` incorrect rows, or the overall fraction if larger, as far as enough rows of
    both classes exist. Weights restore each class's share in the whole set, so the calibrator stays unbiased.
    """
    if way == "uniform":
        return rng.choice(len(correct), n, replace=False), np.ones(n)
    wrong, right = np.flatnonzero(~correct), np.flatnonzero(correct)
    n_wrong = round(n * max(incorrect_fraction, 1 - correct.mean()))
    n_wrong = max(min(n_wrong, len(wrong)), n - len(right))
    n_right = n - n_wrong
    rows = np.append(rng.choice(wrong, n_wrong, replace=False), rng.choice(right, n_right, replace=False))
    if way == "more wrong, unweighted":
        return rows, np.ones(n)
    weights = len(wrong) / max(n_wrong, 1), len(right) / max(n_right, 1)
    return rows, np.repeat(weights, (n_wrong, n_right)) * n / len(correct)


def learning_curves(
    sets: DataByPair,
    drawn: Subsampling,
    sampling: Sequence[str] = ("uniform",),
    n_bins: int = 10,
) -> pd.DataFrame:
    """Measure the ECE of Ans Avg against the number of calibration rows (Finding 4).

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    drawn : Subsampling
        Set sizes and draws per size; all rows are always added last. Draws depend on (seed, dataset, size), so models
        and methods share them.
    sampling : sequence of str
        Entries of SAMPLING.
    n_bins
        As for `ece`.

    Returns
    -------
    DataFrame
        A row per draw: model, dataset, sampling, method ("" for the raw score), n, draw, ece, and `one_class`: whether
        the draw has a single class.
    """
    rows: list[tuple] = []
    for (model, dataset), pair in sets.items():
        for (*key, one_class), scores in scores_by_draw(pair, dataset, drawn, sampling).items():
            rows.append((model, dataset, *key, ece(scores, pair.evaluation.correct, n_bins), one_class))
    columns = ["model", "dataset", "sampling", "method", "n", "draw", "ece", "one_class"]
    return pd.DataFrame(rows, columns=columns)


def scores_by_draw(pair: CalibrationData, dataset: str, drawn: Subsampling, sampling: Sequence[str]) -> pd.DataFrame:
    """Return Ans Avg of a pair's evaluation rows, raw and calibrated on smaller sets by every method.

    Parameters
    ----------
    pair, dataset
        One item of the result of `calibration_data`.
    drawn, sampling
        As for `learning_curves`.

    Returns
    -------
    DataFrame
        A row per example_id, a column per (sampling, method, n, draw, one_class). For each way: the raw score, every
        draw of each smaller size, then all rows.
    """
    old, new = pair
    total, predictors = len(old.correct), {}
    for name, method in METHODS.items():
        fitted_on, asked = getattr(old, method.answer_input), getattr(new, method.answer_input)
        if fitted_on is not None and asked is not None:  # None without stored logits
            calibrator = method.inputs[method.answer_input]()
            predictors[name] = calibrator.fit_many(fitted_on, old.correct, asked)
    scores = {}
    for way in sampling:
        scores[way, "", total, 0, False] = new.confidence
        for n in [*(n for n in drawn.calibration_sizes if n < total), total]:
            rng = np.random.default_rng([drawn.seed, n, *dataset.encode()])
            for draw in range(drawn.draws if n < total else 1):
                rows, weights = draw_rows(way, old.correct, n, rng, drawn.incorrect_fraction)
                one_class = len(set(old.correct[rows])) < 2
                for name, predict in predictors.items():
                    scores[way, name, n, draw, one_class] = predict(rows, weights)
    columns = ["sampling", "method", "n", "draw", "one_class"]
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=columns)
