"""What tables of numbers are built with: heads, blocks of rows, values of a frame by key, and cells that show them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import pandas as pd

from lib.paper.latex import COMMANDS, escape
from lib.paper.table import Cell, Number, Rule, Stack, Table, TableRow, TableRows, without_rules
from lib.score.estimators import Estimator, in_columns
from lib.score.metrics import METRICS

Frame: TypeAlias = pd.DataFrame
Labels = Mapping[str, str] | None
Notes = Sequence[str]
FEW_ROWS = 5  # rows of a bin from which on its gap is shown without a mark
MODEL, DATASET, DASH = Cell("Model"), Cell("Dataset"), Cell("--", html="&ndash;")
PARTS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}


def three_decimals(value: float) -> str:
    return f"{value:.3f}"


def short(value: float) -> str:
    """Three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:z.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:z.3f}"


# ---- heads and blocks of rows


def grouped_head(left: Sequence[Cell], groups: Iterable[tuple[Cell, Sequence[Cell]]]) -> list[TableRow | Rule]:
    """Two rows: cells on the `left` that reach down both, then the label of each group over those of its columns."""
    top: TableRow = [replace(cell, rows=2) for cell in left]
    below: TableRow = [None for _ in left]
    spans = []
    for label, columns in groups:
        spans.append((len(below) + 1, len(below) + len(columns)))
        top.append(replace(label, columns=len(columns)))
        below += columns
    return [top, Rule(tuple(spans)), below]


def ruled(blocks: Iterable[TableRows], rule: Rule | None) -> list[TableRow | Rule]:
    """Blocks below one another, between them the rule, if any."""
    rows: list[TableRow | Rule] = []
    for block in blocks:
        if rows and rule:
            rows.append(rule)
        rows += block
    return rows


def stand_behind(label: str, rows: TableRows) -> list[TableRow | Rule]:
    """Rows behind one label that reaches over all of them."""
    count = len(without_rules(rows))
    heads: list[Cell | None] = [Cell(label, rows=count)] + [None] * (count - 1)
    return [row if isinstance(row, Rule) else [heads.pop(0), *row] for row in rows]


# ---- numbers


class Later(Sequence[str]):
    """Lines that are put together when they are first read: of many tables the numbers alone are."""

    def __init__(self, make: Callable[[], list[str]]):
        self.make = make

    @cached_property
    def lines(self) -> list[str]:
        return self.make()

    def __getitem__(self, place: Any) -> Any:
        return self.lines[place]

    def __len__(self) -> int:
        return len(self.lines)

    def __eq__(self, other: object) -> bool:
        return self.lines == other


class Values:
    """Numbers by (model, dataset, estimator, metric, and the columns `keys`), and the cells that show them.

    `models` and `datasets` are {name: label} in the order shown, by default the names that the frame holds. Why cells
    stay empty is remembered for the notes.
    """

    def __init__(self, frame: Frame, models: Labels = None, datasets: Labels = None, *keys: str):
        self.models = models if models is not None else {name: str(name) for name in frame["model"].unique()}
        self.datasets = datasets if datasets is not None else {name: str(name) for name in frame["dataset"].unique()}
        self.estimators = in_columns(frame["estimator"].unique())
        self.columns = ("model", "dataset", "estimator", "metric", *keys)
        places = zip(*(frame[column] for column in self.columns), strict=True)
        self.rows: dict[tuple, dict] = dict(zip(places, frame.to_dict("records"), strict=True))
        self.empty: dict[str, None] = {}
        self.frame = frame

    def known(self, key: tuple, column: str = "value") -> float | None:
        """What the frame holds, not rounded; None where it holds nothing."""
        value = self.rows.get(key, {}).get(column)
        return None if value is None or pd.isna(value) else float(value)

    def relative(self, key: tuple) -> int | None:
        """Relative improvement in whole percent, where there is one."""
        share = self.known(key, "relative")
        return None if share is None else round(100 * share)

    def lowest(self, keys: Iterable[tuple]) -> set[tuple]:
        """The keys of the smallest value, not rounded (several only where values are equal)."""
        values = {key: value for key in keys if (value := self.known(key)) is not None}
        return {key for key, value in values.items() if value == min(values.values())}

    # ---- cells

    def number(self, key: tuple, value: float) -> Number:
        named = dict(zip(self.columns, key, strict=True))
        names = {"model": self.models, "source_model": self.models,
                 "dataset": self.datasets, "source_dataset": self.datasets}  # fmt: skip
        labels = {column: names[column].get(part, part) if column in names else part for column, part in named.items()}
        return Number(named, labels, value, self.known(key, "low"), self.known(key, "high"))

    def cell(self, *key: Any, bold: bool = False, show: Callable[[float], str] = three_decimals) -> Cell:
        value = self.known(key)
        if value is None:
            reason = self.rows.get(key, {}).get("reason")
            self.empty[reason if isinstance(reason, str) and reason else "not computed"] = None
            return DASH
        mark = f"{show(value)}<sup>*</sup>" if (self.known(key, "of_bin") or FEW_ROWS) < FEW_ROWS else None
        return Cell(show(value), html=mark, bold=bold, numbers=(self.number(key, value),))

    def improved(self, *key: Any, bold: bool = False) -> Cell:
        """Value and relative improvement: 0.056 (+66%)."""
        cell, relative = self.cell(*key, bold=bold), self.relative(key)
        return cell if relative is None else replace(cell, text=f"{cell.text} ({relative:+d}%)")

    def interval(self, commands: tuple[str, str], *key: Any, bold: bool, show: Any = three_decimals) -> Cell:
        """Value, interval and, for commands that take it, relative improvement, by the command for plain or bold."""
        cell, low, high = self.cell(*key, show=show), self.known(key, "low"), self.known(key, "high")
        if cell is DASH or low is None or high is None:
            return replace(cell, bold=bold and cell is not DASH)
        parts = [cell.text, show(low), show(high)]
        text = "{} [{}, {}]".format(*parts)
        if COMMANDS[commands[0]][0] == 4:
            relative = self.relative(key)
            parts.append("--" if relative is None else f"{relative:+d}%")
            text += f" ({parts[-1]})"
        latex = commands[bold] + "".join(f"{{{escape(part)}}}" for part in parts)
        return replace(cell, latex=latex, html=f"<b>{text}</b>" if bold else text)

    # ---- rows

    def blocks(self, rows: Callable[[str, str], list[TableRow]], between: Rule | None = None) -> list[TableRow | Rule]:
        """A block per model, in it the rows of each dataset."""
        blocks = []
        for model, label in self.models.items():
            parts = [stand_behind(name, rows(model, dataset)) for dataset, name in self.datasets.items()]
            blocks.append(stand_behind(label, ruled(parts, between)))
        return ruled(blocks, Rule())

    def by_pair(self, row: Callable[[str, str], TableRow]) -> list[TableRow | Rule]:
        """A row per dataset in a block per model."""
        return self.blocks(lambda model, dataset: [row(model, dataset)])

    def notes(self, notes: Notes, rows: str = "evaluation rows") -> "Later":
        """The notes, of how many `rows` the numbers are, where estimators rest on fewer than others, which MCEs rest on
        next to none, and why cells stayed empty."""

        def lines() -> list[str]:
            found = [*notes, *self.counted(rows), *self.fewer_rows(), *self.thin_bins()]
            return [*found, f"--: {', '.join(self.empty)}."] if self.empty else found

        return Later(lines)

    def where(self, row: Mapping[str, Any] | pd.Series) -> str:
        """The pair of a row, as the table calls it: "Llama-3.1-8B on GSM8K"."""
        model, dataset = row["model"], row["dataset"]
        return f"{self.models.get(model, model)} on {self.datasets.get(dataset, dataset)}"

    def counted(self, rows: str) -> list[str]:
        """A line that says how many rows each dataset has, where the frame tells."""
        if "n" not in self.frame:
            return []
        raw = self.frame[(self.frame["metric"] == "ece") & self.frame["dataset"].isin(list(self.datasets))]
        most = raw.groupby("dataset", sort=False)["n"].max().dropna().astype(int)
        if most.nunique() == 1:
            return [f"n = {most.iloc[0]} {rows} of each model and dataset."]
        counts = ", ".join(f"{most[name]} on {label}" for name, label in self.datasets.items() if name in most)
        return [f"n, {rows}: {counts}."] if counts else []

    def thin_bins(self) -> list[str]:
        """A line that counts the MCEs that come from a bin of fewer than FEW rows, where the frame tells."""
        if "of_bin" not in self.frame:
            return []
        shown = self.frame["estimator"].isin([e.name for e in self.estimators]) & (self.frame["metric"] == "mce")
        rows = self.frame.loc[shown, "of_bin"].dropna()
        thin = int((rows < FEW_ROWS).sum())
        return [f"MCE from a bin of fewer than {FEW_ROWS} rows: {thin} of {len(rows)} (* on screen)."] if thin else []

    def fewer_rows(self) -> list[str]:
        """A line for each pair in which raw scores of some estimators are of fewer rows."""
        if "n" not in self.frame or "source_model" in self.frame:
            return []
        shown = self.frame["estimator"].isin([e.name for e in self.estimators]) & (self.frame["metric"] == "ece")
        lines = []
        for (model, dataset), part in self.frame[shown].groupby(["model", "dataset"], sort=False):
            counts = {count: list(rows["estimator"].unique()) for count, rows in part.groupby("n")}
            for count in sorted(counts)[:-1]:
                names = ", ".join(e.plain for e in self.estimators if e.name in counts[count])
                where = self.where({"model": model, "dataset": dataset})
                lines.append(f"{names} on {where}: {int(count)} of {int(max(counts))} rows.")
        return lines


def over_estimators(chosen: list[Estimator], metrics: Sequence[str]) -> list[tuple[Cell, list[Cell]]]:
    """Of a head: every estimator, and below it the metrics."""
    return [(Cell(e.plain, latex=e.label), [Cell(METRICS[metric].label) for metric in metrics]) for e in chosen]


def stack(chosen: list[Estimator], part: Callable[[list[Estimator], str], Table]) -> Stack:
    """A table for the estimators of each kind that there are."""
    groups = {group: [e for e in chosen if e.group == group] for group in PARTS}
    return Stack(parts=[(part(some, group), PARTS[group]) for group, some in groups.items() if some])
