"""What a claim of the paper is: a quotation, a word for how many cases must agree, and a function that counts them.

The function returns a row per case (one model-dataset pair, say): the numbers compared, and whether the case `agrees`.
Cases with a missing number are left out by `verdicts.judge`. It raises MissingFrame if the results lack a frame.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from lib.analysis.results import NUMBER_KEY, QUANTITIES, MissingFrame, Results
from lib.store import PAIR

WORDS = ["estimator", "method", "source_model", "source_dataset"]
QUANTIFIERS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {  # condition of each word on the agreeing cases
    "all": ("every case", lambda count, total: count == total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": ("more than half, also for claims without a quantity", lambda count, total: count > 0.5 * total),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one number that the text states", lambda count, total: count == total),
}


@dataclass(frozen=True)
class Claim:
    """A claim and how it is counted: `count_cases` returns its cases.

    `counted` says in one sentence when a case agrees, `place` is the target that shows it, `unit` what is counted.
    `numbers` says what a count does not.
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


def counted(sentence: str, place: str, **more: Any) -> Callable[[Callable[[Results], pd.DataFrame]], Claim]:
    """Return a decorator that turns a function into a Claim: `seq_avg_below_answer` becomes SeqAvgBelowAnswer."""
    return lambda function: Claim(function.__name__.title().replace("_", ""), sentence, place, function, **more)


def quoted(group: str, quote: str, quantifier: str) -> Callable[[Claim], Claim]:
    """Return a decorator that adds the paper's words to a claim, and the heading below which they belong."""
    return lambda claim: replace(claim, group=group, quote=quote, quantifier=quantifier)


def format_cases(template: str) -> Callable[[pd.DataFrame], str]:
    """Return a function that writes the numbers of each case: "hard 0.137, elsewhere 0.013"."""
    return lambda cases: ", ".join(template.format(**case) for case in cases.to_dict("records"))


abstract, introduction = partial(quoted, "Abstract"), partial(quoted, "Introduction")
finding_1, finding_2, finding_3, finding_4 = (partial(quoted, f"Finding {number}") for number in (1, 2, 3, 4))
main_table, main_figure, in_situ_table = (
    partial(counted, place=place) for place in ("tab_result_estimation", "fig_main_analysis", "tab_insitu_ptrue")
)


# ---- rows of results


def pivot(rows: pd.DataFrame, columns: str, values: str = "value", index: list[str] = PAIR) -> pd.DataFrame:
    """Return a row per `index` and a column for each of `columns`."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float).rename_axis(columns=None)


def table_rows(results: Results, table: str, metric: str = "ece") -> pd.DataFrame:
    """Return the rows of a table with a metric; words that do not apply (`method` of a raw score) are "". Raise
    MissingFrame if the table is missing."""
    rows = results.frame(table, metric=metric).reindex(columns=[*NUMBER_KEY, *QUANTITIES])
    rows = rows.astype(dict.fromkeys(QUANTITIES, float) | dict.fromkeys(WORDS, object))
    return rows.fillna(dict.fromkeys(WORDS, ""))


def raw_errors(
    results: Results, *estimators: str, table: str = "result_estimation", metric: str = "ece"
) -> pd.DataFrame:
    """Return a metric of raw confidence by pair, a column per estimator."""
    rows = table_rows(results, table, metric)
    return pivot(rows[rows.method == ""], "estimator").reindex(columns=estimators)


def paired_errors(results: Results, *estimators: str, table: str = "result_estimation") -> pd.DataFrame:
    """Return the raw ECE by pair of these estimators on the same rows, a column per estimator.

    If some have fewer rows (dropout passes), the ECE of the others is on the shared rows (`ece_shared`).
    """
    errors, shared = (raw_errors(results, *estimators, table=table, metric=metric) for metric in ("ece", "ece_shared"))
    errors.update(shared[shared.isna().any(axis=1)])
    return errors


def hard_dataset(results: Results) -> str:
    """Return the dataset with the lowest accuracy. Raise MissingFrame if there is only one dataset."""
    hardest = results.hardest_dataset
    if len(results.datasets) < 2:
        raise MissingFrame("another dataset")
    return hardest


def compare_medians_with_hardest(results: Results, gain: pd.Series) -> pd.DataFrame:
    """Return one case: the median of a gain by pair on the hardest dataset (`hard`), and elsewhere.

    It agrees if the gain on the hardest dataset is positive, and the larger one.
    """
    hard = gain.index.get_level_values("dataset") == hard_dataset(results)
    medians = pd.DataFrame([{"hard": gain[hard].median(), "elsewhere": gain[~hard].median()}])
    return medians.assign(agrees=(medians.hard > medians.elsewhere) & (medians.hard > 0))


# ---- curves


def running_means(results: Results, first: float, last: float) -> pd.DataFrame:
    """Return the running means of right and wrong responses by pair, averaged over these positions, and their gap."""
    rows = results.frame("running_mean")
    means = rows[rows.position.between(first, last)].groupby([*PAIR, "correct"])["mean"].mean().unstack()
    means = means.reindex(columns=[True, False]).set_axis(["right", "wrong"], axis=1)
    return means.assign(gap=means.right - means.wrong)


def compare_with_all_passes(curves: pd.DataFrame, first: int, share: float) -> pd.DataFrame:
    """Return the last value of each curve, and how far it is off before, from the `first` pass on.

    It agrees within a `share` of the last value. `drift` is missing if there is nothing to compare.
    """
    after_all = curves.iloc[:, -1]
    drift = curves.loc[:, first:].iloc[:, :-1].sub(after_all, axis=0).abs().max(axis=1)
    return pd.DataFrame({"after_all": after_all, "drift": drift, "agrees": drift <= share * after_all})
