"""The paper's tables, built from frames. Formatting only; bold is computed, never listed.

`results` is what `metrics.evaluate` returns. Rows and column groups follow `models` and `datasets` in the
order given ({name: label}; by default the names that the frame holds), so another model adds a block.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lib.cells import Cell, Row, Rule, Table, mathjax
from lib.estimators import ESTIMATORS, Estimator, in_columns
from lib.metrics import METRICS

Labels = Mapping[str, str] | None
MODEL, DATASET, DASH = Cell("Model", rows=2), Cell("Dataset", rows=2), Cell("--", html="&ndash;")


# ---- what the builders share


class _Values:
    """Results by (model, dataset, estimator, metric[, bins]); remembers why cells stayed empty."""

    def __init__(self, results: pd.DataFrame, *more: str):
        columns = ["model", "dataset", "estimator", "metric", *more]
        keys = list(zip(*(results[column] for column in columns), strict=True))
        reasons = results["reason"] if "reason" in results else [""] * len(results)
        self.found = {k: float(v) for k, v in zip(keys, results["value"], strict=True) if not pd.isna(v)}
        self.reasons, self.empty = dict(zip(keys, reasons, strict=True)), dict[str, None]()

    def cell(self, *key: Any, bold: bool = False, form: str = ".3f") -> Cell:
        if key in self.found:
            return Cell(format(self.found[key], form), bold=bold)
        self.empty[self.reasons.get(key) or "not computed"] = None
        return DASH

    def lowest(self, keys: Iterable[tuple]) -> set[tuple]:
        """The keys of the smallest value, not rounded (several only where values are equal)."""
        found = {key: self.found[key] for key in keys if key in self.found}
        return {key for key, value in found.items() if value == min(found.values())}

    def notes(self, notes: Sequence[str]) -> list[str]:
        return [*notes, *([f"--: {', '.join(self.empty)}."] if self.empty else [])]


def _labels(given: Labels, results: pd.DataFrame, column: str) -> Mapping[str, str]:
    return given if given is not None else {name: str(name) for name in results[column].unique()}


def _groups(chosen: list[Estimator], metrics: Sequence[str], first: int) -> tuple[Row, Rule, Row]:
    """Head over estimators: their labels, the lines under them (from column `first` on), the metrics."""
    size = len(metrics)
    starts = range(first, first + size * len(chosen), size)
    labels: Row = [Cell(e.plain, latex=e.label, columns=size) for e in chosen]
    below: Row = [Cell(METRICS[metric].label) for _ in chosen for metric in metrics]
    return labels, Rule(tuple((start, start + size - 1) for start in starts)), below


def _block(label: str, rows: Sequence[Row | Rule]) -> list[Row | Rule]:
    """Rows behind one label that reaches over all of them."""
    count = sum(not isinstance(row, Rule) for row in rows)
    tall: list[Cell | None] = [Cell(label, rows=count)] + [None] * (count - 1)
    return [row if isinstance(row, Rule) else [tall.pop(0), *row] for row in rows]


def _ruled(blocks: Iterable[Sequence[Row | Rule]], rule: Rule) -> list[Row | Rule]:
    """Blocks below one another, `rule` between them."""
    rows: list[Row | Rule] = []
    for block in blocks:
        rows += [rule, *block] if rows else block
    return rows


def notes(title: str = "", coverage: pd.DataFrame | None = None) -> list[str]:
    """What is printed under a result table: the run's `title` (say "Demo models"), and the shares of
    responses without a parsable answer and cut by length (`coverage` as `estimators.coverage` returns it)."""
    lines = [title.strip().rstrip(".") + "."] if title.strip() else []
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
    return Table("ll", [head], _ruled(groups.values(), Rule()))


def result_estimation(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:result_estimation`: accuracy, then ECE and MCE of every estimator that the results hold, a bar
    between single-pass and multi-pass; bold is the lowest ECE of a row."""
    values, chosen = _Values(results), in_columns(results["estimator"].unique())
    groups = [["cc" for e in chosen if e.group == g] for g in dict.fromkeys(e.group for e in chosen)]
    top, lines, below = _groups(chosen, ("ece", "mce"), first=4)

    def row(model: str, dataset: str, label: str) -> Row:
        best = values.lowest((model, dataset, e.name, "ece") for e in chosen)
        keys = [(model, dataset, e.name, metric) for e in chosen for metric in ("ece", "mce")]
        cells = [values.cell(*key, bold=key in best) for key in keys]
        return [Cell(label), values.cell(model, dataset, "", "acc"), *cells]

    sets = _labels(datasets, results, "dataset").items()
    blocks = [
        _block(label, [row(model, *dataset) for dataset in sets])
        for model, label in _labels(models, results, "model").items()
    ]
    head: list[Row | Rule] = [[MODEL, DATASET, Cell("Acc.", rows=2), *top], lines, [None, None, None, *below]]
    columns = " | ".join(["llc", *(" ".join(group) for group in groups)])
    return Table(columns, head, _ruled(blocks, Rule()), values.notes(notes))


def bin_ablation(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins (column
    `bins`, as `metrics.ablate_bins` returns it); no bold."""
    metrics, values = ("ece", "mce", "brier"), _Values(results, "bins")
    chosen = [e for e in in_columns(results["estimator"].unique()) if e.group == "single_pass"]
    top, lines, below = _groups(chosen, metrics, first=4)

    def row(model: str, dataset: str, bins: Any) -> Row:
        keys = [(model, dataset, e.name, metric, bins) for e in chosen for metric in metrics]
        return [Cell(str(bins)), *(values.cell(*key) for key in keys)]

    def block(model: str, label: str) -> list[Row | Rule]:
        counts, sets = results["bins"].unique(), _labels(datasets, results, "dataset").items()
        parts = [_block(name, [row(model, dataset, bins) for bins in counts]) for dataset, name in sets]
        return _block(label, _ruled(parts, Rule(((2, 3 + 3 * len(chosen)),))))

    head: list[Row | Rule] = [[MODEL, DATASET, Cell("Bins", rows=2), *top], lines, [None, None, None, *below]]
    body = _ruled([block(*model) for model in _labels(models, results, "model").items()], Rule())
    return Table(" ".join(["lll", *["ccc"] * len(chosen)]), head, body, values.notes(notes))


def insitu_ptrue(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent (rows of metric
    `token_reduction_pct`, as `multi_pass.reduction` returns them); no bold."""
    values, sets = _Values(results), _labels(datasets, results, "dataset").items()
    chosen = [ESTIMATORS[name] for name in ("ans_avg", "p_true_insitu", "p_true")]

    def row(model: str, dataset: str, label: str) -> Row:
        errors = [values.cell(model, dataset, e.name, "ece") for e in chosen]
        return [Cell(label), *errors, values.cell(model, dataset, "p_true_insitu", "token_reduction_pct", form=".2f")]

    labels = [Cell(e.plain, latex=e.label.removeprefix(r"\textsc{").rstrip("}"), bold=True) for e in chosen]
    head: Row = [Cell("Model", bold=True), Cell("Dataset", bold=True), *labels, Cell("Reduction (%)", bold=True)]
    blocks = [
        _block(label, [row(model, *dataset) for dataset in sets])
        for model, label in _labels(models, results, "model").items()
    ]
    return Table("llcccc", [head], _ruled(blocks, Rule()), values.notes(notes))


def dropout_grid_search(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD on the tuning examples for each dropout rate (column
    `rate`, as `multi_pass.grid` returns it); bold is the row of lowest ECE, the one selected."""
    values, sets = _Values(results, "rate"), _labels(datasets, results, "dataset").items()
    metrics = ("ece", "mce", "brier")

    def rows(model: str, dataset: str) -> list[Row | Rule]:
        keys = [(model, dataset, "c_bald", "ece", rate) for rate in sorted(results["rate"].unique())]
        best = min(values.lowest(keys), default=None)
        cells = [[values.cell(*key[:3], m, key[4], bold=key == best) for m in metrics] for key in keys]
        return [[Cell(f"{key[4]:.2f}", bold=key == best), *row] for key, row in zip(keys, cells, strict=True)]

    def block(model: str, label: str) -> list[Row | Rule]:
        return _block(label, _ruled([_block(name, rows(model, dataset)) for dataset, name in sets], Rule(((2, 6),))))

    head: Row = [Cell("Model"), Cell("Dataset"), Cell("Dropout rate"), *(Cell(METRICS[m].label) for m in metrics)]
    body = _ruled([block(*model) for model in _labels(models, results, "model").items()], Rule())
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
