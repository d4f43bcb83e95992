"""The scores of a run on shared resamples of its evaluation rows: what verdicts with intervals
compare.

A comparison of scores is made on the rows that all of them have, with the same draws for each, so
its differences are paired. The calibrator of a calibrated score is fitted again in every draw, to a
resample of its calibration rows (`lib.calibrate.refitting`). Each number is made once, when it is
first asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from lib.calibrate.calibration_sets import DataByPair, Pair
from lib.calibrate.calibrators import ANSWER_ESTIMATORS
from lib.calibrate.fit_methods import Fit
from lib.calibrate.refitting import REFITS, draw_calibration_counts, refit_scores
from lib.score.evaluation import (
    BASE,
    ROUNDING,
    base_rate,
    draw_chance_errors,
    draw_resample_counts,
    percentile_interval,
)
from lib.score.metrics import bin_index, measure
from lib.store import PAIR, SCORE_CELL, calibration_rows, evaluation_rows

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

    `refit` returns it once for each draw of calibration rows, (refits, n); None for a raw score.
    """

    example_id: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    refit: Callable[[], np.ndarray] | None = None

    @cached_property
    def refitted(self) -> np.ndarray | None:
        return None if self.refit is None else self.refit()


ScoresByPair = Mapping[Pair, Mapping[Score, ScoredRows]]


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

    def measure_all_rows(self, pair: Pair, one: Measure) -> ResampledNumber:
        """Return the number of a measure on all rows of its score. Raise KeyError without them."""
        return self._number(pair, one, frozenset(self.scores[pair][one.score].example_id))

    def compare(
        self, pair: Pair, measures: Mapping[str, Measure]
    ) -> dict[str, ResampledNumber] | None:
        """Return the number of each measure on the rows that all its scores have.

        None if the pair lacks a score, or if they share no row.
        """
        columns = []
        for one in measures.values():
            if one.score not in self.scores.get(pair, {}):
                return None
            columns.append(self.scores[pair][one.score])
        shared = set(columns[0].example_id)
        for column in columns[1:]:
            shared &= set(column.example_id)
        if not shared:
            return None
        rows = frozenset(shared)
        return {name: self._number(pair, one, rows) for name, one in measures.items()}

    def _number(self, pair: Pair, one: Measure, rows: frozenset[str]) -> ResampledNumber:
        key = (pair, one, rows)
        if key not in self._made:
            self._made[key] = measure_rows(
                self.scores[pair][one.score], one.metric, rows, self.settings
            )
        return self._made[key]


def measure_rows(
    column: ScoredRows, metric: str, rows: frozenset[str], settings: ResampleSettings
) -> ResampledNumber:
    """Measure a score on some of its rows, and on resamples of these."""
    kept = np.array([name in rows for name in column.example_id])
    confidence, correct = column.confidence[kept], column.correct[kept]
    value = float(measure(metric, confidence, correct, settings.n_bins))
    blocks = draw_resample_counts(len(correct), settings.resamples, settings.seed)
    if column.refitted is None:
        drawn = [measure(metric, confidence, correct, settings.n_bins, block) for block in blocks]
        draws = np.concatenate(drawn)
    else:
        counts = np.concatenate(blocks)[: settings.refits]
        refitted = column.refitted[: len(counts), kept]
        draws = measure_refitted(metric, refitted, correct, counts, settings.n_bins)
    if metric != "ece":
        return ResampledNumber(value, draws)
    return ResampledNumber(value, draws, partial(highest_by_chance, confidence, settings))


def highest_by_chance(confidence: np.ndarray, settings: ResampleSettings) -> float:
    """Return the 95% point of the ECE of perfectly calibrated scores."""
    drawn = draw_chance_errors(confidence, settings.n_bins, settings.resamples, settings.seed)
    return float(np.percentile(drawn, 95))


def measure_refitted(
    metric: str, confidence: np.ndarray, correct: np.ndarray, counts: np.ndarray, n_bins: int
) -> np.ndarray:
    """Return a metric over draws that each have their own scores, (draws,).

    `confidence` and `counts` are (draws, n), `correct` is (n,).
    """
    if metric != "ece":
        pairs = zip(confidence, counts, strict=True)
        return np.array([measure(metric, c, correct, n_bins, count) for c, count in pairs])
    draws, n = confidence.shape
    place = bin_index(confidence, n_bins) + n_bins * np.arange(draws)[:, None]
    gaps = counts * (correct - confidence)
    sums = np.bincount(place.ravel(), gaps.ravel(), minlength=draws * n_bins)
    return np.abs(sums.reshape(draws, n_bins)).sum(axis=1) / n


# ---- differences


def compare_contrasts(
    scores: ResampledScores, contrasts: Iterable[tuple[Score, Score]], metric: str = "ece"
) -> pd.DataFrame:
    """Return the differences of a metric between two scores: first minus second, with intervals.

    Columns: PAIR, estimator and method of the first, `than` and `than_method` of the second,
    difference, low, high. Pairs that lack a score have no row.
    """
    rows: list[tuple] = []
    for first, second in contrasts:
        measures = {"first": Measure(first, metric), "second": Measure(second, metric)}
        for pair in scores.scores:
            numbers = scores.compare(pair, measures)
            if numbers is not None:
                drawn = draws_of(numbers)
                ends = percentile_interval(drawn["first"] - drawn["second"])
                difference = numbers["first"].value - numbers["second"].value
                rows.append((*pair, *first[:2], *second[:2], difference, *ends))
    names = [*SCORE_CELL, "method", "than", "than_method", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=names)


def draws_of(numbers: Mapping[str, ResampledNumber]) -> dict[str, np.ndarray]:
    """Return the draws of each number by name, as many as all of them have."""
    count = min(len(number.draws) for number in numbers.values())
    return {name: number.draws[:count] for name, number in numbers.items()}


class Pooled(NamedTuple):
    """The mean of a difference over pairs.

    `low` and `high` end its 95% interval for these models and datasets; `wide_low` and `wide_high`
    for draws of these models and datasets, too. `pairs` counts them, `lower` those below 0.
    """

    value: float
    low: float
    high: float
    wide_low: float
    wide_high: float
    lower: int
    pairs: int


def pool_difference(
    scores: ResampledScores, first: Score, second: Score, metric: str = "ece"
) -> Pooled | None:
    """Return the mean over pairs of a metric of the first score minus that of the second.

    Rows are drawn independently for each dataset, whose questions all models share. None if no pair
    has both scores.
    """
    measures = {"first": Measure(first, metric), "second": Measure(second, metric)}
    values: dict[Pair, float] = {}
    draws: dict[Pair, np.ndarray] = {}
    rng = np.random.default_rng([scores.settings.seed, len(scores.scores)])
    orders: dict[str, np.ndarray] = {}
    for pair in scores.scores:
        numbers = scores.compare(pair, measures)
        if numbers is not None and not np.isnan(numbers["first"].value - numbers["second"].value):
            drawn = draws_of(numbers)
            difference = drawn["first"] - drawn["second"]
            order = orders.setdefault(pair[1], rng.permutation(len(difference)))
            draws[pair] = difference[order]
            values[pair] = numbers["first"].value - numbers["second"].value
    if not values:
        return None
    value = np.mean(list(values.values()))
    low, high = percentile_interval(np.nanmean(np.stack(list(draws.values())), axis=0))
    wide_low, wide_high = percentile_interval(draw_pairs(draws, rng))
    lower = sum(one < 0 for one in values.values())
    return Pooled(float(value), low, high, wide_low, wide_high, lower, len(values))


def draw_pairs(draws: Mapping[Pair, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return means over pairs (draws,), with models and datasets drawn with replacement, too.

    A pair counts as often as its model was drawn times its dataset; NaN if no drawn pair counts.
    """
    models = list(dict.fromkeys(model for model, _ in draws))
    datasets = list(dict.fromkeys(dataset for _, dataset in draws))
    length = len(next(iter(draws.values())))
    times_of_model = count_draws(len(models), length, rng)
    times_of_dataset = count_draws(len(datasets), length, rng)
    total, weight = np.zeros(length), np.zeros(length)
    for (model, dataset), values in draws.items():
        times = (
            times_of_model[:, models.index(model)] * times_of_dataset[:, datasets.index(dataset)]
        )
        known = ~np.isnan(values)
        total += np.where(known, times * np.nan_to_num(values), 0)
        weight += times * known
    with np.errstate(invalid="ignore"):
        return total / weight


def count_draws(n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each of n things is among n drawn with replacement, (draws, n)."""
    return rng.multinomial(n, np.full(n, 1 / n), draws)


# ---- the scores of a run


def collect_scores(
    confidence: pd.DataFrame, sets: DataByPair, fits: Iterable[Fit], settings: ResampleSettings
) -> ResampledScores:
    """Collect every score of a run: raw, calibrated, and Ans Avg by calibrators of other pairs.

    Parameters
    ----------
    confidence : DataFrame
        From `confidence_frame`, of both splits; further scores of evaluation rows may follow.
    sets, fits
        From `calibration_data` and `calibrate`; empty for raw scores alone.
    settings : ResampleSettings
    """
    tables = {}
    scores: dict[Pair, dict[Score, ScoredRows]] = {}
    for (*pair, estimator, split), rows in confidence.groupby([*SCORE_CELL, "split"]):
        rows = rows.sort_values("example_id")
        tables[*pair, estimator, split] = rows
        if split == "evaluation":
            column = ScoredRows(
                rows.example_id.to_numpy(), rows.correct.to_numpy(float), rows.confidence.to_numpy()
            )
            scores.setdefault(tuple(pair), {})[Score(estimator)] = column
    for pair, rows in confidence.groupby(PAIR):
        if pair in scores:
            scores[pair][Score(BASE)] = constant_rows(rows, pair, settings)
    for fit in fits:
        estimators = ANSWER_ESTIMATORS if fit.estimator == "ans" else [fit.estimator]
        for estimator in estimators:
            for target in scores:
                if target == fit.pair or (estimator == "ans_avg" and one_differs(target, fit.pair)):
                    calibrated = calibrated_rows(fit, estimator, target, tables, sets, settings)
                    source = OWN if target == fit.pair else fit.pair
                    if calibrated is not None:
                        scores[target][Score(estimator, fit.method.name, source)] = calibrated
    return ResampledScores(scores, settings)


def constant_rows(rows: pd.DataFrame, pair: Pair, settings: ResampleSettings) -> ScoredRows:
    """Return the evaluation rows of a pair with the constant that its calibration rows teach."""
    rows = rows.drop_duplicates(["split", "example_id"]).sort_values("example_id")
    old, new = calibration_rows(rows), evaluation_rows(rows)
    learned = old.correct.to_numpy(float)
    constant = np.full(len(new), base_rate(learned))

    def refit() -> np.ndarray:
        counts = draw_calibration_counts(len(learned), settings.seed, pair, settings.refits)
        constants = (counts @ learned + 1) / (len(learned) + 2)
        return np.repeat(constants[:, None], len(new), axis=1)

    again = refit if settings.refits else None
    return ScoredRows(new.example_id.to_numpy(), new.correct.to_numpy(float), constant, again)


def one_differs(pair: Pair, other: Pair) -> bool:
    """Return whether two pairs differ in the model or in the dataset alone."""
    return (pair[0] == other[0]) != (pair[1] == other[1])


def calibrated_rows(
    fit: Fit,
    estimator: str,
    target: Pair,
    tables: Mapping[tuple, pd.DataFrame],
    sets: DataByPair,
    settings: ResampleSettings,
) -> ScoredRows | None:
    """Return the target's evaluation rows after a calibrator; None if it lacks the input.

    `tables` holds the rows of each (model, dataset, estimator, split), by example_id.
    """
    joint = ANSWER_ESTIMATORS.get(estimator, False) and fit.kind == "answers"
    old = calibrator_input(fit.pair, estimator, "calibration", fit.kind, tables, sets)
    new = calibrator_input(target, estimator, "evaluation", fit.kind, tables, sets)
    if old is None or new is None:
        return None
    scores = fit.calibrator.predict(new.taken, joint)
    if settings.refits == 0:
        return ScoredRows(new.example_id, new.correct, scores)
    counts = draw_calibration_counts(len(old.correct), settings.seed, fit.pair, settings.refits)
    refit = partial(
        refit_scores, clone(fit.calibrator), old.taken, old.correct, new.taken, counts, joint
    )
    return ScoredRows(new.example_id, new.correct, scores, refit)


class CalibratorInput(NamedTuple):
    """What a calibrator takes of n rows: scores or margins (n,), or their answer tokens."""

    example_id: np.ndarray
    taken: Any
    correct: np.ndarray


def calibrator_input(
    pair: Pair,
    estimator: str,
    split: str,
    kind: str,
    tables: Mapping[tuple, pd.DataFrame],
    sets: DataByPair,
) -> CalibratorInput | None:
    """Return the input of a pair's rows in the order of example_id; None if there is none."""
    if kind == "answers":
        if pair not in sets:
            return None
        part = getattr(sets[pair], split)
        if part.answers is None:
            return None
        order = np.argsort(part.keys.example_id.to_numpy(), kind="stable")
        names = part.keys.example_id.to_numpy()[order]
        return CalibratorInput(names, part.answers[order], part.correct[order].astype(float))
    rows = tables.get((*pair, estimator, split))
    if rows is None or kind not in rows or rows[kind].isna().any():
        return None
    taken = rows[kind].to_numpy(float)
    return CalibratorInput(rows.example_id.to_numpy(), taken, rows.correct.to_numpy(float))
