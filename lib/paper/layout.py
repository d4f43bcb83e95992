"""What the builders of result tables share: values by key, heads over estimators, blocks of rows, number formats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.paper.cells import COMMANDS, Cell, Row, Rule, Stack, Table, escape
from lib.score.estimators import Estimator
from lib.score.metrics import METRICS

Labels = Mapping[str, str] | None
MODEL, DATASET, DASH = Cell("Model", rows=2), Cell("Dataset", rows=2), Cell("--", html="&ndash;")


def about(key: Iterable[Any]) -> str:
    """The name of a number among those of its table, from its key in `Values`."""
    return "/".join(map(str, key))


class Values:
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
            return Cell(show(self.found[key]), bold=bold, about=about(key))
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
        if key not in self.found or pd.isna(self.rows[key].get("low")):
            return replace(cell, bold=bold and key in self.found)
        parts = [cell.text, *(show(self.rows[key][end]) for end in ("low", "high"))]
        relative = self.relative(key)
        gain = ["--" if relative is None else f"{relative:+d}%"] * (COMMANDS[commands[0]][0] - 3)
        text = "{} [{}, {}]".format(*parts) + "".join(f" ({part})" for part in gain)
        latex = commands[bold] + "".join(f"{{{escape(part)}}}" for part in [*parts, *gain])
        return replace(cell, latex=latex, html=f"<b>{text}</b>" if bold else text)

    def lowest(self, keys: Iterable[tuple]) -> set[tuple]:
        """The keys of the smallest value, not rounded (several only where values are equal)."""
        found = {key: self.found[key] for key in keys if key in self.found}
        return {key for key, value in found.items() if value == min(found.values())}

    def notes(self, notes: Sequence[str]) -> list[str]:
        return [*notes, *([f"--: {', '.join(self.empty)}."] if self.empty else [])]


def labels_of(given: Labels, results: pd.DataFrame, column: str) -> Mapping[str, str]:
    return given if given is not None else {name: str(name) for name in results[column].unique()}


def heads(chosen: list[Estimator], metrics: Sequence[str], first: int) -> tuple[Row, Rule, Row]:
    """Head over estimators: their labels, the lines under them (from column `first` on), the metrics."""
    size = len(metrics)
    starts = range(first, first + size * len(chosen), size)
    labels: Row = [Cell(e.plain, latex=e.label, columns=size) for e in chosen]
    below: Row = [Cell(METRICS[metric].label) for _ in chosen for metric in metrics]
    return labels, Rule(tuple((start, start + size - 1) for start in starts)), below


def stand_behind(label: str, rows: Sequence[Row | Rule]) -> list[Row | Rule]:
    """Rows behind one label that reaches over all of them."""
    count = sum(not isinstance(row, Rule) for row in rows)
    tall: list[Cell | None] = [Cell(label, rows=count)] + [None] * (count - 1)
    return [row if isinstance(row, Rule) else [tall.pop(0), *row] for row in rows]


def by_pair(
    results: pd.DataFrame, models: Labels, datasets: Labels, row: Callable[[str, str], Row]
) -> list[Row | Rule]:
    """A row per dataset in a block per model."""
    sets = labels_of(datasets, results, "dataset").items()
    blocks = [
        stand_behind(label, [[Cell(name), *row(model, dataset)] for dataset, name in sets])
        for model, label in labels_of(models, results, "model").items()
    ]
    return ruled(blocks, Rule())


def ruled(blocks: Iterable[Sequence[Row | Rule]], rule: Rule) -> list[Row | Rule]:
    """Blocks below one another, `rule` between them."""
    rows: list[Row | Rule] = []
    for block in blocks:
        rows += [rule, *block] if rows else block
    return rows


PARTS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}


def stack(chosen: list[Estimator], part: Callable[[list[Estimator], str], Table]) -> Stack:
    """A table for the estimators of each kind that there are."""
    groups = {group: [e for e in chosen if e.group == group] for group in PARTS}
    return Stack(parts=[(part(some, group), PARTS[group]) for group, some in groups.items() if some])


def short(value: float) -> str:
    """Three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:.3f}"
