"""Which numbers of a tidy frame stand where in a table, and how each is set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from lib.paper.booktabs import Cell, Stack, Table
from lib.paper.footnotes import MIN_BIN_COUNT, footnotes
from lib.paper.latex import COMMANDS, escape
from lib.score.estimators import Estimator, in_columns
from lib.score.metrics import METRICS
from lib.store import PAIR

Frame: TypeAlias = pd.DataFrame
Labels = Mapping[str, str] | None
Notes = Sequence[str]
Show = Callable[[float], str]
DASH = Cell("--", html="&ndash;")
GROUPS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}
QUANTITIES = ["value", "low", "high", "relative", "of_bin"]  # of a number


# ---- how a number is set: `one` is a row of what `Layout.place` returns


def three_decimals(value: float) -> str:
    return f"{value:.3f}"


def short(value: float) -> str:
    """Three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:z.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:z.3f}"


def relative_percent(one: Any) -> str:
    """Relative improvement in whole percent: +66%; nothing where there is none."""
    return "" if pd.isna(one.relative) else f"{round(100 * one.relative):+d}%"


def plain(one: Any, show: Show = three_decimals) -> Cell:
    """A star on screen where the number comes from a bin of few rows."""
    if np.isnan(one.value):
        return DASH
    text = show(one.value)
    mark = f"{text}<sup>*</sup>" if one.of_bin < MIN_BIN_COUNT else None
    return Cell(text, html=mark, bold=one.bold, key=one.key)


def improved(one: Any) -> Cell:
    """Value and relative improvement: 0.056 (+66%)."""
    cell, gain = plain(one), relative_percent(one)
    return replace(cell, text=f"{cell.text} ({gain})") if gain and cell is not DASH else cell


def interval(one: Any, commands: tuple[str, str], show: Show = three_decimals) -> Cell:
    """Value, interval and, for commands that take it, relative improvement, by the command for plain or bold."""
    cell = plain(one, show)
    if cell is DASH or np.isnan(one.low) or np.isnan(one.high):
        return cell
    parts = [cell.text, show(one.low), show(one.high)]
    text = "{} [{}, {}]".format(*parts)
    if COMMANDS[commands[0]][0] == 4:
        parts.append(relative_percent(one) or "--")
        text += f" ({parts[-1]})"
    latex = commands[one.bold] + "".join(f"{{{escape(part)}}}" for part in parts)
    return replace(cell, latex=latex, html=f"<b>{text}</b>" if one.bold else text, bold=False)


# ---- where it stands


class Line(NamedTuple):
    """A row or a column: its label at each level, and the part of a number's key that it fixes. The numbers of several
    metrics, a tuple, stand in one cell."""

    labels: tuple[str | Cell, ...]
    key: Mapping[str, Any]


def heading(estimator: Estimator) -> Cell:
    return Cell(estimator.plain, latex=estimator.label)


def by_metric(estimators: Iterable[Estimator], metrics: Sequence[str]) -> list[Line]:
    """Columns: every estimator, and below it the metrics."""
    return [Line((heading(e), METRICS[metric].label), {"estimator": e.name, "metric": metric})
            for e in estimators for metric in metrics]  # fmt: skip


def is_lowest(shown: Frame, among: pd.Series, *by: str) -> pd.Series:
    """Whether a number is the lowest, not rounded, of those `among` which are alike in the columns `by` (several only
    where they are equal)."""
    values = shown["value"].where(among)
    return values == values.groupby([shown[column] for column in by or ("row",)]).transform("min")


@dataclass(frozen=True)
class Layout:
    """A tidy `frame`, a row for each number, whose key are pair, estimator, metric and the columns `further`; `models`
    and `datasets` are {name: label} in the order shown. `notes` are printed below, `counted` says what n counts."""

    frame: Frame
    models: Mapping[str, str]
    datasets: Mapping[str, str]
    notes: Notes = ()
    further: tuple[str, ...] = ()
    counted: str = "evaluation rows"

    @classmethod
    def of(cls, frame: Frame, models: Labels, datasets: Labels, notes: Notes = (), further: tuple[str, ...] = (),
           counted: str = "evaluation rows") -> "Layout":  # fmt: skip
        """With the names that the frame holds where no labels are given."""
        found = [{name: str(name) for name in frame[column].unique()} if labels is None else labels
                 for column, labels in zip(PAIR, (models, datasets), strict=True)]  # fmt: skip
        return cls(frame, found[0], found[1], notes, further, counted)

    @property
    def estimators(self) -> list[Estimator]:
        return in_columns(self.frame["estimator"].unique())

    @property
    def pairs(self) -> list[Line]:
        """A row for each dataset in the block of each model."""
        return [Line((label, name), {"model": model, "dataset": dataset})
                for model, label in self.models.items() for dataset, name in self.datasets.items()]  # fmt: skip

    def place(self, rows: Sequence[Line], columns: Sequence[Line]) -> Frame:
        """The numbers in the order of the cells: `row` and `column`, key, QUANTITIES, all of them missing with a
        `reason` where the frame has no number; the key in one word (`key`); not `bold`."""
        names = [*PAIR, "estimator", "metric", *self.further]
        keys = [({"row": i, "column": j} | {**row.key, **column.key}) for i, row in enumerate(rows)
                for j, column in enumerate(columns)]  # fmt: skip
        single = [key | {"metric": metric} for key in keys
                  for metric in (key["metric"] if isinstance(key["metric"], tuple) else [key["metric"]])]  # fmt: skip
        found = self.frame.drop_duplicates(names, keep="last").reindex(columns=[*names, *QUANTITIES, "reason"])
        places = pd.DataFrame(single, columns=["row", "column", *names]).astype(found[names].dtypes)
        shown = places.merge(found, how="left", on=names)
        shown[QUANTITIES] = shown[QUANTITIES].apply(pd.to_numeric, errors="coerce").astype(float)
        key = ["/".join(map(str, key)) for key in shown[names].itertuples(index=False)]
        return shown.assign(key=key, bold=False)

    def build(self, rows: Sequence[Line], columns: Sequence[Line], names: Sequence[str | Cell | None],
              specification: str, cell: Callable[..., Cell] = plain, bold: Callable[[Frame], Any] | None = None
              ) -> Table:  # fmt: skip
        """The table of these rows and columns: `names` of the levels of rows, LaTeX's `specification`, a `cell` made of
        its number (or numbers), `bold` by what `place` returns."""
        shown = self.place(rows, columns)
        if bold is not None:
            shown["bold"] = bold(shown)
        return self.set_cells(shown, rows, columns, names, specification, cell, self.footnotes(shown))

    def by_pair(self, columns: Sequence[Line], specification: str = "", **more: Any) -> Table:
        """A row for each dataset in the block of each model."""
        specification = specification or "ll" + "c" * len(columns)
        return self.build(self.pairs, columns, ("Model", "Dataset"), specification, **more)

    def stack(self, groups: Mapping[str, Sequence[Line]], specifications: Mapping[str, str], cell: Callable[..., Cell],
              bold: Callable[[Frame], Any]) -> Stack:  # fmt: skip
        """A table by pairs for each of GROUPS, bold over all of them; notes below the last."""
        shown = self.place(self.pairs, [column for columns in groups.values() for column in columns])
        shown["bold"] = bold(shown)
        starts = np.cumsum([0, *map(len, groups.values())])
        parts = [shown[shown["column"].between(start, end - 1)].assign(column=shown["column"] - start)
                 for start, end in pairwise(starts)]  # fmt: skip
        notes = [*[()] * (len(parts) - 1), self.footnotes(pd.concat(parts))] if parts else []
        return Stack([
            (self.set_cells(part, self.pairs, columns, ("Model", "Dataset"), specifications[group], cell, below),
             GROUPS[group])
            for part, (group, columns), below in zip(parts, groups.items(), notes, strict=True)
        ])  # fmt: skip

    def footnotes(self, shown: Frame) -> list[str]:
        return [*self.notes, *footnotes(self.frame, shown, self.models, self.datasets, self.counted)]

    def set_cells(self, shown: Frame, rows: Sequence[Line], columns: Sequence[Line], names: Sequence[str | Cell | None],
                  specification: str, cell: Callable[..., Cell], notes: Notes) -> Table:  # fmt: skip
        """The numbers `shown` as a table, blank where none stands."""
        cells = np.full((len(rows), len(columns)), Cell(), dtype=object)
        for place, numbers in groupby(shown.itertuples(), key=lambda one: (one.row, one.column)):
            cells[place] = cell(*numbers)
        index = pd.MultiIndex.from_tuples([row.labels for row in rows], names=names)
        levels = len(columns[0].labels) if columns else 1
        heads = pd.MultiIndex.from_tuples([column.labels for column in columns], names=[None] * levels)
        return Table(specification, pd.DataFrame(cells, index, heads), notes, self.numbers(shown, cells))

    def numbers(self, shown: Frame, cells: np.ndarray) -> Frame:
        """The numbers that are there, with the text of their cells, the words for pairs in columns `..._label`, and
        what is further in their keys as text."""
        there = shown[shown["value"].notna()]
        labels = {"model": self.models, "dataset": self.datasets}
        words = {f"{column}_label": [labels[kind].get(name, name) for name in there[column]] for column in there
                 if (kind := column.removeprefix("source_")) in labels}  # fmt: skip
        texts = [cells[place].text for place in zip(there["row"], there["column"], strict=True)]
        return there.assign(text=texts, **words, **{name: there[name].map(str) for name in self.further})
