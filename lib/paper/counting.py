"""How the cases of a finding are counted: which rows of the results decide it, and which of them agree.

A judge takes results and returns the rows with a boolean for each; `lib.paper.findings` declares which finding it
judges. What a judge reads and is not there raises NotThere.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from lib.paper.results import PAIR, Results
from lib.score.estimators import ESTIMATORS

Cases = tuple[pd.DataFrame, pd.Series]  # the rows that decide, and which of them agree
Judge = Callable[[Results], Cases]


def given(function: Callable[..., Cases]) -> Callable[..., Judge]:
    """Called with all arguments but the results, it is a judge, which is called with them."""
    return lambda *arguments, **options: lambda results: function(results, *arguments, **options)


# ---- reading frames


def _wide(rows: pd.DataFrame, columns: str, values: str = "value", index: Sequence[str] = PAIR) -> pd.DataFrame:
    """A row per `index`, a column for each of `columns`, numbers alone."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float).rename_axis(columns=None)


def _raw_ece(results: Results, table: str = "result_estimation") -> pd.DataFrame:
    """ECE before any calibration by pair, an estimator a column."""
    rows = results.frame(table, metric="ece")
    rows = rows[rows.estimator != ""]
    if "method" in rows:
        rows = rows[rows["method"] == ""]
    return _wide(rows, "estimator").reset_index()


# ---- judges that several findings share


@given
def below(results: Results, one: str, other: str, table: str = "result_estimation", equal: bool = False,
          hard: bool = False) -> Cases:  # fmt: skip
    """ECE of one estimator below (or `equal` to) that of another, by pair; each may be a choice, `a|b`, of which the
    lower counts. `hard`: on the hard dataset alone."""
    left, right = one.split("|"), other.split("|")
    rows = _raw_ece(results, table)
    if hard:
        rows = rows[rows.dataset == results.hard]
    rows = rows.reindex(columns=[*PAIR, *left, *right]).dropna()  # a choice may leave an estimator no rows
    lower, higher = rows[left].min(axis=1), rows[right].min(axis=1)
    return rows, lower <= higher if equal else lower < higher


@given
def gains(results: Results, method: str, table: str) -> Cases:
    """Cells in which a method lowers the ECE (by the relative improvement, as printed)."""
    shown = [name for name, estimator in ESTIMATORS.items() if estimator.definition]
    rows = results.frame(table).dropna(subset="relative")
    rows = rows[rows.estimator.isin(shown) & (rows["method"] == method) & (rows.metric == "ece")]
    return rows[[*PAIR, "estimator", "value", "relative"]], rows.relative.astype(float) > 0


@given
def lower(results: Results, method: str, other: str, *names: str) -> Cases:
    """Cells of some estimators in which a method ends lower than another; of equal printed values the one with the
    larger relative improvement counts as lower."""
    rows = results.frame("result_calibration", metric="ece")
    rows = rows[rows.estimator.isin(names) & rows["method"].isin([method, other])]
    if rows["method"].nunique() < 2:
        return rows.head(0), pd.Series(dtype=bool)
    cells = [*PAIR, "estimator"]
    value, gain = (_wide(rows.astype({column: float}), "method", column, cells).dropna()
                   for column in ("value", "relative"))  # fmt: skip
    value, gain = value.align(gain, join="inner", axis=0)
    tie = value[method] == value[other]
    return value.reset_index(), (value[method] < value[other]) | (tie & (gain[method] > gain[other]))


@given
def arrows(results: Results, same: str, to_hard: bool, better: bool) -> Cases:
    """Arrows between two pairs that share model (`same`) or dataset and end on the hard dataset (or off it): does
    the transferred calibrator improve (or worsen) the target?"""
    other = "dataset" if same == "model" else "model"
    rows = results.frame("calibration_transfer_summary", metric="delta_ece")
    models, datasets = results.moved
    rows = rows[(rows["method"] != "") & rows.model.isin(list(models)) & rows.dataset.isin(list(datasets))]
    rows = rows[(rows[f"source_{same}"] == rows[same]) & (rows[f"source_{other}"] != rows[other])]
    rows = rows[(rows.dataset == results.hard) == to_hard]
    columns = ["source_model", "source_dataset", *PAIR, "method", "value"]
    return rows[columns], (rows.value.astype(float) < 0) == better


@given
def bins(results: Results, metric: str, agrees: Callable[[pd.DataFrame], pd.Series]) -> Cases:
    """A metric against the number of bins, by pair and estimator, fewest bins first."""
    rows = results.frame("bin_ablation")
    rows = rows[(rows.metric == metric) & (rows.estimator != "")]
    wide = _wide(rows, "bins", index=[*PAIR, "estimator"])
    return wide.reset_index(), agrees(wide)


@given
def settles(results: Results, term: str, agrees: Callable[[pd.Series], bool]) -> Cases:
    """A term of `eq:bald` against the number of passes, by pair."""
    rows = results.frame("entropies")
    wide = _wide(rows[rows.term == term], "passes", "mean")
    return wide.reset_index(), wide.apply(agrees, axis=1)


@given
def running(results: Results, first: float, last: float, agrees: Callable[[pd.Series], pd.Series]) -> Cases:
    """Mean gap of the running means, right less wrong, over a stretch of positions, by pair."""
    part = results.frame("running_mean")
    part = part[part.position.between(first, last)]
    wide = part.pivot_table(index=PAIR, columns="correct", values="mean").astype(float).rename_axis(columns=None)
    wide = wide.rename(columns={True: "right", False: "wrong"}).reindex(columns=["wrong", "right"]).dropna()
    wide = wide.assign(gap=wide.right - wide.wrong)
    return wide.reset_index(), agrees(wide.gap)


@given
def ablated(results: Results, column: str) -> Cases:
    """A share with the demonstration above that without, by pair."""
    wide = _wide(results.frame("ablation"), "demonstration", column)
    wide = wide.rename(columns={True: "with", False: "without"})
    return wide.reset_index(), wide["with"] > wide["without"]


# ---- judges of one finding


def overlap(results: Results) -> Cases:
    """Intervals of Seq Avg and Ans Avg that overlap."""
    frame = results.frame("result_estimation_full")
    frame = frame[(frame.metric == "ece") & frame.estimator.isin(["seq_avg", "ans_avg"]) & (frame["method"] == "")]
    low, high = _wide(frame, "estimator", "low"), _wide(frame, "estimator", "high")
    meets = low.max(axis=1) <= high.min(axis=1)
    return low.add_suffix("_low").join(high.add_suffix("_high")).reset_index(), meets


def saturated(results: Results) -> Cases:
    """Median probability of the answer's tokens, by pair."""
    rows = results.frame("answers")
    rows = rows.assign(median=np.exp(rows["median"]))
    return rows, rows["median"] > 0.99


def unchanged(results: Results) -> Cases:
    """Mean BALD of the examples whose top tokens no pass changes, by pair that has any."""
    rows = results.frame("top_tokens").dropna(subset="bald")
    return rows, rows.bald > 0


def saved(results: Results) -> Cases:
    """Share of tokens saved by in-situ verification, in percent."""
    rows = results.frame("insitu_ptrue", metric="token_reduction_pct")
    return rows[[*PAIR, "value"]], rows.value.astype(float) > 50


def mean_saving(results: Results) -> str:
    rows, _ = saved(results)
    return f"{rows.value.astype(float).mean():.0f}%"


def _rates(results: Results) -> pd.DataFrame:
    """ECE on the tuning examples, a dropout rate a column, by pair (the index)."""
    return _wide(results.frame("dropout_grid_search", metric="ece", estimator="c_bald"), "rate")


def rate_matters(results: Results) -> Cases:
    rates = _rates(results)
    return rates.reset_index(), rates.max(axis=1) - rates.min(axis=1) > 0.02


def hard_rate(results: Results) -> Cases:
    """Per model: a higher rate selected on the hard dataset than on each of the others."""
    selected = _rates(results).idxmin(axis=1).astype(float).unstack("dataset").rename_axis(columns=None)
    return selected.reset_index(), selected[results.hard] > selected.drop(columns=results.hard).max(axis=1)


def rates_hold(results: Results) -> Cases:
    rates = _rates(results)
    lowest = pd.DataFrame({"selected": rates.idxmin(axis=1).astype(float), "tuning": rates.min(axis=1)})
    rows = lowest.reset_index().merge(_raw_ece(results)[[*PAIR, "c_bald"]], on=PAIR)
    return rows, (rows.tuning - rows.c_bald).abs() <= 0.05


def _learning(results: Results) -> pd.DataFrame:
    """Mean ECE raw, with about 50 rows and with all, isotonic, by pair."""
    bands = results.frame("learning", sampling="uniform")
    raw = bands[bands.method == ""].set_index(PAIR)["mean"]
    curve = bands[bands.method == "isotonic"]
    distance = (np.log(curve.n.astype(float)) - np.log(50)).abs()
    few = curve.assign(distance=distance).sort_values("distance").groupby(PAIR).first()
    last = curve.sort_values("n").groupby(PAIR).last()
    return pd.DataFrame({"raw": raw, "n": few.n, "few": few["mean"], "all": last["mean"]}).reset_index()


def fifty(results: Results) -> Cases:
    rows = _learning(results)
    return rows, rows.raw - rows.few >= (rows.raw - rows["all"]) / 2


def hard_first(results: Results) -> Cases:
    """Smallest n at which half of what all rows remove is removed: on the hard dataset no more than on any other."""
    bands = results.frame("learning", sampling="uniform", method="isotonic")
    rows = _learning(results).assign(half=lambda rows: (rows.raw + rows["all"]) / 2)
    bands = bands.merge(rows[[*PAIR, "half"]], on=PAIR)
    enough = bands[bands["mean"] <= bands.half].groupby(PAIR).n.min()
    rows = rows.merge(enough.rename("enough"), on=PAIR, how="left")
    hard = rows[rows.dataset == results.hard]
    return rows, pd.Series([bool(hard.enough.min() <= rows.enough.min())] * len(hard))


def summary_is_full(results: Results) -> Cases:
    """Printed changes of ECE against the differences of the printed errors (three decimals each)."""
    keys = [*PAIR, "source_model", "source_dataset", "method"]
    summary = results.frame("calibration_transfer_summary", metric="delta_ece").astype({"value": float})
    errors = results.frame("calibration_transfer_full", metric="ece").astype({"value": float})
    summary = summary[summary["method"] != ""]
    raw = errors[errors["method"] == ""].set_index(PAIR).value
    both = summary[[*keys, "value"]].merge(errors[[*keys, "value"]], on=keys, suffixes=("_summary", "_full"))
    both["change"] = both.value_full - raw.reindex(pd.MultiIndex.from_frame(both[PAIR])).to_numpy()
    return both.drop(columns="value_full"), (both.value_summary - both.change).abs() < 0.0015


def short_is_full(results: Results) -> Cases:
    keys = [*PAIR, "estimator", "method"]
    brief, full = (results.frame(name, metric="ece").astype({"value": float})
                   for name in ("result_calibration", "result_calibration_full"))  # fmt: skip
    brief, full = brief[brief["method"] != ""], full[full["method"] != ""]
    both = brief[[*keys, "value"]].merge(full[[*keys, "value"]], on=keys, suffixes=("_short", "_full"))
    return both, both.value_short == both.value_full


def linear(results: Results) -> Cases:
    """Operations per pass with the most passes, over those with the fewest, by pair."""
    wide = _wide(results.frame("cost"), "passes", "operations")
    per_pass = wide.div(wide.columns.to_numpy(float))
    ratio = per_pass.iloc[:, -1] / per_pass.iloc[:, 0]
    return wide.astype("int64").assign(ratio=ratio).reset_index(), ratio.between(0.9, 1.1)


def boxed(results: Results) -> Cases:
    rows = results.frame("ablation")
    rows = rows.loc[rows.profile, [*PAIR, "accuracy", "accuracy_boxed"]]
    return rows, rows.accuracy_boxed > rows.accuracy
