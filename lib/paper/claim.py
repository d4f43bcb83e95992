"""What a claim of the paper is: a quotation, a word for how many cases must agree, and a function
that returns the cases.

A case is a model-dataset pair, say. It agrees, disagrees, or is open. Where the rows are at hand,
the paired 95% interval of a difference decides: `compare` and `decide`. The paper's printed numbers
have no rows, so there the number decides, as it does for claims about medians, shares and curves.
A case whose number is missing is left out. A function raises MissingFrame if the results lack what
it needs, and NotJudged if what they have cannot decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import OWN, Measure, Score, draws_of
from lib.analysis.result_tables import NUMBER_KEY, QUANTITIES, MissingFrame, Results
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import percentile_interval
from lib.store import PAIR

AGREES, OPEN, DISAGREES = "agrees", "open", "disagrees"  # of a case: the column `outcome`
WORDS = ["estimator", "method", "source_model", "source_dataset"]
# condition of each word on the agreeing cases
QUANTIFIERS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {
    "all": ("every case", lambda count, total: count == total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": (
        "more than half, also for claims without a quantity",
        lambda count, total: count > 0.5 * total,
    ),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one number that the text states", lambda count, total: count == total),
}
# What a word of the paper means where it gives no number: the same for every claim.
SUBSTANTIALLY = 0.8  # lower by at least a fifth
COMPARABLE = 1.25  # higher by at most a quarter
TIE = 1e-9  # "at most" holds for equal printed numbers


class NotJudged(Exception):
    """The rows of a run cannot decide a claim, for the reason given."""


@dataclass(frozen=True)
class Claim:
    """A claim and how it is counted: `count_cases` returns its cases, with their `outcome`.

    `counted` says in one sentence when a case agrees, `place` is the target that shows it, `unit`
    what is counted. `numbers` says what a count does not.
    """

    name: str
    counted: str
    place: str
    count_cases: Callable[[Results], pd.DataFrame]
    unit: str = "pairs"
    numbers: Callable[[pd.DataFrame], str] | None = None
    group: str = ""
    quote: str = ""
    quantifier: str = ""


def counted(
    sentence: str, place: str, **more: Any
) -> Callable[[Callable[[Results], pd.DataFrame]], Claim]:
    """Return a decorator that turns a function into a Claim of its name."""
    return lambda function: Claim(function.__name__, sentence, place, function, **more)


def quoted(group: str, quote: str, quantifier: str) -> Callable[[Claim], Claim]:
    """Return a decorator that adds the paper's words to a claim, and the heading below which they
    belong."""
    return lambda claim: replace(claim, group=group, quote=quote, quantifier=quantifier)


def format_cases(template: str) -> Callable[[pd.DataFrame], str]:
    """Return a function that writes the numbers of each case: "hard 0.137, elsewhere 0.013"."""
    return lambda cases: ", ".join(template.format(**case) for case in cases.to_dict("records"))


abstract, introduction = partial(quoted, "Abstract"), partial(quoted, "Introduction")
finding_1, finding_2, finding_3, finding_4 = (
    partial(quoted, f"Finding {number}") for number in (1, 2, 3, 4)
)
main_table, main_figure, in_situ_table = (
    partial(counted, place=place)
    for place in ("tab_result_estimation", "fig_main_analysis", "tab_insitu_ptrue")
)


# ---- the outcome of a case


def decide(margin: float, low: float = np.nan, high: float = np.nan) -> str:
    """Return the outcome of a case that agrees if a difference, its `margin`, is above 0.

    `low` and `high` are the ends of its 95% interval. Without them the margin itself decides. An
    interval that ends at 0 has no room for the claim.
    """
    if np.isnan(low):
        return AGREES if margin > 0 else DISAGREES
    if low > 0:
        return AGREES
    return DISAGREES if high <= 0 else OPEN


def by_number(cases: pd.DataFrame, agrees: Any) -> pd.DataFrame:
    """Return cases with the outcome that their number decides; without one, where it is missing."""
    outcome = pd.Series(np.where(agrees, AGREES, DISAGREES), cases.index, dtype=object)
    return cases.assign(outcome=outcome.where(cases.notna().all(axis=1)), by_number=True)


# ---- comparing scores

Margin = Callable[[Any], Any]  # of numbers by name, or of their draws


def error_of(*estimators: str) -> dict[str, Measure]:
    """Return the measures of the raw ECE of these estimators, by name."""
    return {name: Measure(Score(name)) for name in estimators}


def measure_of(metric: str, *estimators: str) -> dict[str, Measure]:
    """Return the measures of another metric of raw scores, by name."""
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
    cases = []
    for model in results.models:
        for dataset in results.datasets:
            case = compare_pair(results, (model, dataset), margin, measures)
            if case is not None:
                cases.append({"model": model, "dataset": dataset, **case})
    return as_cases(cases, [*PAIR, *measures])


def as_cases(cases: list[dict], columns: list[str]) -> pd.DataFrame:
    """Return cases as a frame with these columns and those of `compare_pair`."""
    return pd.DataFrame(cases, columns=[*columns, "margin", "low", "high", "outcome"])


def compare_pair(
    results: Results, pair: tuple[str, str], margin: Margin, measures: Mapping[str, Measure]
) -> dict[str, Any] | None:
    """Return the case of one pair as for `compare`, without its key; None without its numbers.

    A comparison of errors is open if each lies within what chance gives to calibrated scores.
    """
    if results.scores is None:
        values = {name: printed_value(results, pair, one) for name, one in measures.items()}
        margin_of_values = margin(SimpleNamespace(**values))
        if np.isnan(margin_of_values):
            return None
        outcome = decide(margin_of_values)
        return {
            **values,
            "margin": margin_of_values,
            "low": np.nan,
            "high": np.nan,
            "outcome": outcome,
        }
    numbers = results.scores.compare(pair, measures)
    if numbers is None:
        return None
    values = {name: number.value for name, number in numbers.items()}
    margin_of_values = margin(SimpleNamespace(**values))
    if np.isnan(margin_of_values):
        return None
    low, high = percentile_interval(margin(SimpleNamespace(**draws_of(numbers))))
    outcome = decide(margin_of_values, low, high)
    if len(numbers) > 1 and all(number.within_chance for number in numbers.values()):
        outcome = OPEN
    return {**values, "margin": margin_of_values, "low": low, "high": high, "outcome": outcome}


def printed_value(results: Results, pair: tuple[str, str], one: Measure) -> float:
    """Return a number from the tables of results without rows; NaN if it is not among them.

    Raise MissingFrame if the table is missing, or prints no such metric.
    """
    score, metric = one
    if score.source != OWN:
        raise MissingFrame("scores")
    if metric != "ece" or score.estimator not in ESTIMATORS:
        raise MissingFrame("scores")
    if score.method == "isotonic":
        table = "result_isotonic"
    elif score.method:
        table = "result_calibration"
    elif score.estimator == "p_true_insitu":
        table = "insitu_ptrue"
    else:
        table = "result_estimation"
    rows = table_rows(results, table, metric)
    key = dict(zip(PAIR, pair, strict=True), estimator=score.estimator, method=score.method)
    found = rows[(rows[list(key)] == list(key.values())).all(axis=1)]
    return float(found.value.iloc[0]) if len(found) else np.nan


# ---- rows of results


def pivot(
    rows: pd.DataFrame, columns: str, values: str = "value", index: list[str] = PAIR
) -> pd.DataFrame:
    """Return a row per `index` and a column for each of `columns`."""
    return (
        rows.pivot(index=index, columns=columns, values=values)
        .astype(float)
        .rename_axis(columns=None)
    )


def table_rows(results: Results, table: str, metric: str = "ece") -> pd.DataFrame:
    """Return the rows of a table with a metric; words that do not apply (`method` of a raw score)
    are "". Raise MissingFrame if the table is missing."""
    rows = results.frame(table, metric=metric).reindex(columns=[*NUMBER_KEY, *QUANTITIES])
    rows = rows.astype(dict.fromkeys(QUANTITIES, float) | dict.fromkeys(WORDS, object))
    return rows.fillna(dict.fromkeys(WORDS, ""))


def raw_errors(results: Results, *estimators: str) -> pd.DataFrame:
    """Return the raw ECE by pair, a column per estimator."""
    rows = table_rows(results, "result_estimation")
    return pivot(rows[rows.method == ""], "estimator").reindex(columns=estimators)


def hard_dataset(results: Results) -> str:
    """Return the dataset with the lowest accuracy. Raise MissingFrame if there is only one
    dataset."""
    hardest = results.hardest_dataset
    if len(results.datasets) < 2:
        raise MissingFrame("another dataset")
    return hardest


def compare_medians_with_hardest(results: Results, gain: pd.Series) -> pd.DataFrame:
    """Return one case: the median of a gain by pair on the hardest dataset (`hard`), and elsewhere.

    It agrees, by these numbers, if the gain on the hardest dataset is positive, and the larger one.
    """
    hard = gain.index.get_level_values("dataset") == hard_dataset(results)
    medians = pd.DataFrame([{"hard": gain[hard].median(), "elsewhere": gain[~hard].median()}])
    return by_number(medians, (medians.hard > medians.elsewhere) & (medians.hard > 0))


# ---- curves


def compare_with_all_passes(curves: pd.DataFrame, first: int, share: float) -> pd.DataFrame:
    """Return the last value of each curve, and how far it is off before, from the `first` pass on.

    It agrees within a `share` of the last value. `drift` is missing if there is nothing to compare.
    """
    after_all = curves.iloc[:, -1]
    drift = curves.loc[:, first:].iloc[:, :-1].sub(after_all, axis=0).abs().max(axis=1)
    return by_number(
        pd.DataFrame({"after_all": after_all, "drift": drift}), drift <= share * after_all
    )


def need_own_masks(results: Results) -> None:
    """Raise NotJudged if all questions share dropout masks: one draw of them decides each curve."""
    if results.shared_masks:
        raise NotJudged("all questions share masks")
