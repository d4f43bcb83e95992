"""The claims of Finding 1: sequences against answers, and where in a response the signal is."""

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp, ttest_ind

from lib.analysis.resampled_scores import Measure, Score
from lib.analysis.results import Results
from lib.calibrate.calibration_sets import Pair
from lib.paper.cases import (
    Case,
    collect_pair_cases,
    compare,
    compare_medians_with_hardest,
    error_of,
    make_case,
    measure_of,
    rows_of_score,
)
from lib.paper.claim import AGREES, DISAGREES, SUBSTANTIALLY, TIE, claim, format_cases
from lib.store import PAIR

# ---- sequences against answers


def below_answers(results: Results, estimator: str) -> pd.DataFrame:
    """Return the cases of an estimator that has a lower ECE than Ans Avg and Ans Joint."""

    def margin(ece):
        return np.minimum(ece.ans_avg, ece.ans_joint) - getattr(ece, estimator)

    return compare(results, margin, error_of(estimator, "ans_avg", "ans_joint"))


@claim(
    "Finding 1",
    "across all model-dataset pairs, sequence-based estimators achieve lower ECE",
    "all",
    counted="Seq Avg has a lower ECE than Ans Avg and Ans Joint",
    place="tab_result_estimation",
)
def seq_avg_below_answer(results: Results) -> pd.DataFrame:
    return below_answers(results, "seq_avg")


@claim(
    "Finding 1",
    "across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only",
    "all",
    counted="Seq Joint has a lower ECE than Ans Avg and Ans Joint",
    place="tab_result_estimation",
)
def seq_joint_below_answer(results: Results) -> pd.DataFrame:
    return below_answers(results, "seq_joint")


@claim(
    "Finding 1",
    "the full generated sequence substantially improves calibration",
    "generally",
    counted="the ECE of Seq Avg is lower than that of Ans Avg by at least a fifth (this threshold "
    "decides)",
    place="tab_result_estimation",
)
def substantially_better(results: Results) -> pd.DataFrame:
    def margin(ece):
        return SUBSTANTIALLY * ece.ans_avg - ece.seq_avg + TIE

    return compare(results, margin, error_of("seq_avg", "ans_avg"))


@claim(
    "Finding 1",
    "in several settings, sequence-based estimators also achieve lower ECE than multi-pass",
    "several",
    counted="Seq Avg or Seq Joint has a lower ECE than P(True) and c_BALD, on the same rows",
    place="tab_result_estimation",
)
def seq_below_multi_pass(results: Results) -> pd.DataFrame:
    def margin(ece):
        return np.minimum(ece.p_true, ece.c_bald) - np.minimum(ece.seq_avg, ece.seq_joint)

    return compare(results, margin, error_of("seq_avg", "seq_joint", "p_true", "c_bald"))


# ---- along the response


def gaps_of_class_means(results: Results, estimator: str) -> pd.DataFrame:
    """Return the cases of a score whose mean is higher for right than for wrong responses.

    The interval is that of Welch's t test: a class may have a few rows only.
    """

    def case_of(pair: Pair) -> Case | None:
        scores = rows_of_score(results, pair, estimator)
        if scores is None:
            return None
        right = scores.confidence[scores.correct > 0]
        wrong = scores.confidence[scores.correct == 0]
        if min(len(right), len(wrong)) < 2:
            return None
        means = {"right": right.mean(), "wrong": wrong.mean()}
        low, high = ttest_ind(right, wrong, equal_var=False).confidence_interval()
        return make_case(means, means["right"] - means["wrong"], low, high)

    return collect_pair_cases(results, case_of, ["right", "wrong"])


@claim(
    "Finding 1",
    "the curves initially overlap",
    "generally",
    counted="in the first tenth, the running means of right and wrong responses cannot be told "
    "apart: the interval of their difference includes 0",
    place="fig_main_analysis",
)
def means_overlap_first(results: Results) -> pd.DataFrame:
    cases = gaps_of_class_means(results, "first_tenth")
    includes_zero = (cases.low <= 0) & (cases.high >= 0)
    return cases.assign(outcome=np.where(includes_zero, AGREES, DISAGREES))


@claim(
    "Finding 1",
    "as generation progresses, the curves separate",
    "generally",
    counted="the running mean of right responses is above that of wrong ones in the last tenth",
    place="fig_main_analysis",
)
def means_part_later(results: Results) -> pd.DataFrame:
    return gaps_of_class_means(results, "last_tenth")


@claim(
    "Finding 1",
    "tend to increase for correct final answers and decrease for incorrect",
    "generally",
    counted="from a tenth of the response to its end, the running mean rises for right and falls "
    "for wrong ones",
    place="fig_main_analysis",
)
def means_diverge(results: Results) -> pd.DataFrame:
    def case_of(pair: Pair) -> Case | None:
        last = rows_of_score(results, pair, "seq_avg")
        first = rows_of_score(results, pair, "after_a_tenth")
        if last is None or first is None:
            return None
        change = last.confidence - first.confidence
        rises = change[last.correct > 0]
        falls = -change[last.correct == 0]
        if min(len(rises), len(falls)) < 2:
            return None
        low_rise, high_rise = ttest_1samp(rises, 0).confidence_interval()
        low_fall, high_fall = ttest_1samp(falls, 0).confidence_interval()
        means = {"rise_of_right": rises.mean(), "fall_of_wrong": falls.mean()}
        low, high = min(low_rise, low_fall), min(high_rise, high_fall)
        return make_case(means, min(means.values()), low, high)

    return collect_pair_cases(results, case_of, ["rise_of_right", "fall_of_wrong"])


@claim(
    "Finding 1",
    "the useful signal does not necessarily arise from any single token",
    "can",
    counted="the AUROC of the mean over all tokens is above that of the single position which is "
    "best on the calibration rows",
    place="fig_main_analysis",
)
def no_single_token(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "single_position")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.single_position, measures)


@claim(
    "Finding 1",
    "small probability differences accumulate across the reasoning trajectory",
    "generally",
    counted="the AUROC of the running mean is higher at the end than after a tenth",
    place="fig_main_analysis",
)
def signal_accumulates(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "after_a_tenth")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.after_a_tenth, measures)


# ---- joint probability against average


def joint_against_average(results: Results) -> pd.DataFrame:
    """Return the cases of the joint probability with a lower ECE than the average, by subset of
    tokens and pair."""
    parts = []
    for subset, label in {"seq": "Seq", "ans": "Ans"}.items():
        joint = Measure(Score(f"{subset}_joint"))
        average = Measure(Score(f"{subset}_avg"))
        measures = {"joint": joint, "avg": average}
        cases = compare(results, lambda ece: ece.avg - ece.joint, measures)
        parts.append(cases.assign(subset=label))
    return pd.concat(parts, ignore_index=True)


def count_by_subset(cases: pd.DataFrame) -> str:
    """Return the agreeing cases of each subset of tokens: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""
    counts = []
    for subset, part in cases.groupby("subset", sort=False):
        agreeing = (part.outcome == AGREES).sum()
        equal = (part.joint == part.avg).sum()
        text = f"{subset} {agreeing} of {len(part)}"
        counts.append(f"{text} ({equal} equal)" if equal else text)
    return ", ".join(counts)


@claim(
    "Finding 1",
    "length-normalized joint probability often outperforms arithmetic averaging",
    "often",
    counted="the joint probability has a lower ECE than the average",
    place="tab_result_estimation",
    unit="cases",
    numbers=count_by_subset,
)
def joint_below_avg(results: Results) -> pd.DataFrame:
    return joint_against_average(results)


@claim(
    "Finding 1",
    "particularly on GSMHard",
    "figure",
    counted="the median gain over the average is positive and largest on the hardest dataset",
    place="tab_result_estimation",
    numbers=format_cases("hard {hard:.3f}, elsewhere {elsewhere:.3f}"),
)
def joint_below_avg_hard(results: Results) -> pd.DataFrame:
    gains = joint_against_average(results).set_index(PAIR).margin
    return compare_medians_with_hardest(results, gains)
