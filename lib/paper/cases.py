"""How the cases of a finding are counted: which rows of the evidence decide it, and which of them agree.

A judge takes evidence and returns the rows with a boolean for each; `lib.claims` declares which finding it judges.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from lib.paper.results import PAIR, Evidence
from lib.score.estimators import ESTIMATORS

Cases = tuple[pd.DataFrame, pd.Series]  # the rows that decide, and which of them agree


# ---- reading frames


def _wide(e: Evidence, table: str = "result_estimation", metric: str = "ece", *more: str) -> pd.DataFrame:
    """Raw values of a metric by pair (and `more`), an estimator a column."""
    frame = e.frames[table]
    frame = frame[(frame.metric == metric) & (frame.estimator != "")]
    frame = frame[frame["method"] == ""] if "method" in frame else frame
    wide = frame.pivot(index=[*PAIR, *more], columns="estimator", values="value").astype(float)
    return wide.rename_axis(columns=None).reset_index()


def below(*names: str, table: str = "result_estimation", equal: bool = False, hard: bool = False) -> Callable:
    """ECE of one estimator below (or `equal` to) that of another, by pair; each may be a choice, `a|b`, of which the
    lower counts. `hard`: on the hard dataset alone."""

    def judge(e: Evidence) -> Cases:
        wide = _wide(e, table)
        columns = [*PAIR, *(column for name in names for column in name.split("|"))]
        wide = wide[wide.dataset == e.hard] if hard else wide
        wide = wide.reindex(columns=columns).dropna()  # a choice may leave an estimator no rows
        one, other = (wide[name.split("|")].min(axis=1) for name in names)
        return wide, (one <= other) if equal else (one < other)

    return judge


def gains(method: str, table: str) -> Callable:
    """Cells in which a method lowers the ECE (by the relative improvement, as printed)."""

    def judge(e: Evidence) -> Cases:
        rows = e.frames[table].dropna(subset="relative")
        shown = rows.estimator.isin([name for name, one in ESTIMATORS.items() if one.definition])
        rows = rows[shown & (rows["method"] == method) & (rows.metric == "ece")]
        return rows[[*PAIR, "estimator", "value", "relative"]], rows.relative.astype(float) > 0

    return judge


def isotonic_below_platt(*names: str, turned: bool = False) -> Callable:
    """Cells in which isotonic regression ends lower (`turned`: higher) than temperature or Platt scaling; of equal
    printed values the one with the larger relative improvement counts as lower."""

    def judge(e: Evidence) -> Cases:
        rows = e.frames["result_calibration"]
        rows = rows[(rows.metric == "ece") & rows.estimator.isin(names) & (rows["method"] != "")]
        values, both = ["value", "relative"], {"isotonic", "platt"}
        if not both <= set(rows["method"]):
            return rows.head(0), pd.Series(dtype=bool)
        wide = rows.astype(dict.fromkeys(values, float)).pivot(index=[*PAIR, "estimator"], columns="method",
                                                               values=values).dropna()  # fmt: skip
        gap = wide["value", "isotonic"] - wide["value", "platt"]
        gap = gap.where(gap != 0, wide["relative", "platt"] - wide["relative", "isotonic"])
        shown = wide["value"].rename_axis(columns=None).reset_index()
        return shown, (gap > 0 if turned else gap < 0).reset_index(drop=True)

    return judge


def arrows(same: str, to_hard: bool, better: bool) -> Callable:
    """Arrows between two pairs that share model (`same`) or dataset and end on the hard dataset (or off it): does
    the transferred calibrator improve (or worsen) the target?"""
    other = "dataset" if same == "model" else "model"

    def judge(e: Evidence) -> Cases:
        rows = e.frames["calibration_transfer_summary"].query("metric == 'delta_ece' and method != ''")
        rows = rows[rows.model.isin(list(e.moved[0])) & rows.dataset.isin(list(e.moved[1]))]
        rows = rows[(rows[f"source_{same}"] == rows[same]) & (rows[f"source_{other}"] != rows[other])]
        rows = rows[(rows.dataset == e.hard) == to_hard]
        columns = ["source_model", "source_dataset", *PAIR, "method", "value"]
        return rows[columns], (rows.value.astype(float) < 0) == better

    return judge


# ---- judges of a kind of their own


def saturated(e: Evidence) -> Cases:
    """Median probability of the answer's tokens, by pair."""
    rows = e.frames["answers"].assign(median=np.exp(e.frames["answers"]["median"]))
    return rows, rows["median"] > 0.99


def summary_is_full(e: Evidence) -> Cases:
    """Printed changes of ECE against the differences of the printed errors (three decimals each)."""
    keys = [*PAIR, "source_model", "source_dataset", "method"]
    short = e.frames["calibration_transfer_summary"].query("metric == 'delta_ece' and method != ''")
    errors = e.frames["calibration_transfer_full"].query("metric == 'ece'")
    raw = errors[errors["method"] == ""].set_index(PAIR).value.astype(float)
    both = short[[*keys, "value"]].merge(errors[[*keys, "value"]], on=keys, suffixes=("_summary", "_full"))
    both = both.astype({"value_summary": float, "value_full": float})
    both["change"] = both.value_full - raw.reindex(pd.MultiIndex.from_frame(both[PAIR])).to_numpy()
    return both.drop(columns="value_full"), (both.value_summary - both.change).abs() < 0.0015


def short_is_full(e: Evidence) -> Cases:
    keys = [*PAIR, "estimator", "method"]
    parts = [e.frames[name].query("metric == 'ece' and method != ''").astype({"value": float})[[*keys, "value"]]
             for name in ("result_calibration", "result_calibration_full")]  # fmt: skip
    both = parts[0].merge(parts[1], on=keys, suffixes=("_short", "_full"))
    return both, both.value_short == both.value_full


def overlap(e: Evidence) -> Cases:
    """Intervals of Seq Avg and Ans Avg that overlap."""
    frame = e.frames["result_estimation_full"]
    frame = frame[(frame.metric == "ece") & frame.estimator.isin(["seq_avg", "ans_avg"])]
    frame = frame[frame["method"] == ""]
    wide = frame.pivot(index=PAIR, columns="estimator", values=["low", "high"]).astype(float)
    meets = (wide["low"].max(axis=1) <= wide["high"].min(axis=1)).reset_index(drop=True)
    wide.columns = [f"{name}_{end}" for end, name in wide.columns]
    return wide.reset_index(), meets


def saved(e: Evidence) -> Cases:
    rows = e.frames["insitu_ptrue"].query("metric == 'token_reduction_pct'")
    return rows[[*PAIR, "value"]], rows.value.astype(float) > 50


def _selected(e: Evidence) -> pd.DataFrame:
    """ECE on the tuning examples by rate, of each pair, and the rate of the lowest."""
    wide = _rates(e)
    return wide.assign(selected=wide.drop(columns=PAIR).idxmin(axis=1).astype(float))


def _rates(e: Evidence) -> pd.DataFrame:
    rows = e.frames["dropout_grid_search"].query("metric == 'ece' and estimator == 'c_bald'")
    return rows.pivot(index=PAIR, columns="rate", values="value").astype(float).rename_axis(columns=None).reset_index()


def hard_rate(e: Evidence) -> Cases:
    """Per model: a higher rate selected on the hard dataset than on each of the others."""
    wide = _selected(e).pivot(index="model", columns="dataset", values="selected")
    return (wide.rename_axis(columns=None).reset_index(),
            (wide[e.hard] > wide.drop(columns=e.hard).max(axis=1)).reset_index(drop=True))  # fmt: skip


def rate_matters(e: Evidence) -> Cases:
    wide = _rates(e)
    values = wide.drop(columns=PAIR)
    return wide, values.max(axis=1) - values.min(axis=1) > 0.02


def rates_hold(e: Evidence) -> Cases:
    tuned, final = _selected(e), _wide(e)[[*PAIR, "c_bald"]]
    lowest = tuned.assign(tuning=tuned.drop(columns=[*PAIR, "selected"]).min(axis=1))[[*PAIR, "selected", "tuning"]]
    both = lowest.merge(final, on=PAIR)
    return both, (both.tuning - both.c_bald).abs() <= 0.05


def bins(metric: str, agrees: Callable[[pd.DataFrame], pd.Series]) -> Callable:
    """A metric against the number of bins, by pair and estimator, fewest bins first."""

    def judge(e: Evidence) -> Cases:
        rows = e.frames["bin_ablation"]
        rows = rows[(rows.metric == metric) & (rows.estimator != "")]
        wide = rows.pivot(index=[*PAIR, "estimator"], columns="bins", values="value").astype(float)
        return wide.rename_axis(columns=None).reset_index(), agrees(wide).reset_index(drop=True)

    return judge


def settles(e: Evidence, term: str, agrees: Callable[[pd.Series], bool]) -> Cases:
    """A term of `eq:bald` against the number of passes, by pair."""
    rows = e.frames["entropies"]
    rows = rows[rows.term == term].pivot(index=PAIR, columns="passes", values="mean")
    return rows.rename_axis(columns=None).reset_index(), rows.apply(agrees, axis=1).reset_index(drop=True)


def running(e: Evidence, low: float, high: float, agrees: Callable[[float], bool]) -> Cases:
    """Mean gap of the running means, right less wrong, over a stretch of positions, by pair."""
    part = e.frames["running_mean"]
    part = part[part.position.between(low, high)]
    wide = part.pivot_table(index=PAIR, columns="correct", values="mean").astype(float)
    wide = wide.rename(columns={True: "right", False: "wrong"}).dropna()
    gap = wide.right - wide.wrong if {"right", "wrong"} <= set(wide) else pd.Series(dtype=float)
    return wide.assign(gap=gap).rename_axis(columns=None).reset_index(), gap.map(agrees).reset_index(drop=True)


def unchanged(e: Evidence) -> Cases:
    """Mean BALD of the examples whose top tokens no pass changes, by pair that has any."""
    rows = e.frames["top_tokens"].dropna(subset="bald")
    return rows, rows.bald > 0


def _learning(e: Evidence) -> pd.DataFrame:
    """Mean ECE raw, with about 50 rows and with all, isotonic, by pair."""
    bands = e.frames["learning"].query("sampling == 'uniform'")
    raw = bands[bands.method == ""].set_index(PAIR)["mean"]
    curve = bands[bands.method == "isotonic"]
    few = curve.assign(far=(np.log(curve.n.astype(float)) - np.log(50)).abs()).sort_values("far").groupby(PAIR).first()
    last = curve.sort_values("n").groupby(PAIR).last()
    return pd.DataFrame({"raw": raw, "n": few.n, "few": few["mean"], "all": last["mean"]}).reset_index()


def fifty(e: Evidence) -> Cases:
    rows = _learning(e)
    return rows, rows.raw - rows.few >= (rows.raw - rows["all"]) / 2


def hard_first(e: Evidence) -> Cases:
    """Smallest n at which half of what all rows remove is removed: on the hard dataset no more than on any other."""
    bands = e.frames["learning"].query("sampling == 'uniform' and method == 'isotonic'")
    rows = _learning(e).assign(half=lambda r: (r.raw + r["all"]) / 2)
    near = bands.merge(rows[[*PAIR, "half"]], on=PAIR).query("mean <= half").groupby(PAIR).n.min()
    rows = rows.merge(near.rename("enough"), on=PAIR, how="left")
    least = rows[rows.dataset == e.hard].enough.min()
    model = rows[rows.dataset == e.hard][["model", "dataset", "enough"]].reset_index(drop=True)
    return rows, pd.Series([bool(least <= rows.enough.min())] * len(model))


def ablated(column: str) -> Callable:
    def judge(e: Evidence) -> Cases:
        wide = e.frames["ablation"].pivot(index=PAIR, columns="demonstration", values=column).astype(float)
        wide = wide.rename(columns={True: "with", False: "without"}).rename_axis(columns=None).reset_index()
        return wide, wide["with"] > wide["without"]

    return judge


def boxed(e: Evidence) -> Cases:
    rows = e.frames["ablation"].query("profile")[[*PAIR, "accuracy", "accuracy_boxed"]]
    return rows, rows.accuracy_boxed > rows.accuracy


def linear(e: Evidence) -> Cases:
    """Operations per pass with the most passes, over those with the fewest, by pair."""
    wide = e.frames["cost"].pivot(index=PAIR, columns="passes", values="operations")
    each = wide.div(wide.columns.to_numpy(float))
    ratio = each.iloc[:, -1] / each.iloc[:, 0]
    return wide.rename_axis(columns=None).reset_index().assign(ratio=ratio.to_numpy()), ratio.between(0.9, 1.1)


def percent(e: Evidence) -> str:
    return f"{saved(e)[0].value.astype(float).mean():.0f}%"
