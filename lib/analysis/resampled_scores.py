"""The scores of a run on shared resamples of its evaluation rows: what verdicts with intervals
compare.

A comparison of scores is made on the rows that all of them have, with the same draws for each, so
its differences are paired. The calibrator of a calibrated score is fitted again in every draw, to a
resample of its calibration rows (`lib.calibrate.refitting`). Each number is made once, when it is
first asked for; the refitted scores behind it, which take 4 kB a row, are not kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from lib.calibrate.calibration_sets import Pair
from lib.calibrate.refitting import REFITS
from lib.score.baselines import ROUNDING, draw_chance_errors
from lib.score.bootstrap import draw_resample_counts
from lib.score.metrics import measure
from lib.score.reliability import bin_index

OWN = ("", "")  # the source of a calibrator that was fitted to the pair itself


class Score(NamedTuple):
    """What a row's confidence is: an estimator, raw or after a method.

    `source` is the pair to whose calibration rows the method was fitted, if not the row's own.
    """

    estimator: str
    method: str = ""
    source: Pair = OWN


class Measure(NamedTuple):
    """A metric of a score."""

    score: Score
    metric: str = "ece"


@dataclass(eq=False)
class ResampledNumber:
    """A metric on evaluation rows, and on resamples of them.

    `draws` is (resamples,), or (refits,) of a calibrated score. `chance_high` returns the 95% point
    of the ECE that chance gives to perfectly calibrated scores; None for other metrics.
    """

    value: float
    draws: np.ndarray
    chance_high: Callable[[], float] | None = None

    @cached_property
    def within_chance(self) -> bool:
        """Whether it is an ECE that perfectly calibrated scores could have."""
        return self.chance_high is not None and self.value <= self.chance_high() + ROUNDING


@dataclass(eq=False)
class ScoredRows:
    """A score of n evaluation rows of a pair, in the order of example_id.

    `refit` makes it once for each draw of calibration rows, (refits, n); None for a raw score.
    """

    example_id: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    refit: Callable[[], np.ndarray] | None = None


ScoresByPair = Mapping[Pair, Mapping[Score, ScoredRows]]
Rows = frozenset[str]  # their example_id


@dataclass(frozen=True)
class ResampleSettings:
    """How scores are resampled: as for `evaluate`, and how often calibrators are fitted again (0:
    they are fixed)."""

    n_bins: int = 10
    resamples: int = 5000
    seed: int = 0
    refits: int = REFITS


class ResampledScores:
    """The scores of each pair, and their metrics on shared rows and shared draws."""

    def __init__(self, scores: ScoresByPair, settings: ResampleSettings | None = None) -> None:
        self.scores = scores
        self.settings = settings or ResampleSettings()
        self._made: dict[tuple, ResampledNumber] = {}
        self._rows: dict[tuple[Pair, Score], Rows] = {}
        self._sets_of_rows: dict[Rows, Rows] = {}

    def measure_all_rows(self, pair: Pair, wanted: Measure) -> ResampledNumber:
        """Return the number of a measure on all rows of its score. Raise KeyError without them."""
        return self._number(pair, wanted, self._rows_of(pair, wanted.score))

    def compare(
        self, pair: Pair, measures: Mapping[str, Measure]
    ) -> dict[str, ResampledNumber] | None:
        """Return the number of each measure on the rows that all its scores have.

        None if the pair lacks a score, or if they share no row.
        """
        by_score = self.scores.get(pair, {})
        rows_of_each = []
        for wanted in measures.values():
            if wanted.score not in by_score:
                return None
            rows_of_each.append(self._rows_of(pair, wanted.score))
        shared = self._keep_once(frozenset.intersection(*rows_of_each))
        if not shared:
            return None
        return {name: self._number(pair, wanted, shared) for name, wanted in measures.items()}

    def _rows_of(self, pair: Pair, score: Score) -> Rows:
        """Return the rows of a score."""
        if (pair, score) not in self._rows:
            rows = frozenset(self.scores[pair][score].example_id)
            self._rows[pair, score] = self._keep_once(rows)
        return self._rows[pair, score]

    def _keep_once(self, rows: Rows) -> Rows:
        """Return the first of all equal sets: of thousands of rows, a set takes more memory than
        the draws of a number."""
        return self._sets_of_rows.setdefault(rows, rows)

    def _number(self, pair: Pair, wanted: Measure, rows: Rows) -> ResampledNumber:
        key = (pair, wanted, rows)
        if key not in self._made:
            column = self.scores[pair][wanted.score]
            self._made[key] = measure_rows(column, wanted.metric, rows, self.settings)
        return self._made[key]


def measure_rows(
    column: ScoredRows, metric: str, rows: Rows, settings: ResampleSettings
) -> ResampledNumber:
    """Measure a score on some of its rows, and on resamples of these."""
    used = np.array([name in rows for name in column.example_id])
    confidence = column.confidence[used]
    correct = column.correct[used]
    value = float(measure(metric, confidence, correct, settings.n_bins))
    blocks = draw_resample_counts(len(correct), settings.resamples, settings.seed)
    if column.refit is None:
        by_block = [
            measure(metric, confidence, correct, settings.n_bins, block) for block in blocks
        ]
        draws = np.concatenate(by_block)
    else:
        counts = first_draws(blocks, settings.refits)
        refitted = column.refit()[: len(counts), used]
        draws = measure_refitted(metric, refitted, correct, counts, settings.n_bins)
    if metric != "ece":
        return ResampledNumber(value, draws)
    return ResampledNumber(value, draws, partial(highest_by_chance, confidence, settings))


def first_draws(blocks: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Return the first draws of blocks (b, n) of them, (count, n) or fewer.

    Examples
    --------
    >>> first_draws([np.array([[1, 1], [2, 0]]), np.array([[0, 2]])], 2)
    array([[1, 1],
           [2, 0]])
    """
    draws: list[np.ndarray] = []
    for block in blocks:
        draws += list(block[: count - len(draws)])
    return np.array(draws)


def highest_by_chance(confidence: np.ndarray, settings: ResampleSettings) -> float:
    """Return the 95% point of the ECE of perfectly calibrated scores."""
    errors = draw_chance_errors(confidence, settings.n_bins, settings.resamples, settings.seed)
    return float(np.percentile(errors, 95))


def measure_refitted(
    metric: str, confidence: np.ndarray, correct: np.ndarray, counts: np.ndarray, n_bins: int
) -> np.ndarray:
    """Return a metric over draws that each have their own scores, (draws,).

    `confidence` and `counts` are (draws, n), `correct` is (n,).
    """
    if metric != "ece":
        values = []
        for scores, count in zip(confidence, counts, strict=True):
            values.append(measure(metric, scores, correct, n_bins, count))
        return np.array(values)
    draws, n = confidence.shape
    place = bin_index(confidence, n_bins) + n_bins * np.arange(draws)[:, None]
    gaps = counts * (correct - confidence)
    sums = np.bincount(place.ravel(), gaps.ravel(), minlength=draws * n_bins)
    return np.abs(sums.reshape(draws, n_bins)).sum(axis=1) / n


def draws_of(numbers: Mapping[str, ResampledNumber]) -> dict[str, np.ndarray]:
    """Return the draws of each number by name, as many as all of them have."""
    count = min(len(number.draws) for number in numbers.values())
    return {name: number.draws[:count] for name, number in numbers.items()}
