"""The views on what the paper shows as pictures or says in words: tokens, positions, verification, passes."""

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.paper.claim_views import curve_points, pivoted, printed, spread_of, view
from lib.store import PAIR

# ---- tokens and positions


@view("tokens")
def token_statistics(results: Results) -> pd.DataFrame:
    """by pair: median probability of answer tokens, AUROC of the smallest token probability, and rank correlations"""
    return results.frame("tokens").rename(columns={
        "median": "median_answer_token", "wrong": "median_wrong_answer_token", "smallest": "auroc_of_smallest",
        "joint": "joint_with_length", "product": "product_with_length"})  # fmt: skip


@view("running_mean")
def running_means(results: Results) -> pd.DataFrame:
    """running means by pair: mean gap of right less wrong responses, and slopes after the first tenth"""
    rows = curve_points(results, "running_mean")

    def gap(first: float, last: float) -> pd.Series:
        part = rows[rows.x.between(first, last)].pivot_table(index=PAIR, columns="group", values="mean")
        part = part.reindex(columns=["True", "False"])
        return part["True"] - part["False"]

    later = rows[rows.x >= 0.1].groupby([*PAIR, "group"])
    slopes = later.apply(lambda line: np.polyfit(line.x, line["mean"], 1)[0]).unstack("group")
    slopes = slopes.reindex(columns=["True", "False"]).set_axis(["slope_right", "slope_wrong"], axis=1)
    return slopes.assign(gap_first_tenth=gap(0, 0.1), gap_last_tenth=gap(0.9, 1))


@view("positions")
def position_aurocs(results: Results) -> pd.DataFrame:
    """AUROC by pair: of the best single position, and of the mean over a tenth and over all"""
    rows = results.frame("positions").dropna()
    table = pivoted(rows.assign(position=rows.position.round(6)), "position", "running").reindex(columns=[0.1, 1.0])
    ends = rows.groupby(PAIR).agg(best_position=("single", "max"), mean_of_all=("running", "last"))
    return ends.join(table.set_axis(["after_a_tenth", "at_the_end"], axis=1))


@view("unread")
def unparsed_answers(results: Results) -> pd.DataFrame:
    """responses without a parsed answer by pair, and those among them that end in the right number"""
    return results.frame("unread").rename(columns={"lost": "right_but_unparsed"})


# ---- verification


@view("insitu_ptrue")
def mean_token_reduction(results: Results) -> pd.DataFrame:
    """mean share of tokens that in-situ verification saves, in percent"""
    saved = printed(results, "insitu_ptrue", "token_reduction_pct")
    return pd.DataFrame([{"mean_reduction": saved.value.mean()}])


@view("verification")
def verification_tokens(results: Results) -> pd.DataFrame:
    """by pair: R squared of the tokens of P(True) on those encoded again; rank correlation of the saving with length"""
    return results.frame("verification").rename(columns={"saving": "saving_with_length"})


# ---- stochastic passes


def last_column(table: pd.DataFrame) -> pd.Series:
    """NaN where there is none."""
    return table.iloc[:, -1] if table.shape[1] else pd.Series(np.nan, table.index)


@view("passes")
def pass_statistics(results: Results) -> pd.DataFrame:
    """passes by pair: variation of entropy, BALD, range of support, AUROC of c_BALD where no top token changes"""
    return results.frame("passes").rename(columns={
        "sharp": "entropy_variation", "share": "bald_share", "largest": "largest_bald", "top_k": "top_k_range",
        "top_p": "top_p_range", "auroc": "auroc_where_unchanged"})  # fmt: skip


@view("entropies")
def entropy_curves_by_pair(results: Results) -> pd.DataFrame:
    """entropies by pair after all passes, how far off they are before (predictive: from the fifth), and their growth"""
    rows, columns = curve_points(results, "entropies"), {}
    for term, first in (("conditional", 1), ("predictive", 5)):
        table = pivoted(rows[rows.group == term], "x", "mean")
        columns[term] = last_column(table)
        drift = table.loc[:, table.columns >= first].sub(columns[term], axis=0).abs().max(axis=1)
        columns[f"{term}_drift"] = drift[[max(table.columns, default=0) > first] * len(drift)]
        columns[f"{term}_least_growth"] = table.loc[:, table.columns <= 5].diff(axis=1).iloc[:, 1:].min(axis=1)
    return pd.DataFrame(columns)


@view("by_passes")
def ece_by_passes(results: Results) -> pd.DataFrame:
    """ECE of c_BALD by pair, after five passes and after all"""
    table = pivoted(curve_points(results, "by_passes"), "x", "mean")
    return pd.DataFrame({"after_five": table.get(5), "after_all": last_column(table.loc[:, table.columns > 5])})


@view("cost")
def operations_per_pass(results: Results) -> pd.DataFrame:
    """operations per pass by pair, of the most passes over the fewest"""
    table = pivoted(curve_points(results, "cost"), "x", "mean")
    per_pass = table.div(table.columns.to_numpy(float))
    return pd.DataFrame({"ratio": per_pass.iloc[:, -1] / per_pass.iloc[:, 0]})


@view("by_phi")
def ece_range_by_phi(results: Results) -> pd.DataFrame:
    """by pair and phi: how far the ECE of c_BALD on the tuning examples moves over the dropout rates"""
    table = pivoted(curve_points(results, "by_phi"), "x", "mean", [*PAIR, "group"]).rename_axis([*PAIR, "phi"])
    return pd.DataFrame({"ece_range": spread_of(table) if table.shape[1] > 1 else np.nan}, index=table.index)


@view("by_rate")
def entropies_by_rate(results: Results) -> pd.DataFrame:
    """growth of both entropies by pair, from the lowest dropout rate to the highest"""
    rows, columns = curve_points(results, "by_rate"), {}
    for term in ("predictive", "conditional"):
        table = pivoted(rows[rows.group == term], "x", "mean")
        columns[f"{term}_growth"] = (table.iloc[:, -1] / table.iloc[:, 0] - 1) if table.shape[1] > 1 else np.nan
    return pd.DataFrame(columns, index=table.index)
