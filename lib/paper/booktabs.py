"""A table as a DataFrame of cells, written as booktabs LaTeX for the paper and as HTML and text for the reader.

Knows nothing of models or metrics. Labels of rows reach down over their block, labels of groups of columns over their
columns, and rules stand between blocks: all of it follows from the levels of both axes. The LaTeX is the tabular alone,
to be input by a document that loads the packages in its first line; every text is escaped in both languages unless it
is given as markup.
"""

import html
import re
import textwrap
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd

from lib.paper.latex import escape, preamble


@dataclass(frozen=True)
class Cell:
    """Text (escaped), or markup in both languages. `key` is the name of the number that it shows, for links."""

    text: str = ""
    latex: str | None = None
    html: str | None = None
    bold: bool = False
    key: str = ""

    def as_latex(self, rows: int, columns: int, bar: bool) -> str:
        """`bar`: a vertical line stands on the right, which a cell over several columns has to say again."""
        body = escape(self.text) if self.latex is None else self.latex
        if self.bold:
            body = rf"\textbf{{{body}}}"
        if rows > 1:
            body = rf"\multirow{{{rows}}}{{*}}{{{body}}}"
        if columns > 1:
            body = rf"\multicolumn{{{columns}}}{{{'c|' if bar else 'c'}}}{{{body}}}"
        return body

    def as_html(self, rows: int, columns: int, style: str) -> str:
        body = html.escape(self.text) if self.html is None else self.html
        if self.bold:
            body = f"<b>{body}</b>"
        spans = {"rowspan": rows, "colspan": columns}
        attributes = "".join(f' {name}="{count}"' for name, count in spans.items() if count > 1)
        if self.key:
            attributes += f' data-key="{html.escape(self.key)}"'
        return f'<td{attributes} style="padding:2px 8px;{style}">{body}</td>'


class PlacedCell(NamedTuple):
    """A cell, its first column (counted from 1), and the rows and columns that it covers."""

    cell: Cell
    column: int
    rows: int = 1
    columns: int = 1


class Row(NamedTuple):
    """`rule` above the row: none, a whole one (no spans), or one over `spans` of columns."""

    cells: list[PlacedCell]
    rule: tuple[tuple[int, int], ...] | None = None

    @property
    def rule_latex(self) -> list[str]:
        if self.rule is None:
            return []
        return [" ".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in self.rule) or r"\midrule"]


def _cell(label: Any) -> Cell:
    return label if isinstance(label, Cell) else Cell(str(label))


def _keys(index: pd.Index) -> list[tuple]:
    return list(index) if isinstance(index, pd.MultiIndex) else [(label,) for label in index]


class Typeset:
    """What a notebook shows in three forms; a subclass brings `tabular`, HTML and text."""

    tabular: str

    @property
    def latex(self) -> str:
        return preamble(self.tabular) + self.tabular

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/latex": self.latex, "text/plain": str(self)}


@dataclass(frozen=True)
class Table(Typeset):
    """`cells` holds a `Cell` in each place; labels on both axes are words or cells. A level of rows without a name is
    not shown, and rules stand between its blocks. Columns have one level, or groups and what stands below them; a
    column without the second label stands over both rows of the head. `columns` is LaTeX's column specification;
    `notes` are printed below; `numbers` are the rows of the tidy frame that the cells were made of."""

    columns: str
    cells: pd.DataFrame
    notes: Sequence[str] = ()
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    @property
    def alignment(self) -> list[tuple[str, bool]]:
        """Each column's letter, and whether a vertical line stands on its right."""
        return [(letter, bool(bar)) for letter, bar in re.findall(r"([lcr])\s*(\|?)", self.columns)]

    @property
    def _shown(self) -> list[int]:
        """The levels of rows that are shown."""
        return [level for level, name in enumerate(self.cells.index.names) if name is not None]

    def head(self) -> list[Row]:
        names: list[Any] = [self.cells.index.names[level] for level in self._shown]
        labels = _keys(self.cells.columns)
        if self.cells.columns.nlevels == 1:
            return [
                Row([PlacedCell(_cell(one), at) for at, one in enumerate([*names, *(key[0] for key in labels)], 1)])
            ]
        top, below, spans = [PlacedCell(_cell(name), at, rows=2) for at, name in enumerate(names, 1)], [], []
        at = len(names) + 1
        for group, keys in groupby(labels, key=lambda key: key[0]):
            heads = [key[1] for key in keys]
            if heads == [""]:
                top.append(PlacedCell(_cell(group), at, rows=2))
            else:
                top.append(PlacedCell(_cell(group), at, columns=len(heads)))
                below += [PlacedCell(_cell(label), at + place) for place, label in enumerate(heads)]
                spans.append((at, at + len(heads) - 1))
            at += len(heads)
        return [Row(top), Row(below, tuple(spans))]

    def body(self) -> Iterator[Row]:
        keys, width = _keys(self.cells.index), len(self.alignment)
        last, before = self.cells.index.nlevels - 1, None
        for place, (key, cells) in enumerate(zip(keys, self.cells.to_numpy(), strict=True)):
            new = next((level for level in range(last) if before is None or key[level] != before[level]), last)
            row = [
                PlacedCell(_cell(key[level]), column, 1 if level == last else _reach(keys[place:], level))
                for column, level in enumerate(self._shown, 1)
                if level >= new
            ]
            row += [PlacedCell(cell, len(self._shown) + at) for at, cell in enumerate(cells, 1)]
            rule = None if before is None or new == last else () if new == 0 else ((new + 1, width),)
            yield Row(row, rule)
            before = key

    def _filled(self, row: Row) -> Iterator[PlacedCell]:
        """The cells of a row, blank ones where a cell above reaches down."""
        placed, column = {one.column: one for one in row.cells}, 1
        while column <= len(self.alignment):
            yield (one := placed.get(column, PlacedCell(Cell(), column)))
            column += one.columns

    def _bar(self, one: PlacedCell) -> bool:
        """Whether a vertical line stands on the right of a cell."""
        return self.alignment[one.column + one.columns - 2][1]

    def _latex_rows(self, rows: Iterable[Row]) -> list[str]:
        lines = []
        for row in rows:
            cells = (one.cell.as_latex(one.rows, one.columns, self._bar(one)) for one in self._filled(row))
            lines += [*row.rule_latex, " & ".join(cells) + r" \\"]
        return lines

    def _latex_notes(self) -> list[str]:
        """Notes as rows of their own, wrapped to about the table's width so that they do not widen it."""
        widest: dict[int, int] = {}  # characters, by column
        for row in (*self.head(), *self.body()):
            for one in row.cells:
                if one.columns == 1:
                    widest[one.column] = max(widest.get(one.column, 0), len(one.cell.text))
        room = max(40, sum(widest.values()) + 2 * len(widest))
        lines: list[str] = []
        for note in self.notes:
            too_long = max(map(len, note.split()), default=0) > room  # as the name of a model's file
            lines += textwrap.wrap(note, room, break_on_hyphens=too_long)
        rows = [rf"\multicolumn{{{len(self.alignment)}}}{{l}}{{\textit{{{escape(line)}}}}} \\" for line in lines]
        return [r"\addlinespace[2pt]", *rows] if rows else []

    @property
    def tabular(self) -> str:  # type: ignore[override]
        rows = [*self._latex_rows(self.head()), r"\midrule", *self._latex_rows(self.body())]
        lines = [rf"\begin{{tabular}}{{{self.columns}}}", r"\toprule", *rows, r"\bottomrule"]
        return "\n".join([*lines, *self._latex_notes(), r"\end{tabular}%", ""])

    def _html_row(self, row: Row) -> str:
        cells = "".join(
            one.cell.as_html(one.rows, one.columns, self._html_style(one, row.rule or ())) for one in row.cells
        )
        return f'<tr style="background:none;{"border-top:1px solid;" if row.rule == () else ""}">{cells}</tr>'

    def _html_style(self, one: PlacedCell, spans: tuple[tuple[int, int], ...]) -> str:
        style = f"text-align:{'left' if self.alignment[one.column - 1][0] == 'l' else 'center'};"
        if self._bar(one):
            style += "border-right:1px solid;"
        if any(first <= one.column <= last for first, last in spans):
            style += "border-top:1px solid #8888;"
        return style

    def _repr_html_(self) -> str:
        style = "border-collapse:collapse;table-layout:auto;white-space:nowrap;"
        style += "border-top:2px solid;border-bottom:2px solid;"
        head = "\n".join(map(self._html_row, self.head()))
        body = "\n".join(
            self._html_row(row if place else row._replace(rule=())) for place, row in enumerate(self.body())
        )
        text = html.escape(" ".join(self.notes))
        notes = f'<p class="mathjax_ignore tex2jax_ignore"><i>{text}</i></p>' if text else ""
        parts = f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>"
        fit = "width:min-content;min-width:min(100%,20rem);"  # notes are as wide as their table
        return f'<div style="{fit}"><table class="mathjax_ignore" style="{style}">\n{parts}\n</table>\n{notes}</div>'

    def __str__(self) -> str:
        rows = (*self.head(), *self.body())
        return "\n".join("  ".join(one.cell.text for one in self._filled(row)) for row in rows)


def _reach(keys: Sequence[tuple[Hashable, ...]], level: int) -> int:
    """Over how many rows the label of a level reaches, from the first of these keys on."""
    prefix = keys[0][: level + 1]
    return next((count for count, key in enumerate(keys) if key[: level + 1] != prefix), len(keys))


@dataclass(frozen=True)
class Stack(Typeset):
    """Tables below one another, each with its caption; together a tabular of one column."""

    parts: Sequence[tuple[Table, str]] = ()

    @property
    def numbers(self) -> pd.DataFrame:
        return pd.concat([table.numbers for table, _ in self.parts], ignore_index=True)

    @property
    def tabular(self) -> str:  # type: ignore[override]
        parts = [f"{table.tabular}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for table, caption in self.parts]
        return "\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(parts) + "\n\\end{tabular}%\n"

    def _repr_html_(self) -> str:
        return "\n".join(f"{table._repr_html_()}<p><b>{html.escape(caption)}</b></p>" for table, caption in self.parts)

    def __str__(self) -> str:
        return "\n\n".join(f"{table}\n{caption}" for table, caption in self.parts)
