"""The paper's claims on P(True) and c_BALD before calibration: of its abstract, introduction, and Findings 2 and 3.

Thresholds are ours where the paper leaves them open ("stable", "roughly").
"""

from functools import partial

import pandas as pd

from lib.analysis.results import Results
from lib.paper.claims import (
    BOTH_MEDIANS,
    abstract,
    compare_medians_with_hardest,
    counted,
    finding_2,
    finding_3,
    format_cases,
    introduction,
    main_figure,
    main_table,
    paired_errors,
    pivot,
    raw_errors,
    table_rows,
)
from lib.store import PAIR

in_situ_table = partial(counted, place="tab_insitu_ptrue")

# ---- abstract and introduction


@abstract("multi-pass methods can yield calibrated confidence estimates", "can")
@main_table("the lower ECE of P(True) and c_BALD is at most .05")
def multi_pass_calibrated(results: Results) -> pd.DataFrame:
    lower = raw_errors(results, "p_true", "c_bald").min(axis=1)
    return pd.DataFrame({"best_multi_pass": lower, "agrees": lower <= 0.05})


@introduction("not reflected in the decoded output, even when the generated answer remains unchanged", "generally")
@main_figure("the AUROC of c_BALD is above .5 on responses (at least 20) of which no pass changes a top token")
def top_token_unchanged(results: Results) -> pd.DataFrame:
    passes = results.frame("passes")[[*PAIR, "unchanged", "auroc_where_unchanged"]].query("unchanged >= 20")
    return passes.assign(agrees=passes.auroc_where_unchanged > 0.5)


# ---- Finding 2


@finding_2("c_BALD often achieves lower calibration error than P(True)", "often")
@main_table("c_BALD has a lower ECE than P(True), on the same rows")
def bald_below_p_true(results: Results) -> pd.DataFrame:
    return paired_errors(results, "c_bald", "p_true").assign(agrees=lambda ece: ece.c_bald < ece.p_true)


@finding_2("its advantage being particularly pronounced on GSMHard", "figure")
@main_table("the median gain over P(True) is positive and largest on the hardest dataset", numbers=BOTH_MEDIANS)
def bald_below_p_true_hard(results: Results) -> pd.DataFrame:
    ece = paired_errors(results, "c_bald", "p_true")
    return compare_medians_with_hardest(results, ece.p_true - ece.c_bald)


@finding_2("the extra cost is roughly proportional to the length of the re-encoded pair", "generally")
@in_situ_table("the tokens of P(True) follow those encoded again with an R squared above .9")
def p_true_cost_grows(results: Results) -> pd.DataFrame:
    return results.frame("verification")[[*PAIR, "r2"]].assign(agrees=lambda costs: costs.r2 > 0.9)


@finding_2("its performance is sensitive to the dropout rate", "generally")
@counted("the ECE of c_BALD differs by more than .02 among the dropout rates", "tab_dropout_grid_search")
def rate_matters(results: Results) -> pd.DataFrame:
    ece = pivot(table_rows(results, "dropout_grid_search").query("estimator == 'c_bald'"), "rate")
    spread = ece.max(axis=1) - ece.min(axis=1)
    return pd.DataFrame({"ece_range": spread, "agrees": spread > 0.02})


def entropies_by_passes(results: Results, term: str) -> pd.DataFrame:
    """Return a term of `eq:bald` by pair, a column per number of passes."""
    return pivot(results.frame("entropies").query("term == @term"), "passes", "mean")


def compare_with_all_passes(curves: pd.DataFrame, first: int, share: float) -> pd.DataFrame:
    """Return the last value of each curve, and how far it is off before, from the `first` pass on.

    It agrees within a `share` of the last value. `drift` is missing if there is nothing to compare.
    """
    after_all = curves.iloc[:, -1]
    drift = curves.loc[:, first:].iloc[:, :-1].sub(after_all, axis=0).abs().max(axis=1)
    return pd.DataFrame({"after_all": after_all, "drift": drift, "agrees": drift <= share * after_all})


@finding_2("the expected conditional entropy remains relatively stable", "generally")
@main_figure("after any number of passes it is within 20% of its value after all")
def conditional_stays(results: Results) -> pd.DataFrame:
    return compare_with_all_passes(entropies_by_passes(results, "conditional"), 1, 0.2)


@finding_2("individual forward passes produce similarly sharp distributions", "generally")
@main_figure("over passes, the entropy of a response varies by at most 20% of its mean (SD)")
def passes_sharp(results: Results) -> pd.DataFrame:
    return results.frame("passes")[[*PAIR, "entropy_variation"]].assign(agrees=lambda of: of.entropy_variation <= 0.2)


@finding_2("the predictive entropy increases with T", "generally")
@main_figure("it grows with each pass up to the fifth")
def entropy_grows(results: Results) -> pd.DataFrame:
    least = entropies_by_passes(results, "predictive").loc[:, :5].diff(axis=1).min(axis=1)
    return pd.DataFrame({"least_growth": least, "agrees": least > 0})


@finding_2("stabilizes after roughly five samples", "generally")
@main_figure("from the fifth pass on, the predictive entropy is within 10% of its value after all")
def predictive_settles(results: Results) -> pd.DataFrame:
    return compare_with_all_passes(entropies_by_passes(results, "predictive"), 5, 0.1)


@finding_2("a five-fold overhead for a reliable estimation", "generally")
@main_figure("after five passes the ECE of c_BALD is within .02 of that after all")
def five_reliable(results: Results) -> pd.DataFrame:
    rows = results.frame("by_passes").sort_values("passes")
    after_five, after_all = (rows.query(which).groupby(PAIR).ece.last() for which in ("passes == 5", "passes > 5"))
    cases = pd.DataFrame({"after_five": after_five, "after_all": after_all})
    return cases.assign(agrees=(cases.after_five - cases.after_all).abs() <= 0.02)


@finding_2("MC Dropout primarily captures distributional uncertainty", "generally")
@main_figure("BALD is more than half of the predictive entropy")
def mostly_distributional(results: Results) -> pd.DataFrame:
    return results.frame("passes")[[*PAIR, "bald_share"]].assign(agrees=lambda passes: passes.bald_share > 0.5)


# ---- Finding 3


@finding_3("why is it often better calibrated than Ans Avg", "often")
@main_table("P(True) has a lower ECE than Ans Avg")
def p_true_below_ans_avg(results: Results) -> pd.DataFrame:
    return paired_errors(results, "p_true", "ans_avg").assign(agrees=lambda ece: ece.p_true < ece.ans_avg)


@finding_3("in-situ verification achieves ECE comparable to standard P(True)", "generally")
@in_situ_table("the ECE of P(True) in situ and by a prompt of its own differ by at most .05")
def in_situ_comparable(results: Results) -> pd.DataFrame:
    ece = paired_errors(results, "p_true_insitu", "p_true", table="insitu_ptrue")
    return ece.assign(agrees=(ece.p_true_insitu - ece.p_true).abs() <= 0.05 + 1e-9)


@finding_3("reduces token-processing overhead by 88% on average across all settings", "figure")
@in_situ_table("in situ, P(True) reads at least 85% fewer tokens", numbers=format_cases("{mean_reduction:.0f}%"))
def token_reduction(results: Results) -> pd.DataFrame:
    mean = table_rows(results, "insitu_ptrue", "token_reduction_pct").value.mean()
    return pd.DataFrame([{"mean_reduction": mean, "agrees": mean >= 85}])


@finding_3("particularly relevant for long outputs", "generally")
@in_situ_table("the share of tokens saved grows with the length of the response (rank correlation)")
def saving_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "saving_with_length"]]
    return costs.assign(agrees=costs.saving_with_length > 0)
