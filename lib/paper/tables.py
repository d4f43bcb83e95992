"""The paper's tables of estimators, settings and raw confidence. Each is a function of all results of a run, or of the
paper; bold is computed.
"""

import re
from itertools import groupby

import pandas as pd

from lib.analysis.results import Results
from lib.paper import cells
from lib.paper.booktabs import Table
from lib.paper.latex import escape
from lib.paper.numbers_of_paper import paper_facts
from lib.score.estimators import ESTIMATORS, in_columns
from lib.store import PAIR

# ---- estimators and settings


def estimators(results: Results | None = None) -> Table:
    """Return `tab:estimators`, from the registry."""
    defined = [e for e in ESTIMATORS.values() if e.definition]
    labels = pd.MultiIndex.from_tuples([(e.group, e.label) for e in defined], names=[None, r"\textbf{Method}"])
    texts = pd.DataFrame({r"\textbf{Definition}": [e.definition for e in defined]}, labels)
    return Table({"": texts}, spec="ll")


def inference_settings(results: Results) -> Table:
    """Return `tab:inference_settings`: settings in rows, models in columns."""
    models, rows = results.settings, {}
    for heading, name in paper_facts()["decoding_settings"].items():
        form = {"top_k": "{:.0f}", "min_p": "{:g}"}.get(name, "{}")
        rows[heading] = [form.format(float(getattr(model, name))) for model in models]
    rows["System prompt"] = ["Yes" if model.system_prompt else "No" for model in models]
    index = pd.Index([*rows], name=r"\textbf{Setting}")
    texts = pd.DataFrame([*rows.values()], index, [escape(model.label) for model in models])
    return Table({"": texts}, spec="l" + "c" * len(models), title=results.title)


# ---- raw confidence


def result_estimation(results: Results) -> Table:
    """Return `tab:result_estimation`: accuracy, then ECE and MCE of every estimator.

    A bar separates single-pass from multi-pass; the lowest ECE of a row is bold.
    """
    frame = results.frames["result_estimation"]
    rows, shown = cells.pair_lines(results), in_columns(frame.estimator.unique())
    columns = cells.ACCURACY + cells.lines(
        estimator={e.name: e.label for e in shown}, metric={"ece": "ECE", "mce": "MCE"}
    )
    numbers = cells.place(frame, rows, columns)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    groups = [" ".join("cc" for _ in group) for _, group in groupby(shown, lambda e: e.group)]
    return cells.set_table(numbers, rows, columns, spec=" | ".join(["llc", *groups]), title=results.title)


def result_estimation_full(results: Results) -> Table:
    """Return `tab:result_estimation_full`: every metric with its interval. The lowest ECE of a pair is bold."""
    frame = results.frames["result_estimation_full"].query("method == ''")
    rows, columns = cells.pair_lines(results), cells.ACCURACY
    parts: dict[str, int] = {}
    for caption, group in cells.PARTS.items():
        if shown := {e.name: e.label for e in in_columns(frame.estimator.unique()) if e.group == group}:
            parts[caption] = len(columns) if parts else 0
            columns = columns + cells.lines(estimator=shown, metric=cells.ERRORS)
    numbers = cells.place(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    return cells.set_table(numbers, rows, columns, title=results.title, parts=parts)


def insitu_ptrue(results: Results) -> Table:
    """Return `tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent; no
    bold."""
    labels = {name: ESTIMATORS[name].label for name in ("ans_avg", "p_true_insitu", "p_true")}
    heads = {name: rf"\textbf{{{re.sub(r'.textsc|[{}]', '', label)}}}" for name, label in labels.items()}
    saved = {"estimator": "p_true_insitu", "metric": "token_reduction_pct"}
    columns = [*cells.lines({"metric": "ece"}, estimator=heads), ((r"\textbf{Reduction (\%)}",), saved)]
    rows, names = cells.pair_lines(results), [rf"\textbf{{{name}}}" for name in cells.PAIR_NAMES]
    numbers = cells.place(results.frames["insitu_ptrue"], rows, columns)
    percent = cells.format_values(numbers.value, "{:.2f}".format)
    numbers["text"] = numbers.text.where(numbers.metric == "ece", percent)
    return cells.set_table(numbers, rows, columns, names, title=results.title)


# ---- one setting with several values


def dropout_grid_search(results: Results) -> Table:
    """Return `tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD on the tuning examples for each dropout rate.

    The row of lowest ECE, the selected rate, is bold; ties go to the lower rate.
    """
    frame = results.frames["dropout_grid_search"]
    rates = {rate: f"{rate:.2f}" for rate in sorted(frame.rate.unique())}
    rows = cells.lines(model=results.models, dataset=results.datasets, rate=rates)
    columns = cells.lines({"estimator": "c_bald"}, metric=cells.ERRORS)
    numbers = cells.place(frame, rows, columns)
    selected = set(numbers[cells.lowest(numbers, numbers.metric == "ece", *PAIR)].drop_duplicates(PAIR).row)
    numbers["bold"] = numbers.row.isin(selected)
    for row in selected:
        (*pair, rate), key = rows[row]
        rows[row] = (*pair, rf"\textbf{{{rate}}}"), key
    return cells.set_table(numbers, rows, columns, (*cells.PAIR_NAMES, "Dropout rate"), "llcccc", results.title)


def bin_ablation(results: Results) -> Table:
    """Return `tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins; no bold."""
    frame = results.frames["bin_ablation"]
    bins = {count: str(count) for count in frame.bins.unique()}
    shown = {e.name: e.label for e in in_columns(frame.estimator.unique()) if e.group == "single_pass"}
    rows = cells.lines(model=results.bin_labels, dataset=results.datasets, bins=bins)
    columns = cells.lines(estimator=shown, metric=cells.ERRORS)
    numbers = cells.place(frame, rows, columns)
    return cells.set_table(numbers, rows, columns, (*cells.PAIR_NAMES, "Bins"), title=results.title)
