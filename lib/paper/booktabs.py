"""A table as a DataFrame of cells, rendered as booktabs LaTeX for the paper and as HTML and text for the reader.

This module knows nothing of models or metrics. The levels of both axes determine the layout: row labels span their
block, labels of column groups span their columns, and rules separate blocks. The LaTeX is only the tabular; its first
line names the packages that the document must load. All text is escaped in both languages unless given as markup.
"""

import html
import re
import textwrap
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import pandas as pd

from lib.paper.latex import escape, preamble


@dataclass(frozen=True)
class Cell:
    """Text (escaped), or markup in both languages. `key` is the name of its number, for links; `rows` and `columns` are
    the numbers of rows and columns it spans."""

    text: str = ""
    latex: str | None = None
    html: str | None = None
    bold: bool = False
    key: str = ""
    rows: int = 1
    columns: int = 1

    def as_latex(self, bar: bool) -> str:
        """Return the LaTeX. `bar`: the column has a vertical line on the right, which multi-column cells must
        repeat."""
        body = escape(self.text) if self.latex is None else self.latex
        if self.bold:
            body = rf"\textbf{{{body}}}"
        if self.rows > 1:
            body = rf"\multirow{{{self.rows}}}{{*}}{{{body}}}"
        return rf"\multicolumn{{{self.columns}}}{{{'c|' if bar else 'c'}}}{{{body}}}" if self.columns > 1 else body

    def as_html(self, style: str) -> str:
        body = html.escape(self.text) if self.html is None else self.html
        spans = {"rowspan": self.rows, "colspan": self.columns}
        attributes = "".join(f' {name}="{count}"' for name, count in spans.items() if count > 1)
        attributes += f' data-key="{html.escape(self.key)}"' if self.key else ""
        return f'<td{attributes} style="padding:2px 8px;{style}">{f"<b>{body}</b>" if self.bold else body}</td>'


class Row(NamedTuple):
    """Cells by column, from 1. The rule above is none (None), a full rule (no spans), or a rule over `spans` of
    columns."""

    cells: dict[int, Cell]
    rule: tuple[tuple[int, int], ...] | None = None


def _cell(label: Any) -> Cell:
    return label if isinstance(label, Cell) else Cell(str(label))


def _keys(index: pd.Index) -> list[tuple]:
    return list(index) if isinstance(index, pd.MultiIndex) else [(label,) for label in index]


class Typeset:
    """Content that a notebook shows in three forms; a subclass has `tabular`, HTML and text."""

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
    """`cells` has a `Cell` in each position; labels on both axes are words or cells.

    A row level without a name is not shown, and rules separate its blocks. Columns have one level, or groups and their
    labels; a column without the second label spans both head rows. `columns` is LaTeX's column specification; `notes`
    are printed below.
    """

    columns: str
    cells: pd.DataFrame
    notes: Sequence[str] = ()

    @property
    def alignment(self) -> list[tuple[str, bool]]:
        """Each column's letter, and whether it has a vertical line on its right."""
        return [(letter, bool(bar)) for letter, bar in re.findall(r"([lcr])\s*(\|?)", self.columns)]

    def head(self) -> list[Row]:
        names = [_cell(name) for name in self.cells.index.names if name is not None]
        labels = enumerate(_keys(self.cells.columns), len(names) + 1)
        if self.cells.columns.nlevels == 1:
            return [Row(dict(enumerate(names, 1)) | {column: _cell(key[0]) for column, key in labels})]
        top = {column: replace(name, rows=2) for column, name in enumerate(names, 1)}
        below: dict[int, Cell] = {}
        spans = []
        for group, keys in groupby(labels, key=lambda label: label[1][0]):
            heads = {column: _cell(key[1]) for column, key in keys}
            first, last = min(heads), max(heads)
            if heads == {first: Cell()}:
                top[first] = replace(_cell(group), rows=2)
            else:
                top[first] = replace(_cell(group), columns=len(heads))
                below |= heads
                spans.append((first, last))
        return [Row(top), Row(below, tuple(spans))]

    def body(self) -> Iterator[Row]:
        shown = [level for level, name in enumerate(self.cells.index.names) if name is not None]
        keys, last, before = _keys(self.cells.index), self.cells.index.nlevels - 1, None
        for place, (key, numbers) in enumerate(zip(keys, self.cells.to_numpy(), strict=True)):
            new = next((level for level in range(last) if before is None or key[level] != before[level]), last)
            row = dict(enumerate(numbers, len(shown) + 1))
            for column, level in enumerate(shown, 1):
                if level >= new:
                    row[column] = replace(
                        _cell(key[level]), rows=1 if level == last else _row_span(keys[place:], level)
                    )
            whole = before is None or new == last
            yield Row(row, None if whole else () if new == 0 else ((new + 1, len(self.alignment)),))
            before = key

    def _filled(self, row: Row) -> Iterator[tuple[int, Cell]]:
        """Yield the cells of a row by column, blank ones under a cell that spans several rows."""
        column = 1
        while column <= len(self.alignment):
            cell = row.cells.get(column, Cell())
            yield column, cell
            column += cell.columns

    def _bar(self, column: int, cell: Cell) -> bool:
        """Whether a cell has a vertical line on its right."""
        return self.alignment[column + cell.columns - 2][1]

    def _latex_rows(self, rows: Iterable[Row]) -> Iterator[str]:
        for row in rows:
            if row.rule is not None:
                yield " ".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in row.rule) or r"\midrule"
            yield " & ".join(cell.as_latex(self._bar(column, cell)) for column, cell in self._filled(row)) + r" \\"

    def _latex_notes(self) -> list[str]:
        """Return notes as separate rows, wrapped to about the table's width so that they do not widen it."""
        rows = [*self.head(), *self.body()]
        lengths = [(column, len(cell.text)) for row in rows for column, cell in row.cells.items() if cell.columns == 1]
        widest = dict(sorted(lengths, key=lambda length: length[1]))  # characters, by column
        room, lines = max(40, sum(widest.values()) + 2 * len(widest)), []
        for note in self.notes:
            too_long = max(map(len, note.split()), default=0) > room  # such as the name of a model's file
            lines += textwrap.wrap(note, room, break_on_hyphens=too_long)
        notes = [rf"\multicolumn{{{len(self.alignment)}}}{{l}}{{\textit{{{escape(line)}}}}} \\" for line in lines]
        return [r"\addlinespace[2pt]", *notes] if notes else []

    @property
    def tabular(self) -> str:  # type: ignore[override]
        rows = [*self._latex_rows(self.head()), r"\midrule", *self._latex_rows(self.body())]
        lines = [rf"\begin{{tabular}}{{{self.columns}}}", r"\toprule", *rows, r"\bottomrule"]
        return "\n".join([*lines, *self._latex_notes(), r"\end{tabular}%", ""])

    def _html_row(self, row: Row) -> str:
        cells = "".join(row.cells[column].as_html(self._html_style(column, row)) for column in sorted(row.cells))
        return f'<tr style="background:none;{"border-top:1px solid;" if row.rule == () else ""}">{cells}</tr>'

    def _html_style(self, column: int, row: Row) -> str:
        style = f"text-align:{'left' if self.alignment[column - 1][0] == 'l' else 'center'};"
        if self._bar(column, row.cells[column]):
            style += "border-right:1px solid;"
        ruled = any(first <= column <= last for first, last in row.rule or ())
        return style + ("border-top:1px solid #8888;" if ruled else "")

    def _repr_html_(self) -> str:
        style = "border-collapse:collapse;table-layout:auto;white-space:nowrap;"
        style += "border-top:2px solid;border-bottom:2px solid;"
        rows = (row if place else row._replace(rule=()) for place, row in enumerate(self.body()))
        head, body = ("\n".join(map(self._html_row, part)) for part in (self.head(), rows))
        text = html.escape(" ".join(self.notes))
        notes = f'<p class="mathjax_ignore tex2jax_ignore"><i>{text}</i></p>' if text else ""
        parts = f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>"
        fit = "width:min-content;min-width:min(100%,20rem);"  # notes are as wide as their table
        return f'<div style="{fit}"><table class="mathjax_ignore" style="{style}">\n{parts}\n</table>\n{notes}</div>'

    def __str__(self) -> str:
        rows = (*self.head(), *self.body())
        return "\n".join("  ".join(cell.text for _, cell in self._filled(row)) for row in rows)


def _row_span(keys: Sequence[tuple[Hashable, ...]], level: int) -> int:
    """Return the number of rows that the label of a level spans, from the first of these keys."""
    return len(list(takewhile(lambda key: key[: level + 1] == keys[0][: level + 1], keys)))


@dataclass(frozen=True)
class Stack(Typeset):
    """Tables one below another, each with its caption; together a tabular of one column."""

    parts: Sequence[tuple[Table, str]] = ()

    @property
    def tabular(self) -> str:  # type: ignore[override]
        parts = [f"{table.tabular}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for table, caption in self.parts]
        return "\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(parts) + "\n\\end{tabular}%\n"

    def _repr_html_(self) -> str:
        return "\n".join(f"{table._repr_html_()}<p><b>{html.escape(caption)}</b></p>" for table, caption in self.parts)

    def __str__(self) -> str:
        return "\n\n".join(f"{table}\n{caption}" for table, caption in self.parts)
