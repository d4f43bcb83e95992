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

from lib.score.metrics import decompose_brier, ece, measure
from lib.score.reliability import bin_index
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

    Examples
    --------
    >>> frame = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 0.75]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="seq_avg")
    >>> evaluate(frame.assign(correct=[False, True]))[["estimator", "metric", "value", "n"]].head(2)
      estimator metric  value  n
    0              acc    0.5  2
    1   seq_avg    ece  0.375  2
    """
    by = [name for name in ("estimator", "method") if name in frame]
    rows: list[tuple] = []
    for pair, part in frame[frame.split == split].groupby(PAIR, sort=False):
        if "acc" in names:
            everyone = part.drop_duplicates("example_id")
            result = evaluate_scores("acc", everyone, n_bins, resamples, seed)
            rows.append((*pair, *[""] * len(by), *result))
        for key, scores in part.groupby(by, sort=False):
            for name in names:
                if name != "acc":
                    result = evaluate_scores(name, scores, n_bins, resamples, seed)
                    rows.append((*pair, *key, *result))
    columns = [*PAIR, *by, "metric", "value", "n", "low", "high"]
    results = pd.DataFrame(rows, columns=columns).astype({"value": "Float64"})
    interval = results[["low", "high"]].astype(float)
    results = results.drop(columns=["low", "high"])
    results["reason"] = np.where(results.value.isna(), "one class only", "")  # AUROC
    if "method" in by:
        results = add_relative_gain(results)
    return results.join(interval) if resamples else results


def evaluate_scores(
    name: str, scores: pd.DataFrame, n_bins: int, resamples: int, seed: int
) -> tuple:
    """Return the name, the value, the number of rows and the interval (NaN without resamples) of a
    metric of one estimator's scores.

    Examples
    --------
    >>> scores = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 1], "correct": [0, 1]})
    >>> name, value, n, low, high = evaluate_scores("brier", scores, 10, resamples=100, seed=0)
    >>> float(value), n, float(low), float(high)
    (0.125, 2, 0.0, 0.25)
    """
    low = high = np.nan
    if resamples:
        scores = scores.sort_values("example_id")  # so the order of rows moves no draw
    c = scores.confidence.to_numpy()
    y = scores.correct.to_numpy()
    if resamples:
        resampled = resample_metric(name, c, y, n_bins, resamples, seed)
        low, high = percentile_interval(resampled)
    return name, measure(name, c, y, n_bins), len(scores), low, high


def add_relative_gain(results: pd.DataFrame) -> pd.DataFrame:
    """Return results with `relative`, the share by which a method lowers the raw ECE; missing
    elsewhere.

    Examples
    --------
    >>> cell = {"model": "m", "dataset": "d", "estimator": "seq_avg", "metric": "ece"}
    >>> results = pd.DataFrame([cell | {"method": "", "value": 0.5}, cell | {"method": "isotonic",
    ...     "value": 0.25}])
    >>> add_relative_gain(results.astype({"value": "Float64"})).relative.tolist()
    [<NA>, 0.5]
    """
    errors = results[results.metric == "ece"]
    is_raw = errors["method"] == ""
    raw = errors[is_raw & (errors.value > 0)].set_index(SCORE_CELL).value
    before = raw.reindex(pd.MultiIndex.from_frame(errors[SCORE_CELL])).array
    gain = 1 - errors.value / before
    return results.assign(relative=gain.where(~is_raw))


def ablate_bins(
    frame: pd.DataFrame, n_bins_ablation: Iterable[int], names: Collection[str]
) -> pd.DataFrame:
    """Run `evaluate` for each number of bins, given in column `bins` (`tab:bin_ablation`).

    Examples
    --------
    >>> frame = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 0.75]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="seq_avg")
    >>> ablate_bins(frame.assign(correct=[0, 1]), [1, 10], ["ece"])[["bins", "value"]]
       bins  value
    0     1  0.125
    1    10  0.375
    """
    parts = [evaluate(frame, n_bins, names=names).assign(bins=n_bins) for n_bins in n_bins_ablation]
    return pd.concat(parts, ignore_index=True)


# ---- the bootstrap


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


# ---- what chance alone gives


def draw_chance_errors(
    confidence: Any, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> np.ndarray:
    """Return the ECE that these scores would have if they were perfectly calibrated, (draws,).

    Each draw takes the outcome of every row from its confidence: right with probability c. In a bin
    with rows B, the sum of c - outcome then has mean 0 and variance sum c (1 - c) over B, so the
    ECE is about sqrt(2 / pi) / n times the sum of sqrt(sum c (1 - c)) over bins, and not 0. The
    fewer bins hold rows, the lower.

    Examples
    --------
    >>> draw_chance_errors([0.5], draws=3)  # right or wrong, one row is off by a half
    array([0.5, 0.5, 0.5])
    """
    scores = np.asarray(confidence)
    member = np.eye(n_bins)[bin_index(scores, n_bins)]
    c = scores.astype(float)
    rng = np.random.default_rng([seed, c.size])
    errors = []
    for size in block_sizes(c.size, draws):
        right = rng.random((size, c.size)) < c
        gaps = np.abs((right - c) @ member)
        errors.append(gaps.sum(axis=1) / c.size)
    return np.concatenate(errors)


def compare_with_chance(
    frame: pd.DataFrame, n_bins: int = 10, draws: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return the ECE of every estimator and method beside what chance alone gives; arguments as for
    `draw_chance_errors`.

    Columns: RESULT_KEYS, value, n, and of `draw_chance_errors` the mean (`chance`) and the 95%
    point (`chance_high`). `calibrated`: whether the value is no higher than that point, so that it
    cannot be told from calibrated scores.

    Examples
    --------
    >>> frame = pd.DataFrame({"confidence": [0.5, 0.5], "correct": [True, False]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="e", method="")
    >>> compare_with_chance(frame, draws=10)[["value", "n", "chance_high", "calibrated"]]
       value  n  chance_high  calibrated
    0    0.0  2          0.5        True
    """
    rows = []
    for key, part in evaluation_rows(frame).groupby(SCORE, sort=False):
        c = part.confidence.to_numpy()
        value = ece(c, part.correct, n_bins)
        by_chance = draw_chance_errors(c, n_bins, draws, seed)
        high = np.percentile(by_chance, 95)
        calibrated = value <= high + ROUNDING
        row = dict(zip(SCORE, key, strict=True)) | {"metric": "ece", "value": value, "n": len(c)}
        row |= {"chance": by_chance.mean(), "chance_high": high, "calibrated": calibrated}
        rows.append(row)
    columns = [*RESULT_KEYS, "value", "n", "chance", "chance_high", "calibrated"]
    return pd.DataFrame(rows, columns=columns)


# ---- beside a constant


def smoothed_base_rate(correct: Any) -> float:
    """Return (right + 1) / (n + 2), the constant learned from n calibration rows; 1/2 without
    rows.

    Examples
    --------
    >>> smoothed_base_rate([True, True, False])
    0.6
    """
    return float((np.sum(correct) + 1) / (len(correct) + 2))


def add_base_rate(raw: pd.DataFrame, calibrated: pd.DataFrame) -> pd.DataFrame:
    """Append each pair's BASE, computed from the calibration rows of `raw`, to `calibrated`
    (evaluation rows, with column `method`).

    Examples
    --------
    >>> raw = pd.DataFrame({"split": ["calibration", "evaluation"], "example_id": ["a", "b"]})
    >>> raw = raw.assign(model="m", dataset="d", estimator="e", confidence=0.5, correct=True)
    >>> add_base_rate(raw, raw[1:].assign(method=""))[["estimator", "confidence"]]
      estimator  confidence
    0         e    0.500000
    1      base    0.666667
    """
    parts = [calibrated]
    for _, rows in raw.drop_duplicates([*PAIR, "split", "example_id"]).groupby(PAIR, sort=False):
        constant = smoothed_base_rate(calibration_rows(rows).correct)
        parts.append(evaluation_rows(rows).assign(estimator=BASE, method="", confidence=constant))
    return pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore")


def compare_with_base_rate(
    frame: pd.DataFrame, n_bins: int = 10, resamples: int = 5000, seed: int = 0
) -> pd.DataFrame:
    """Return `evaluate` by the COMPARED metrics, with intervals of raw scores, and
    `decompose_brier`.

    Columns: RESULT_KEYS, value, low, high, n, reason.

    Examples
    --------
    >>> frame = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 1], "correct": [0, 1]})
    >>> frame = frame.assign(model="m", dataset="d", split="evaluation", estimator="e", method="")
    >>> compared = compare_with_base_rate(frame, resamples=10)
    >>> compared[["metric", "value"]].head(3)
         metric  value
    0       ece   0.25
    1  ece_mass   0.25
    2     brier  0.125
    """
    raw = frame["method"] == ""
    with_intervals = evaluate(frame[raw], n_bins, names=COMPARED, resamples=resamples, seed=seed)
    parts = [with_intervals, evaluate(frame[~raw], n_bins, names=COMPARED)]
    for key, part in frame.groupby(SCORE, sort=False):
        brier_parts = pd.Series(decompose_brier(part.confidence, part.correct), name="value")
        rows = brier_parts.rename_axis("metric").reset_index()
        rows[SCORE] = key
        parts.append(rows.assign(n=len(part), reason=""))
    order = frame[SCORE].drop_duplicates()
    compared = order.merge(pd.concat(parts), on=SCORE)
    compared = compared.astype({"low": "Float64", "high": "Float64"})
    return compared[[*RESULT_KEYS, "value", "low", "high", "n", "reason"]]
