"""The paper's claims before calibration: of its abstract, its introduction, and Findings 1 (one
pass) and 2 (several).

Thresholds are ours where the paper leaves a word open ("substantially", "stable").
tests/paper/test_claims.py has a case by hand of each claim.
"""

from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp, ttest_ind

from lib.analysis.resampled_scores import Measure, ResampledNumber, Score, ScoredRows
from lib.analysis.result_tables import MissingFrame, Results
from lib.paper import claim
from lib.paper.claim import (
    AGREES,
    DISAGREES,
    OPEN,
    SUBSTANTIALLY,
    TIE,
    abstract,
    by_number,
    compare,
    error_of,
    finding_1,
    finding_2,
    in_situ_table,
    introduction,
    main_figure,
    main_table,
    measure_of,
)
from lib.store import PAIR, SCORE_CELL

MEDIANS = claim.format_cases("hard {hard:.3f}, elsewhere {elsewhere:.3f}")  # of a gain
MULTI_PASS = ("p_true", "c_bald")
LEAST_UNCHANGED = 20  # responses for a case

# ---- abstract and introduction


@abstract("multi-pass methods can yield calibrated confidence estimates", "can")
@main_table(
    "the lower ECE of P(True) and c_BALD is within what chance gives, and the interval of that score's AUROC lies "
    "above .5 (on printed numbers: that ECE is at most .05)"
)
def multi_pass_calibrated(results: Results) -> pd.DataFrame:
    if results.scores is None:
        lower = claim.raw_errors(results, *MULTI_PASS).min(axis=1)
        return by_number(lower.rename("best_multi_pass").to_frame(), lower <= 0.05)
    cases = []
    for pair in pairs_with_scores(results):
        errors: dict[str, ResampledNumber] = {}
        for name in MULTI_PASS:
            errors |= results.scores.compare(pair, error_of(name)) or {}
        if errors:
            best = min(errors, key=lambda name: errors[name].value)
            ranks = claim.compare_pair(
                results, pair, lambda auroc: auroc.it - 0.5, {"it": Measure(Score(best), "auroc")}
            )
            if ranks is not None:
                outcome = ranks["outcome"] if errors[best].within_chance else DISAGREES
                key = dict(zip(PAIR, pair, strict=True), estimator=best, ece=errors[best].value)
                cases.append(key | ranks | {"auroc": ranks["it"], "outcome": outcome})
    return claim.as_cases(cases, [*SCORE_CELL, "ece", "auroc"])


@introduction("raw token probabilities often provide unreliable and saturated signals", "often")
@main_figure("the median probability of the answers' tokens is above .99")
def answers_saturate(results: Results) -> pd.DataFrame:
    tokens = results.frame("tokens")[[*PAIR, "median"]]
    return by_number(tokens, tokens["median"] > 0.99)


@introduction("particularly pronounced for answer-token estimators", "generally")
@main_table(
    "mean confidence minus accuracy is larger for Ans Avg and Ans Joint than for Seq Avg and Seq Joint"
)
def overconfidence_of_answers(results: Results) -> pd.DataFrame:
    def margin(mean):
        of_answers = np.minimum(mean.ans_avg, mean.ans_joint)
        return of_answers - np.maximum(mean.seq_avg, mean.seq_joint)

    return compare(
        results, margin, measure_of("mean", "ans_avg", "ans_joint", "seq_avg", "seq_joint")
    )


DISCRIMINATIVE = (
    "aggregating over the full reasoning trajectory yields discriminative confidence estimates"
)


@introduction(DISCRIMINATIVE, "generally")
@main_table("the AUROC of Seq Avg is above .5")
def seq_discriminates(results: Results) -> pd.DataFrame:
    return compare(results, lambda auroc: auroc.seq_avg - 0.5, measure_of("auroc", "seq_avg"))


@introduction(DISCRIMINATIVE, "generally")
@main_table("Seq Avg has a higher AUROC than Ans Avg")
def seq_ranks_above_answer(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "ans_avg")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.ans_avg, measures)


@introduction(
    "not reflected in the decoded output, even when the generated answer remains unchanged",
    "generally",
)
@main_figure(
    "the AUROC of c_BALD is above .5 on responses (at least 20) of which no pass changes a top token"
)
def top_token_unchanged(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "c_bald_unchanged")
    cases = compare(results, lambda auroc: auroc.c_bald_unchanged - 0.5, measures)
    pairs = zip(cases.model, cases.dataset, strict=True)
    rows = [len(rows_of_score(results, pair, "c_bald_unchanged").correct) for pair in pairs]
    return cases.assign(rows=rows)[np.array(rows, int) >= LEAST_UNCHANGED]


# ---- Finding 1


def below_answers(results: Results, estimator: str) -> pd.DataFrame:
    """Return the cases of an estimator that has a lower ECE than Ans Avg and Ans Joint."""

    def margin(ece):
        return np.minimum(ece.ans_avg, ece.ans_joint) - getattr(ece, estimator)

    return compare(results, margin, error_of(estimator, "ans_avg", "ans_joint"))


@finding_1("across all model-dataset pairs, sequence-based estimators achieve lower ECE", "all")
@main_table("Seq Avg has a lower ECE than Ans Avg and Ans Joint")
def seq_avg_below_answer(results: Results) -> pd.DataFrame:
    return below_answers(results, "seq_avg")


@finding_1(
    "across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only",
    "all",
)
@main_table("Seq Joint has a lower ECE than Ans Avg and Ans Joint")
def seq_joint_below_answer(results: Results) -> pd.DataFrame:
    return below_answers(results, "seq_joint")


@finding_1("the full generated sequence substantially improves calibration", "generally")
@main_table(
    "the ECE of Seq Avg is lower than that of Ans Avg by at least a fifth (this threshold decides)"
)
def substantially_better(results: Results) -> pd.DataFrame:
    def margin(ece):
        return SUBSTANTIALLY * ece.ans_avg - ece.seq_avg + TIE

    return compare(results, margin, error_of("seq_avg", "ans_avg"))


@finding_1(
    "in several settings, sequence-based estimators also achieve lower ECE than multi-pass",
    "several",
)
@main_table("Seq Avg or Seq Joint has a lower ECE than P(True) and c_BALD, on the same rows")
def seq_below_multi_pass(results: Results) -> pd.DataFrame:
    def margin(ece):
        return np.minimum(ece.p_true, ece.c_bald) - np.minimum(ece.seq_avg, ece.seq_joint)

    return compare(results, margin, error_of("seq_avg", "seq_joint", "p_true", "c_bald"))


def rows_of_score(results: Results, pair: tuple[str, str], estimator: str) -> ScoredRows:
    """Return the evaluation rows of a raw score. Raise MissingFrame without rows."""
    if results.scores is None:
        raise MissingFrame("scores")
    return results.scores.scores[pair][Score(estimator)]


def gaps_of_class_means(results: Results, estimator: str) -> pd.DataFrame:
    """Return the cases of a score whose mean is higher for right than for wrong responses.

    The interval is that of Welch's t test: a class may have a few rows only.
    """
    cases = []
    for pair in pairs_with_scores(results, estimator):
        column = rows_of_score(results, pair, estimator)
        right = column.confidence[column.correct > 0]
        wrong = column.confidence[column.correct == 0]
        if len(right) > 1 and len(wrong) > 1:
            low, high = ttest_ind(right, wrong, equal_var=False).confidence_interval()
            case = {
                "right": right.mean(),
                "wrong": wrong.mean(),
                "margin": right.mean() - wrong.mean(),
            }
            outcome = claim.decide(case["margin"], low, high)
            key = dict(zip(PAIR, pair, strict=True))
            cases.append(key | case | {"low": low, "high": high, "outcome": outcome})
    return claim.as_cases(cases, [*PAIR, "right", "wrong"])


def pairs_with_scores(results: Results, *estimators: str) -> list[tuple[str, str]]:
    """Return the pairs whose rows have these raw scores. Raise MissingFrame without rows."""
    if results.scores is None:
        raise MissingFrame("scores")
    pairs = []
    for pair in product(results.models, results.datasets):
        scores = results.scores.scores.get(pair, {})
        if all(Score(name) in scores for name in estimators):
            pairs.append(pair)
    return pairs


@finding_1("the curves initially overlap", "generally")
@main_figure(
    "in the first tenth, the running means of right and wrong responses cannot be told apart: the interval of their "
    "difference includes 0"
)
def means_overlap_first(results: Results) -> pd.DataFrame:
    cases = gaps_of_class_means(results, "first_tenth")
    includes_zero = (cases.low <= 0) & (cases.high >= 0)
    return cases.assign(outcome=np.where(includes_zero, AGREES, DISAGREES))


@finding_1("as generation progresses, the curves separate", "generally")
@main_figure("the running mean of right responses is above that of wrong ones in the last tenth")
def means_part_later(results: Results) -> pd.DataFrame:
    return gaps_of_class_means(results, "last_tenth")


@finding_1("tend to increase for correct final answers and decrease for incorrect", "generally")
@main_figure(
    "from a tenth of the response to its end, the running mean rises for right and falls for wrong ones"
)
def means_diverge(results: Results) -> pd.DataFrame:
    cases = []
    for pair in pairs_with_scores(results, "seq_avg", "after_a_tenth"):
        last, first = (
            rows_of_score(results, pair, "seq_avg"),
            rows_of_score(results, pair, "after_a_tenth"),
        )
        change = last.confidence - first.confidence
        rises, falls = change[last.correct > 0], -change[last.correct == 0]
        if len(rises) > 1 and len(falls) > 1:
            low_rise, high_rise = ttest_1samp(rises, 0).confidence_interval()
            low_fall, high_fall = ttest_1samp(falls, 0).confidence_interval()
            low, high = min(low_rise, low_fall), min(high_rise, high_fall)
            case = {"rise_of_right": rises.mean(), "fall_of_wrong": falls.mean()}
            case["margin"] = min(case.values())
            outcome = claim.decide(case["margin"], low, high)
            key = dict(zip(PAIR, pair, strict=True))
            cases.append(key | case | {"low": low, "high": high, "outcome": outcome})
    return claim.as_cases(cases, [*PAIR, "rise_of_right", "fall_of_wrong"])


@finding_1("the useful signal does not necessarily arise from any single token", "can")
@main_figure(
    "the AUROC of the mean over all tokens is above that of the single position which is best on the calibration rows"
)
def no_single_token(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "single_position")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.single_position, measures)


@finding_1("small probability differences accumulate across the reasoning trajectory", "generally")
@main_figure("the AUROC of the running mean is higher at the end than after a tenth")
def signal_accumulates(results: Results) -> pd.DataFrame:
    measures = measure_of("auroc", "seq_avg", "after_a_tenth")
    return compare(results, lambda auroc: auroc.seq_avg - auroc.after_a_tenth, measures)


def joint_against_average(results: Results) -> pd.DataFrame:
    """Return the cases of the joint probability with a lower ECE than the average, by subset of
    tokens and pair."""
    parts = []
    for label, subset in {"Seq": "seq", "Ans": "ans"}.items():
        measures = {
            "joint": Measure(Score(f"{subset}_joint")),
            "avg": Measure(Score(f"{subset}_avg")),
        }
        cases = compare(results, lambda ece: ece.avg - ece.joint, measures)
        parts.append(cases.assign(subset=label))
    return pd.concat(parts, ignore_index=True)


def count_by_subset(cases: pd.DataFrame) -> str:
    """Return the agreeing cases of each subset of tokens: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""
    counts = []
    for subset, part in cases.groupby("subset", sort=False):
        text = f"{subset} {(part.outcome == AGREES).sum()} of {len(part)}"
        equal = (part.joint == part.avg).sum()
        counts.append(f"{text} ({equal} equal)" if equal else text)
    return ", ".join(counts)


@finding_1("length-normalized joint probability often outperforms arithmetic averaging", "often")
@main_table(
    "the joint probability has a lower ECE than the average", unit="cases", numbers=count_by_subset
)
def joint_below_avg(results: Results) -> pd.DataFrame:
    return joint_against_average(results)


@finding_1("particularly on GSMHard", "figure")
@main_table(
    "the median gain over the average is positive and largest on the hardest dataset",
    numbers=MEDIANS,
)
def joint_below_avg_hard(results: Results) -> pd.DataFrame:
    gains = joint_against_average(results).set_index(PAIR).margin
    return claim.compare_medians_with_hardest(results, gains)


# ---- Finding 2


def bald_against_p_true(results: Results) -> pd.DataFrame:
    """Return the cases of c_BALD with a lower ECE than P(True), on the same rows."""
    return compare(results, lambda ece: ece.p_true - ece.c_bald, error_of("c_bald", "p_true"))


@finding_2("c_BALD often achieves lower calibration error than P(True)", "often")
@main_table("c_BALD has a lower ECE than P(True), on the same rows")
def bald_below_p_true(results: Results) -> pd.DataFrame:
    return bald_against_p_true(results)


@finding_2("its advantage being particularly pronounced on GSMHard", "figure")
@main_table(
    "the median gain over P(True) is positive and largest on the hardest dataset", numbers=MEDIANS
)
def bald_below_p_true_hard(results: Results) -> pd.DataFrame:
    gains = bald_against_p_true(results).set_index(PAIR).margin
    return claim.compare_medians_with_hardest(results, gains)


@finding_2(
    "the extra cost is roughly proportional to the length of the re-encoded pair", "generally"
)
@in_situ_table("the tokens of P(True) follow those encoded again with an R squared above .9")
def p_true_cost_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "r2"]]
    return by_number(costs, costs.r2 > 0.9)


@finding_2("its performance is sensitive to the dropout rate", "generally")
@claim.counted(
    "the ECE of c_BALD differs among the dropout rates by more than it does in 95% of draws that exchange the rates "
    "of each row (on printed numbers: by more than .02); else the case is open",
    "tab_dropout_grid_search",
)
def rate_matters(results: Results) -> pd.DataFrame:
    if results.scores is None:
        ece = claim.pivot(
            claim.table_rows(results, "dropout_grid_search").query("estimator == 'c_bald'"), "rate"
        )
        spread = (ece.max(axis=1) - ece.min(axis=1)).rename("ece_range")
        return by_number(spread.to_frame(), spread > 0.02)
    rates = results.frame("rates")
    return rates.assign(outcome=np.where(rates.ece_range > rates.chance_high, AGREES, OPEN))


def entropies_by_passes(results: Results, term: str) -> pd.DataFrame:
    """Return a term of `eq:bald` by pair, a column per number of passes."""
    return claim.pivot(results.frame("entropies").query("term == @term"), "passes", "mean")


@finding_2("the expected conditional entropy remains relatively stable", "generally")
@main_figure("after any number of passes it is within 20% of its value after all")
def conditional_stays(results: Results) -> pd.DataFrame:
    entropies = entropies_by_passes(results, "conditional")
    claim.need_own_masks(results)
    return claim.compare_with_all_passes(entropies, 1, 0.2)


@finding_2("the predictive entropy increases with T", "generally")
@main_figure("it grows with each pass up to the fifth")
def entropy_grows(results: Results) -> pd.DataFrame:
    passes = results.frame("passes")
    claim.need_own_masks(results)
    return decide_rows(passes, "growth")


def decide_rows(passes: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the cases of a statistic of `summarize_passes` that is above 0, by its interval."""
    columns = {name: "margin", f"{name}_low": "low", f"{name}_high": "high"}
    cases = passes[[*PAIR, *columns]].rename(columns=columns).dropna()
    outcomes = map(claim.decide, cases.margin, cases.low, cases.high)
    return cases.assign(outcome=list(outcomes))


@finding_2("stabilizes after roughly five samples", "generally")
@main_figure("from the fifth pass on, the predictive entropy is within 10% of its value after all")
def predictive_settles(results: Results) -> pd.DataFrame:
    return claim.compare_with_all_passes(entropies_by_passes(results, "predictive"), 5, 0.1)


@finding_2("a five-fold overhead for a reliable estimation", "generally")
@main_figure(
    "after five passes the ECE of c_BALD is higher than after all by at most a quarter (this threshold decides)"
)
def five_reliable(results: Results) -> pd.DataFrame:
    measures = {
        "after_five": Measure(Score("c_bald_after_five")),
        "after_all": Measure(Score("c_bald")),
    }
    return compare(results, lambda ece: claim.COMPARABLE * ece.after_all - ece.after_five, measures)


@finding_2("MC Dropout primarily captures distributional uncertainty", "generally")
@main_figure("BALD is more than half of the predictive entropy")
def mostly_distributional(results: Results) -> pd.DataFrame:
    return decide_rows(results.frame("passes"), "excess")
