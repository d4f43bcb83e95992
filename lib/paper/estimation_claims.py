"""The views of claims. A view is a data frame with one row per case (one model-dataset pair, say) and a column for each
number in a predicate.

Each public function is a view of that name; its docstring is shown with the predicate. A view raises MissingFrame if
results lack a frame. A number that cannot be computed is NaN, and `verdicts.judge` ignores cases with NaN in their
predicate. The views on calibration are in `calibration_claims`.
"""

import numpy as np
import pandas as pd

from lib.analysis.printed_numbers import PAPER_ESTIMATORS
from lib.analysis.results import Results
from lib.paper.claim_cases import (
    CELL,
    NotApplicable,
    compare_medians_with_hardest,
    compare_with_hardest,
    hardest_dataset,
    last_column,
    on_same_rows,
    pivot_values,
    range_of_row,
    rows_of_table,
    uncalibrated,
)
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

# ---- raw confidence


def raw_ece(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair"""
    errors = uncalibrated(results)
    names = [name for name in PAPER_ESTIMATORS if ESTIMATORS[name].group == "multi_pass" and name in errors]
    return errors.assign(best_multi_pass=errors[names].min(axis=1))


def raw_auroc(results: Results) -> pd.DataFrame:
    """AUROC of raw confidence by pair"""
    if rows_of_table(results, "result_estimation", "auroc").empty:
        raise NotApplicable("no AUROC printed")
    return uncalibrated(results, metric="auroc")


def ece_beside_p_true(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows of P(True)"""
    return on_same_rows(results, "result_estimation", ["p_true", "ans_avg"])


def ece_in_situ(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows of P(True)"""
    return on_same_rows(results, "insitu_ptrue", ["p_true_insitu", "p_true", "ans_avg"])


def ece_beside_passes(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows with passes"""
    return on_same_rows(results, "result_estimation", ["seq_avg", "seq_joint", "p_true", "c_bald"])


def bald_below_p_true(results: Results) -> pd.DataFrame:
    """median margin of ECE by which c_BALD is below P(True)"""
    errors = ece_beside_passes(results)
    return compare_medians_with_hardest(results, (errors.p_true - errors.c_bald).dropna())


def _joint_and_avg(results: Results) -> pd.DataFrame:
    errors, parts = uncalibrated(results).reset_index(), []
    for subset in ("seq", "ans"):
        rows = errors.reindex(columns=[*PAIR, f"{subset}_joint", f"{subset}_avg"]).dropna()
        parts.append(rows.set_axis([*PAIR, "joint", "avg"], axis=1).assign(subset=subset.title()))
    return pd.concat(parts, ignore_index=True)


def ece_by_subset(results: Results) -> pd.DataFrame:
    """printed ECE of raw confidence by pair and subset of tokens"""
    return _joint_and_avg(results).round(3)


def joint_below_average(results: Results) -> pd.DataFrame:
    """median margin of ECE by which the joint probability is below the average, over both subsets of tokens"""
    errors = _joint_and_avg(results).set_index(PAIR)
    return compare_medians_with_hardest(results, errors.avg - errors.joint)


def overconfidence(results: Results) -> pd.DataFrame:
    """mean confidence less accuracy by pair"""
    return pivot_values(results.frame("overconfidence"), "estimator", "gap")


def accuracy_by_model(results: Results) -> pd.DataFrame:
    """dataset of least accuracy of a model, and of all models"""
    table = pivot_values(rows_of_table(results, "result_estimation", "acc"), "dataset", index=["model"])
    return pd.DataFrame({"least_accurate": table.idxmin(axis=1), "hardest": hardest_dataset(results)})


def intervals(results: Results) -> pd.DataFrame:
    """sides of the 95% intervals of raw ECE and MCE"""
    rows = pd.concat([rows_of_table(results, "result_estimation_full", metric) for metric in ("mce", "ece")])
    rows = rows.query("method == '' and estimator in @PAPER_ESTIMATORS").reset_index(drop=True)
    sides = pd.concat([rows.value - rows.low, rows.high - rows.value], axis=1)
    named = rows[CELL].assign(metric=rows.metric.str.upper(), width=rows.high - rows.low, low=rows.low, high=rows.high)
    return named.assign(longer_side=sides.max(axis=1), shorter_side=sides.min(axis=1))


def interval_widths(results: Results) -> pd.DataFrame:
    """width of the 95% intervals by pair and estimator"""
    return pivot_values(intervals(results), "metric", "width", CELL).rename(columns=str.lower)


def interval_ends(results: Results) -> pd.DataFrame:
    """ends of the 95% intervals of raw ECE by pair"""
    rows = intervals(results).query("metric == 'ECE'")
    return pd.concat([pivot_values(rows, "estimator", end).add_suffix(f"_{end}") for end in ("low", "high")], axis=1)


def paired_differences(results: Results) -> pd.DataFrame:
    """paired difference of ECE and the upper end of its 95% interval"""
    return results.frame("paired")


def metrics_by_bins(results: Results) -> pd.DataFrame:
    """by pair and estimator: how far a metric moves over the numbers of bins, and MCE with the fewest and the most"""
    tables = {
        name: pivot_values(rows_of_table(results, "bin_ablation", name), "bins", index=CELL)
        for name in ("ece", "mce", "brier")
    }
    ranges = pd.DataFrame({f"{name}_range": range_of_row(table) for name, table in tables.items()})
    return ranges.assign(mce_fewest_bins=tables["mce"].iloc[:, 0], mce_most_bins=tables["mce"].iloc[:, -1])


# ---- tokens and positions


def token_statistics(results: Results) -> pd.DataFrame:
    """by pair: median probability of answer tokens, AUROC of the smallest token probability, and rank correlations"""
    names = {"median": "median_answer_token", "wrong": "median_wrong_answer_token", "smallest": "auroc_of_smallest",
             "joint": "joint_with_length", "product": "product_with_length"}  # fmt: skip
    return results.frame("tokens").rename(columns=names)


def running_means(results: Results) -> pd.DataFrame:
    """running means by pair: mean gap of right less wrong responses, and slopes after the first tenth"""
    rows, columns = results.frame("running_mean"), {}
    for name, first, last in (("gap_first_tenth", 0, 0.1), ("gap_last_tenth", 0.9, 1)):
        means = rows[rows.position.between(first, last)].groupby([*PAIR, "correct"])["mean"].mean().unstack()
        columns[name] = means.get(True, np.nan) - means.get(False, np.nan)
    later = rows[rows.position >= 0.1].groupby([*PAIR, "correct"])
    slopes = later.apply(lambda line: np.polyfit(line.position, line["mean"], 1)[0]).unstack()
    return pd.DataFrame({"slope_right": slopes.get(True), "slope_wrong": slopes.get(False), **columns})


def position_aurocs(results: Results) -> pd.DataFrame:
    """AUROC by pair: of the best single position, and of the mean over a tenth and over all"""
    rows = results.frame("positions").dropna()
    position, running = rows.position.round(6), rows.set_index(PAIR).running
    best = rows.groupby(PAIR).agg(best_position=("single", "max"), mean_of_all=("running", "last"))
    after, end = (running[(position == place).to_numpy()] for place in (0.1, 1))
    return best.assign(after_a_tenth=after, at_the_end=end)


def unparsed_answers(results: Results) -> pd.DataFrame:
    """responses without a parsed answer by pair, and those among them that end in the right number"""
    return results.frame("missed_answers")


# ---- verification


def mean_token_reduction(results: Results) -> pd.DataFrame:
    """mean share of tokens that in-situ verification saves, in percent"""
    saved = rows_of_table(results, "insitu_ptrue", "token_reduction_pct")
    return pd.DataFrame({"mean_reduction": [saved.value.mean()]})


def verification_tokens(results: Results) -> pd.DataFrame:
    """by pair: R squared of the tokens of P(True) on those encoded again; rank correlation of the saving with length"""
    return results.frame("verification")


# ---- stochastic passes and dropout rates


def pass_statistics(results: Results) -> pd.DataFrame:
    """passes by pair: variation of entropy, BALD, range of support, AUROC of c_BALD where no top token changes"""
    return results.frame("passes")


def entropy_curves_by_pair(results: Results) -> pd.DataFrame:
    """entropies by pair after all passes, how far off they are before (predictive: from the fifth), and their growth"""
    rows, columns = results.frame("entropies"), {}
    for term, first in (("conditional", 1), ("predictive", 5)):
        table = pivot_values(rows[rows.term == term], "passes", "mean")
        columns[term] = last_column(table)
        drift = table.loc[:, table.columns >= first].sub(columns[term], axis=0).abs().max(axis=1)
        columns[f"{term}_drift"] = drift[[max(table.columns, default=0) > first] * len(drift)]
        columns[f"{term}_least_growth"] = table.loc[:, table.columns <= 5].diff(axis=1).iloc[:, 1:].min(axis=1)
    return pd.DataFrame(columns)


def ece_by_passes(results: Results) -> pd.DataFrame:
    """ECE of c_BALD by pair, after five passes and after all"""
    table = pivot_values(results.frame("by_passes"), "passes", "ece")
    return pd.DataFrame({"after_five": table.get(5), "after_all": last_column(table.loc[:, table.columns > 5])})


def operations_per_pass(results: Results) -> pd.DataFrame:
    """operations per pass by pair, of the most passes over the fewest"""
    table = pivot_values(results.frame("cost"), "passes", "operations")
    per_pass = table.div(table.columns.to_numpy(float))
    return pd.DataFrame({"ratio": per_pass.iloc[:, -1] / per_pass.iloc[:, 0]})


def ece_range_by_phi(results: Results) -> pd.DataFrame:
    """by pair and phi: how far the ECE of c_BALD on the tuning examples moves over the dropout rates"""
    table = pivot_values(results.frame("by_phi", metric="ece"), "rate", index=[*PAIR, "phi"])
    return pd.DataFrame({"ece_range": range_of_row(table) if table.shape[1] > 1 else np.nan}, index=table.index)


def entropies_by_rate(results: Results) -> pd.DataFrame:
    """growth of both entropies by pair, from the lowest dropout rate to the highest"""
    by_pair = results.frame("by_rate").sort_values("rate").groupby(PAIR)[["rate", "predictive", "conditional"]]
    lowest, highest = by_pair.first(), by_pair.last()
    return (highest / lowest - 1).where(highest.rate > lowest.rate).add_suffix("_growth")


def dropout_rates(results: Results) -> pd.DataFrame:
    """ECE of c_BALD on the tuning examples by pair, over the dropout rates"""
    table = pivot_values(rows_of_table(results, "dropout_grid_search").query("estimator == 'c_bald'"), "rate")
    selected = table.idxmin(axis=1).astype(float)
    return pd.DataFrame({"ece_range": range_of_row(table), "selected": selected, "lowest_ece": table.min(axis=1)})


def selected_rate_ece(results: Results) -> pd.DataFrame:
    """ECE of c_BALD at the selected rate by pair, on the tuning and on the evaluation examples"""
    evaluation = uncalibrated(results).reindex(columns=["c_bald"]).squeeze(axis=1)
    return dropout_rates(results).join(evaluation.rename("evaluation_ece"), how="inner")


def distinct_rates(results: Results) -> pd.DataFrame:
    """the dropout rates that are selected"""
    selected = sorted(dropout_rates(results).selected.unique())
    return pd.DataFrame([{"rates": ", ".join(f"{rate:.2f}" for rate in selected), "different_rates": len(selected)}])


def rate_by_model(results: Results) -> pd.DataFrame:
    """selected dropout rate by model, on the hardest dataset, and the highest elsewhere"""
    return compare_with_hardest(results, dropout_rates(results).selected.unstack("dataset"))
