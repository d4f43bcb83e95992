"""Metrics on bootstrap resamples of the evaluation rows, and their 95% intervals.

A resample is the number of times each row was drawn, so the metrics take many resamples at once as
weights of rows. All scores of equally many rows share the draws, so differences on the same rows
are paired. Calibrators are not fitted again, as in the paper; `lib.analysis.resampled_scores` does
so.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from lib.score.metrics import measure

MAX_COUNTS = 2**22  # counts in memory: 32 MB


def block_sizes(n: int, draws: int) -> Iterator[int]:
    """Yield numbers of draws of n rows each that fit into memory together, `draws` in total.

    Examples
    --------
    >>> list(block_sizes(2**21, 5))
    [2, 2, 1]
    """
    size = max(1, MAX_COUNTS // n)
    for start in range(0, draws, size):
        yield min(size, draws - start)


@lru_cache(maxsize=4)
def draw_resample_counts(n: int, resamples: int, seed: int) -> list[np.ndarray]:
    """Return how often each of n rows is in each resample, in blocks (b, n) with `resamples` rows
    in total.

    Examples
    --------
    >>> (block,) = draw_resample_counts(3, resamples=2, seed=0)
    >>> block.sum(axis=1).tolist()
    [3, 3]
    """
    rng = np.random.default_rng([seed, n])
    blocks = []
    for size in block_sizes(n, resamples):
        resampled_rows = rng.integers(0, n, (size, n))
        counts = [np.bincount(rows, minlength=n) for rows in resampled_rows]
        blocks.append(np.array(counts, np.uint16))
    return blocks


def resample_metric(
    name: str, confidence: Any, correct: Any, n_bins: int = 10, resamples: int = 5000, seed: int = 0
) -> np.ndarray:
    """Return a metric over resamples of the n rows, (resamples,).

    Parameters
    ----------
    name : one of METRICS
    confidence, correct, n_bins
        As for `ece`.
    resamples : int
        5,000 in the paper.
    seed : int
        Scores of equally many rows share the draws.

    Examples
    --------
    >>> resample_metric("brier", [0.5, 0.5], [0, 1], resamples=3)
    array([0.25, 0.25, 0.25])
    """
    values = []
    for counts in draw_resample_counts(len(confidence), resamples, seed):
        values.append(measure(name, confidence, correct, n_bins, counts))
    return np.concatenate(values)


def percentile_interval(resampled: np.ndarray) -> np.ndarray:
    """Return the 95% percentile interval, (2,); resamples in which the metric is undefined do not
    count.

    Examples
    --------
    >>> percentile_interval(np.array([0.0, 1.0, np.nan]))
    array([0.025, 0.975])
    """
    known = resampled[~np.isnan(resampled)]
    if not known.size:
        return np.full(2, np.nan)
    return np.percentile(known, [2.5, 97.5])
