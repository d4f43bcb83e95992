"""The claims of Finding 2: P(True) and dropout passes, their errors and costs."""

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import Measure, Score
from lib.analysis.results import Results
from lib.paper.cases import (
    compare,
    compare_medians_with_hardest,
    compare_with_all_passes,
    error_of,
    need_own_masks,
    pivot,
    table_rows,
)
from lib.paper.claim import AGREES, COMPARABLE, OPEN, claim, decide, decide_by_number, format_cases
from lib.store import PAIR

# ---- c_BALD against P(True)


def bald_against_p_true(results: Results) -> pd.DataFrame:
    """Return the cases of c_BALD with a lower ECE than P(True), on the same rows."""
    return compare(results, lambda ece: ece.p_true - ece.c_bald, error_of("c_bald", "p_true"))


@claim(
    "Finding 2",
    "c_BALD often achieves lower calibration error than P(True)",
    "often",
    counted="c_BALD has a lower ECE than P(True), on the same rows",
    place="tab_result_estimation",
)
def bald_below_p_true(results: Results) -> pd.DataFrame:
    return bald_against_p_true(results)


@claim(
    "Finding 2",
    "its advantage being particularly pronounced on GSMHard",
    "figure",
    counted="the median gain over P(True) is positive and largest on the hardest dataset",
    place="tab_result_estimation",
    numbers=format_cases("hard {hard:.3f}, elsewhere {elsewhere:.3f}"),
)
def bald_below_p_true_hard(results: Results) -> pd.DataFrame:
    gains = bald_against_p_true(results).set_index(PAIR).margin
    return compare_medians_with_hardest(results, gains)


@claim(
    "Finding 2",
    "the extra cost is roughly proportional to the length of the re-encoded pair",
    "generally",
    counted="the tokens of P(True) follow those encoded again with an R squared above .9",
    place="tab_insitu_ptrue",
)
def p_true_cost_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "r2"]]
    return decide_by_number(costs, costs.r2 > 0.9)


# ---- dropout rates and passes


@claim(
    "Finding 2",
    "its performance is sensitive to the dropout rate",
    "generally",
    counted="the ECE of c_BALD differs among the dropout rates by more than it does in 95% of "
    "draws that exchange the rates of each row (on printed numbers: by more than .02); else the "
    "case is open",
    place="tab_dropout_grid_search",
)
def rate_matters(results: Results) -> pd.DataFrame:
    if results.scores is None:
        rows = table_rows(results, "dropout_grid_search")
        errors = pivot(rows[rows.estimator == "c_bald"], "rate")
        spread = errors.max(axis=1) - errors.min(axis=1)
        return decide_by_number(spread.rename("ece_range").to_frame(), spread > 0.02)
    rates = results.frame("rates")
    return rates.assign(outcome=np.where(rates.ece_range > rates.chance_high, AGREES, OPEN))


def entropies_by_passes(results: Results, term: str) -> pd.DataFrame:
    """Return a term of `eq:bald` by pair, a column per number of passes."""
    entropies = results.frame("entropies")
    return pivot(entropies[entropies.term == term], "passes", "mean")


def decide_rows(passes: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the cases of a statistic of `summarize_passes` that is above 0, by its interval."""
    columns = {name: "margin", f"{name}_low": "low", f"{name}_high": "high"}
    cases = passes[[*PAIR, *columns]].rename(columns=columns).dropna()
    outcomes = map(decide, cases.margin, cases.low, cases.high)
    return cases.assign(outcome=list(outcomes))


@claim(
    "Finding 2",
    "the expected conditional entropy remains relatively stable",
    "generally",
    counted="after any number of passes it is within 20% of its value after all",
    place="fig_main_analysis",
)
def conditional_stays(results: Results) -> pd.DataFrame:
    entropies = entropies_by_passes(results, "conditional")
    need_own_masks(results)
    return compare_with_all_passes(entropies, 1, 0.2)


@claim(
    "Finding 2",
    "the predictive entropy increases with T",
    "generally",
    counted="it grows with each pass up to the fifth",
    place="fig_main_analysis",
)
def entropy_grows(results: Results) -> pd.DataFrame:
    passes = results.frame("passes")
    need_own_masks(results)
    return decide_rows(passes, "growth")


@claim(
    "Finding 2",
    "stabilizes after roughly five samples",
    "generally",
    counted="from the fifth pass on, the predictive entropy is within 10% of its value after all",
    place="fig_main_analysis",
)
def predictive_settles(results: Results) -> pd.DataFrame:
    return compare_with_all_passes(entropies_by_passes(results, "predictive"), 5, 0.1)


@claim(
    "Finding 2",
    "a five-fold overhead for a reliable estimation",
    "generally",
    counted="after five passes the ECE of c_BALD is higher than after all by at most a quarter "
    "(this threshold decides)",
    place="fig_main_analysis",
)
def five_reliable(results: Results) -> pd.DataFrame:
    def margin(ece):
        return COMPARABLE * ece.after_all - ece.after_five

    after_five = Measure(Score("c_bald_after_five"))
    after_all = Measure(Score("c_bald"))
    return compare(results, margin, {"after_five": after_five, "after_all": after_all})


@claim(
    "Finding 2",
    "MC Dropout primarily captures distributional uncertainty",
    "generally",
    counted="BALD is more than half of the predictive entropy",
    place="fig_main_analysis",
)
def mostly_distributional(results: Results) -> pd.DataFrame:
    return decide_rows(results.frame("passes"), "excess")
