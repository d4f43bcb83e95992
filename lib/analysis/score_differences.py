"""Differences of two scores by pair, and their mean over pairs, with intervals of shared draws."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import Measure, ResampledScores, Score, draws_of
from lib.calibrate.calibration_sets import Pair
from lib.score.bootstrap import percentile_interval
from lib.store import SCORE_CELL


class Difference(NamedTuple):
    """A metric of one score minus that of another on the rows that both have, and its draws."""

    value: float
    draws: np.ndarray


def differences_by_pair(
    scores: ResampledScores, first: Score, second: Score, metric: str
) -> Iterator[tuple[Pair, Difference]]:
    """Yield the difference of two scores on each pair that has both."""
    measures = {"first": Measure(first, metric), "second": Measure(second, metric)}
    for pair in scores.scores:
        numbers = scores.compare(pair, measures)
        if numbers is not None:
            draws = draws_of(numbers)
            value = numbers["first"].value - numbers["second"].value
            yield pair, Difference(value, draws["first"] - draws["second"])


def compare_contrasts(
    scores: ResampledScores, contrasts: Iterable[tuple[Score, Score]], metric: str = "ece"
) -> pd.DataFrame:
    """Return the differences of a metric between two scores: first minus second, with intervals.

    Columns: PAIR, estimator and method of the first, `than` and `than_method` of the second,
    difference, low, high. Pairs that lack a score have no row.
    """
    rows: list[tuple] = []
    for first, second in contrasts:
        names = (first.estimator, first.method, second.estimator, second.method)
        for pair, difference in differences_by_pair(scores, first, second, metric):
            ends = percentile_interval(difference.draws)
            rows.append((*pair, *names, difference.value, *ends))
    columns = [*SCORE_CELL, "method", "than", "than_method", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


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
    values: list[float] = []
    draws: dict[Pair, np.ndarray] = {}
    orders: dict[str, np.ndarray] = {}
    rng = np.random.default_rng([scores.settings.seed, len(scores.scores)])
    for pair, difference in differences_by_pair(scores, first, second, metric):
        if np.isnan(difference.value):
            continue
        dataset = pair[1]
        order = rng.permutation(len(difference.draws))
        orders.setdefault(dataset, order)
        draws[pair] = difference.draws[orders[dataset]]
        values.append(difference.value)
    if not values:
        return None
    means = np.nanmean(np.stack(list(draws.values())), axis=0)
    low, high = percentile_interval(means)
    wide_low, wide_high = percentile_interval(draw_pairs(draws, rng))
    return Pooled(
        value=float(np.mean(values)),
        low=low,
        high=high,
        wide_low=wide_low,
        wide_high=wide_high,
        lower=sum(value < 0 for value in values),
        pairs=len(values),
    )


def draw_pairs(draws: Mapping[Pair, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return means over pairs (draws,), with models and datasets drawn with replacement, too.

    A pair counts as often as its model was drawn times its dataset; NaN if no drawn pair counts.
    """
    models = list(dict.fromkeys(pair[0] for pair in draws))
    datasets = list(dict.fromkeys(pair[1] for pair in draws))
    length = len(next(iter(draws.values())))
    times_of_model = count_draws(len(models), length, rng)
    times_of_dataset = count_draws(len(datasets), length, rng)
    total = np.zeros(length)
    weight = np.zeros(length)
    for (model, dataset), values in draws.items():
        of_model = times_of_model[:, models.index(model)]
        of_dataset = times_of_dataset[:, datasets.index(dataset)]
        times = of_model * of_dataset
        known = ~np.isnan(values)
        total += np.where(known, times * np.nan_to_num(values), 0)
        weight += times * known
    with np.errstate(invalid="ignore"):
        return total / weight


def count_draws(n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each of n things is among n drawn with replacement, (draws, n)."""
    return rng.multinomial(n, np.full(n, 1 / n), draws)
