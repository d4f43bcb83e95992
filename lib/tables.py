"""The paper's tables, built from frames. Formatting only; bold is computed, never listed.

`results` is what `metrics.evaluate` returns. Rows and column groups follow `models` and `datasets` in the
order given ({name: label}; by default the names that the frame holds), so another model adds a block.
"""

import html
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.cells import COMMANDS, Cell, Row, Rule, Stack, Table, escape, mathjax
from lib.estimators import ESTIMATORS, Estimator, in_columns
from lib.metrics import METRICS

Labels = Mapping[str, str] | None
MODEL, DATASET, DASH = Cell("Model", rows=2), Cell("Dataset", rows=2), Cell("--", html="&ndash;")


# ---- what the builders share


class _Values:
    """Results by (model, dataset, estimator, metric[, more]); remembers why cells stayed empty."""

    def __init__(self, results: pd.DataFrame, *more: str):
        columns = ["model", "dataset", "estimator", "metric", *more]
        keys = list(zip(*(results[column] for column in columns), strict=True))
        reasons = results["reason"] if "reason" in results else [""] * len(results)
        self.found = {k: float(v) for k, v in zip(keys, results["value"], strict=True) if not pd.isna(v)}
        self.rows = dict(zip(keys, results.to_dict("records"), strict=True))
        self.reasons, self.empty = dict(zip(keys, reasons, strict=True)), dict[str, None]()

    def cell(self, *key: Any, bold: bool = False, show: Callable[[float], str] = "{:.3f}".format) -> Cell:
        if key in self.found:
            return Cell(show(self.found[key]), bold=bold)
        self.empty[self.reasons.get(key) or "not computed"] = None
        return DASH

    def relative(self, key: tuple) -> float | None:
        """Relative improvement in whole percent, where there is one."""
        share = self.rows.get(key, {}).get("relative")
        return None if share is None or pd.isna(share) else round(100 * share)

    def improved(self, *key: Any, bold: bool = False) -> Cell:
        """Value and relative improvement: 0.056 (+66%)."""
        cell, relative = self.cell(*key, bold=bold), self.relative(key)
        return cell if relative is None else replace(cell, text=f"{cell.text} ({relative:+d}%)")

    def interval(self, commands: tuple[str, str], *key: Any, bold: bool = False, show: Any = "{:.3f}".format) -> Cell:
        """Value, interval and, for commands that take it, relative improvement, by the command for plain or bold."""
        cell = self.cell(*key, show=show)
        if key not in self.found or pd.isna(self.rows[key]["low"]):
            return replace(cell, bold=bold and key in self.found)
        parts = [cell.text, *(show(self.rows[key][end]) for end in ("low", "high"))]
        relative = self.relative(key)
        gain = ["--" if relative is None else f"{relative:+d}%"] * (COMMANDS[commands[0]][0] - 3)
        text = "{} [{}, {}]".format(*parts) + "".join(f" ({part})" for part in gain)
        latex = commands[bold] + "".join(f"{{{escape(part)}}}" for part in [*parts, *gain])
        return Cell(cell.text, latex=latex, html=f"<b>{text}</b>" if bold else text)

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


def _by_pair(results: pd.DataFrame, models: Labels, datasets: Labels, row: Callable[[str, str], Row]) -> list[Row | Rule]:
    """A row per dataset in a block per model."""
    sets = _labels(datasets, results, "dataset").items()
    blocks = [
        _block(label, [[Cell(name), *row(model, dataset)] for dataset, name in sets])
        for model, label in _labels(models, results, "model").items()
    ]
    return _ruled(blocks, Rule())


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
    for e in ESTIMATORS.values():
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

    def row(model: str, dataset: str) -> Row:
        best = values.lowest((model, dataset, e.name, "ece") for e in chosen)
        keys = [(model, dataset, e.name, metric) for e in chosen for metric in ("ece", "mce")]
        cells = [values.cell(*key, bold=key in best) for key in keys]
        return [values.cell(model, dataset, "", "acc"), *cells]

    body = _by_pair(results, models, datasets, row)
    head: list[Row | Rule] = [[MODEL, DATASET, Cell("Acc.", rows=2), *top], lines, [None, None, None, *below]]
    columns = " | ".join(["llc", *(" ".join(group) for group in groups)])
    return Table(columns, head, body, values.notes(notes))


PARTS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}


def _stack(chosen: list[Estimator], part: Callable[[list[Estimator], str], Table]) -> Stack:
    """A table for the estimators of each kind that there are."""
    groups = {group: [e for e in chosen if e.group == group] for group in PARTS}
    return Stack(parts=[(part(some, group), PARTS[group]) for group, some in groups.items() if some])


def _short(value: float) -> str:
    """Three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:.3f}"


def result_estimation_full(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Stack:
    """`tab:result_estimation_full`: every metric with its interval, as `bootstrap` returns them; bold is the lowest
    ECE of a pair over both parts."""
    results = results[results["method"] == ""] if "method" in results else results
    values, chosen = _Values(results), in_columns(results["estimator"].unique())
    metrics, commands = ("ece", "mce", "brier"), (r"\scoreci", r"\bestscoreci")

    def part(some: list[Estimator], group: str) -> Table:
        accuracy = [Cell("Acc.", rows=2)] * (group == "single_pass")

        def row(model: str, dataset: str) -> Row:
            best = values.lowest((model, dataset, e.name, "ece") for e in chosen)
            keys = [(model, dataset, "", "acc")] * len(accuracy)
            keys += [(model, dataset, e.name, metric) for e in some for metric in metrics]
            return [values.interval(commands, *key, bold=key in best, show=_short) for key in keys]

        top, lines, below = _groups(some, metrics, first=3 + len(accuracy))
        head: list[Row | Rule] = [[MODEL, DATASET, *accuracy, *top], lines, [None] * (2 + len(accuracy)) + below]
        body = _by_pair(results, models, datasets, row)
        columns = " ".join(["ll" + "c" * len(accuracy), *["ccc"] * len(some)])
        return Table(columns, head, body, values.notes(notes) if some[-1] is chosen[-1] else ())

    return _stack(chosen, part)


def _learned(value: float) -> str:
    """Two decimals, more where needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"


def result_calibration(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = (), full: bool = False
) -> Table:
    """`tab:result_calibration` and, with intervals, `tab:result_calibration_full`: ECE after isotonic regression and
    after temperature or Platt scaling of the estimators that have both, t and (a, b). `results` as `bootstrap` and
    `calibrate` return them, below one another. Bold is the lower ECE of the two, of equal ones the larger
    improvement."""
    values = _Values(results, "method")
    chosen = in_columns(results.loc[(results["method"] == "platt") & (results["metric"] == "ece"), "estimator"].unique())
    answer = [e for e in chosen if e.needs == "answer"]
    other = [e for e in chosen if e.needs != "answer"]

    def ece(pair: tuple, e: Estimator, method: str) -> Cell:
        ranks = {how: (values.found.get((*pair, e.name, "ece", how), math.inf),
                       -(values.relative((*pair, e.name, "ece", how)) or 0)) for how in ("isotonic", "platt")}  # fmt: skip
        bold = ranks[method] == min(ranks.values()) and ranks[method][0] < math.inf
        key = (*pair, e.name, "ece", method)
        return values.interval((r"\calci", r"\bestcalci"), *key, bold=bold) if full else values.improved(*key, bold=bold)

    def slope(pair: tuple, e: Estimator) -> Cell:
        parts = [values.cell(*pair, e.name, metric, "platt", show=_learned) for metric in ("a", "b")]
        text = "({}, {})".format(*(part.text for part in parts))
        return DASH if DASH in parts else Cell(text, latex="$" + text.replace(" ", "") + "$" if full else None)

    def row(*pair: str) -> Row:
        cells = [ece(pair, e, "isotonic") for e in chosen]
        if answer:
            cells.append(values.cell(*pair, "ans", "t", "platt", show="{:.2f}".format))
        cells += [ece(pair, e, "platt") for e in answer]
        return cells + [cell for e in other for cell in (slope(pair, e), ece(pair, e, "platt"))]

    names = {e.name: Cell(e.plain, latex=e.label) for e in chosen}
    t, ab = Cell("t", latex="$t$", html="<i>t</i>"), Cell("(a, b)", latex="$(a,b)$", html="(<i>a</i>, <i>b</i>)")
    below: Row = [*names.values(), *[t] * bool(answer), *(names[e.name] for e in answer)]
    below += [cell for e in other for cell in (ab, names[e.name])]
    one, two = len(chosen), len(below) - len(chosen)
    top = [Cell("Isotonic Regression", columns=one), Cell("Platt Scaling", columns=two)]
    lines = Rule(((3, 2 + one), (3 + one, 2 + one + two)))
    head: list[Row | Rule] = [[MODEL, DATASET, *top], lines, [None, None, *below]]
    body = _by_pair(results, models, datasets, row)
    return Table(f"ll | {'c' * one} | {'c' * two}", head, body, values.notes(notes))


def result_isotonic(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Stack:
    """`tab:result_isotonic`: ECE after isotonic regression, interval and relative improvement; bold is the largest
    improvement of a pair as printed, over both parts."""
    results = results[results["method"] == "isotonic"]
    values, chosen = _Values(results), in_columns(results["estimator"].unique())

    def part(some: list[Estimator], group: str) -> Table:
        def row(*pair: str) -> Row:
            gains = {e.name: values.relative((*pair, e.name, "ece")) for e in chosen}
            best = max((gain for gain in gains.values() if gain is not None), default=None)
            commands = (r"\isoCI", r"\isoBestCI")
            return [values.interval(commands, *pair, e.name, "ece", bold=best is not None and gains[e.name] == best)
                    for e in some]  # fmt: skip

        head: Row = [Cell("Model"), Cell("Dataset"), *(Cell(e.plain, latex=e.label) for e in some)]
        body = _by_pair(results, models, datasets, row)
        return Table("ll" + "c" * len(some), [head], body, values.notes(notes) if some[-1] is chosen[-1] else ())

    return _stack(chosen, part)


# ---- transfer


def families(models: Labels) -> dict[str, str]:
    """Model labels cut to their first letters (Llama-3.1-8B: Llama), where these tell the models apart."""
    labels = dict(models or {})
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) else labels


def calibration_transfer_full(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:calibration_transfer_full` from what `transfer` returns: sources in rows, targets in columns; bold where
    they are the same."""
    metrics = ("ece", "mce", "brier")
    values = _Values(results.assign(estimator=""), "method", "source_model", "source_dataset")
    models = families(_labels(models, results, "model"))
    sets = _labels(datasets, results, "dataset")
    pairs = {(m, d): f"{models[m]} / {sets[d]}" for m in models for d in sets if (m, d, "", "ece", "", "", "") in values.found}

    def cells(method: str, source: tuple) -> Row:
        keys = [(target, (*target, "", metric, method, *source)) for target in pairs for metric in metrics]
        return [values.cell(*key, bold=target == source) for target, key in keys]

    blocks: list[list[Row | Rule]] = [[[Cell("Uncalibrated"), DASH, *cells("", ("", ""))]]]
    for method, name in TRANSFERRED.items():
        blocks.append(_block(name, [[Cell(label), *cells(method, source)] for source, label in pairs.items()]))
    starts = range(3, 3 + 3 * len(pairs), 3)
    corner = [Cell("Calibration", rows=2), Cell("Source \\ Target", latex=r"Source $\backslash$ Target", rows=2)]
    top = [*corner, *(Cell(label, columns=3) for label in pairs.values())]
    below = [None, None, *(Cell(METRICS[metric].label) for _ in pairs for metric in metrics)]
    head: list[Row | Rule] = [top, Rule(tuple((start, start + 2) for start in starts)), below]
    return Table(" ".join(["ll", *["ccc"] * len(pairs)]), head, _ruled(blocks, Rule()), values.notes(notes))


TRANSFERRED = {"isotonic": "Isotonic", "platt": "Platt"}


def calibration_transfer_summary(
    results: pd.DataFrame, hard: str, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:calibration_transfer_summary`: change of ECE for the arrows that change the dataset, then for those that
    change the model; bold is an improvement on the dataset `hard`."""
    values = _Values(results.assign(estimator=""), "method", "source_model", "source_dataset")
    models = families(_labels(models, results, "model"))
    sets = _labels(datasets, results, "dataset")
    across = [((m, d), (m, e)) for m in models for d, e in itertools.permutations(sets, 2)]
    between = [((m, d), (n, d)) for d in sets for m, n in itertools.permutations(models, 2)]

    def row(source: tuple, target: tuple) -> Row:
        one, other = (f"{models[m]}: {sets[d]}" for m, d in (source, target))
        cells: Row = [Cell(f"{one} \u2192 {other}", latex=rf"{escape(one)} $\rightarrow$ {escape(other)}")]
        for method in TRANSFERRED:
            cell = values.cell(*target, "", "delta_ece", method, *source, show=_signed)
            number = rf"\bm{{{cell.text}}}" if cell.text[0] == "-" and target[1] == hard else cell.text
            bold = number != cell.text
            cells.append(cell if cell is DASH else Cell(cell.text, latex=f"${number}$", html=f"<b>{cell.text}</b>" if bold else None))
        return cells

    arrow = r"Calibration Source $\rightarrow$ Evaluation Target"
    head: Row = [Cell("Calibration Source \u2192 Evaluation Target", latex=arrow), *map(Cell, TRANSFERRED.values())]
    body = _ruled([[row(*arrow) for arrow in block] for block in (across, between) if block], Rule())
    return Table("lrr", [head], body, values.notes(notes))


def _signed(value: float) -> str:
    return ("+" if round(value, 3) >= 0 else "-") + _short(abs(value))


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
