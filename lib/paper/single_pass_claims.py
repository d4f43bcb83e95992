"""The paper's claims on single-pass confidence before calibration: of its introduction, and of Finding 1.

Thresholds are ours where the paper leaves them open ("substantially"). tests/paper/test_claims.py has a case by hand of
each claim.
"""

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.paper.claims import (
    BOTH_MEDIANS,
    compare_medians_with_hardest,
    counted,
    finding_1,
    introduction,
    main_figure,
    main_table,
    paired_errors,
    pivot,
    raw_errors,
    table_rows,
)
from lib.store import PAIR

# ---- introduction


@introduction("raw token probabilities often provide unreliable and saturated signals", "often")
@main_figure("the median probability of the answers' tokens is above .99")
def answers_saturate(results: Results) -> pd.DataFrame:
    return results.frame("tokens")[[*PAIR, "median"]].assign(agrees=lambda tokens: tokens["median"] > 0.99)


@introduction("particularly pronounced for answer-token estimators", "generally")
@main_table("mean confidence minus accuracy is larger for Ans Avg and Ans Joint than for Seq Avg and Seq Joint")
def overconfidence_of_answers(results: Results) -> pd.DataFrame:
    gaps = pivot(results.frame("overconfidence"), "estimator", "gap")
    gaps = gaps.reindex(columns=["ans_avg", "ans_joint", "seq_avg", "seq_joint"])
    return gaps.assign(agrees=gaps.iloc[:, :2].min(axis=1) > gaps.iloc[:, 2:].max(axis=1))


@introduction("aggregating over the full reasoning trajectory yields discriminative confidence estimates", "generally")
@main_table("Seq Avg has a higher AUROC than Ans Avg")
def seq_discriminates(results: Results) -> pd.DataFrame:
    return raw_errors(results, "seq_avg", "ans_avg", metric="auroc").assign(agrees=lambda of: of.seq_avg > of.ans_avg)


# ---- Finding 1


@finding_1("across all model-dataset pairs, sequence-based estimators achieve lower ECE", "all")
@main_table("Seq Avg has a lower ECE than Ans Avg and Ans Joint")
def seq_avg_below_answer(results: Results) -> pd.DataFrame:
    ece = raw_errors(results, "seq_avg", "ans_avg", "ans_joint")
    return ece.assign(agrees=ece.seq_avg < ece[["ans_avg", "ans_joint"]].min(axis=1))


@finding_1("across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only", "all")
@main_table("Seq Joint has a lower ECE than Ans Avg and Ans Joint")
def seq_joint_below_answer(results: Results) -> pd.DataFrame:
    ece = raw_errors(results, "seq_joint", "ans_avg", "ans_joint")
    return ece.assign(agrees=ece.seq_joint < ece[["ans_avg", "ans_joint"]].min(axis=1))


@finding_1("although the confidence intervals overlap in some settings", "some")
@counted("the 95% intervals of the ECE of Seq Avg and Ans Avg overlap", "tab_result_estimation_full")
def seq_ans_overlap(results: Results) -> pd.DataFrame:
    rows = table_rows(results, "result_estimation_full")
    rows = rows[(rows.method == "") & rows.estimator.isin(["seq_avg", "ans_avg"])]
    ends = pd.concat([pivot(rows, "estimator", end).add_suffix(f"_{end}") for end in ("low", "high")], axis=1)
    overlap = (ends.seq_avg_low <= ends.ans_avg_high) & (ends.ans_avg_low <= ends.seq_avg_high)
    return ends.assign(agrees=overlap)


@finding_1("the full generated sequence substantially improves calibration", "generally")
@main_table("the ECE of Seq Avg is at most .8 of that of Ans Avg")
def substantially_better(results: Results) -> pd.DataFrame:
    return raw_errors(results, "seq_avg", "ans_avg").assign(agrees=lambda ece: ece.seq_avg <= 0.8 * ece.ans_avg + 1e-9)


@finding_1("in several settings, sequence-based estimators also achieve lower ECE than multi-pass", "several")
@main_table("Seq Avg or Seq Joint has a lower ECE than P(True) and c_BALD, on the same rows")
def seq_below_multi_pass(results: Results) -> pd.DataFrame:
    ece = paired_errors(results, "seq_avg", "seq_joint", "p_true", "c_bald")
    return ece.assign(agrees=ece[["seq_avg", "seq_joint"]].min(axis=1) < ece[["p_true", "c_bald"]].min(axis=1))


def running_means(results: Results, first: float, last: float) -> pd.DataFrame:
    """Return the running means of right and wrong responses by pair, averaged over these positions, and their gap."""
    rows = results.frame("running_mean")
    means = rows[rows.position.between(first, last)].groupby([*PAIR, "correct"])["mean"].mean().unstack()
    means = means.reindex(columns=[True, False]).set_axis(["right", "wrong"], axis=1)
    return means.assign(gap=means.right - means.wrong)


@finding_1("the curves initially overlap", "generally")
@main_figure("in the first tenth, the running means of right and wrong responses differ by less than .02")
def means_overlap_first(results: Results) -> pd.DataFrame:
    return running_means(results, 0, 0.1).assign(agrees=lambda means: means.gap.abs() < 0.02)


@finding_1("as generation progresses, the curves separate", "generally")
@main_figure("the running mean of right responses is above that of wrong ones in the last tenth")
def means_part_later(results: Results) -> pd.DataFrame:
    return running_means(results, 0.9, 1).assign(agrees=lambda means: means.gap > 0)


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
    auroc = pivot(rows, "position", "running").reindex(columns=[0.1, 1])
    auroc.columns = ["after_a_tenth", "at_the_end"]
    return auroc.assign(agrees=auroc.at_the_end > auroc.after_a_tenth)


def errors_of_joint_and_average(results: Results) -> pd.DataFrame:
    """Return the raw ECE of the joint and of the average probability by subset of tokens and pair."""
    ece = raw_errors(results, "seq_joint", "seq_avg", "ans_joint", "ans_avg")
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
@main_table("the median gain over the average is positive and largest on the hardest dataset", numbers=BOTH_MEDIANS)
def joint_below_avg_hard(results: Results) -> pd.DataFrame:
    ece = errors_of_joint_and_average(results)
    return compare_medians_with_hardest(results, ece.avg - ece.joint)
