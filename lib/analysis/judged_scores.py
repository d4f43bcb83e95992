"""What a table of scores with labels says of each of its columns: 10_judge.

Raw figures use every row. Calibrators are fitted on one half of the rows and judged on the other,
beside the raw scores of that half; those that are kept as files are fitted on every row. Rows of
one group lie in one half, and are resampled together.
"""

import warnings
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import LinAlgWarning
from sklearn.base import clone

from lib import store
from lib.analysis.group_resamples import DrawnNumber, draw_group_counts, measure_drawn
from lib.analysis.resampled_scores import measure_refitted
from lib.calibrate.fit_methods import Fit
from lib.calibrate.from_confidence import FROM_CONFIDENCE, list_calibrators
from lib.calibrate.refitting import REFITS, predict_by_each, refit
from lib.params import TableJudgment
from lib.random_streams import stream_seed
from lib.score.baselines import ROUNDING, draw_chance_errors, smoothed_base_rate
from lib.score.bootstrap import percentile_interval
from lib.score.metrics import measure
from lib.score.score_files import ScoreTable

METRICS = ("ece", "brier", "mcb", "dsc", "auroc")
COMPARED = ("ece", "brier", "auroc")  # between columns, and before and after calibration
CONSTANT = "constant"  # beside the names of METHODS
# for a figure that says something, rows or groups of them: intervals that resample 5 groups held a
# true Brier score in 83 of 100 simulated tables, of 10 groups in 90, of 30 in 93
MIN_ROWS = 30
MIN_OF_CLASS = 10


def mark_first_half(groups: pd.Series, seed: int) -> np.ndarray:
    """Mark the rows on which calibrators are fitted, (n,): whole groups in random order, of which
    the middle lies in the first half of the rows.

    Examples
    --------
    >>> mark_first_half(pd.Series(["a", "b", "a", "b"]), seed=0)
    array([ True, False,  True, False])
    """
    sizes = groups.value_counts()
    order = sorted(sizes.index, key=lambda name: stream_seed(seed, "halves", name))
    sizes = sizes[order]
    middle = sizes.cumsum() - sizes / 2
    is_first = middle < len(groups) / 2
    return groups.map(is_first).to_numpy(bool)


def warn_of_few_rows(rows: pd.DataFrame) -> str:
    """Say what is missing before a table's figures say much; nothing if they do.

    `rows` are those of a table: `correct`, and the `group` of each.

    Examples
    --------
    >>> rows = pd.DataFrame({"correct": [True] * 40 + [False] * 3, "group": range(43)})
    >>> warn_of_few_rows(rows)
    'only 3 wrong answers: label 7 more'
    >>> warn_of_few_rows(rows.assign(group=rows.group % 5))
    'only 5 groups: label 25 more'
    """
    counts = [
        (len(rows), "rows", MIN_ROWS),
        (rows.group.nunique(), "groups", MIN_ROWS),
        (rows.correct.sum(), "right answers", MIN_OF_CLASS),
        ((~rows.correct).sum(), "wrong answers", MIN_OF_CLASS),
    ]
    for count, kind, least in counts:
        if count < least:
            return f"only {count} {kind}: label {least - count} more"
    return ""


# ---- raw scores


class RawNumbers(NamedTuple):
    """Every column's METRICS on all rows.

    `results` has column, metric, value, low, high, n; of an ECE also what chance gives (`chance`,
    `chance_high`, `calibrated`). `differences` has column, than, metric, difference, low, high:
    paired, the first minus the second.
    """

    results: pd.DataFrame
    differences: pd.DataFrame


def judge_raw(table: ScoreTable, settings: TableJudgment) -> RawNumbers:
    """Measure every column of a table on all rows."""
    correct = table.rows.correct.to_numpy(float)
    by_column: dict[str, dict[str, DrawnNumber]] = {}
    rows = []
    for name, column in table.scores.items():
        confidence = column.to_numpy()
        by_column[str(name)] = measure_drawn(
            confidence,
            correct,
            table.rows.group.tolist(),
            METRICS,
            settings.bins,
            settings.resamples,
            settings.seed,
        )
        for metric, number in by_column[str(name)].items():
            low, high = number.interval
            row = {"column": name, "metric": metric, "value": number.value}
            row |= {"low": low, "high": high, "n": len(correct)}
            if metric == "ece":
                row |= compare_ece_with_chance(confidence, number.value, settings)
            rows.append(row)
    return RawNumbers(pd.DataFrame(rows), compare_columns(by_column))


def compare_ece_with_chance(
    confidence: np.ndarray, value: float, settings: TableJudgment
) -> dict[str, Any]:
    """Return what chance gives to calibrated scores like these, and whether an ECE is within it."""
    errors = draw_chance_errors(confidence, settings.bins, settings.resamples, settings.seed)
    high = np.percentile(errors, 95)
    is_calibrated = bool(value <= high + ROUNDING)
    return {"chance": errors.mean(), "chance_high": high, "calibrated": is_calibrated}


def compare_columns(by_column: dict[str, dict[str, DrawnNumber]]) -> pd.DataFrame:
    """Return the `differences` of `RawNumbers`, a row per two columns and metric."""
    rows = []
    for first, second in combinations(by_column, 2):
        for metric in COMPARED:
            of_first = by_column[first][metric]
            of_second = by_column[second][metric]
            low, high = percentile_interval(of_first.draws - of_second.draws)
            rows.append((first, second, metric, of_first.value - of_second.value, low, high))
    columns = ["column", "than", "metric", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


# ---- after calibration


class CalibratedNumbers(NamedTuple):
    """The columns of the second half, raw and after each method that was fitted on the first.

    `results`: column, method ("" for raw), metric, value, low, high, n, and how much it differs
    from raw (`difference`, `difference_low`, `difference_high`). In each draw the calibrators are
    fitted again to resampled rows of the first half. `scores`: id, column, method, confidence and
    correct of each row.
    """

    results: pd.DataFrame
    scores: pd.DataFrame


def judge_calibrated(table: ScoreTable, settings: TableJudgment) -> CalibratedNumbers:
    """Fit every method to the first half of a table, and measure it on the second."""
    is_first = mark_first_half(table.rows.group, settings.seed)
    old = table.rows[is_first]
    new = table.rows[~is_first]
    fit_counts = count_refits(old, stream_seed(settings.seed, "refits"), settings)
    counts = count_refits(new, settings.seed, settings)
    results = []
    scores = []
    for name, column in table.scores.items():
        half = Half(column[is_first].to_numpy(), old.correct.to_numpy(float), fit_counts)
        methods = list(calibrate_half(half, column[~is_first].to_numpy()))
        numbers = measure_methods(methods, new.correct.to_numpy(float), counts, settings)
        results.append(numbers.assign(column=name))
        for method in methods:
            rows = new[["id", "correct"]].assign(column=name, method=method.name)
            scores.append(rows.assign(confidence=method.confidence))
    return CalibratedNumbers(
        pd.concat(results, ignore_index=True), pd.concat(scores, ignore_index=True)
    )


def count_refits(rows: pd.DataFrame, seed: int, settings: TableJudgment) -> np.ndarray:
    """Return how often each row of a half is in each resample of its groups, (refits, n)."""
    refits = min(REFITS, settings.resamples)
    blocks = draw_group_counts(rows.group.tolist(), refits, seed)
    return np.concatenate(list(blocks)).astype(int)


class MethodScores(NamedTuple):
    """The scores of the second half by one method, (n,), and by it fitted again, (refits, n)."""

    name: str
    confidence: np.ndarray
    refitted: np.ndarray


def measure_methods(
    methods: list[MethodScores], correct: np.ndarray, counts: np.ndarray, settings: TableJudgment
) -> pd.DataFrame:
    """Return the `results` of `CalibratedNumbers` of one column, whose first method is raw."""
    rows = []
    for metric in COMPARED:
        raw_value = measure(metric, methods[0].confidence, correct, settings.bins)
        raw_draws = measure_refitted(metric, methods[0].refitted, correct, counts, settings.bins)
        for method in methods:
            value = float(measure(metric, method.confidence, correct, settings.bins))
            draws = measure_refitted(metric, method.refitted, correct, counts, settings.bins)
            low, high = percentile_interval(draws)
            row = {"method": method.name, "metric": metric, "value": value}
            row |= {"low": low, "high": high, "n": len(correct), "difference": value - raw_value}
            low, high = percentile_interval(draws - raw_draws)
            row |= {"difference_low": low, "difference_high": high}
            if metric == "ece":
                row |= compare_ece_with_chance(method.confidence, value, settings)
            rows.append(row)
    return pd.DataFrame(rows)


class Half(NamedTuple):
    """A column's rows on which calibrators are fitted, and how often each is in each resample."""

    confidence: np.ndarray
    correct: np.ndarray
    counts: np.ndarray


def calibrate_half(half: Half, new: np.ndarray) -> Iterator[MethodScores]:
    """Yield the scores of new rows: raw, after each method, and the constant.

    scikit-learn warns of resampled rows that it fits by another solver.
    """
    refits = len(half.counts)
    yield MethodScores("", new, np.broadcast_to(new, (refits, len(new))))
    for method, kind, calibrator in list_calibrators():
        old = FROM_CONFIDENCE[kind](half.confidence)
        others = FROM_CONFIDENCE[kind](new)
        with warnings.catch_warnings(action="ignore", category=LinAlgWarning):
            fitted = clone(calibrator).fit(old, half.correct)
            by_resample = refit(calibrator, old, half.correct, half.counts)
            refitted = predict_by_each(by_resample, others)
        yield MethodScores(method.name, fitted.predict(others), refitted)
    constant = smoothed_base_rate(half.correct)
    rates = smoothed_base_rate(half.correct, half.counts)
    refitted = np.repeat(rates[:, None], len(new), axis=1)
    yield MethodScores(CONSTANT, np.full(len(new), constant), refitted)


def fit_on_all_rows(table: ScoreTable) -> list[Fit]:
    """Return the calibrators of every column, fitted on every row."""
    fits = []
    correct = table.rows.correct.to_numpy(float)
    for name, column in table.scores.items():
        for method, kind, calibrator in list_calibrators():
            fitted = calibrator.fit(FROM_CONFIDENCE[kind](column.to_numpy()), correct)
            fits.append(Fit(("", table.name), str(name), method, kind, fitted))
    return fits


# ---- stored


def describe_score_table(table: ScoreTable) -> dict[str, Any]:
    """Return what a calibrator's file says of the rows that it was fitted on."""
    return {"table": table.name, "sha256": table.sha256}


def store_judgment(
    run: str, frames: dict[str, pd.DataFrame], table: ScoreTable, settings: TableJudgment
) -> None:
    """Write frames to artifacts/<run>/judged/; their manifests tell the table and the settings."""
    for name, frame in frames.items():
        store.write_frame(
            frame,
            store.frame_path(run, "judged", name),
            parameters=settings.model_dump(mode="json"),
            inputs={table.name: table.sha256},
        )
