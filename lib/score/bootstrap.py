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

from lib.score.metrics import METRICS, evaluate
from lib.store import PAIR

RESULT_KEYS = [*PAIR, "estimator", "method", "metric"]
RESAMPLED = ("acc", "brier", "ece", "mce")
MAX_COUNTS = 2**22  # counts in memory: 32 MB


def draw_resample_counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each of n rows is in each resample, in blocks (b, n) with `resamples` rows in total."""
    rng, size = np.random.default_rng([seed, n]), max(1, MAX_COUNTS // n)
    for start in range(0, resamples, size):
        b = min(size, resamples - start)
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
