"""The layout of a tidy frame's numbers in a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from lib.analysis.printed_numbers import number_keys
from lib.analysis.results import NUMBER_KEY, QUANTITIES
from lib.paper.booktabs import Cell, Stack, Table
from lib.paper.footnotes import empty_cells_note, fewer_rows_notes, row_count_notes, thin_bins_note
from lib.paper.number_cells import number_cell
from lib.score.estimators import Estimator, in_columns
from lib.score.metrics import METRICS
from lib.store import PAIR

Frame: TypeAlias = pd.DataFrame
Labels = Mapping[str, str]
Notes = Sequence[str]
GROUPS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}
SHOWN_QUANTITIES = [*QUANTITIES, "of_bin"]


class Header(NamedTuple):
    """A row or a column: its label at each level, and the part of a number's key that it fixes. A tuple of metrics
    shares one cell."""

    labels: tuple[str | Cell, ...]
    key: Mapping[str, Any]


def estimator_heading(estimator: Estimator) -> Cell:
    return Cell(estimator.plain, latex=estimator.label)


def estimator_column(estimator: Estimator, metric: str, group: Sequence[str | Cell] = (), **key: str) -> Header:
    """Return the column of a metric, labeled by its estimator, perhaps in a group."""
    return Header((*group, estimator_heading(estimator)), {"estimator": estimator.name, "metric": metric, **key})


def metric_columns(estimators: Iterable[Estimator], metrics: Sequence[str]) -> list[Header]:
    """Return columns of every estimator, each with the metrics below."""
    return [
        Header((estimator_heading(e), METRICS[metric].label), {"estimator": e.name, "metric": metric})
        for e in estimators
        for metric in metrics
    ]


def default_specification(levels: int, columns: Sequence[Header]) -> str:
    """Return LaTeX's column specification: left for each of the row levels, centered for numbers.

    Groups of columns, which have a second label, are set apart.
    """
    groups = [list(some) for _, some in groupby(columns, key=lambda column: column.labels[:-1])]
    return "l" * levels + "".join(" " * any(some[0].labels[1:]) + "c" * len(some) for some in groups)


def is_lowest(shown: Frame, among: pd.Series, *by: str) -> pd.Series:
    """Mark the lowest number, unrounded, `among` those with equal columns `by`; ties are all marked."""
    values = shown["value"].where(among)
    return values == values.groupby([shown[column] for column in by or ("row",)]).transform("min")


@dataclass
class Layout:
    """A tidy `frame` with a row for each number.

    `models` and `datasets` are {name: label} in the order shown. `notes` are printed below, `counted` names what n
    counts.
    """

    frame: Frame
    models: Labels
    datasets: Labels
    notes: Notes = ()
    counted: str = "evaluation rows"

    @property
    def estimators(self) -> list[Estimator]:
        return in_columns(self.frame["estimator"].unique())

    @property
    def pairs(self) -> list[Header]:
        """A row for each dataset in the block of each model."""
        return [
            Header((label, name), {"model": model, "dataset": dataset})
            for model, label in self.models.items()
            for dataset, name in self.datasets.items()
        ]

    def by_value(self, column: str, values: Mapping[Any, str | Cell]) -> list[Header]:
        """Return a row for each value of a column ({value: label}) in the block of each pair."""
        labels = values.items()
        return [Header((*pair.labels, label), {**pair.key, column: v}) for pair in self.pairs for v, label in labels]

    def place(self, rows: Sequence[Header], columns: Sequence[Header]) -> Frame:
        """Return the numbers in the order of the cells.

        Columns: `row` and `column`, the parts of NUMBER_KEY that these fix, SHOWN_QUANTITIES, the key in one word
        (`key`), and `bold` (False). If the frame lacks a number, its quantities are missing, with a `reason`.
        """
        used = {*NUMBER_KEY[1:5], *(name for line in (*rows, *columns) for name in line.key)}
        names = [name for name in NUMBER_KEY if name in used]
        keys = [
            ({"row": i, "column": j} | {**row.key, **column.key})
            for i, row in enumerate(rows)
            for j, column in enumerate(columns)
        ]
        places = pd.DataFrame(keys, columns=["row", "column", *names]).explode("metric", ignore_index=True)
        found = self.frame.drop_duplicates(names, keep="last").reindex(columns=[*names, *SHOWN_QUANTITIES, "reason"])
        shown = places.astype(found[names].dtypes).merge(found, how="left", on=names)
        shown[SHOWN_QUANTITIES] = shown[SHOWN_QUANTITIES].apply(pd.to_numeric, errors="coerce").astype(float)
        return shown.assign(key=number_keys(shown[names]), bold=False)

    def footnotes(self, shown: Frame) -> list[str]:
        """Return the notes, and what the reader of the numbers `shown` (from `place`) must know."""
        measured = self.frame[self.frame["estimator"].isin([e.name for e in self.estimators])]
        counts = row_count_notes(self.frame, self.datasets, self.counted)
        counts += fewer_rows_notes(measured, self.models, self.datasets)
        return [*self.notes, *counts, *thin_bins_note(measured), *empty_cells_note(shown)]

    def build(
        self,
        rows: Sequence[Header],
        columns: Sequence[Header],
        names: Sequence[str | Cell | None],
        specification: str = "",
        cell: Callable[..., Cell] = number_cell,
        bold: Callable[[Frame], Any] | None = None,
        only: Callable[[Frame], Any] | None = None,
        notes: Notes = (),
    ) -> Table:
        """Build the table of these rows and columns.

        `names` label the row levels, `specification` is LaTeX's (by default `default_specification`), and `cell`
        formats a number (or numbers). `bold` marks rows of `place`, and `only` those to show. `notes` come last.
        """
        shown = self.place(rows, columns)
        if only is not None:
            shown = shown[only(shown)]
        if bold is not None:
            shown = shown.assign(bold=bold(shown))
        cells = np.full((len(rows), len(columns)), Cell(), dtype=object)
        for place, numbers in groupby(shown.itertuples(), key=lambda one: (one.row, one.column)):
            cells[place] = cell(*numbers)
        index = pd.MultiIndex.from_tuples([row.labels for row in rows], names=names)
        levels = len(columns[0].labels) if columns else 1
        heads = pd.MultiIndex.from_tuples([column.labels for column in columns], names=[None] * levels)
        specification = specification or default_specification(len(names), columns)
        return Table(specification, pd.DataFrame(cells, index, heads), [*self.footnotes(shown), *notes])

    def by_pair(self, columns: Sequence[Header], specification: str = "", **more: Any) -> Table:
        """Build a table with a row for each dataset in the block of each model."""
        return self.build(self.pairs, columns, ("Model", "Dataset"), specification, **more)

    def stack(self, columns_of: Callable[[list[Estimator]], Sequence[Header]], **more: Any) -> Stack:
        """Build a table by pairs for each of GROUPS that has estimators, with bold across all of them and notes below
        the last."""
        by_group = {group: [e for e in self.estimators if e.group == group] for group in GROUPS}
        groups = {group: columns_of(some) for group, some in by_group.items() if some}
        whole, parts, start = self.by_pair([line for columns in groups.values() for line in columns], **more), [], 0
        for group, columns in groups.items():
            end = start + len(columns)
            notes = whole.notes if group == [*groups][-1] else ()
            specification = default_specification(len(PAIR), columns)
            parts.append((Table(specification, whole.cells.iloc[:, start:end], notes), GROUPS[group]))
            start = end
        return Stack(parts)
