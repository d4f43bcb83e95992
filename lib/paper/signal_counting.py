"""How the cases of a finding are counted on what the paper shows as pictures or says in words: curves, passes, tokens,
learning curves, the ablation. Frames as `run_results` makes them, none of which the paper prints."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from lib.paper.counting import given, hard, most_on_hard, wide
from lib.paper.judging import Cases, Undecided
from lib.paper.results import Results
from lib.store import PAIR

ENOUGH = 20  # rows, to say anything of them


@given
def count_pairs(results: Results, frame: str, columns: str, agrees: Callable[[pd.DataFrame], pd.Series]) -> Cases:
    """Some columns of a frame that has a row per pair; a pair in which one of them cannot be computed is no case."""
    rows = results.frame(frame)[[*PAIR, *columns.split()]].dropna()
    if rows.empty:
        raise Undecided("saturated: it cannot be computed on any pair")
    return rows, agrees(rows)


# ---- single-pass


@given
def running(results: Results, first: float, last: float, agrees: Callable[[pd.Series], pd.Series]) -> Cases:
    """Mean gap of the running means, right less wrong, over a stretch of positions, by pair."""
    part = results.frame("running_mean")
    part = part[part.position.between(first, last)]
    rows = part.pivot_table(index=PAIR, columns="correct", values="mean").astype(float).rename_axis(columns=None)
    rows = rows.rename(columns={True: "right", False: "wrong"}).reindex(columns=["wrong", "right"]).dropna()
    rows = rows.assign(gap=rows.right - rows.wrong)
    return rows.reset_index(), agrees(rows.gap)


def diverge(results: Results) -> Cases:
    """Slopes of the running means after the first tenth, by pair: right ones rise, wrong ones fall."""
    part = results.frame("running_mean").astype({"mean": float, "position": float})
    part = part[part.position >= 0.1]
    slopes = part.groupby([*PAIR, "correct"]).apply(lambda curve: np.polyfit(curve.position, curve["mean"], 1)[0])
    rows = slopes.unstack("correct").rename(columns={True: "right", False: "wrong"}).rename_axis(columns=None)
    rows = rows.reindex(columns=["wrong", "right"]).dropna()
    return rows.reset_index(), (rows.right > 0) & (rows.wrong < 0)


def overconfident(results: Results) -> Cases:
    """Mean confidence less accuracy: both answer estimators above both sequence estimators, by pair."""
    gaps = wide(results.frame("overconfidence"), "estimator", "gap")
    gaps = gaps.reindex(columns=["seq_avg", "seq_joint", "ans_avg", "ans_joint"]).dropna()
    return gaps.reset_index(), gaps[["ans_avg", "ans_joint"]].min(axis=1) > gaps[["seq_avg", "seq_joint"]].max(axis=1)


def no_single_position(results: Results) -> Cases:
    """AUROC of the best single position below that of the mean over all, by pair."""
    curves = results.frame("positions").dropna()
    rows = curves.groupby(PAIR, sort=False).agg(best=("single", "max"), mean=("running", "last")).reset_index()
    return rows, rows.best < rows["mean"]


def accumulates(results: Results) -> Cases:
    """AUROC of the running mean at a tenth of the length and at its end, by pair."""
    curves = results.frame("positions").dropna()
    at = wide(curves.assign(position=curves.position.round(6)), "position", "running")
    rows = at.reindex(columns=[0.1, 1.0]).set_axis(["tenth", "whole"], axis=1).dropna()
    return rows.reset_index(), rows.whole > rows.tenth


# ---- stochastic passes


@given
def settles(results: Results, term: str, agrees: Callable[[pd.Series], bool], after: int = 1) -> Cases:
    """A term of `eq:bald` against the number of passes, by pair; undecided where there are none `after` so many."""
    rows = results.frame("entropies")
    table = wide(rows[rows.term == term], "passes", "mean")
    if max(table.columns, default=0) <= after:
        raise Undecided("one pass" if after == 1 else "no more than five passes")
    return table.reset_index(), table.apply(agrees, axis=1)


def grows(row: pd.Series) -> bool:
    """With every pass up to the fifth."""
    return bool((row[row.index <= 5].diff().iloc[1:] > 0).all())


def stays(row: pd.Series, within: float, after: int = 1) -> bool:
    """After so many passes, within a share of its last value."""
    return bool((row[row.index >= after] - row.iloc[-1]).abs().max() <= within * row.iloc[-1])


def unchanged(results: Results) -> Cases:
    """AUROC of c_BALD among the responses whose most probable answer tokens no pass changes, where they are ENOUGH."""
    rows = results.frame("passes")[[*PAIR, "unchanged", "auroc"]]
    rows = rows[rows.unchanged >= ENOUGH].dropna()
    if rows.empty:
        raise Undecided(f"no pair has {ENOUGH} such responses, right ones and wrong ones")
    return rows, rows.auroc > 0.5


def five_are_reliable(results: Results) -> Cases:
    """ECE of c_BALD after five passes and after all, by pair."""
    table = wide(results.frame("by_passes"), "passes", "ece")
    if 5 not in table or table.columns[-1] <= 5:
        raise Undecided("no more than five passes")
    rows = pd.DataFrame({"five": table[5], "all": table.iloc[:, -1]})
    return rows.reset_index(), (rows.five - rows["all"]).abs() <= 0.02


def rate_matters_under_each(results: Results) -> Cases:
    """Range over rates of the ECE of c_BALD under each phi that divides by a support, by pair."""
    frame = results.frame("by_phi")
    table = wide(frame[frame.phi != "clip"], "rate", index=[*PAIR, "phi"])
    if table.shape[1] < 2:
        raise Undecided("one rate")
    return table.reset_index(), table.max(axis=1) - table.min(axis=1) > 0.02


def rate_moves_predictive(results: Results) -> Cases:
    """Relative change of both terms from the lowest rate to the highest, by pair."""
    frame = results.frame("by_rate")
    changes = {}
    for term in ("predictive", "conditional"):
        table = wide(frame, "rate", term)
        if table.shape[1] < 2:
            raise Undecided("one rate")
        changes[term] = table.iloc[:, -1] / table.iloc[:, 0] - 1
    rows = pd.DataFrame(changes)
    return rows.reset_index(), rows.predictive > rows.conditional


def linear(results: Results) -> Cases:
    """Operations per pass with the most passes, over those with the fewest, by pair."""
    table = wide(results.frame("cost"), "passes", "operations")
    per_pass = table.div(table.columns.to_numpy(float))
    ratio = per_pass.iloc[:, -1] / per_pass.iloc[:, 0]
    return table.astype("int64").assign(ratio=ratio).reset_index(), ratio.between(0.9, 1.1)


# ---- learning curves and calibration rows


def _learning_curves_with_raw(results: Results) -> pd.DataFrame:
    """The curves of rows drawn by chance, with the raw ECE of their pair."""
    bands = results.frame("learning", sampling="uniform")
    before = bands[bands.method == ""].set_index(PAIR)["mean"].rename("raw")
    return bands[bands.method != ""].join(before, on=PAIR)


def fifty(results: Results) -> Cases:
    """With 50 rows (or the nearest size) at least half of what all rows remove is removed, by pair and method."""
    keys = [*PAIR, "method"]
    curves = _learning_curves_with_raw(results)
    curves = curves.assign(distance=(np.log(curves.n.astype(float)) - np.log(50)).abs())
    few = curves.sort_values("distance").groupby(keys).first()
    rows = few[["n", "raw", "mean"]].rename(columns={"mean": "few"})
    rows = rows.join(curves.sort_values("n").groupby(keys)["mean"].last().rename("all")).reset_index()
    return rows, (rows.few < rows.raw) & (rows.raw - rows.few >= (rows.raw - rows["all"]) / 2)


def hard_needs_fewer(results: Results) -> Cases:
    """Smallest size at which nine in ten draws lie below the raw ECE: smaller on the hard dataset than on each other
    one, by model and method. Where both do from the fewest rows tried, none needs fewer that was seen: no case."""
    curves = _learning_curves_with_raw(results)
    stable = curves[curves.high < curves.raw].groupby([*PAIR, "method"]).n.min()
    rows = stable.reindex(curves.set_index([*PAIR, "method"]).index.unique()).rename("stable").reset_index()
    rows = rows.assign(stable=rows.stable.astype(float).fillna(np.inf))
    on_hard = rows[rows.dataset == hard(results)].set_index(["model", "method"]).stable.rename("hard")
    rows = rows[rows.dataset != hard(results)].join(on_hard, on=["model", "method"]).dropna(subset="hard")
    told = rows[rows[["stable", "hard"]].max(axis=1) > curves.n.min()]
    if len(rows) and told.empty:
        raise Undecided("the fewest rows tried are enough on every dataset")
    return told, told.hard < told.stable


def errors_on_hard(results: Results) -> Cases:
    """Per model: more confident errors among 50 calibration rows of the hard dataset than of each other one."""
    table = wide(results.frame("calibration_rows"), "dataset", "confident_errors", ["model"])
    return most_on_hard(results, table)


def mends_curves(results: Results) -> Cases:
    """ECE of Ans Avg after isotonic regression below that after temperature, where reliability is no sigmoid."""
    curved = results.frame("calibration_rows")[[*PAIR, "curved"]]
    curved = curved[curved.curved < 0.05]
    if curved.empty:
        raise Undecided("no reliability curve departs from a sigmoid")
    frame = results.frame("result_calibration", metric="ece", estimator="ans_avg")
    table = wide(frame[frame["method"].isin(["isotonic", "platt"])], "method").dropna().reset_index()
    if not {"isotonic", "platt"} <= set(table):
        raise Undecided("temperature was not fitted: no logits are there")
    rows = curved.merge(table, on=PAIR)
    return rows, rows.isotonic < rows.platt


# ---- paired intervals, and what 04b asked again


def intervals_agree(results: Results) -> Cases:
    """Paired intervals that leave out 0, where the point estimates say what the paper says."""
    rows = results.frame("paired")
    rows = rows[rows.difference < 0]
    return rows, rows.high < 0


@given
def count_demonstrated(results: Results, outcome: str) -> Cases:
    """A share with the demonstration above that without, and McNemar's exact test below .05, by pair."""
    rows = results.frame("demonstration", outcome=outcome).drop(columns="outcome")
    rows = rows[rows["with"] + rows.without > 0]
    if rows.empty:
        raise Undecided("saturated: both prompts do the same on every question")
    if rows.rows.max() < ENOUGH:
        raise Undecided(f"fewer than {ENOUGH} questions")
    return rows, (rows["with"] > rows.without) & (rows.p < 0.05)


def directions(rows: pd.DataFrame) -> str:
    """On how many pairs the demonstration changes a share, either way, by more than chance."""
    clear = rows[rows.p < 0.05]
    return f"more on {(clear['with'] > clear.without).sum()}, less on {(clear['with'] < clear.without).sum()}"


def count_boxed(results: Results) -> Cases:
    """Share of DeepSeek's wrong answers that are right once \\boxed{} counts, by dataset: at least half."""
    rows = results.frame("ablation")
    chosen = [name for name, label in results.models.items() if label.startswith("DeepSeek")]
    if not chosen:
        raise Undecided("no model of this run was taught \\boxed{}")
    rows = rows.loc[rows.profile & rows.model.isin(chosen), [*PAIR, "accuracy", "accuracy_boxed"]]
    rows = rows.assign(recovered=(rows.accuracy_boxed - rows.accuracy) / (1 - rows.accuracy).where(rows.accuracy < 1))
    return rows, rows.recovered >= 0.5
