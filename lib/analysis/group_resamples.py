"""Metrics of scores over resamples of groups: rows that belong together are drawn together.

Where each row is a group of its own, the draws are those of `lib.score.evaluation.evaluate`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from lib.score.bootstrap import draw_resample_counts, percentile_interval
from lib.score.metrics import measure

BRIER_PARTS = ("mcb", "dsc")


class DrawnNumber(NamedTuple):
    """A metric of a score, and of the same rows resampled, (resamples,)."""

    metric: str
    value: float
    draws: np.ndarray

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of its 95% interval.

        MCB and DSC are of a fit to the same rows, so chance raises them, and in a resample about
        twice as much: of 150 to 1,000 rows the percentile interval held them in 0 to 60% of cases.
        So theirs is reflected at the value (the basic bootstrap), which held a true MCB or DSC
        above 0 in 82 to 99%; the value itself may lie above it.
        """
        low, high = percentile_interval(self.draws)
        if self.metric not in BRIER_PARTS:
            return low, high
        reflected_low = 2 * self.value - high
        reflected_high = 2 * self.value - low
        return max(0.0, reflected_low), max(0.0, reflected_high)


def draw_group_counts(groups: Sequence[str], resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each of n rows is in each resample of the groups, in blocks (b, n).

    Examples
    --------
    >>> (block,) = draw_group_counts(["a", "a", "b"], resamples=5, seed=0)
    >>> bool((block[:, 0] == block[:, 1]).all()), block.shape
    (True, (5, 3))
    """
    names, place = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    for counts in draw_resample_counts(len(names), resamples, seed):
        yield counts[:, place]


class SortedScores:
    """Scores whose equal values are found once, for `brier_parts` of many resamples."""

    def __init__(self, confidence: np.ndarray, correct: np.ndarray) -> None:
        self.confidence = confidence
        self.correct = correct
        self.values, self.level = np.unique(confidence, return_inverse=True)

    def brier_parts(self, weight: np.ndarray) -> tuple[float, float]:
        """Return MCB and DSC of rows that count with these weights (n,), as `decompose_brier`.

        Examples
        --------
        >>> scores = SortedScores(np.array([0.5, 0.5, 1, 1]), np.array([0.0, 0, 1, 1]))
        >>> scores.brier_parts(np.ones(4))
        (0.125, 0.25)
        """
        levels = len(self.values)
        rows = np.bincount(self.level, weight, minlength=levels)
        right = np.bincount(self.level, weight * self.correct, minlength=levels)
        used = rows > 0
        c = self.values[used]
        rows = rows[used]
        right = right[used]
        n = rows.sum()
        best = isotonic_regression(right / rows, weights=rows).x
        # (c - y)^2 of the rows of a level, where y^2 = y
        squares = rows * c**2 - 2 * c * right + right
        best_squares = rows * best**2 - 2 * best * right + right
        brier = squares.sum() / n
        best_brier = best_squares.sum() / n
        accuracy = right.sum() / n
        miscalibration = max(0.0, float(brier - best_brier))
        discrimination = max(0.0, float(accuracy * (1 - accuracy) - best_brier))
        return miscalibration, discrimination


def measure_drawn(
    confidence: np.ndarray,
    correct: np.ndarray,
    groups: Sequence[str],
    metrics: Sequence[str],
    n_bins: int = 10,
    resamples: int = 5000,
    seed: int = 0,
) -> dict[str, DrawnNumber]:
    """Return metrics of a score's n rows by name, with their draws.

    Parameters
    ----------
    confidence, correct, groups : of the n rows, whose order moves no draw if it is that of the
        groups
    metrics : of METRICS and BRIER_PARTS
    n_bins, resamples, seed
        As for `resample_metric`.

    Examples
    --------
    >>> made = measure_drawn(np.array([0.5, 1]), np.array([0.0, 1]), ["a", "b"], ["brier", "dsc"],
    ...                      resamples=4)
    >>> float(made["brier"].value), made["dsc"].value, made["dsc"].draws.shape
    (0.125, 0.25, (4,))
    """
    scores = SortedScores(confidence, correct)
    parts = [name for name in BRIER_PARTS if name in metrics]
    once = np.ones(len(correct))
    values = dict(zip(BRIER_PARTS, scores.brier_parts(once), strict=True))
    draws: dict[str, list[np.ndarray]] = {name: [] for name in metrics}
    for counts in draw_group_counts(groups, resamples, seed):
        for name in metrics:
            if name not in BRIER_PARTS:
                draws[name].append(measure(name, confidence, correct, n_bins, counts))
        if parts:
            resampled = np.array([scores.brier_parts(weight) for weight in counts.astype(float)])
            for name in parts:
                draws[name].append(resampled[:, BRIER_PARTS.index(name)])
    numbers = {}
    for name in metrics:
        if name not in BRIER_PARTS:
            values[name] = measure(name, confidence, correct, n_bins)
        drawn = np.concatenate(draws[name])
        numbers[name] = DrawnNumber(name, float(values[name]), drawn)
    return numbers
