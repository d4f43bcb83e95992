"""The bootstrap: resampled evaluation rows, all estimators and methods of a pair at once.

A resample is how often each row was drawn. Accuracy, ECE, MCE and Brier need only sums over rows, so one matrix
product of these counts with a few columns per estimator gives every resample of every estimator, and differences
between estimators are paired. Pairs with equally many rows share the draws. Calibrators are not fitted anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.score.metrics import METRICS, bin_index

KEY = ["model", "dataset", "estimator", "method", "metric"]
BLOCK = 2**22  # counts held at once: 32 MB


def counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of n rows is in each resample, in blocks (b, n) that add up to `resamples`."""
    rng, size = np.random.default_rng([seed, n]), max(1, BLOCK // n)
    for start in range(0, resamples, size):
        b = min(size, resamples - start)
        drawn = rng.integers(0, n, (b, n)) + n * np.arange(b)[:, None]
        yield np.bincount(drawn.ravel(), minlength=b * n).reshape(b, n).astype(float)


def distributions(
    confidence: Any, correct: Any, bins: int = 10, closed: str = "right", resamples: int = 5000, seed: int = 0
) -> dict[str, np.ndarray]:
    """Metric by name over resamples, (resamples, k), for k estimators' scores (n, k) of the same n rows; accuracy
    (resamples, 1)."""
    c, y = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float)
    n, k = c.shape
    members = [np.eye(bins)[bin_index(np.asarray(confidence)[:, j], bins, closed)] for j in range(k)]
    gaps = [member * (y - c[:, j])[:, None] for j, member in enumerate(members)]
    columns = np.hstack([y[:, None], (c - y[:, None]) ** 2, *members, *gaps])  # (n, 1 + k + 2 k bins)
    found: dict[str, list] = {"acc": [], "brier": [], "ece": [], "mce": []}
    for block in counts(n, resamples, seed):
        sums = block @ columns
        count, gap = sums[:, 1 + k :].reshape(len(block), 2, k, bins).swapaxes(0, 1)
        found["acc"].append(sums[:, :1] / n)
        found["brier"].append(sums[:, 1 : 1 + k] / n)
        found["ece"].append(np.abs(gap).sum(-1) / n)
        found["mce"].append((np.abs(gap) / np.maximum(count, 1)).max(-1))
    return {name: np.concatenate(parts) for name, parts in found.items()}


@dataclass(frozen=True)
class Bootstrap:
    """`results`: KEY, value, low, high, relative (share by which a method lowers the raw ECE), reason;
    `draws`: the metric's resamples by the same key."""

    results: pd.DataFrame
    draws: dict[tuple, np.ndarray]

    def differences(self, contrasts: Iterable[tuple[tuple, tuple]], metric: str = "ece") -> pd.DataFrame:
        """For pairs of (estimator, method): value of the first minus that of the second, its 95% interval, and in
        which share of resamples the first is lower (an equal one counts half)."""
        values = self.results.set_index(KEY).value
        rows = []
        for one, other in contrasts:
            for pair in dict.fromkeys(key[:2] for key in self.draws):
                first, second = (*pair, *one, metric), (*pair, *other, metric)
                if first in self.draws and second in self.draws:
                    gap = self.draws[first] - self.draws[second]
                    low, high = np.percentile(gap, [2.5, 97.5])
                    lower = float(np.mean(gap < 0) + np.mean(gap == 0) / 2)
                    rows.append((*pair, *one, *other, values[first] - values[second], low, high, lower))
        columns = [*KEY[:4], "than", "than_method", "difference", "low", "high", "lower"]
        return pd.DataFrame(rows, columns=columns)


def _wide(pair: tuple, part: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Scores, a column per (estimator, method), and correctness, over the same rows."""
    scores = part.pivot(index="example_id", columns=["estimator", "method"], values="confidence")
    scores = scores[list(dict.fromkeys(zip(part.estimator, part.method, strict=True)))]
    if scores.isna().any(axis=None):
        name = " ".join(scores.columns[scores.isna().any()][0])
        raise ValueError(f"{' / '.join(pair)}: not every row has a score of {name.strip()}")
    return scores, part.drop_duplicates("example_id").set_index("example_id").correct.loc[scores.index].to_numpy()


def bootstrap(
    frame: pd.DataFrame, bins: int = 10, closed: str = "right", resamples: int = 5000, seed: int = 0
) -> Bootstrap:
    """Point estimate and 95% percentile interval of every metric, on the evaluation rows of a confidence frame
    with column `method` ("" for raw scores)."""
    rows, draws = [], {}
    for pair, part in frame[frame.split == "evaluation"].groupby(["model", "dataset"], sort=False):
        scores, correct = _wide(pair, part)
        found = distributions(scores.to_numpy(), correct, bins, closed, resamples, seed)
        given = dict(iter(part.groupby(["estimator", "method"], sort=False)))
        given["", ""] = part.drop_duplicates("example_id")
        raw = {who[0]: METRICS["ece"](p.confidence, p.correct, bins, closed) for who, p in given.items() if not who[1]}
        for metric, table in found.items():
            for j, who in enumerate(scores.columns if METRICS[metric].scored else [("", "")]):
                value = METRICS[metric](given[who].confidence, given[who].correct, bins, closed)
                low, high = np.percentile(table[:, j], [2.5, 97.5])
                draws[*pair, *who, metric] = table[:, j]
                relative = 1 - value / raw[who[0]] if metric == "ece" and who[1] and raw.get(who[0]) else pd.NA
                rows.append((*pair, *who, metric, value, low, high, relative, ""))
    results = pd.DataFrame(rows, columns=[*KEY, "value", "low", "high", "relative", "reason"])
    return Bootstrap(results.astype({"relative": "Float64"}), draws)
