"""The bootstrap over evaluation rows, for all estimators and methods of a pair together.

A resample is the number of times each row was drawn, so the metrics take many resamples at once as weights of rows.
Differences between estimators are paired, and pairs with equally many rows share the draws. Calibrators are not
refitted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from lib.score.metrics import METRICS, bin_index, ece, evaluate
from lib.store import PAIR

RESULT_KEYS = [*PAIR, "estimator", "method", "metric"]
RESAMPLED = ("acc", "brier", "ece", "mce")
MAX_COUNTS = 2**22  # counts in memory: 32 MB
ROUNDING = 1e-12  # of a sum, where errors of one bin are multiples of 1 / n


def block_sizes(n: int, draws: int) -> Iterator[int]:
    """Yield numbers of draws of n rows each that fit into memory together, `draws` in total."""
    size = max(1, MAX_COUNTS // n)
    yield from (min(size, draws - start) for start in range(0, draws, size))


def draw_resample_counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each of n rows is in each resample, in blocks (b, n) with `resamples` rows in total."""
    rng = np.random.default_rng([seed, n])
    for b in block_sizes(n, resamples):
        drawn = rng.integers(0, n, (b, n)) + n * np.arange(b)[:, None]
        yield np.bincount(drawn.ravel(), minlength=b * n).reshape(b, n).astype(float)


def resample_metrics(
    confidence: Any, correct: Any, n_bins: int = 10, resamples: int = 5000, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return metrics by name over resamples, each (resamples, k), for k estimators' scores (n, k)."""
    scores = np.asarray(confidence)
    parts: dict[str, list] = {name: [] for name in RESAMPLED}
    for block in draw_resample_counts(len(scores), resamples, seed):
        for name in RESAMPLED:
            values = [METRICS[name](column, correct, n_bins, block) for column in scores.T]
            parts[name].append(np.stack(values, axis=1))
    return {name: np.concatenate(blocks) for name, blocks in parts.items()}


@dataclass(frozen=True)
class Bootstrap:
    """`results`: those of `evaluate`, with `low` and `high`. `draws`: a dict for each set of rows that was resampled,
    of a metric's resamples by RESULT_KEYS."""

    results: pd.DataFrame
    draws: Sequence[dict[tuple, np.ndarray]]

    def differences(self, contrasts: Iterable[tuple[tuple, tuple]], metric: str = "ece") -> pd.DataFrame:
        """Return paired differences between pairs of (estimator, method): first minus second, with a 95% interval.

        `lower` is the share of resamples in which the first is lower (ties count half). Estimators with different rows
        are not compared.
        """
        values, rows = self.results.set_index(RESULT_KEYS).value, []
        for (one, other), draws in product(contrasts, self.draws):
            pair = next(iter(draws))[:2]
            first, second = (*pair, *one, metric), (*pair, *other, metric)
            if first in draws and second in draws:
                gap = draws[first] - draws[second]
                low, high = np.percentile(gap, [2.5, 97.5])
                lower = float(np.mean(gap < 0) + np.mean(gap == 0) / 2)
                rows.append((*pair, *one, *other, values[first] - values[second], low, high, lower))
        columns = [*RESULT_KEYS[:4], "than", "than_method", "difference", "low", "high", "lower"]
        return pd.DataFrame(rows, columns=columns)


def group_by_row_set(part: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Yield one pair's scores, a column per (estimator, method), and correctness, grouped by common rows.

    Estimators with fewer rows (dropout, verification) form their own groups and are not paired with the others.
    """
    scores = part.pivot(index="example_id", columns=["estimator", "method"], values="confidence")
    scores = scores[list(dict.fromkeys(zip(part.estimator, part.method, strict=True)))]
    correct = part.drop_duplicates("example_id").set_index("example_id").correct
    missing = {column: tuple(scores[column].isna()) for column in scores}
    for pattern in sorted(dict.fromkeys(missing.values()), key=sum):  # largest set of rows first
        columns = [column for column in scores if missing[column] == pattern]
        alike = scores.loc[~np.array(pattern), columns]
        yield alike, correct.loc[alike.index].to_numpy()


def bootstrap(frame: pd.DataFrame, n_bins: int = 10, resamples: int = 5000, seed: int = 0) -> Bootstrap:
    """Bootstrap every metric over the evaluation rows (5,000 resamples in the paper).

    Parameters
    ----------
    frame : DataFrame
        A confidence frame with a column `method` ("" for raw scores).
    n_bins
        As for `ece`.
    resamples : int
    seed : int
        Pairs with equally many rows share the draws.

    Returns
    -------
    Bootstrap
        Point estimates with 95% percentile intervals, and the resamples.
    """
    draws: list[dict[tuple, np.ndarray]] = []
    for pair, part in frame[frame.split == "evaluation"].groupby(PAIR, sort=False):
        for number, (scores, correct) in enumerate(group_by_row_set(part)):
            resampled = resample_metrics(scores.to_numpy(), correct, n_bins, resamples, seed)
            accuracy = resampled.pop("acc")[:, 0]
            draws.append({(*pair, "", "", "acc"): accuracy} if number == 0 else {})  # of the largest set of rows
            for metric, table in resampled.items():
                draws[-1] |= {(*pair, *key, metric): table[:, place] for place, key in enumerate(scores)}
    ends = {key: np.percentile(values, [2.5, 97.5]) for some in draws for key, values in some.items()}
    results = evaluate(frame, n_bins, names=RESAMPLED)
    keys = results[RESULT_KEYS].itertuples(index=False, name=None)
    low, high = np.array([ends[key] for key in keys]).reshape(-1, 2).T
    return Bootstrap(results.assign(low=low, high=high), draws)


# ---- what chance alone gives


def draw_chance_errors(confidence: Any, n_bins: int = 10, draws: int = 5000, seed: int = 0) -> np.ndarray:
    """Return the ECE that these scores would have if they were perfectly calibrated, (draws,).

    Each draw takes the outcome of every row from its confidence: right with probability c. In a bin with rows B, the
    sum of c - outcome then has mean 0 and variance sum c (1 - c) over B, so the ECE is about
    sqrt(2 / pi) / n times the sum of sqrt(sum c (1 - c)) over bins, and not 0. The fewer bins hold rows, the lower.
    """
    given = np.asarray(confidence)
    c, member = given.astype(float), np.eye(n_bins)[bin_index(given, n_bins)]
    rng = np.random.default_rng([seed, c.size])
    blocks = ((rng.random((b, c.size)) < c) - c for b in block_sizes(c.size, draws))
    return np.concatenate([np.abs(block @ member).sum(axis=1) / c.size for block in blocks])


def compare_with_chance(frame: pd.DataFrame, n_bins: int = 10, draws: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Return the ECE of every estimator and method beside what chance alone gives; arguments as for `bootstrap`.

    Columns: RESULT_KEYS, value, n, and of `draw_chance_errors` the mean (`chance`) and the 95% point (`chance_high`).
    `calibrated`: whether the value is no higher than that point, so that it cannot be told from calibrated scores.
    """
    rows: list[tuple] = []
    for key, part in frame[frame.split == "evaluation"].groupby(RESULT_KEYS[:4], sort=False):
        c = part.confidence.to_numpy()
        drawn, value = draw_chance_errors(c, n_bins, draws, seed), ece(c, part.correct, n_bins)
        high = np.percentile(drawn, 95)
        rows.append((*key, "ece", value, len(c), drawn.mean(), high, value <= high + ROUNDING))
    return pd.DataFrame(rows, columns=[*RESULT_KEYS, "value", "n", "chance", "chance_high", "calibrated"])
