"""The paper's findings as predicates over evidence: held or not, on the paper's own numbers and on a run's.

A claim counts cases (pairs, cells, arrows) and holds when its `quorum` of them does; where the paper says "often" or
"generally", that is more than half. The hard dataset is the least accurate one. Thresholds that the paper leaves to
the eye ("stable", "roughly") are stated in the claim itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.cells import escape
from lib.estimators import ESTIMATORS
from lib.evidence import PAIR, Evidence

ALL, MOST, HALF = 1.0, 0.75, 0.5  # quorum: all; three in four; more than half
Cases = tuple[pd.DataFrame, pd.Series]  # the rows that decide, and which of them agree


@dataclass(frozen=True)
class Claim:
    """`place` is the label of the table or figure that shows it; `needs` the frames without which nothing is said."""

    name: str
    place: str
    statement: str
    unit: str
    judge: Callable[[Evidence], Cases]
    needs: tuple[str, ...]
    quorum: float = HALF
    figure: Callable[[Evidence], str] | None = None  # what is quoted, where it is no count


@dataclass(frozen=True)
class Verdict:
    """`held` is None where the evidence lacks what the claim needs; `rows` (with `agrees`) decide it."""

    claim: Claim
    held: bool | None
    said: str
    rows: pd.DataFrame


# ---- reading frames


def _wide(e: Evidence, table: str = "result_estimation", metric: str = "ece", *more: str) -> pd.DataFrame:
    """Raw values of a metric by pair (and `more`), an estimator a column."""
    frame = e.frames[table]
    frame = frame[(frame.metric == metric) & (frame.estimator != "")]
    frame = frame[frame["method"] == ""] if "method" in frame else frame
    wide = frame.pivot(index=[*PAIR, *more], columns="estimator", values="value").astype(float)
    return wide.rename_axis(columns=None).reset_index()


def _below(*names: str, table: str = "result_estimation", equal: bool = False, hard: bool = False) -> Callable:
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


def _gains(method: str, table: str) -> Callable:
    """Cells in which a method lowers the ECE (by the relative improvement, as printed)."""

    def judge(e: Evidence) -> Cases:
        rows = e.frames[table].dropna(subset="relative")
        shown = rows.estimator.isin([name for name, one in ESTIMATORS.items() if one.definition])
        rows = rows[shown & (rows["method"] == method) & (rows.metric == "ece")]
        return rows[[*PAIR, "estimator", "value", "relative"]], rows.relative.astype(float) > 0

    return judge


def _isotonic_below_platt(*names: str, turned: bool = False) -> Callable:
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


def _arrows(same: str, to_hard: bool, better: bool) -> Callable:
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


def _summary_is_full(e: Evidence) -> Cases:
    """Printed changes of ECE against the differences of the printed errors (three decimals each)."""
    keys = [*PAIR, "source_model", "source_dataset", "method"]
    short = e.frames["calibration_transfer_summary"].query("metric == 'delta_ece' and method != ''")
    errors = e.frames["calibration_transfer_full"].query("metric == 'ece'")
    raw = errors[errors["method"] == ""].set_index(PAIR).value.astype(float)
    both = short[[*keys, "value"]].merge(errors[[*keys, "value"]], on=keys, suffixes=("_summary", "_full"))
    both = both.astype({"value_summary": float, "value_full": float})
    both["change"] = both.value_full - raw.reindex(pd.MultiIndex.from_frame(both[PAIR])).to_numpy()
    return both.drop(columns="value_full"), (both.value_summary - both.change).abs() < 0.0015


def _short_is_full(e: Evidence) -> Cases:
    keys = [*PAIR, "estimator", "method"]
    parts = [e.frames[name].query("metric == 'ece' and method != ''").astype({"value": float})[[*keys, "value"]]
             for name in ("result_calibration", "result_calibration_full")]  # fmt: skip
    both = parts[0].merge(parts[1], on=keys, suffixes=("_short", "_full"))
    return both, both.value_short == both.value_full


def _overlap(e: Evidence) -> Cases:
    """Intervals of Seq Avg and Ans Avg that overlap."""
    frame = e.frames["result_estimation_full"]
    frame = frame[(frame.metric == "ece") & frame.estimator.isin(["seq_avg", "ans_avg"])]
    frame = frame[frame["method"] == ""]
    wide = frame.pivot(index=PAIR, columns="estimator", values=["low", "high"]).astype(float)
    meets = (wide["low"].max(axis=1) <= wide["high"].min(axis=1)).reset_index(drop=True)
    wide.columns = [f"{name}_{end}" for end, name in wide.columns]
    return wide.reset_index(), meets


def _saved(e: Evidence) -> Cases:
    rows = e.frames["insitu_ptrue"].query("metric == 'token_reduction_pct'")
    return rows[[*PAIR, "value"]], rows.value.astype(float) > 50


def _selected(e: Evidence) -> pd.DataFrame:
    """ECE on the tuning examples by rate, of each pair, and the rate of the lowest."""
    wide = _rates(e)
    return wide.assign(selected=wide.drop(columns=PAIR).idxmin(axis=1).astype(float))


def _rates(e: Evidence) -> pd.DataFrame:
    rows = e.frames["dropout_grid_search"].query("metric == 'ece' and estimator == 'c_bald'")
    return rows.pivot(index=PAIR, columns="rate", values="value").astype(float).rename_axis(columns=None).reset_index()


def _hard_rate(e: Evidence) -> Cases:
    """Per model: a higher rate selected on the hard dataset than on each of the others."""
    wide = _selected(e).pivot(index="model", columns="dataset", values="selected")
    return (wide.rename_axis(columns=None).reset_index(),
            (wide[e.hard] > wide.drop(columns=e.hard).max(axis=1)).reset_index(drop=True))  # fmt: skip


def _rate_matters(e: Evidence) -> Cases:
    wide = _rates(e)
    values = wide.drop(columns=PAIR)
    return wide, values.max(axis=1) - values.min(axis=1) > 0.02


def _rates_hold(e: Evidence) -> Cases:
    tuned, final = _selected(e), _wide(e)[[*PAIR, "c_bald"]]
    lowest = tuned.assign(tuning=tuned.drop(columns=[*PAIR, "selected"]).min(axis=1))[[*PAIR, "selected", "tuning"]]
    both = lowest.merge(final, on=PAIR)
    return both, (both.tuning - both.c_bald).abs() <= 0.05


def _bins(metric: str, agrees: Callable[[pd.DataFrame], pd.Series]) -> Callable:
    """A metric against the number of bins, by pair and estimator, fewest bins first."""

    def judge(e: Evidence) -> Cases:
        rows = e.frames["bin_ablation"]
        rows = rows[(rows.metric == metric) & (rows.estimator != "")]
        wide = rows.pivot(index=[*PAIR, "estimator"], columns="bins", values="value").astype(float)
        return wide.rename_axis(columns=None).reset_index(), agrees(wide).reset_index(drop=True)

    return judge


def _settles(e: Evidence, term: str, agrees: Callable[[pd.Series], bool]) -> Cases:
    """A term of `eq:bald` against the number of passes, by pair."""
    rows = e.frames["entropies"]
    rows = rows[rows.term == term].pivot(index=PAIR, columns="passes", values="mean")
    return rows.rename_axis(columns=None).reset_index(), rows.apply(agrees, axis=1).reset_index(drop=True)


def _running(e: Evidence, low: float, high: float, agrees: Callable[[float], bool]) -> Cases:
    """Mean gap of the running means, right less wrong, over a stretch of positions, by pair."""
    part = e.frames["running_mean"]
    part = part[part.position.between(low, high)]
    wide = part.pivot_table(index=PAIR, columns="correct", values="mean").astype(float)
    wide = wide.rename(columns={True: "right", False: "wrong"}).dropna()
    gap = wide.right - wide.wrong if {"right", "wrong"} <= set(wide) else pd.Series(dtype=float)
    return wide.assign(gap=gap).rename_axis(columns=None).reset_index(), gap.map(agrees).reset_index(drop=True)


def _unchanged(e: Evidence) -> Cases:
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


def _fifty(e: Evidence) -> Cases:
    rows = _learning(e)
    return rows, rows.raw - rows.few >= (rows.raw - rows["all"]) / 2


def _hard_first(e: Evidence) -> Cases:
    """Smallest n at which half of what all rows remove is removed: on the hard dataset no more than on any other."""
    bands = e.frames["learning"].query("sampling == 'uniform' and method == 'isotonic'")
    rows = _learning(e).assign(half=lambda r: (r.raw + r["all"]) / 2)
    near = bands.merge(rows[[*PAIR, "half"]], on=PAIR).query("mean <= half").groupby(PAIR).n.min()
    rows = rows.merge(near.rename("enough"), on=PAIR, how="left")
    least = rows[rows.dataset == e.hard].enough.min()
    model = rows[rows.dataset == e.hard][["model", "dataset", "enough"]].reset_index(drop=True)
    return rows, pd.Series([bool(least <= rows.enough.min())] * len(model))


def _ablated(column: str) -> Callable:
    def judge(e: Evidence) -> Cases:
        wide = e.frames["ablation"].pivot(index=PAIR, columns="demonstration", values=column).astype(float)
        wide = wide.rename(columns={True: "with", False: "without"}).rename_axis(columns=None).reset_index()
        return wide, wide["with"] > wide["without"]

    return judge


def _boxed(e: Evidence) -> Cases:
    rows = e.frames["ablation"].query("profile")[[*PAIR, "accuracy", "accuracy_boxed"]]
    return rows, rows.accuracy_boxed > rows.accuracy


def _linear(e: Evidence) -> Cases:
    """Operations per pass with the most passes, over those with the fewest, by pair."""
    wide = e.frames["cost"].pivot(index=PAIR, columns="passes", values="operations")
    each = wide.div(wide.columns.to_numpy(float))
    ratio = each.iloc[:, -1] / each.iloc[:, 0]
    return wide.rename_axis(columns=None).reset_index().assign(ratio=ratio.to_numpy()), ratio.between(0.9, 1.1)


def _percent(e: Evidence) -> str:
    return f"{_saved(e)[0].value.astype(float).mean():.0f}%"


# ---- what the paper says

_TABLE, _PTRUE = ("result_estimation",), ("insitu_ptrue",)
_GRID, _BINS, _MOVED = ("dropout_grid_search",), ("bin_ablation",), ("calibration_transfer_summary",)
CLAIMS: tuple[Claim, ...] = (
    Claim("SeqAvgBelowAnswer", "tab_result_estimation",
          "Finding 1: Seq Avg has a lower ECE than both answer estimators on all pairs", "pairs",
          _below("seq_avg", "ans_avg|ans_joint"), _TABLE, ALL),
    Claim("SeqJointBelowAnswer", "tab_result_estimation",
          "Finding 1: Seq Joint has a lower ECE than both answer estimators on all pairs", "pairs",
          _below("seq_joint", "ans_avg|ans_joint"), _TABLE, ALL),
    Claim("SeqAnsOverlap", "tab_result_estimation_full",
          "Finding 1: intervals of Seq Avg and Ans Avg overlap on some pairs, not on most", "pairs", _overlap,
          ("result_estimation_full",), 0.0),
    Claim("JointBelowAvg", "tab_result_estimation", "Finding 1: Seq Joint is often lower than Seq Avg", "pairs",
          _below("seq_joint", "seq_avg"), _TABLE),
    Claim("JointBelowAvgHard", "tab_result_estimation",
          "Finding 1: Seq Joint is lower than Seq Avg on the hard dataset in particular", "models",
          _below("seq_joint", "seq_avg", hard=True), _TABLE, MOST),
    Claim("SeqBelowMultiPass", "tab_result_estimation",
          "Finding 1: in several settings the best sequence estimator beats the best multi-pass one", "pairs",
          _below("seq_avg|seq_joint", "p_true|c_bald"), _TABLE, 0.25),
    Claim("MeansOverlapFirst", "fig_main_analysis",
          "Figure 1a: running means of right and wrong responses overlap in the first tenth (gap below .02)", "pairs",
          lambda e: _running(e, 0, 0.1, lambda gap: abs(gap) < 0.02), ("running_mean",), MOST),
    Claim("MeansPartLater", "fig_main_analysis",
          "Figure 1a: later they part, right responses above wrong ones in the last tenth", "pairs",
          lambda e: _running(e, 0.9, 1, lambda gap: gap > 0), ("running_mean",), MOST),
    Claim("AnswersSaturate", "fig_main_analysis",
          "Section 1: answer tokens are saturated (median probability above .99)", "pairs",
          lambda e: (e.frames["answers"].assign(median=np.exp(e.frames["answers"]["median"])),
                     np.exp(e.frames["answers"]["median"]) > 0.99), ("answers",), MOST),
    Claim("BaldBelowPTrue", "tab_result_estimation", "Finding 2: c_BALD often has a lower ECE than P(True)", "pairs",
          _below("c_bald", "p_true"), _TABLE),
    Claim("BaldBelowPTrueHard", "tab_result_estimation",
          "Finding 2: c_BALD has a lower ECE than P(True) particularly on the hard dataset", "models",
          _below("c_bald", "p_true", hard=True), _TABLE, MOST),
    Claim("PredictiveSettles", "fig_main_analysis",
          "Finding 2: predictive entropy settles after about five passes (90% of its last value)", "pairs",
          lambda e: _settles(e, "predictive", lambda row: row.iloc[min(4, len(row) - 1)] >= 0.9 * row.iloc[-1]),
          ("entropies",), MOST),
    Claim("ConditionalStays", "fig_main_analysis",
          "Finding 2: expected conditional entropy stays within 20% of its last value", "pairs",
          lambda e: _settles(e, "conditional", lambda row: (row - row.iloc[-1]).abs().max() <= 0.2 * row.iloc[-1]),
          ("entropies",), MOST),
    Claim("TopTokenUnchanged", "fig_main_analysis",
          "Introduction: distributions vary (BALD above 0) where the answer's most probable tokens never change",
          "pairs", _unchanged, ("top_tokens",), ALL),
    Claim("RateMatters", "tab_dropout_grid_search",
          "Finding 2: c_BALD is sensitive to the dropout rate (ECE moves by more than .02)", "pairs", _rate_matters,
          _GRID),
    Claim("HardRateHigher", "tab_dropout_grid_search",
          "Appendix: the hard dataset selects a higher rate than the others for most models", "models", _hard_rate,
          _GRID),
    Claim("RatesHold", "tab_dropout_grid_search",
          "Appendix: selected rates carry over to the evaluation split (ECE within .05)", "pairs", _rates_hold,
          (*_GRID, *_TABLE)),
    Claim("PTrueBelowAnsAvg", "tab_result_estimation", "Finding 3: P(True) is often better calibrated than Ans Avg",
          "pairs", _below("p_true", "ans_avg"), _TABLE),
    Claim("InSituMatches", "tab_insitu_ptrue", "Finding 3: in situ matches or improves on standard P(True)", "pairs",
          _below("p_true_insitu", "p_true", table="insitu_ptrue", equal=True), _PTRUE),
    Claim("InSituBelowAnsAvg", "tab_insitu_ptrue", "Finding 3: in situ is better calibrated than Ans Avg", "pairs",
          _below("p_true_insitu", "ans_avg", table="insitu_ptrue"), _PTRUE),
    Claim("TokenReduction", "tab_insitu_ptrue",
          "Finding 3: in situ saves most tokens of the standard prompt, on every pair", "pairs", _saved, _PTRUE, ALL,
          _percent),
    Claim("IsotonicReduces", "tab_result_isotonic", "Section 6: isotonic regression generally reduces ECE", "cells",
          _gains("isotonic", "result_isotonic"), ("result_isotonic",)),
    Claim("PlattReduces", "tab_result_calibration", "Section 6: temperature and Platt scaling generally reduce ECE",
          "cells", _gains("platt", "result_calibration"), ("result_calibration",)),
    Claim("IsotonicBelowTemperature", "tab_result_calibration",
          "Section 6: isotonic often reduces most, against temperature on the answer's tokens", "cells",
          _isotonic_below_platt("ans_avg", "ans_joint"), ("result_calibration",)),
    Claim("PlattBelowIsotonic", "tab_result_calibration",
          "Section 6: for P(True), Platt scaling beats isotonic regression", "pairs",
          _isotonic_below_platt("p_true", turned=True), ("result_calibration",)),
    Claim("FiftySuffice", "fig_calibration_analysis",
          "Finding 4: with 50 rows at least half of what all rows remove is removed (Ans Avg, isotonic)", "pairs",
          _fifty, ("learning",), ALL),
    Claim("HardNeedsFewer", "fig_calibration_analysis",
          "Finding 4: the hard dataset gets there with the fewest rows", "models", _hard_first, ("learning",), ALL),
    Claim("EasyToHard", "tab_calibration_transfer_summary",
          "Finding 4: calibrators learned on another dataset improve the hard one", "arrows",
          _arrows("model", True, True), _MOVED, ALL),
    Claim("HardToEasy", "tab_calibration_transfer_summary",
          "Finding 4: calibrators learned on the hard dataset generally worsen the others", "arrows",
          _arrows("model", False, False), _MOVED),
    Claim("ModelsOnHard", "tab_calibration_transfer_summary",
          "Finding 4: between models, both directions improve the hard dataset", "arrows",
          _arrows("dataset", True, True), _MOVED, ALL),
    Claim("ModelsOnEasy", "tab_calibration_transfer_summary",
          "Finding 4: between models, some directions worsen the other dataset, not all", "arrows",
          _arrows("dataset", False, False), _MOVED, 0.0),
    Claim("SummaryIsFull", "tab_calibration_transfer_summary",
          "Tables: the changes of the transfer summary are those of the full table", "cells", _summary_is_full,
          (*_MOVED, "calibration_transfer_full"), ALL),
    Claim("ShortIsFull", "tab_result_calibration_full", "Tables: calibration prints the same in short and in full",
          "cells", _short_is_full, ("result_calibration", "result_calibration_full"), ALL),
    Claim("EceStable", "tab_bin_ablation", "Appendix: ECE hardly moves with the number of bins (within .02)", "cells",
          _bins("ece", lambda w: w.max(axis=1) - w.min(axis=1) < 0.0205), _BINS),
    Claim("MceGrows", "tab_bin_ablation", "Appendix: MCE grows, or stays, with the number of bins", "cells",
          _bins("mce", lambda w: (w.diff(axis=1).iloc[:, 1:] >= 0).all(axis=1)), _BINS),
    Claim("BrierStays", "tab_bin_ablation", "Appendix: the Brier score does not depend on the bins", "cells",
          _bins("brier", lambda w: w.max(axis=1) - w.min(axis=1) < 1e-9), _BINS, ALL),
    Claim("CostLinear", "rep_ablation", "Finding 2: c_BALD's cost grows linearly with its passes (within 10%)", "pairs",
          _linear, ("cost",), ALL),
    Claim("DemonstrationAccuracy", "rep_ablation", "Appendix: the demonstration raises accuracy", "pairs",
          _ablated("accuracy"), ("ablation",)),
    Claim("DemonstrationExtraction", "rep_ablation", "Appendix: the demonstration raises the share of answers found",
          "pairs", _ablated("extracted"), ("ablation",)),
    Claim("BoxedFormat", "rep_ablation", "Appendix: accepting \\boxed{} finds right answers that #### misses", "pairs",
          _boxed, ("ablation",), 0.0),
)  # fmt: skip
SOME_NOT_ALL = {"SeqAnsOverlap", "ModelsOnEasy"}


def judge(claim: Claim, e: Evidence) -> Verdict:
    """A claim on some evidence."""
    if any(name not in e.frames or e.frames[name].empty for name in claim.needs):
        return Verdict(claim, None, "", pd.DataFrame())
    rows, agrees = claim.judge(e)
    agrees = agrees.reset_index(drop=True).astype(bool)
    count, total = int(agrees.sum()), len(agrees)
    if not total:
        return Verdict(claim, None, "", rows)
    held = count == total if claim.quorum == ALL else count > claim.quorum * total
    if claim.name in SOME_NOT_ALL:
        held = 0 < count < total
    rows = rows.reset_index(drop=True)
    rows = rows.assign(agrees=agrees) if len(rows) == total else rows
    figure = claim.figure(e) if claim.figure else ""
    said = f"{count} of {total} {claim.unit}"
    return Verdict(claim, held, f"{figure} on average, {said}" if figure else said, rows)


def macros(found: dict[str, Verdict]) -> str:
    """`numbers.tex`: a LaTeX macro for each figure that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = [(v.claim, v.said.split(" on average")[0] if v.claim.figure else v.said.removesuffix(f" {v.claim.unit}"))
             for v in found.values() if v.said]  # fmt: skip
    return "".join(f"% {claim.statement} ({claim.unit})\n\\newcommand{{\\{claim.name}}}{{{escape(said)}}}\n"
                   for claim, said in lines)  # fmt: skip


def verdicts(e: Evidence) -> dict[str, Verdict]:
    """Every claim on some evidence, by name."""
    return {claim.name: judge(claim, e) for claim in CLAIMS}
