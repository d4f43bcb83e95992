"""How the cases of a finding are counted on the paper's tables of calibration and transfer."""

from collections.abc import Callable

import pandas as pd

from lib.paper.counting import given, hard, raw, single
from lib.paper.judging import Cases, Undecided
from lib.paper.results import Results
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

ARROW = ["source_model", "source_dataset", *PAIR, "method"]
SHORT = ("ans_avg", "ans_joint", "p_true")  # the estimators of `tab:result_calibration`: those with Platt scaling
LITTLE = 0.005  # a change of ECE


# ---- calibration


def _gains(results: Results, table: str, method: str) -> pd.DataFrame:
    """ECE after a method and its relative improvement as printed, by pair and estimator of the result tables."""
    return results.once(("gains", table, method), lambda: _improved(results, table, method))


def _improved(results: Results, table: str, method: str) -> pd.DataFrame:
    shown = [name for name, estimator in ESTIMATORS.items() if estimator.definition]
    shown = list(SHORT) if table == "result_calibration" else shown
    rows = results.frame(table, metric="ece", method=method).dropna(subset="relative")
    return rows[rows.estimator.isin(shown)].astype({"relative": float, "value": float})


@given
def gains(results: Results, table: str, method: str) -> Cases:
    """Cells in which a method lowers the ECE (by the relative improvement, as printed)."""
    rows = _gains(results, table, method)
    return rows[[*PAIR, "estimator", "value", "relative"]], rows.relative > 0


def median_gains(results: Results) -> Cases:
    """Median relative improvement of each method in `tab:result_calibration`."""
    medians = {method: _gains(results, table, method).relative.median()
               for method, table in (("isotonic", "result_calibration"), ("platt", "result_calibration"))}  # fmt: skip
    rows = pd.Series(medians, name="median").rename_axis("method").reset_index()
    if rows["median"].isna().any():
        raise Undecided("one of both methods was not fitted")
    return rows, rows["median"] >= 0.5


def lower(results: Results) -> Cases:
    """Cells in which isotonic regression ends lower than temperature or Platt scaling; of equal printed values the one
    with the larger relative improvement counts as lower."""
    keys = [*PAIR, "estimator"]
    both = [_gains(results, "result_calibration", method).set_index(keys)[["value", "relative"]]
            for method in ("isotonic", "platt")]  # fmt: skip
    rows = both[0].join(both[1], how="inner", suffixes=("_isotonic", "_platt")).reset_index()
    tie = rows.value_isotonic == rows.value_platt
    agrees = (rows.value_isotonic < rows.value_platt) | (tie & (rows.relative_isotonic > rows.relative_platt))
    return rows, agrees


def platt_below(results: Results) -> Cases:
    rows, agrees = lower(results)
    same = (rows.value_isotonic == rows.value_platt) & (rows.relative_isotonic == rows.relative_platt)
    chosen = rows.estimator == "p_true"
    return rows[chosen], ~(agrees | same)[chosen]


def mended(results: Results) -> Cases:
    """Cells of a raw ECE above .3: after calibration, by either method, below .15."""
    keys = [*PAIR, "estimator"]
    before = raw(results).melt(PAIR, var_name="estimator", value_name="raw")
    rows = pd.concat([_gains(results, "result_calibration", method) for method in ("isotonic", "platt")])
    rows = rows[[*keys, "method", "value"]].merge(before[before.raw > 0.3], on=keys)
    if rows.empty:
        raise Undecided("no raw ECE above .3")
    return rows, rows.value < 0.15


# ---- transfer


def arrows(results: Results) -> pd.DataFrame:
    """The arrows that `tab:calibration_transfer_summary` shows: both ends among its models and datasets, exactly one of
    the two changed; `changed` says which."""
    return results.once(("arrows",), lambda: _arrows(results))


def _arrows(results: Results) -> pd.DataFrame:
    rows = results.frame("calibration_transfer_summary", metric="delta_ece").astype({"value": float})
    models, datasets = map(list, results.moved)
    rows = rows[rows["method"] != ""]
    rows = rows[rows.model.isin(models) & rows.source_model.isin(models)]
    rows = rows[rows.dataset.isin(datasets) & rows.source_dataset.isin(datasets)]
    moved = rows[(rows.source_model != rows.model) != (rows.source_dataset != rows.dataset)]
    if moved.empty:
        raise Undecided("no arrow between models or datasets")
    changed = (moved.source_model != moved.model).map({True: "model", False: "dataset"})
    return moved[[*ARROW, "value"]].assign(changed=changed)


@given
def moved(results: Results, changed: str, agrees: Callable[[pd.Series], pd.Series], onto_hard: bool) -> Cases:
    """Change of ECE along the arrows between datasets, to the hard one or from it, or between models, on the hard one
    or off it. A change of exactly 0 is neither better nor worse."""
    rows = _changes(results, changed, onto_hard)
    return rows, agrees(rows.value)


def _changes(results: Results, changed: str, onto_hard: bool) -> pd.DataFrame:
    rows, worst = arrows(results), hard(results)
    rows = rows[(rows.changed == changed) & ((rows.dataset == worst) == onto_hard)]
    if changed == "dataset" and not onto_hard:
        rows = rows[rows.source_dataset == worst]
    return rows.drop(columns="changed")


def better(change: pd.Series) -> pd.Series:
    return change < 0


def worse(change: pd.Series) -> pd.Series:
    return change > 0


def asymmetric_errors(results: Results) -> Cases:
    """Between two models, off the hard dataset, by dataset and method: one direction worsens ECE by more than LITTLE,
    the other does not."""
    rows = _changes(results, "model", onto_hard=False)
    back = rows.rename(columns={"source_model": "model", "model": "source_model", "value": "back"})
    both = rows[rows.source_model < rows.model].merge(back, on=ARROW)
    return both, (both[["value", "back"]] > LITTLE).sum(axis=1) == 1


def severe(results: Results) -> Cases:
    """The largest growth of ECE between models, off the hard dataset."""
    rows = _changes(results, "model", onto_hard=False)
    if rows.empty:
        raise Undecided("no arrow between models")
    largest = float(rows.value.max())
    return single(largest > 0.2, largest=largest)


def little_change(results: Results) -> Cases:
    """Changes of ECE from Llama's models to Qwen's, off the hard dataset, of at most LITTLE."""
    rows, labels = _changes(results, "model", onto_hard=False), results.moved[0]
    llama, qwen = ({name for name, label in labels.items() if family in label.lower()} for family in ("llama", "qwen"))
    rows = rows[rows.source_model.isin(llama) & rows.model.isin(qwen)]
    if rows.empty:
        raise Undecided("no arrow from a Llama model to a Qwen model")
    return rows, rows.value.abs() <= LITTLE


# ---- tables that say the same twice


def summary_is_full(results: Results) -> Cases:
    """Printed changes of ECE against the differences of the printed errors (three decimals each)."""
    errors = results.frame("calibration_transfer_full", metric="ece").astype({"value": float})
    before = errors[errors["method"] == ""].set_index(PAIR).value
    both = arrows(results).merge(errors[[*ARROW, "value"]], on=ARROW, suffixes=("_summary", "_full"))
    both["change"] = both.value_full - before.reindex(pd.MultiIndex.from_frame(both[PAIR])).to_numpy()
    return both.drop(columns=["value_full", "changed"]), (both.value_summary - both.change).abs() < 0.0015


def short_is_full(results: Results) -> Cases:
    keys = [*PAIR, "estimator", "method"]
    brief, full = (results.frame(name, metric="ece").astype({"value": float})
                   for name in ("result_calibration", "result_calibration_full"))  # fmt: skip
    brief, full = brief[brief["method"] != ""], full[full["method"] != ""]
    both = brief[[*keys, "value"]].merge(full[[*keys, "value"]], on=keys, suffixes=("_short", "_full"))
    return both, both.value_short == both.value_full
