"""The paper's claims before calibration: of its abstract, its introduction, and Findings 1 (one pass) and 2 (several).

Thresholds are ours where the paper leaves them open ("substantially", "stable"). tests/paper/test_claims.py has a case
by hand of each claim.
"""

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.paper import claims
from lib.paper.claims import abstract, finding_1, finding_2, in_situ_table, introduction, main_figure, main_table
from lib.store import PAIR

MEDIANS = claims.format_cases("hard {hard:.3f}, elsewhere {elsewhere:.3f}")  # of a gain

# ---- abstract and introduction


@abstract("multi-pass methods can yield calibrated confidence estimates", "can")
@main_table("the lower ECE of P(True) and c_BALD is at most .05")
def multi_pass_calibrated(results: Results) -> pd.DataFrame:
    lower = claims.raw_errors(results, "p_true", "c_bald").min(axis=1)
    return pd.DataFrame({"best_multi_pass": lower, "agrees": lower <= 0.05})


@introduction("raw token probabilities often provide unreliable and saturated signals", "often")
@main_figure("the median probability of the answers' tokens is above .99")
def answers_saturate(results: Results) -> pd.DataFrame:
    return results.frame("tokens")[[*PAIR, "median"]].assign(agrees=lambda tokens: tokens["median"] > 0.99)


@introduction("particularly pronounced for answer-token estimators", "generally")
@main_table("mean confidence minus accuracy is larger for Ans Avg and Ans Joint than for Seq Avg and Seq Joint")
def overconfidence_of_answers(results: Results) -> pd.DataFrame:
    gaps = claims.pivot(results.frame("overconfidence"), "estimator", "gap")
    gaps = gaps.reindex(columns=["ans_avg", "ans_joint", "seq_avg", "seq_joint"])
    return gaps.assign(agrees=gaps.iloc[:, :2].min(axis=1) > gaps.iloc[:, 2:].max(axis=1))


@introduction("aggregating over the full reasoning trajectory yields discriminative confidence estimates", "generally")
@main_table("Seq Avg has a higher AUROC than Ans Avg")
def seq_discriminates(results: Results) -> pd.DataFrame:
    auroc = claims.raw_errors(results, "seq_avg", "ans_avg", metric="auroc")
    return auroc.assign(agrees=auroc.seq_avg > auroc.ans_avg)


@introduction("not reflected in the decoded output, even when the generated answer remains unchanged", "generally")
@main_figure("the AUROC of c_BALD is above .5 on responses (at least 20) of which no pass changes a top token")
def top_token_unchanged(results: Results) -> pd.DataFrame:
    passes = results.frame("passes")[[*PAIR, "unchanged", "auroc_where_unchanged"]].query("unchanged >= 20")
    return passes.assign(agrees=passes.auroc_where_unchanged > 0.5)


# ---- Finding 1


@finding_1("across all model-dataset pairs, sequence-based estimators achieve lower ECE", "all")
@main_table("Seq Avg has a lower ECE than Ans Avg and Ans Joint")
def seq_avg_below_answer(results: Results) -> pd.DataFrame:
    ece = claims.raw_errors(results, "seq_avg", "ans_avg", "ans_joint")
    return ece.assign(agrees=ece.seq_avg < ece[["ans_avg", "ans_joint"]].min(axis=1))


@finding_1("across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only", "all")
@main_table("Seq Joint has a lower ECE than Ans Avg and Ans Joint")
def seq_joint_below_answer(results: Results) -> pd.DataFrame:
    ece = claims.raw_errors(results, "seq_joint", "ans_avg", "ans_joint")
    return ece.assign(agrees=ece.seq_joint < ece[["ans_avg", "ans_joint"]].min(axis=1))


@finding_1("although the confidence intervals overlap in some settings", "some")
@claims.counted("the 95% intervals of the ECE of Seq Avg and Ans Avg overlap", "tab_result_estimation_full")
def seq_ans_overlap(results: Results) -> pd.DataFrame:
    rows = claims.table_rows(results, "result_estimation_full")
    rows = rows[(rows.method == "") & rows.estimator.isin(["seq_avg", "ans_avg"])]
    ends = pd.concat([claims.pivot(rows, "estimator", end).add_suffix(f"_{end}") for end in ("low", "high")], axis=1)
    overlap = (ends.seq_avg_low <= ends.ans_avg_high) & (ends.ans_avg_low <= ends.seq_avg_high)
    return ends.assign(agrees=overlap)


@finding_1("the full generated sequence substantially improves calibration", "generally")
@main_table("the ECE of Seq Avg is at most .8 of that of Ans Avg")
def substantially_better(results: Results) -> pd.DataFrame:
    ece = claims.raw_errors(results, "seq_avg", "ans_avg")
    return ece.assign(agrees=ece.seq_avg <= 0.8 * ece.ans_avg + 1e-9)


@finding_1("in several settings, sequence-based estimators also achieve lower ECE than multi-pass", "several")
@main_table("Seq Avg or Seq Joint has a lower ECE than P(True) and c_BALD, on the same rows")
def seq_below_multi_pass(results: Results) -> pd.DataFrame:
    ece = claims.paired_errors(results, "seq_avg", "seq_joint", "p_true", "c_bald")
    return ece.assign(agrees=ece[["seq_avg", "seq_joint"]].min(axis=1) < ece[["p_true", "c_bald"]].min(axis=1))


@finding_1("the curves initially overlap", "generally")
@main_figure("in the first tenth, the running means of right and wrong responses differ by less than .02")
def means_overlap_first(results: Results) -> pd.DataFrame:
    return claims.running_means(results, 0, 0.1).assign(agrees=lambda means: means.gap.abs() < 0.02)


@finding_1("as generation progresses, the curves separate", "generally")
@main_figure("the running mean of right responses is above that of wrong ones in the last tenth")
def means_part_later(results: Results) -> pd.DataFrame:
    return claims.running_means(results, 0.9, 1).assign(agrees=lambda means: means.gap > 0)


@finding_1("tend to increase for correct final answers and decrease for incorrect", "generally")
@main_figure("after the first tenth, the running mean rises for right responses and falls for wrong ones")
def means_diverge(results: Results) -> pd.DataFrame:
    rows = results.frame("running_mean").query("position >= 0.1")
    slopes = rows.groupby([*PAIR, "correct"]).apply(lambda curve: np.polyfit(curve.position, curve["mean"], 1)[0])
    slopes = slopes.unstack().reindex(columns=[True, False]).set_axis(["slope_right", "slope_wrong"], axis=1)
    return slopes.assign(agrees=(slopes.slope_right > 0) & (slopes.slope_wrong < 0))


@finding_1("the useful signal does not necessarily arise from any single token", "can")
@main_figure("the AUROC of the mean over all tokens is above that of the best single position")
def no_single_token(results: Results) -> pd.DataFrame:
    pairs = results.frame("positions").dropna().groupby(PAIR)
    auroc = pairs.agg(best_position=("single", "max"), mean_of_all=("running", "last"))
    return auroc.assign(agrees=auroc.best_position < auroc.mean_of_all)


@finding_1("small probability differences accumulate across the reasoning trajectory", "generally")
@main_figure("the AUROC of the running mean is higher at the end than after a tenth")
def signal_accumulates(results: Results) -> pd.DataFrame:
    rows = results.frame("positions").dropna().round({"position": 6})
    auroc = claims.pivot(rows, "position", "running").reindex(columns=[0.1, 1])
    auroc.columns = ["after_a_tenth", "at_the_end"]
    return auroc.assign(agrees=auroc.at_the_end > auroc.after_a_tenth)


def errors_of_joint_and_average(results: Results) -> pd.DataFrame:
    """Return the raw ECE of the joint and of the average probability by subset of tokens and pair."""
    ece = claims.raw_errors(results, "seq_joint", "seq_avg", "ans_joint", "ans_avg")
    parts = [ece[[f"{subset}_joint", f"{subset}_avg"]].set_axis(["joint", "avg"], axis=1) for subset in ("seq", "ans")]
    return pd.concat(parts, keys=["Seq", "Ans"], names=["subset"]).dropna()


def count_by_subset(cases: pd.DataFrame) -> str:
    """Return the counts of each subset of tokens: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""
    said = []
    for subset, part in cases.groupby("subset", sort=False):
        equal = int((part.joint == part.avg).sum())
        said.append(f"{subset} {part.agrees.sum()} of {len(part)}" + (f" ({equal} equal)" if equal else ""))
    return ", ".join(said)


@finding_1("length-normalized joint probability often outperforms arithmetic averaging", "often")
@main_table("the joint probability has a lower printed ECE than the average", unit="cases", numbers=count_by_subset)
def joint_below_avg(results: Results) -> pd.DataFrame:
    return errors_of_joint_and_average(results).round(3).assign(agrees=lambda ece: ece.joint < ece.avg)


@finding_1("particularly on GSMHard", "figure")
@main_table("the median gain over the average is positive and largest on the hardest dataset", numbers=MEDIANS)
def joint_below_avg_hard(results: Results) -> pd.DataFrame:
    ece = errors_of_joint_and_average(results)
    return claims.compare_medians_with_hardest(results, ece.avg - ece.joint)


# ---- Finding 2


@finding_2("c_BALD often achieves lower calibration error than P(True)", "often")
@main_table("c_BALD has a lower ECE than P(True), on the same rows")
def bald_below_p_true(results: Results) -> pd.DataFrame:
    return claims.paired_errors(results, "c_bald", "p_true").assign(agrees=lambda ece: ece.c_bald < ece.p_true)


@finding_2("its advantage being particularly pronounced on GSMHard", "figure")
@main_table("the median gain over P(True) is positive and largest on the hardest dataset", numbers=MEDIANS)
def bald_below_p_true_hard(results: Results) -> pd.DataFrame:
    ece = claims.paired_errors(results, "c_bald", "p_true")
    return claims.compare_medians_with_hardest(results, ece.p_true - ece.c_bald)


@finding_2("the extra cost is roughly proportional to the length of the re-encoded pair", "generally")
@in_situ_table("the tokens of P(True) follow those encoded again with an R squared above .9")
def p_true_cost_grows(results: Results) -> pd.DataFrame:
    return results.frame("verification")[[*PAIR, "r2"]].assign(agrees=lambda costs: costs.r2 > 0.9)


@finding_2("its performance is sensitive to the dropout rate", "generally")
@claims.counted("the ECE of c_BALD differs by more than .02 among the dropout rates", "tab_dropout_grid_search")
def rate_matters(results: Results) -> pd.DataFrame:
    ece = claims.pivot(claims.table_rows(results, "dropout_grid_search").query("estimator == 'c_bald'"), "rate")
    spread = ece.max(axis=1) - ece.min(axis=1)
    return pd.DataFrame({"ece_range": spread, "agrees": spread > 0.02})


def entropies_by_passes(results: Results, term: str) -> pd.DataFrame:
    """Return a term of `eq:bald` by pair, a column per number of passes."""
    return claims.pivot(results.frame("entropies").query("term == @term"), "passes", "mean")


@finding_2("the expected conditional entropy remains relatively stable", "generally")
@main_figure("after any number of passes it is within 20% of its value after all")
def conditional_stays(results: Results) -> pd.DataFrame:
    return claims.compare_with_all_passes(entropies_by_passes(results, "conditional"), 1, 0.2)


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
    return claims.compare_with_all_passes(entropies_by_passes(results, "predictive"), 5, 0.1)


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
