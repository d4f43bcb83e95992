"""The cases of a claim: scores compared on each model-dataset pair, rows of the paper's tables,
medians, and curves."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import OWN, Measure, Score, ScoredRows, draws_of
from lib.analysis.results import NUMBER_KEY, QUANTITIES, MissingFrameError, Results
from lib.calibrate.calibration_sets import Pair
from lib.paper.claim import OPEN, NotJudgedError, decide, decide_by_number
from lib.score.bootstrap import percentile_interval
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

WORDS = ["estimator", "method", "source_model", "source_dataset"]

# ---- a case for each pair

Case = dict[str, Any]
Margin = Callable[[Any], Any]  # of an object with a number, or its draws, by name


def make_case(numbers: Mapping[str, Any], margin: float, low: float, high: float) -> Case:
    """Return a case that agrees if its margin is above 0, by its interval (or without: NaN)."""
    outcome = decide(margin, low, high)
    return {**numbers, "margin": margin, "low": low, "high": high, "outcome": outcome}


def as_frame(cases: Sequence[Case], columns: Sequence[str]) -> pd.DataFrame:
    """Return cases as a frame with these columns and those of `make_case`."""
    return pd.DataFrame(cases, columns=[*columns, "margin", "low", "high", "outcome"])


def collect_pair_cases(
    results: Results, case_of: Callable[[Pair], Case | None], columns: Sequence[str]
) -> pd.DataFrame:
    """Return the case of each pair that has one, with PAIR and these columns."""
    cases = []
    for pair in product(results.models, results.datasets):
        case = case_of(pair)
        if case is not None:
            cases.append(dict(zip(PAIR, pair, strict=True)) | case)
    return as_frame(cases, [*PAIR, *columns])


# ---- comparing scores


def error_of(*estimators: str) -> dict[str, Measure]:
    """Return the measures of the raw ECE of these estimators, by name."""
    return measure_of("ece", *estimators)


def measure_of(metric: str, *estimators: str) -> dict[str, Measure]:
    """Return the measures of a metric of the raw scores of these estimators, by name."""
    return {name: Measure(Score(name), metric) for name in estimators}


def compare(results: Results, margin: Margin, measures: Mapping[str, Measure]) -> pd.DataFrame:
    """Return a case for each pair: it agrees if the margin of these numbers is above 0.

    Parameters
    ----------
    results : Results
    margin : function
        Of an object with a number for each name, and likewise of their draws.
    measures : dict of Measure
        By name. Columns of the cases have these names.

    Returns
    -------
    DataFrame
        PAIR, the numbers, `margin`, the ends `low` and `high` of its interval, `outcome`.
    """

    def case_of(pair: Pair) -> Case | None:
        return compare_on_pair(results, pair, margin, measures)

    return collect_pair_cases(results, case_of, list(measures))


def compare_on_pair(
    results: Results, pair: Pair, margin: Margin, measures: Mapping[str, Measure]
) -> Case | None:
    """Return the case of one pair as for `compare`, without its key; None without its numbers.

    A comparison of errors is open if each lies within what chance gives to calibrated scores.
    """
    if results.scores is None:
        printed = {name: printed_value(results, pair, one) for name, one in measures.items()}
        difference = margin(SimpleNamespace(**printed))
        if np.isnan(difference):
            return None
        return make_case(printed, difference, np.nan, np.nan)
    numbers = results.scores.compare(pair, measures)
    if numbers is None:
        return None
    values = {name: number.value for name, number in numbers.items()}
    difference = margin(SimpleNamespace(**values))
    if np.isnan(difference):
        return None
    low, high = percentile_interval(margin(SimpleNamespace(**draws_of(numbers))))
    case = make_case(values, difference, low, high)
    if len(numbers) > 1 and all(number.within_chance for number in numbers.values()):
        case["outcome"] = OPEN
    return case


def printed_value(results: Results, pair: Pair, measure: Measure) -> float:
    """Return a number from the tables of results without rows; NaN if it is not among them.

    Raise MissingFrameError if the table is missing, or prints no such metric.
    """
    score, metric = measure
    if score.source != OWN or metric != "ece" or score.estimator not in ESTIMATORS:
        raise MissingFrameError("scores")
    if score.method == "isotonic":
        table = "result_isotonic"
    elif score.method:
        table = "result_calibration"
    elif score.estimator == "p_true_insitu":
        table = "insitu_ptrue"
    else:
        table = "result_estimation"
    if not results.has_frame(table):
        raise MissingFrameError(table)
    return results.printed_errors.get((table, *pair, score.estimator, score.method), np.nan)


def rows_of_score(results: Results, pair: Pair, estimator: str) -> ScoredRows | None:
    """Return the evaluation rows of a raw score of a pair; None if it has none. Raise
    MissingFrameError without rows."""
    if results.scores is None:
        raise MissingFrameError("scores")
    return results.scores.scores.get(pair, {}).get(Score(estimator))


# ---- rows of results


def pivot(rows: pd.DataFrame, columns: str, values: str = "value") -> pd.DataFrame:
    """Return a row per pair and a column for each of `columns`."""
    wide = rows.pivot(index=PAIR, columns=columns, values=values)
    return wide.astype(float).rename_axis(columns=None)


def table_rows(results: Results, table: str, metric: str = "ece") -> pd.DataFrame:
    """Return the rows of a table with a metric; words that do not apply (`method` of a raw score)
    are "". Raise MissingFrameError if the table is missing."""
    rows = results.frame(table, metric=metric).reindex(columns=[*NUMBER_KEY, *QUANTITIES])
    rows = rows.astype(dict.fromkeys(QUANTITIES, float) | dict.fromkeys(WORDS, object))
    return rows.fillna(dict.fromkeys(WORDS, ""))


def hard_dataset(results: Results) -> str:
    """Return the dataset with the lowest accuracy. Raise MissingFrameError if there is only one
    dataset."""
    hardest = results.hardest_dataset
    if len(results.datasets) < 2:
        raise MissingFrameError("another dataset")
    return hardest


def compare_medians_with_hardest(results: Results, gain: pd.Series) -> pd.DataFrame:
    """Return one case: the median of a gain by pair on the hardest dataset (`hard`), and elsewhere.

    It agrees, by these numbers, if the gain on the hardest dataset is positive, and the larger one.
    """
    is_hard = gain.index.get_level_values("dataset") == hard_dataset(results)
    hard, elsewhere = gain[is_hard].median(), gain[~is_hard].median()
    case = pd.DataFrame([{"hard": hard, "elsewhere": elsewhere}])
    return decide_by_number(case, (case.hard > case.elsewhere) & (case.hard > 0))


# ---- curves


def compare_with_all_passes(curves: pd.DataFrame, first: int, share: float) -> pd.DataFrame:
    """Return the last value of each curve, and how far it is off before, from the `first` pass on.

    It agrees within a `share` of the last value. `drift` is missing if there is nothing to compare.
    """
    after_all = curves.iloc[:, -1]
    before = curves.loc[:, first:].iloc[:, :-1]
    drift = before.sub(after_all, axis=0).abs().max(axis=1)
    cases = pd.DataFrame({"after_all": after_all, "drift": drift})
    return decide_by_number(cases, drift <= share * after_all)


def need_own_masks(results: Results) -> None:
    """Raise NotJudgedError if all questions share dropout masks: one draw decides each curve."""
    if results.shared_masks:
        raise NotJudgedError("all questions share masks")
