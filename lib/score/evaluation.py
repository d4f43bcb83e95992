"""Metrics over frames of scores, with what they are held against: resamples, pairs, chance, a
constant.

A bootstrap resample is the number of times each evaluation row was drawn, so the metrics take many
resamples at once as weights of rows. All scores of equally many rows share the draws, so
differences on the same rows are paired. Calibrators are not fitted again, as in the paper;
`lib.analysis.resampled_scores` does so.

A constant at the base rate is nearly calibrated and uninformative (arXiv 2606.07822). So
comparisons include it as an estimator, BASE.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from lib.score.metrics import bin_index, decompose_brier, ece, measure
from lib.store import PAIR, SCORE_CELL, calibration_rows, evaluation_rows

RESULT_KEYS = [*SCORE_CELL, "method", "metric"]
SCORE = RESULT_KEYS[:4]
RESULT_METRICS = ("acc", "ece", "mce", "brier", "auroc")
RESAMPLED = ("acc", "brier", "ece", "mce")  # with intervals in the paper
COMPARED = ("ece", "ece_mass", "brier", "log_loss", "auroc", "augrc")  # with a constant
BASE = "base"  # the constant, in the column `estimator`
MAX_COUNTS = 2**22  # counts in memory: 32 MB
ROUNDING = 1e-12  # of a sum, where errors of one bin are multiples of 1 / n


def evaluate(
    frame: pd.DataFrame,
    n_bins: int = 10,
    split: str = "evaluation",
    names: Collection[str] = RESULT_METRICS,
    resamples: int = 0,
    seed: int = 0,
) -> pd.DataFrame:
    """Evaluate every estimator of a confidence frame, and every method if it has that column, on
    one split.

    Parameters
    ----------
    frame : DataFrame
        From `confidence_frame`, or with a column `method` ("" for raw scores) from
        `fit_methods.calibrate`.
    n_bins
        As for `ece`.
    split : {"evaluation", "calibration"}
    names : collection of str
        Of METRICS.
    resamples, seed
        For 95% intervals, as for `resample_metric`; none by default.

    Returns
    -------
    DataFrame
        model, dataset, estimator (and method), metric, value, n (rows), and reason. The accuracy
        has a row per pair, of estimator "". A value that cannot be computed is missing (NA), and
        `reason` explains it. With methods, also `relative`, the share by which a method lowers the
        raw ECE. With resamples, also `low` and `high`.
    """
    by = [name for name in ("estimator", "method") if name in frame]
    rows: list[tuple] = []
    ends: list[np.ndarray] = []
    for pair, part in frame[frame.split == split].groupby(PAIR, sort=False):
        everyone = ("",) * len(by), part.drop_duplicates("example_id")
        for key, scores in [everyone, *part.groupby(by, sort=False)]:
            c, y = (
                columns_in_order(scores)
                if resamples
                else (scores.confidence.to_numpy(), scores.correct.to_numpy())
            )
            for name in [name for name in names if (name == "acc") == (key[0] == "")]:
                rows.append((*pair, *key, name, measure(name, c, y, n_bins), len(scores)))
                if resamples:
                    ends.append(
                        percentile_interval(resample_metric(name, c, y, n_bins, resamples, seed))
                    )
    results = pd.DataFrame(rows, columns=[*PAIR, *by, "metric", "value", "n"]).astype(
        {"value": "Float64"}
    )
    results["reason"] = np.where(results.value.isna(), "one class only", "")  # AUROC
    if "method" in by:
        results = add_relative_gain(results)
    if resamples:
        results[["low", "high"]] = np.reshape(ends, (-1, 2))
    return results


def columns_in_order(scores: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return confidence and correct, (n,) each, in the order of example_id: so the order of rows
    moves no draw."""
    rows = scores.sort_values("example_id")
    return rows.confidence.to_numpy(), rows.correct.to_numpy()


def add_relative_gain(results: pd.DataFrame) -> pd.DataFrame:
    """Return results with `relative`, the share by which a method lowers the raw ECE; missing
    elsewhere."""
    errors = results[results.metric == "ece"]
    raw = errors[(errors["method"] == "") & (errors.value > 0)].set_index(SCORE_CELL).value
    before = raw.reindex(pd.MultiIndex.from_frame(errors[SCORE_CELL])).array
    return results.assign(relative=(1 - errors.value / before).where(errors["method"] != ""))


def ablate_bins(
    frame: pd.DataFrame, n_bins_ablation: Iterable[int], names: Collection[str]
) -> pd.DataFrame:
    """Run `evaluate` for each number of bins, given in column `bins` (`tab:bin_ablation`)."""
    parts = [evaluate(frame, n_bins, names=names).assign(bins=n_bins) for n_bins in n_bins_ablation]
    return pd.concat(parts, ignore_index=True)


# ---- the bootstrap


def block_sizes(n: int, draws: int) -> Iterator[int]:
    """Yield numbers of draws of n rows each that fit into memory together, `draws` in total."""
    size = max(1, MAX_COUNTS // n)
    yield from (min(size, draws - start) for start in range(0, draws, size))


@lru_cache(maxsize=4)
def draw_resample_counts(n: int, resamples: int, seed: int) -> list[np.ndarray]:
    """Return how often each of n rows is in each resample, in blocks (b, n) with `resamples` rows
    in total."""
    rng = np.random.default_rng([seed, n])
    blocks = (rng.integers(0, n, (b, n)) for b in block_sizes(n, resamples))
    return [
        np.array([np.bincount(drawn, minlength=n) for drawn in block], np.uint16)
        for block in blocks
    ]


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
    """
    blocks = draw_resample_counts(len(confidence), resamples, seed)
    return np.concatenate([measure(name, confidence, correct, n_bins, block) for block in blocks])


def percentile_interval(drawn: np.ndarray) -> np.ndarray:
    """Return the 95% percentile interval, (2,); resamples in which the metric is undefined do not
    count."""
    known = drawn[~np.isnan(drawn)]
    return np.percentile(known, [2.5, 97.5]) if known.size else np.full(2, np.nan)


# ---- what chance alone gives


def draw_chance_errors(
    confidence: Any, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> np.ndarray:
    """Return the ECE that these scores would have if they were perfectly calibrated, (draws,).

    Each draw takes the outcome of every row from its confidence: right with probability c. In a bin
    with rows B, the sum of c - outcome then has mean 0 and variance sum c (1 - c) over B, so the
    ECE is about sqrt(2 / pi) / n times the sum of sqrt(sum c (1 - c)) over bins, and not 0. The
    fewer bins hold rows, the lower.
    """
    given = np.asarray(confidence)
    c, member = given.astype(float), np.eye(n_bins)[bin_index(given, n_bins)]
    rng = np.random.default_rng([seed, c.size])
    blocks = ((rng.random((b, c.size)) < c) - c for b in block_sizes(c.size, draws))
    return np.concatenate([np.abs(block @ member).sum(axis=1) / c.size for block in blocks])


def compare_with_chance(
    frame: pd.DataFrame, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return the ECE of every estimator and method beside what chance alone gives; arguments as for
    `draw_chance_errors`.

    Columns: RESULT_KEYS, value, n, and of `draw_chance_errors` the mean (`chance`) and the 95%
    point (`chance_high`). `calibrated`: whether the value is no higher than that point, so that it
    cannot be told from calibrated scores.
    """
    rows: list[tuple] = []
    for key, part in evaluation_rows(frame).groupby(SCORE, sort=False):
        c = part.confidence.to_numpy()
        drawn, value = draw_chance_errors(c, n_bins, draws, seed), ece(c, part.correct, n_bins)
        high = np.percentile(drawn, 95)
        rows.append((*key, "ece", value, len(c), drawn.mean(), high, value <= high + ROUNDING))
    return pd.DataFrame(
        rows, columns=[*RESULT_KEYS, "value", "n", "chance", "chance_high", "calibrated"]
    )


# ---- beside a constant


def base_rate(correct: Any) -> float:
    """Return (right + 1) / (n + 2), the constant learned from n calibration rows; 1/2 without
    rows."""
    return float((np.sum(correct) + 1) / (len(correct) + 2))


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> pd.DataFrame:
    """Append each pair's BASE, computed from the calibration rows of `raw`, to `calibrated`
    (evaluation rows, with column `method`)."""
    parts = [calibrated]
    for _, rows in raw.drop_duplicates([*PAIR, "split", "example_id"]).groupby(PAIR, sort=False):
        constant = base_rate(calibration_rows(rows).correct)
        parts.append(evaluation_rows(rows).assign(estimator=BASE, method="", confidence=constant))
    return pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore")


def compare_with_base_rate(
    frame: pd.DataFrame, n_bins: int = 10, resamples: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return `evaluate` by the COMPARED metrics, with intervals of raw scores, and
    `decompose_brier`.

    Columns: RESULT_KEYS, value, low, high, n, reason.
    """
    raw = frame["method"] == ""
    parts = [evaluate(frame[raw], n_bins, names=COMPARED, resamples=resamples, seed=seed)]
    parts.append(evaluate(frame[~raw], n_bins, names=COMPARED))
    for key, part in frame.groupby(SCORE, sort=False):
        values = pd.Series(
            decompose_brier(part.confidence, part.correct), name="value"
        ).rename_axis("metric")
        parts.append(
            values.reset_index().assign(
                **dict(zip(SCORE, key, strict=True)), n=len(part), reason=""
            )
        )
    compared = frame[SCORE].drop_duplicates().merge(pd.concat(parts), on=SCORE)
    compared = compared.astype({"low": "Float64", "high": "Float64"})
    return compared[[*RESULT_KEYS, "value", "low", "high", "n", "reason"]]
