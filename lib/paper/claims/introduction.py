"""The claims of the paper's introduction."""

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.paper.cases import compare, measure_of, rows_of_score
from lib.paper.claim import claim, decide_by_number
from lib.store import PAIR

LEAST_UNCHANGED = 20  # responses for a case
DISCRIMINATIVE = (
    "aggregating over the full reasoning trajectory yields discriminative confidence estimates"
)


@claim(
    "Introduction",
    "raw token probabilities often provide unreliable and saturated signals",
    "often",
    counted="the median probability of the answers' tokens is above .99",
    place="fig_main_analysis",
)
def answers_saturate(results: Results) -> pd.DataFrame:
    tokens = results.frame("tokens")[[*PAIR, "median"]]
    return decide_by_number(tokens, tokens["median"] > 0.99)


@claim(
    "Introduction",
    "particularly pronounced for answer-token estimators",
    "generally",
    counted="mean confidence minus accuracy is larger for Ans Avg and Ans Joint than for Seq Avg "
    "and Seq Joint",
    place="tab_result_estimation",
)
def overconfidence_of_answers(results: Results) -> pd.DataFrame:
    def margin(mean):
        of_answers = np.minimum(mean.ans_avg, mean.ans_joint)
        return of_answers - np.maximum(mean.seq_avg, mean.seq_joint)

    measures = measure_of("mean", "ans_avg", "ans_joint", "seq_avg", "seq_joint")
    return compare(results, margin, measures)


@claim(
    "Introduction",
    DISCRIMINATIVE,
    "generally",
    counted="the AUROC of Seq Avg is above .5",
    place="tab_result_estimation",
)
def seq_discriminates(results: Results) -> pd.DataFrame:
    return compare(results, lambda auroc: auroc.seq_avg - 0.5, measure_of("auroc", "seq_avg"))


@claim(
    "Introduction",
    DISCRIMINATIVE,
    "generally",
    counted="Seq Avg has a higher AUROC than Ans Avg",
    place="tab_result_estimation",
)
def seq_ranks_above_answer(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "ans_avg")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.ans_avg, measures)


@claim(
    "Introduction",
    "not reflected in the decoded output, even when the generated answer remains unchanged",
    "generally",
    counted="the AUROC of c_BALD is above .5 on responses (at least 20) of which no pass changes a "
    "top token",
    place="fig_main_analysis",
)
def top_token_unchanged(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "c_bald_unchanged")
    cases = compare(results, lambda auroc: auroc.c_bald_unchanged - 0.5, measures)
    counts = []
    for pair in zip(cases.model, cases.dataset, strict=True):
        unchanged = rows_of_score(results, pair, "c_bald_unchanged")
        counts.append(0 if unchanged is None else len(unchanged.correct))
    cases = cases.assign(rows=counts)
    return cases[cases.rows >= LEAST_UNCHANGED]
