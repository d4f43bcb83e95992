"""A table as cells and rules, written as booktabs LaTeX for the paper and as HTML for the reader.

Knows nothing of models or metrics. The LaTeX is the tabular alone, to be input by a document that loads the
packages in its first line; every text is escaped in both languages unless it is given as markup.
"""

import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.paper.latex import escape, preamble


@dataclass(frozen=True)
class Number:
    """A number that a cell shows, unrounded, and its interval if there is one. `key` tells what it is a number of
    (model, dataset, ...); `labels` is the key in the words of the table."""

    key: Mapping[str, Any]
    labels: Mapping[str, Any]
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def name(self) -> str:
        """Unique in its table."""
        return "/".join(map(str, self.key.values()))


@dataclass(frozen=True)
class Cell:
    """Text (escaped), or markup in both languages; `rows` and `columns` it covers; the numbers it shows."""

    text: str = ""
    latex: str | None = None
    html: str | None = None
    bold: bool = False
    rows: int = 1
    columns: int = 1
    numbers: tuple[Number, ...] = ()

    def as_latex(self, bar: bool) -> str:
        """`bar`: a vertical line stands on the right, which a cell over several columns has to say again."""
        body = escape(self.text) if self.latex is None else self.latex
        if self.bold:
            body = rf"\textbf{{{body}}}"
        if self.rows > 1:
            body = rf"\multirow{{{self.rows}}}{{*}}{{{body}}}"
        if self.columns > 1:
            body = rf"\multicolumn{{{self.columns}}}{{{'c|' if bar else 'c'}}}{{{body}}}"
        return body

    def as_html(self, style: str) -> str:
        body = html.escape(self.text) if self.html is None else self.html
        if self.bold:
            body = f"<b>{body}</b>"
        covered = {"rowspan": self.rows, "colspan": self.columns}
        attributes = "".join(f' {name}="{count}"' for name, count in covered.items() if count > 1)
        if self.numbers:
            attributes += f' data-key="{html.escape(self.numbers[0].name)}"'
        return f'<td{attributes} style="padding:2px 8px;{style}">{body}</td>'


@dataclass(frozen=True)
class Rule:
    """A line before the next row: whole, or over `spans` of columns (counted from 1, both ends included)."""

    spans: tuple[tuple[int, int], ...] = ()

    def as_latex(self) -> str:
        return " ".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in self.spans) or r"\midrule"


TableRow = list[Cell | None]  # None where a cell above reaches down
TableRows = Sequence[TableRow | Rule]


def without_rules(rows: TableRows) -> list[TableRow]:
    return [row for row in rows if not isinstance(row, Rule)]


def _placed(row: TableRow) -> Iterator[tuple[int, int, Cell | None]]:
    """The cells of a row, each with the first and the last column that it covers."""
    last = 0
    for cell in row:
        first, last = last + 1, last + (cell.columns if cell else 1)
        yield first, last, cell


@dataclass(frozen=True)
class Table:
    """`columns` is LaTeX's column specification; `notes` are printed below."""

    columns: str
    head: TableRows
    body: TableRows
    notes: Sequence[str] = ()

    @property
    def alignment(self) -> list[tuple[str, bool]]:
        """Each column's letter, and whether a vertical line stands on its right."""
        return [(letter, bool(bar)) for letter, bar in re.findall(r"([lcr])\s*(\|?)", self.columns)]

    @property
    def width(self) -> int:
        return len(self.alignment)

    @property
    def cells(self) -> list[Cell]:
        """Those of the body, row by row."""
        return [cell for row in without_rules(self.body) for cell in row if cell]

    @property
    def numbers(self) -> list[Number]:
        """All that the cells show, row by row."""
        return [number for cell in self.cells for number in cell.numbers]

    def _latex_row(self, row: TableRow | Rule) -> str:
        if isinstance(row, Rule):
            return row.as_latex()
        cells = (cell.as_latex(self.alignment[last - 1][1]) if cell else "" for _, last, cell in _placed(row))
        return " & ".join(cells) + r" \\"

    def _latex_notes(self) -> list[str]:
        """Notes as rows of their own, wrapped to about the table's width so that they do not widen it."""
        widest: dict[int, int] = {}  # characters, by column
        for row in without_rules([*self.head, *self.body]):
            for _, last, cell in _placed(row):
                if cell and cell.columns == 1:
                    widest[last] = max(widest.get(last, 0), len(cell.text))
        room = max(40, sum(widest.values()) + 2 * len(widest))
        lines: list[str] = []
        for note in self.notes:
            too_long = max(map(len, note.split()), default=0) > room  # as the name of a model's file
            lines += textwrap.wrap(note, room, break_on_hyphens=too_long)
        rows = [rf"\multicolumn{{{self.width}}}{{l}}{{\textit{{{escape(line)}}}}} \\" for line in lines]
        return [r"\addlinespace[2pt]", *rows] if rows else []

    @property
    def tabular(self) -> str:
        rows = [self._latex_row(row) for row in (*self.head, Rule(), *self.body)]
        lines = [rf"\begin{{tabular}}{{{self.columns}}}", r"\toprule", *rows, r"\bottomrule"]
        return "\n".join([*lines, *self._latex_notes(), r"\end{tabular}%", ""])

    @property
    def latex(self) -> str:
        return preamble(self.tabular) + self.tabular

    def _html_rows(self, rows: TableRows, line: str) -> str:
        """`line` is the style of a whole rule that stands before the first row."""
        lines = []
        rule = Rule()
        for row in rows:
            if isinstance(row, Rule):
                line, rule = "" if row.spans else "border-top:1px solid;", row
                continue
            cells = "".join(cell.as_html(self._style(first, last, rule)) for first, last, cell in _placed(row) if cell)
            lines.append(f'<tr style="background:none;{line}">{cells}</tr>')
            line, rule = "", Rule()
        return "\n".join(lines)

    def _style(self, first: int, last: int, rule: Rule) -> str:
        style = f"text-align:{'left' if self.alignment[first - 1][0] == 'l' else 'center'};"
        if self.alignment[last - 1][1]:
            style += "border-right:1px solid;"
        if any(start <= first <= end for start, end in rule.spans):
            style += "border-top:1px solid #8888;"
        return style

    def _repr_html_(self) -> str:
        frame = "border-collapse:collapse;table-layout:auto;white-space:nowrap;"
        frame += "border-top:2px solid;border-bottom:2px solid;"
        head, body = self._html_rows(self.head, ""), self._html_rows(self.body, "border-top:1px solid;")
        said = html.escape(" ".join(self.notes))
        notes = f'<p class="mathjax_ignore tex2jax_ignore"><i>{said}</i></p>' if said else ""
        parts = f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>"
        fit = "width:min-content;min-width:min(100%,20rem);"  # notes are as wide as their table
        return f'<div style="{fit}"><table class="mathjax_ignore" style="{frame}">\n{parts}\n</table>\n{notes}</div>'

    def __str__(self) -> str:
        rows = without_rules([*self.head, *self.body])
        return "\n".join("  ".join(cell.text if cell else "" for cell in row) for row in rows)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/latex": self.latex, "text/plain": str(self)}


@dataclass(frozen=True)
class Stack(Table):
    """Tables below one another, each with its caption; together a tabular of one column."""

    columns: str = "c"
    head: TableRows = ()
    body: TableRows = ()
    parts: Sequence[tuple[Table, str]] = ()

    @property
    def cells(self) -> list[Cell]:
        return [cell for table, _ in self.parts for cell in table.cells]

    @property
    def tabular(self) -> str:
        parts = [f"{table.tabular}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for table, caption in self.parts]
        return "\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(parts) + "\n\\end{tabular}%\n"

    def _repr_html_(self) -> str:
        return "\n".join(f"{table._repr_html_()}<p><b>{html.escape(caption)}</b></p>" for table, caption in self.parts)

    def __str__(self) -> str:
        return "\n\n".join(f"{table}\n{caption}" for table, caption in self.parts)
