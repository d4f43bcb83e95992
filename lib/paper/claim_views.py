"""The views that claims are counted on: wide frames of results, a case a row, a column for each figure that a predicate
compares. The first line of a view's docstring is shown beside the predicate.

A view reads the frames that it needs of `Results`, and raises NotThere where one is missing. A figure that cannot be
computed is NaN: `verdicts.judge` leaves out a case in which the predicate meets one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lib.analysis.results import Results
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

CELL = [*PAIR, "estimator"]
ENOUGH = 20  # rows, to say anything of them


class NotApplicable(Exception):
    """Why results that hold what a claim needs cannot decide it."""


@dataclass(frozen=True)
class View:
    """`about` says in words what a case is, `needs` which frames are read."""

    about: str
    needs: tuple[str, ...]
    make: Callable[[Results], pd.DataFrame]

    def cases(self, results: Results) -> pd.DataFrame:
        """A case a row. Raises NotThere, or NotApplicable."""
        for name in self.needs:
            results.frame(name)
        made = results.once((self.make,), lambda: self.make(results))
        return made if made.index.names == [None] else made.reset_index()


VIEWS: dict[str, View] = {}


def view(*needs: str) -> Callable[[Callable[[Results], pd.DataFrame]], Callable[[Results], pd.DataFrame]]:
    """Declares a view that reads these frames, under the function's name."""

    def declare(make: Callable[[Results], pd.DataFrame]) -> Callable[[Results], pd.DataFrame]:
        VIEWS[make.__name__] = View(str(make.__doc__).split("\n")[0], needs, make)
        return make

    return declare


# ---- reading results


def pivoted(rows: pd.DataFrame, columns: str, values: str = "value", index: list[str] = PAIR) -> pd.DataFrame:
    """A row per `index`, a column for each of `columns`."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float).rename_axis(columns=None)


def printed(results: Results, table: str, metric: str = "ece") -> pd.DataFrame:
    """The rows of a table that hold a metric."""
    rows = results.numbers
    return rows[(rows.table == table) & (rows.metric == metric)]


def raw(results: Results, table: str = "result_estimation", metric: str = "ece") -> pd.DataFrame:
    """A metric before any calibration by pair, an estimator a column."""
    return pivoted(printed(results, table, metric).query("method == ''"), "estimator")


def curve_points(results: Results, name: str) -> pd.DataFrame:
    return results.curves[results.curves.curve == name]


def hardest_of(results: Results) -> str:
    """The dataset of least accuracy. Raises NotApplicable where there is but one."""
    if len(results.datasets) < 2:
        raise NotApplicable("one dataset")
    return results.hard


def spread_of(table: pd.DataFrame) -> pd.Series:
    """Largest less smallest of a row."""
    return table.max(axis=1) - table.min(axis=1)


def beside_hardest(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """Of a table of datasets (columns) the hardest one, and the largest of the others."""
    hardest = hardest_of(results)
    table = table.reindex(columns=table.columns.union([hardest], sort=False))
    return pd.DataFrame({"hard": table[hardest], "elsewhere": table.drop(columns=hardest).max(axis=1)})


def medians_beside_hardest(results: Results, margin: pd.Series) -> pd.DataFrame:
    """One case: the median of a margin by pair on the hardest dataset, and elsewhere."""
    hard = margin.index.get_level_values("dataset") == hardest_of(results)
    if hard.all() or not hard.any():
        raise NotApplicable("no case elsewhere" if hard.any() else "no case on the hard dataset")
    return pd.DataFrame([{"hard": margin[hard].median(), "elsewhere": margin[~hard].median()}])


def on_same_rows(results: Results, table: str, names: list[str]) -> pd.DataFrame:
    """Raw ECE of these estimators; where some have fewer rows than others (dropout passes), that of the others is on
    the rows that all have (`on_shared_rows`)."""
    errors = raw(results, table).reindex(columns=names)
    shared = raw(results, table, "ece_shared").reindex(index=errors.index, columns=names)
    errors.update(shared[shared.isna().any(axis=1)])
    return errors


# ---- what is said where a count says too little


def count_by(column: str, equal: str = "") -> Callable[[pd.DataFrame], str]:
    """Counts for each value of a column, with how many are `equal`: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""

    def count(rows: pd.DataFrame) -> str:
        said = []
        for value, part in rows.groupby(column, sort=False):
            same = int(part.eval(equal).sum()) if equal else 0
            said.append(f"{value} {part.agrees.sum()} of {len(part)}" + (f" ({same} equal)" if same else ""))
        return ", ".join(said)

    return count


def fill_in(template: str) -> Callable[[pd.DataFrame], Any]:
    """The figures of each case in words: "hard 0.137, elsewhere 0.013"."""
    return lambda rows: ", ".join(template.format(**row) for row in rows.to_dict("records"))


# ---- raw confidence


@view("result_estimation")
def raw_ece(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair"""
    errors = raw(results)
    names = [name for name, e in ESTIMATORS.items() if e.group == "multi_pass" and e.definition and name in errors]
    return errors.assign(best_multi_pass=errors[names].min(axis=1))


@view("result_estimation")
def raw_auroc(results: Results) -> pd.DataFrame:
    """AUROC of raw confidence by pair"""
    if printed(results, "result_estimation", "auroc").empty:
        raise NotApplicable("no AUROC printed")
    return raw(results, metric="auroc")


@view("result_estimation")
def ece_beside_p_true(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows of P(True)"""
    return on_same_rows(results, "result_estimation", ["p_true", "ans_avg"])


@view("insitu_ptrue")
def ece_in_situ(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows of P(True)"""
    return on_same_rows(results, "insitu_ptrue", ["p_true_insitu", "p_true", "ans_avg"])


@view("result_estimation")
def ece_beside_passes(results: Results) -> pd.DataFrame:
    """ECE of raw confidence by pair, on the rows with passes"""
    return on_same_rows(results, "result_estimation", ["seq_avg", "seq_joint", "p_true", "c_bald"])


@view("result_estimation")
def bald_margin(results: Results) -> pd.DataFrame:
    """median margin of ECE by which c_BALD is below P(True)"""
    errors = ece_beside_passes(results)
    return medians_beside_hardest(results, (errors.p_true - errors.c_bald).dropna())


@view("result_estimation")
def ece_by_subset(results: Results) -> pd.DataFrame:
    """printed ECE of raw confidence by pair and subset of tokens"""
    return joint_and_avg(results).round(3)


@view("result_estimation")
def joint_margin(results: Results) -> pd.DataFrame:
    """median margin of ECE by which the joint probability is below the average, over both subsets of tokens"""
    errors = joint_and_avg(results).set_index(PAIR)
    return medians_beside_hardest(results, errors.avg - errors.joint)


def joint_and_avg(results: Results) -> pd.DataFrame:
    errors = raw(results).reset_index()
    parts = []
    for subset in ("seq", "ans"):
        rows = errors.reindex(columns=[*PAIR, f"{subset}_joint", f"{subset}_avg"]).dropna()
        parts.append(rows.set_axis([*PAIR, "joint", "avg"], axis=1).assign(subset=subset.title()))
    return pd.concat(parts, ignore_index=True)


@view("overconfidence")
def overconfidence(results: Results) -> pd.DataFrame:
    """mean confidence less accuracy by pair"""
    return pivoted(results.frame("overconfidence"), "estimator", "gap")


@view("result_estimation")
def accuracy_by_model(results: Results) -> pd.DataFrame:
    """dataset of least accuracy of a model, and of all models"""
    table = pivoted(printed(results, "result_estimation", "acc"), "dataset", index=["model"])
    return pd.DataFrame({"least_accurate": table.idxmin(axis=1), "hardest": hardest_of(results)})


@view("result_estimation_full")
def intervals(results: Results) -> pd.DataFrame:
    """sides of the 95% intervals of raw ECE and MCE"""
    rows = pd.concat([printed(results, "result_estimation_full", metric) for metric in ("mce", "ece")])
    rows = rows[(rows["method"] == "") & rows.estimator.map(lambda name: bool(ESTIMATORS[name].definition))]
    sides = pd.concat([rows.value - rows.low, rows.high - rows.value], axis=1)
    named = rows[CELL].assign(metric=rows.metric.str.upper(), width=rows.high - rows.low, low=rows.low, high=rows.high)
    return named.assign(longer_side=sides.max(axis=1), shorter_side=sides.min(axis=1)).reset_index(drop=True)


@view("result_estimation_full")
def interval_widths(results: Results) -> pd.DataFrame:
    """width of the 95% intervals by pair and estimator"""
    return pivoted(intervals(results), "metric", "width", CELL).rename(columns=str.lower)


@view("result_estimation_full")
def interval_ends(results: Results) -> pd.DataFrame:
    """ends of the 95% intervals of raw ECE by pair"""
    rows = intervals(results).query("metric == 'ECE'")
    return pd.concat([pivoted(rows, "estimator", end).add_suffix(f"_{end}") for end in ("low", "high")], axis=1)


@view("paired")
def paired_differences(results: Results) -> pd.DataFrame:
    """paired difference of ECE and the upper end of its 95% interval"""
    return results.frame("paired")


# ---- dropout rates


@view("dropout_grid_search")
def dropout_rates(results: Results) -> pd.DataFrame:
    """ECE of c_BALD on the tuning examples by pair, over the dropout rates"""
    rows = printed(results, "dropout_grid_search")
    table = pivoted(rows[rows.estimator == "c_bald"], "rate")
    selected = table.idxmin(axis=1).astype(float)
    return pd.DataFrame({"ece_range": spread_of(table), "selected": selected, "lowest_ece": table.min(axis=1)})


@view("dropout_grid_search", "result_estimation")
def selected_rate_ece(results: Results) -> pd.DataFrame:
    """ECE of c_BALD at the selected rate by pair, on the tuning and on the evaluation examples"""
    evaluation = raw(results).reindex(columns=["c_bald"]).squeeze(axis=1)
    return dropout_rates(results).join(evaluation.rename("evaluation_ece"), how="inner")


@view("dropout_grid_search")
def distinct_rates(results: Results) -> pd.DataFrame:
    """the dropout rates that are selected"""
    selected = sorted(dropout_rates(results).selected.unique())
    return pd.DataFrame([{"rates": ", ".join(f"{rate:.2f}" for rate in selected), "different_rates": len(selected)}])


@view("dropout_grid_search", "result_estimation")
def rate_by_model(results: Results) -> pd.DataFrame:
    """selected dropout rate by model, on the hardest dataset, and the highest elsewhere"""
    return beside_hardest(results, dropout_rates(results).selected.unstack("dataset"))


# ---- bins


@view("bin_ablation")
def metrics_by_bins(results: Results) -> pd.DataFrame:
    """by pair and estimator: how far a metric moves over the numbers of bins, and MCE with the fewest and the most"""
    tables = {
        name: pivoted(printed(results, "bin_ablation", name), "bins", index=CELL) for name in ("ece", "mce", "brier")
    }
    ranges = pd.DataFrame({f"{name}_range": spread_of(table) for name, table in tables.items()})
    return ranges.assign(mce_fewest_bins=tables["mce"].iloc[:, 0], mce_most_bins=tables["mce"].iloc[:, -1])
