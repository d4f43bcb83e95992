"""Finding 4 on Ans Avg: calibrators fitted on fewer rows, and on more of the wrong ones
(`fig:calibration_analysis` (c))."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.calibrate.fitting import CalibrationData, DataByPair
from lib.params import Calibration
from lib.score.metrics import ece

WeightedRows = tuple[np.ndarray, np.ndarray]  # row numbers (n,) and their weights (n,)


def _uniform(correct: np.ndarray, n: int, rng: np.random.Generator, incorrect_fraction: float) -> WeightedRows:
    return rng.choice(len(correct), n, replace=False), np.ones(n)


def _more_wrong(correct: np.ndarray, n: int, rng: np.random.Generator, incorrect_fraction: float) -> WeightedRows:
    """n rows of which `incorrect_fraction` is wrong, or what is wrong of all where that is more (as far as there are
    enough of both kinds); each kind weighs what it weighs in the whole set, so that the calibrator stays unbiased."""
    wrong, right = np.flatnonzero(~correct), np.flatnonzero(correct)
    n_wrong = round(n * max(incorrect_fraction, 1 - correct.mean()))
    n_wrong = max(min(n_wrong, len(wrong)), n - len(right))
    n_right = n - n_wrong
    rows = np.append(rng.choice(wrong, n_wrong, replace=False), rng.choice(right, n_right, replace=False))
    weight_of_wrong, weight_of_right = len(wrong) / max(n_wrong, 1), len(right) / max(n_right, 1)
    return rows, np.repeat((weight_of_wrong, weight_of_right), (n_wrong, n_right)) * n / len(correct)


def _more_wrong_unweighted(
    correct: np.ndarray, n: int, rng: np.random.Generator, incorrect_fraction: float
) -> WeightedRows:
    return _more_wrong(correct, n, rng, incorrect_fraction)[0], np.ones(n)


SAMPLING: dict[str, Callable[..., WeightedRows]] = {
    "uniform": _uniform,
    "more wrong, weighted": _more_wrong,
    "more wrong, unweighted": _more_wrong_unweighted,
}


def learning_curves(
    sets: DataByPair,
    sizes: Iterable[int],
    draws: int = 50,
    seed: int = 0,
    sampling: Sequence[str] = ("uniform",),
    incorrect_fraction: float = 0.5,
    n_bins: int = 10,
    closed: str = "right",
    choices: Calibration = Calibration(),  # noqa: B008  frozen
) -> pd.DataFrame:
    """Measure the ECE of Ans Avg against the number of calibration rows (Finding 4).

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    sizes : iterable of int
        Numbers of calibration rows; all rows come last in any case.
    draws : int
        Random calibration sets of each size.
    seed : int
        Draws depend on (seed, dataset, size), so models and methods share them.
    sampling : sequence of str
        Of SAMPLING: uniform, or with more of the wrong rows.
    incorrect_fraction : float
        Of a set in which wrong rows are over-sampled.
    n_bins, closed
        As for `ece`.
    choices : Calibration

    Returns
    -------
    DataFrame
        A row per draw: model, dataset, sampling, method ("" for the raw score), n, draw, ece, and `one_class`, whether
        the
        draw held right or wrong rows only.
    """
    rows: list[tuple] = []
    for (model, dataset), pair in sets.items():
        y, evaluation = pair.calibration.correct, pair.evaluation
        raw = ece(evaluation.confidence, evaluation.correct, n_bins, closed)
        fits = _fits(pair, choices)
        for way in sampling:
            rows.append((model, dataset, way, "", len(y), 0, raw, False))
            for n, draw, drawn, sample_weight in _draw_calibration_sets(
                dataset, y, sizes, draws, seed, way, incorrect_fraction
            ):
                one_class = len(set(y[drawn])) < 2
                for name, predict in fits.items():
                    error = ece(predict(drawn, sample_weight), evaluation.correct, n_bins, closed)
                    rows.append((model, dataset, way, name, n, draw, error, one_class))
    columns = ["model", "dataset", "sampling", "method", "n", "draw", "ece", "one_class"]
    return pd.DataFrame(rows, columns=columns)


def _fits(pair: CalibrationData, choices: Calibration) -> dict[str, Callable]:
    """By method: the function that fits it on some calibration rows and scores the evaluation rows."""
    fits = {}
    for name, method in METHODS.items():
        kind = method.of_answers
        score, new = getattr(pair.calibration, kind), getattr(pair.evaluation, kind)
        if score is None or new is None:  # no logits of the answer's tokens
            continue
        fits[name] = method.make(kind, choices).on_subsets(score, pair.calibration.correct, new)
    return fits


def _draw_calibration_sets(
    dataset: str, correct: np.ndarray, sizes: Iterable[int], draws: int, seed: int, way: str, incorrect_fraction: float
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(n, number of the draw, rows, weights) of every draw of every size below all rows, then of all rows."""
    total = len(correct)
    for n in [*(n for n in sizes if n < total), total]:
        rng = np.random.default_rng([seed, n, *dataset.encode()])
        for draw in range(draws if n < total else 1):
            yield n, draw, *SAMPLING[way](correct, n, rng, incorrect_fraction)


def predict_example_by_size(
    pair: CalibrationData,
    place: int,
    dataset: str,
    sizes: Iterable[int],
    draws: int = 50,
    seed: int = 0,
    choices: Calibration = Calibration(),  # noqa: B008  frozen
) -> pd.DataFrame:
    """What calibrators fitted on the same draws as those of `learning_curves` (uniform) make of one evaluation row, Ans
    Avg at `place`: method, n, and over draws the mean, and low and high, which hold the middle 80%."""
    rows, fits = [], _fits(pair, choices)
    for n, _, drawn, weight in _draw_calibration_sets(
        dataset, pair.calibration.correct, sizes, draws, seed, "uniform", 0.5
    ):
        rows += [(name, n, float(predict(drawn, weight)[place])) for name, predict in fits.items()]
    groups = pd.DataFrame(rows, columns=["method", "n", "score"]).groupby(["method", "n"], sort=False).score
    low, high = groups.quantile(0.1), groups.quantile(0.9)
    return pd.DataFrame({"mean": groups.mean(), "low": low, "high": high}).reset_index()
