"""How the cases of a finding are counted on the paper's tables: which rows decide it, and which of them agree.

A judge takes results and returns the rows with a boolean for each; `lib.paper.claims` declares which finding it judges.
What a judge reads and is not there raises NotThere; what cannot decide raises Undecided.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.paper.judging import Cases, Judge, Undecided
from lib.paper.results import Results
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

NOISE = 1e-9  # of floats: a printed number has three decimals

# Temperature, top-p and top-k of the generation settings that models are published with, by the label that the paper
# prints; None where they say nothing.
PUBLISHED_SETTINGS = {
    "Llama-3.1-8B": (0.6, 0.9, None),
    "Llama-3.2-3B": (0.6, 0.9, None),
    "DeepSeek-R1-8B": (0.6, 0.95, None),
    "Qwen3-8B-Thinking": (0.6, 0.95, 20),
    "Qwen3-4B-Instruct": (0.7, 0.8, 20),
}


def given(function: Callable[..., Cases]) -> Callable[..., Judge]:
    """Called with all arguments but the results, it is a judge, which is called with them."""
    return lambda *arguments, **options: lambda results: function(results, *arguments, **options)


# ---- reading frames


def wide(rows: pd.DataFrame, columns: str, values: str = "value", index: Sequence[str] = PAIR) -> pd.DataFrame:
    """A row per `index`, a column for each of `columns`, numbers alone."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float).rename_axis(columns=None)


def raw(results: Results, table: str = "result_estimation", metric: str = "ece") -> pd.DataFrame:
    """A metric before any calibration by pair, an estimator a column."""
    return results.once(("raw", table, metric), lambda: _raw(results, table, metric))


def _raw(results: Results, table: str, metric: str) -> pd.DataFrame:
    rows = results.frame(table, metric=metric)
    rows = rows[rows.estimator != ""]
    if "method" in rows:
        rows = rows[rows["method"] == ""]
    return wide(rows, "estimator").reset_index()


def hard(results: Results) -> str:
    """The dataset of least accuracy. Undecided where there is but one."""
    if len(results.datasets) < 2:
        raise Undecided("one dataset")
    return results.once(("hard",), lambda: results.hard)


def most_on_hard(results: Results, table: pd.DataFrame) -> Cases:
    """Per model (the index): a larger number on the hard dataset than on each of the others (the columns), of those
    that have one on both sides."""
    table = table.reindex(columns=table.columns.union([hard(results)], sort=False))
    there, elsewhere = table[hard(results)], table.drop(columns=hard(results)).max(axis=1)
    known = there.notna() & elsewhere.notna()
    return table[known].reset_index(), (there > elsewhere)[known]


def single(agrees: bool, **figures: Any) -> Cases:
    """A case that one comparison decides."""
    return pd.DataFrame([figures]), pd.Series([bool(agrees)])


def figures(rows: pd.DataFrame) -> str:
    """What `single` compares, in words: "hard .137, elsewhere .013"."""
    return ", ".join(f"{name} {value:.3f}" for name, value in rows.iloc[0].items() if name != "agrees")


# ---- one estimator against another


def _sides(results: Results, one: str, other: str, table: str) -> pd.DataFrame:
    """ECE of both by pair, `lower` and `higher`: what the claim says of them. Each may be a choice, `a|b`, of which the
    lower counts; a choice may leave an estimator no rows."""
    left, right = one.split("|"), other.split("|")
    rows = _paired_rows(results, list(dict.fromkeys([*left, *right])), table)
    return rows.assign(lower=rows[left].min(axis=1), higher=rows[right].min(axis=1))


def _paired_rows(results: Results, names: list[str], table: str) -> pd.DataFrame:
    """Raw ECE of these estimators by pair. Where some have fewer rows than others (dropout passes), the others' ECE is
    that on the rows that all have (`run_results.on_shared_rows`)."""
    rows = raw(results, table).set_index(PAIR).reindex(columns=names).dropna()
    shared = raw(results, table, "ece_shared").set_index(PAIR).reindex(index=rows.index, columns=names)
    rows.update(shared[shared.isna().any(axis=1)])
    return rows.reset_index()


@given
def below(results: Results, one: str, other: str, table: str = "result_estimation", equal: bool = False,
          times: float = 1.0) -> Cases:  # fmt: skip
    """ECE of one estimator below (or, as printed, `equal` to) that of another, or so many `times` it, by pair."""
    rows = _sides(results, one, other, table)
    agrees = rows.lower < rows.higher
    if equal:
        agrees = rows.lower.round(3) <= rows.higher.round(3)
    if times != 1:
        agrees = rows.lower <= times * rows.higher + NOISE
    return rows.drop(columns=["lower", "higher"]), agrees


@given
def near(results: Results, one: str, other: str, table: str, within: float) -> Cases:
    """ECE of one estimator less that of another, at most so far from 0, by pair."""
    rows = _sides(results, one, other, table)
    rows = rows.assign(difference=rows.lower - rows.higher).drop(columns=["lower", "higher"])
    return rows, rows.difference.abs() <= within + NOISE


@given
def more_on_hard(results: Results, one: str, other: str) -> Cases:
    """Median margin by which one estimator is below another: larger on the hard dataset than elsewhere, and above 0.
    Undecided where one of them has no case."""
    rows = _sides(results, one, other, "result_estimation")
    return _larger_on_hard(results, rows, rows.higher - rows.lower)


def _larger_on_hard(results: Results, rows: pd.DataFrame, margin: pd.Series) -> Cases:
    on_hard = rows.dataset == hard(results)
    if on_hard.nunique() < 2:
        raise Undecided("no case elsewhere" if on_hard.any() else "no case on the hard dataset")
    there, elsewhere = float(margin[on_hard].median()), float(margin[~on_hard].median())
    return single(there > max(elsewhere, 0), hard=there, elsewhere=elsewhere)


def _joint_and_avg(results: Results) -> pd.DataFrame:
    """ECE of `joint` and `avg` by pair and subset of tokens (all of the response's, or the answer's)."""
    errors, parts = raw(results), []
    for subset in ("seq", "ans"):
        rows = errors.reindex(columns=[*PAIR, f"{subset}_joint", f"{subset}_avg"]).dropna()
        parts.append(rows.set_axis([*PAIR, "joint", "avg"], axis=1).assign(subset=subset))
    return pd.concat(parts, ignore_index=True)


def joint_below(results: Results) -> Cases:
    """ECE of the joint probability below that of the average, by pair and subset of tokens, as printed: what differs
    by less is the same, and not below."""
    rows = _joint_and_avg(results).round(3)
    return rows, rows.joint < rows.avg


def by_subset(rows: pd.DataFrame) -> str:
    """Counts for each subset of tokens: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""
    said = []
    for subset, part in rows.groupby("subset", sort=False):
        equal = int((part.joint == part.avg).sum())
        said.append(f"{subset.title()} {part.agrees.sum()} of {len(part)}" + (f" ({equal} equal)" if equal else ""))
    return ", ".join(said)


def joint_more_on_hard(results: Results) -> Cases:
    """As `more_on_hard`, over both subsets of tokens."""
    rows = _joint_and_avg(results)
    return _larger_on_hard(results, rows, rows.avg - rows.joint)


@given
def higher(results: Results, metric: str, one: str, other: str) -> Cases:
    """A metric of one estimator above that of another, by pair."""
    rows = raw(results, metric=metric).reindex(columns=[*PAIR, one, other]).dropna()
    if rows.empty:
        raise Undecided(f"no {metric.upper()} printed" if not len(raw(results, metric=metric)) else "one class only")
    return rows, rows[one] > rows[other]


def least(results: Results) -> Cases:
    """The lowest ECE of the multi-pass estimators, by pair."""
    rows = raw(results)
    names = [name for name, e in ESTIMATORS.items() if e.group == "multi_pass" and e.definition and name in rows]
    rows = rows[PAIR].assign(least=rows[names].min(axis=1))
    return rows, rows.least <= 0.05


def hardest_for_all(results: Results) -> Cases:
    """Per model: the dataset of least accuracy is the same as for all models together."""
    rows = wide(results.frame("result_estimation", metric="acc"), "dataset", index=["model"])
    return rows.reset_index(), rows.idxmin(axis=1) == hard(results)


# ---- dropout rates and bins


def _rates(results: Results) -> pd.DataFrame:
    """ECE on the tuning examples, a dropout rate a column, by pair (the index)."""
    rows = results.frame("dropout_grid_search", metric="ece", estimator="c_bald")
    return results.once(("rates",), lambda: wide(rows, "rate"))


def rate_matters(results: Results) -> Cases:
    rates = _rates(results)
    return rates.reset_index(), rates.max(axis=1) - rates.min(axis=1) > 0.02


def hard_rate(results: Results) -> Cases:
    """Per model: a higher rate selected on the hard dataset than on each of the others."""
    selected = _rates(results).idxmin(axis=1).astype(float).unstack("dataset").rename_axis(columns=None)
    return most_on_hard(results, selected)


def rates_hold(results: Results) -> Cases:
    rates = _rates(results)
    lowest = pd.DataFrame({"selected": rates.idxmin(axis=1).astype(float), "tuning": rates.min(axis=1)})
    rows = lowest.reset_index().merge(raw(results)[[*PAIR, "c_bald"]], on=PAIR)
    return rows, (rows.tuning - rows.c_bald).abs() <= 0.05


def rates_vary(results: Results) -> Cases:
    selected = _rates(results).idxmin(axis=1).astype(float)
    return selected.rename("selected").reset_index(), pd.Series([selected.nunique() > 1])


@given
def bins(results: Results, metric: str, agrees: Callable[[pd.DataFrame], pd.Series]) -> Cases:
    """A metric against the number of bins, by pair and estimator, fewest bins first."""
    rows = results.frame("bin_ablation")
    rows = rows[(rows.metric == metric) & (rows.estimator != "")]
    table = wide(rows, "bins", index=[*PAIR, "estimator"])
    return table.reset_index(), agrees(table)


def value_range(table: pd.DataFrame) -> pd.Series:
    return table.max(axis=1) - table.min(axis=1)


def mce_more_sensitive(results: Results) -> Cases:
    """Range over numbers of bins, MCE against ECE, by pair and estimator."""
    (ece, of_ece), (mce, of_mce) = (bins(metric, value_range)(results) for metric in ("ece", "mce"))
    keys = [*PAIR, "estimator"]
    rows = pd.DataFrame({"ece": of_ece, "mce": of_mce}).reset_index()
    return rows[[*keys, "ece", "mce"]], rows.mce > rows.ece + NOISE


# ---- intervals


def _intervals(results: Results) -> pd.DataFrame:
    """Raw ECE and MCE with both ends of their intervals."""
    rows = results.frame("result_estimation_full")
    rows = rows[rows.metric.isin(["ece", "mce"]) & (rows["method"] == "") & (rows.estimator != "")]
    rows = rows[rows.estimator.map(lambda name: bool(ESTIMATORS[name].definition))]
    numbers = ["value", "low", "high"]
    return rows[[*PAIR, "estimator", "metric", *numbers]].astype(dict.fromkeys(numbers, float))


def overlap(results: Results) -> Cases:
    """Intervals of Seq Avg and Ans Avg that overlap."""
    rows = _intervals(results)
    rows = rows[(rows.metric == "ece") & rows.estimator.isin(["seq_avg", "ans_avg"])]
    low, high = wide(rows, "estimator", "low"), wide(rows, "estimator", "high")
    meets = low.max(axis=1) <= high.min(axis=1)
    return low.add_suffix("_low").join(high.add_suffix("_high")).reset_index(), meets


def asymmetric_intervals(results: Results) -> Cases:
    """One side of the interval more than 1.5 times the other."""
    rows = _intervals(results)
    below, above = rows.value - rows.low, rows.high - rows.value
    return rows, np.maximum(below, above) > 1.5 * np.minimum(below, above) + NOISE


def by_metric(rows: pd.DataFrame) -> str:
    """Counts of those that agree, for each metric: "MCE 56 of 90, ECE 13 of 90"."""
    counts = rows.groupby("metric").agrees.agg(["sum", "size"]).sort_index(ascending=False)
    return ", ".join(f"{name.upper()} {count} of {total}" for name, count, total in counts.itertuples())


def wider(results: Results) -> Cases:
    """Interval of MCE wider than that of ECE, by pair and estimator."""
    rows = _intervals(results)
    table = wide(rows.assign(width=rows.high - rows.low), "metric", "width", [*PAIR, "estimator"])
    return table.reset_index(), table.mce > table.ece + NOISE


# ---- set-up


def recommended(results: Results) -> Cases:
    """Temperature, top-p and top-k (where they name one) as models are published with them."""
    known = [spec for spec in results.settings if spec.label in PUBLISHED_SETTINGS]
    if not known:
        raise Undecided("not the paper's models")
    rows = pd.DataFrame([(spec.label, spec.temperature, spec.top_p, spec.top_k) for spec in known],
                        columns=["model", "temperature", "top_p", "top_k"])  # fmt: skip
    agrees = [(t, p) == PUBLISHED_SETTINGS[label][:2] and PUBLISHED_SETTINGS[label][2] in (None, k)
              for label, t, p, k in rows.itertuples(index=False)]  # fmt: skip
    return rows, pd.Series(agrees)


def over_two_thousand(results: Results) -> Cases:
    rows = results.frame("rows")
    return rows, pd.Series([rows.rows.sum() > 2000])


def tokens_saved(results: Results) -> Cases:
    """Share of tokens saved by in-situ verification, in percent, by pair; its mean decides."""
    rows = results.frame("insitu_ptrue", metric="token_reduction_pct").astype({"value": float})
    return rows[[*PAIR, "value"]], pd.Series([rows.value.mean() >= 85])


def mean_saving(rows: pd.DataFrame) -> str:
    return f"{rows.value.mean():.0f}%"
