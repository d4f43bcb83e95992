"""The claims of Finding 3: P(True) by a prompt of its own and in situ, and the tokens it saves."""

import pandas as pd

from lib.analysis.results import Results
from lib.paper.cases import compare, error_of, table_rows
from lib.paper.claim import COMPARABLE, TIE, claim, decide_by_number, format_cases
from lib.store import PAIR


@claim(
    "Finding 3",
    "why is it often better calibrated than Ans Avg",
    "often",
    counted="P(True) has a lower ECE than Ans Avg",
    place="tab_result_estimation",
)
def p_true_below_ans_avg(results: Results) -> pd.DataFrame:
    return compare(results, lambda ece: ece.ans_avg - ece.p_true, error_of("p_true", "ans_avg"))


@claim(
    "Finding 3",
    "in-situ verification achieves ECE comparable to standard P(True)",
    "generally",
    counted="the ECE of P(True) in situ is higher than by a prompt of its own by at most a quarter "
    "(this threshold decides)",
    place="tab_insitu_ptrue",
)
def in_situ_comparable(results: Results) -> pd.DataFrame:
    def margin(ece):
        return COMPARABLE * ece.p_true - ece.p_true_insitu + TIE

    return compare(results, margin, error_of("p_true_insitu", "p_true"))


@claim(
    "Finding 3",
    "reduces token-processing overhead by 88% on average across all settings",
    "figure",
    counted="in situ, P(True) reads at least 85% fewer tokens",
    place="tab_insitu_ptrue",
    numbers=format_cases("{mean_reduction:.0f}%"),
)
def token_reduction(results: Results) -> pd.DataFrame:
    mean = table_rows(results, "insitu_ptrue", "token_reduction_pct").value.mean()
    return decide_by_number(pd.DataFrame([{"mean_reduction": mean}]), mean >= 85)


@claim(
    "Finding 3",
    "particularly relevant for long outputs",
    "generally",
    counted="the share of tokens saved grows with the length of the response (rank correlation)",
    place="tab_insitu_ptrue",
)
def saving_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "saving_with_length"]]
    return decide_by_number(costs, costs.saving_with_length > 0)
