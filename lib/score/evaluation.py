"""Metrics over frames of scores: each estimator, and each method, on each pair."""

from collections.abc import Collection, Iterable

import numpy as np
import pandas as pd

from lib.score.bootstrap import percentile_interval, resample_metric
from lib.score.metrics import measure
from lib.store import PAIR, SCORE_CELL

RESULT_KEYS = [*SCORE_CELL, "method", "metric"]
SCORE = RESULT_KEYS[:4]
RESULT_METRICS = ("acc", "ece", "mce", "brier", "auroc")
RESAMPLED = ("acc", "brier", "ece", "mce")  # with intervals in the paper


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
    of_no_estimator = [""] * len(by)
    of_scores = [name for name in names if name != "acc"]
    of_split = frame[frame.split == split]
    rows: list[tuple] = []
    for pair, part in of_split.groupby(PAIR, sort=False):
        if "acc" in names:
            everyone = part.drop_duplicates("example_id")
            result = evaluate_scores("acc", everyone, n_bins, resamples, seed)
            rows.append((*pair, *of_no_estimator, *result))
        for key, scores in part.groupby(by, sort=False):
            for name in of_scores:
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
    value = measure(name, c, y, n_bins)
    return name, value, len(scores), low, high


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
    positive = errors[is_raw & (errors.value > 0)]
    raw = positive.set_index(SCORE_CELL).value
    cells = pd.MultiIndex.from_frame(errors[SCORE_CELL])
    before = raw.reindex(cells).array
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
    parts = []
    for n_bins in n_bins_ablation:
        results = evaluate(frame, n_bins, names=names)
        parts.append(results.assign(bins=n_bins))
    return pd.concat(parts, ignore_index=True)
