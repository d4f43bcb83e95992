"""The paper's tables, built from frames. Formatting only; bold is computed, never listed.

`results` is what `metrics.evaluate` returns. Rows and column groups follow `models` and `datasets` in the
order given ({name: label}; by default the names that the frame holds), so another model adds a block.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from lib.paper.calibration_tables import (  # noqa: F401  one name for all tables
    calibration_transfer_full,
    calibration_transfer_summary,
    families,
    hardest,
    result_calibration,
    result_isotonic,
)
from lib.paper.cells import Cell, Row, Rule, Stack, Table, mathjax
from lib.paper.layout import (
    DATASET,
    MODEL,
    Labels,
    Values,
    by_pair,
    heads,
    labels_of,
    ruled,
    short,
    stack,
    stand_behind,
)
from lib.score.estimators import ESTIMATORS, Estimator, in_columns
from lib.score.metrics import METRICS


def made(manifests: Iterable[dict[str, Any]]) -> list[str]:
    """How rows were made, from the manifests of generations, verification and dropout: a line per device and precision,
    with the models, their sources and revisions."""
    found: dict[str, dict[str, None]] = {}
    for facts in manifests:
        loaded, label = facts["loaded"], facts["model"]["label"]
        at = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
        how = f"{loaded['device']}, {loaded['dtype']}"
        found.setdefault(how, {})[f"{label} ({loaded['source']}{at})"] = None
    return [f"Made on {how}: {', '.join(models)}." for how, models in found.items()]


def notes(title: str = "", coverage: pd.DataFrame | None = None, how: Sequence[str] = ()) -> list[str]:
    """What is printed under a result table: the run's `title` (say "Demo models"), `how` it was made, and the shares
    of responses without a parsable answer and cut by length (`coverage` as `estimators.coverage` returns it)."""
    lines = [title.strip().rstrip(".") + "."] * bool(title.strip()) + list(how)
    if coverage is not None and len(coverage):
        total = coverage["rows"].sum()
        for column, what in (("unparsed", "No parsable answer"), ("cut", "Cut by length")):
            share = (coverage[column] * coverage["rows"]).sum() / total
            worst = coverage.loc[coverage[column].idxmax()]
            most = f" (at most {worst[column]:.1%}, {worst['model']} on {worst['dataset']})" if share else ""
            lines.append(f"{what}: {share:.1%} of {total} responses{most}.")
    return lines


# ---- the tables


def estimators() -> Table:
    """`tab:estimators`, from the declarations."""
    groups: dict[str, list[Row | Rule]] = {}
    for e in filter(lambda e: e.definition, ESTIMATORS.values()):
        row: Row = [Cell(e.plain, latex=e.label), Cell(latex=e.definition, html=mathjax(e.definition))]
        groups.setdefault(e.group, []).append(row)
    head: Row = [Cell("Method", bold=True), Cell("Definition", bold=True)]
    return Table("ll", [head], ruled(groups.values(), Rule()))


def result_estimation(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:result_estimation`: accuracy, then ECE and MCE of every estimator that the results hold, a bar
    between single-pass and multi-pass; bold is the lowest ECE of a row."""
    values, chosen = Values(results), in_columns(results["estimator"].unique())
    groups = [["cc" for e in chosen if e.group == g] for g in dict.fromkeys(e.group for e in chosen)]
    top, lines, below = heads(chosen, ("ece", "mce"), first=4)

    def row(model: str, dataset: str) -> Row:
        best = values.lowest((model, dataset, e.name, "ece") for e in chosen)
        keys = [(model, dataset, e.name, metric) for e in chosen for metric in ("ece", "mce")]
        cells = [values.cell(*key, bold=key in best) for key in keys]
        return [values.cell(model, dataset, "", "acc"), *cells]

    body = by_pair(results, models, datasets, row)
    head: list[Row | Rule] = [[MODEL, DATASET, Cell("Acc.", rows=2), *top], lines, [None, None, None, *below]]
    columns = " | ".join(["llc", *(" ".join(group) for group in groups)])
    return Table(columns, head, body, values.notes(notes))


def result_estimation_full(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Stack:
    """`tab:result_estimation_full`: every metric with its interval, as `bootstrap` returns them; bold is the lowest
    ECE of a pair over both parts."""
    results = results[results["method"] == ""] if "method" in results else results
    values, chosen = Values(results), in_columns(results["estimator"].unique())
    metrics, commands = ("ece", "mce", "brier"), (r"\scoreci", r"\bestscoreci")

    def part(some: list[Estimator], group: str) -> Table:
        accuracy = [Cell("Acc.", rows=2)] * (group == "single_pass")

        def row(model: str, dataset: str) -> Row:
            best = values.lowest((model, dataset, e.name, "ece") for e in chosen)
            keys = [(model, dataset, "", "acc")] * len(accuracy)
            keys += [(model, dataset, e.name, metric) for e in some for metric in metrics]
            return [values.interval(commands, *key, bold=key in best, show=short) for key in keys]

        top, lines, below = heads(some, metrics, first=3 + len(accuracy))
        head: list[Row | Rule] = [[MODEL, DATASET, *accuracy, *top], lines, [*([None] * (2 + len(accuracy))), *below]]
        body = by_pair(results, models, datasets, row)
        columns = " ".join(["ll" + "c" * len(accuracy), *["ccc"] * len(some)])
        return Table(columns, head, body, values.notes(notes) if some[-1] is chosen[-1] else ())

    return stack(chosen, part)


def bin_ablation(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins (column
    `bins`, as `metrics.ablate_bins` returns it); no bold."""
    metrics, values = ("ece", "mce", "brier"), Values(results, "bins")
    chosen = [e for e in in_columns(results["estimator"].unique()) if e.group == "single_pass"]
    top, lines, below = heads(chosen, metrics, first=4)

    def row(model: str, dataset: str, bins: Any) -> Row:
        keys = [(model, dataset, e.name, metric, bins) for e in chosen for metric in metrics]
        return [Cell(str(bins)), *(values.cell(*key) for key in keys)]

    def block(model: str, label: str) -> list[Row | Rule]:
        counts, sets = results["bins"].unique(), labels_of(datasets, results, "dataset").items()
        parts = [stand_behind(name, [row(model, dataset, bins) for bins in counts]) for dataset, name in sets]
        return stand_behind(label, ruled(parts, Rule(((2, 3 + 3 * len(chosen)),))))

    head: list[Row | Rule] = [[MODEL, DATASET, Cell("Bins", rows=2), *top], lines, [None, None, None, *below]]
    body = ruled([block(*model) for model in labels_of(models, results, "model").items()], Rule())
    return Table(" ".join(["lll", *["ccc"] * len(chosen)]), head, body, values.notes(notes))


def insitu_ptrue(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent (rows of metric
    `token_reduction_pct`, as `multi_pass.reduction` returns them); no bold."""
    values, chosen = Values(results), [ESTIMATORS[name] for name in ("ans_avg", "p_true_insitu", "p_true")]

    def row(model: str, dataset: str) -> Row:
        errors = [values.cell(model, dataset, e.name, "ece") for e in chosen]
        return [*errors, values.cell(model, dataset, "p_true_insitu", "token_reduction_pct", show="{:.2f}".format)]

    labels = [Cell(e.plain, latex=e.label.removeprefix(r"\textsc{").rstrip("}"), bold=True) for e in chosen]
    head: Row = [Cell("Model", bold=True), Cell("Dataset", bold=True), *labels, Cell("Reduction (%)", bold=True)]
    return Table("llcccc", [head], by_pair(results, models, datasets, row), values.notes(notes))


def dropout_grid_search(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD on the tuning examples for each dropout rate (column
    `rate`, as `multi_pass.grid` returns it); bold is the row of lowest ECE, the one selected."""
    values, sets = Values(results, "rate"), labels_of(datasets, results, "dataset").items()
    metrics = ("ece", "mce", "brier")

    def rows(model: str, dataset: str) -> list[Row | Rule]:
        keys = [(model, dataset, "c_bald", "ece", rate) for rate in sorted(results["rate"].unique())]
        best = min(values.lowest(keys), default=None)
        cells = [[values.cell(*key[:3], m, key[4], bold=key == best) for m in metrics] for key in keys]
        return [[Cell(f"{key[4]:.2f}", bold=key == best), *row] for key, row in zip(keys, cells, strict=True)]

    def block(model: str, label: str) -> list[Row | Rule]:
        parts = [stand_behind(name, rows(model, dataset)) for dataset, name in sets]
        return stand_behind(label, ruled(parts, Rule(((2, 6),))))

    head: Row = [Cell("Model"), Cell("Dataset"), Cell("Dropout rate"), *(Cell(METRICS[m].label) for m in metrics)]
    body = ruled([block(*model) for model in labels_of(models, results, "model").items()], Rule())
    return Table("llcccc", [head], body, values.notes(notes))


def _math(name: str, symbol: str) -> Cell:
    return Cell(f"{name}-{symbol}", latex=f"{name}-${symbol}$", html=f"{name}-<i>{symbol}</i>")


SETTINGS: list[tuple[Cell, Any]] = [
    (Cell("Temperature"), lambda m: str(float(m.temperature))),
    (_math("Top", "p"), lambda m: str(float(m.top_p))),
    (_math("Top", "k"), lambda m: str(int(m.top_k))),
    (_math("Min", "p"), lambda m: f"{m.min_p:g}"),
    (Cell("System prompt"), lambda m: "Yes" if m.system_prompt else "No"),
]


def inference_settings(models: Iterable[Any], notes: Sequence[str] = ()) -> Table:
    """`tab:inference_settings`: settings in rows, models (label, temperature, top_p, top_k, min_p,
    system_prompt) in columns."""
    models = list(models)
    head: Row = [Cell("Setting", bold=True), *(Cell(model.label) for model in models)]
    body: list[Row | Rule] = [[name, *(Cell(show(model)) for model in models)] for name, show in SETTINGS]
    return Table("l" + "c" * len(models), [head], body, notes)
