"""A table of LaTeX cells, rendered as booktabs for the paper and as HTML for the reader.

This module knows nothing of models or metrics. The labels of both axes determine the layout: row labels span their
block, labels of column groups span their columns, and rules separate blocks.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import pandas as pd

from lib.paper.latex import as_html, escape, plain, preamble

Keys = Mapping[tuple[int, int], str]
TABLE = "border-collapse:collapse;white-space:nowrap;border-top:2px solid;border-bottom:2px solid"


class Span(NamedTuple):
    """A cell that may span rows or columns; the positions that it covers are None. `key` names its number."""

    text: str = ""
    rows: int = 1
    columns: int = 1
    key: str = ""


class Line(NamedTuple):
    """A row with the rule above it, in LaTeX."""

    rule: str
    spans: list[Span | None]


@dataclass(frozen=True)
class Table:
    """A table, or several below one another.

    Attributes
    ----------
    parts : mapping of str to DataFrame
        Cells by caption; a single table has the caption "". Cells and labels are LaTeX. A row level without a name is
        not shown, and rules separate its blocks. Columns have one level, or groups and their labels; a column without
        the second label spans both rows of the head.
    numbers : DataFrame
        The numbers that the cells print, a row each: `row` and `column` of its cell, its `key`, and whatever
        `lib.paper.cells.place` returns. Text has none.
    spec : str
        LaTeX's column specification; by default left for labels, centered for numbers, groups set apart.
    title : str
        Printed in a row below, in LaTeX only.
    """

    parts: Mapping[str, pd.DataFrame]
    numbers: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["row", "column", "key"]), repr=False)
    spec: str = ""
    title: str = ""

    @property
    def latex(self) -> str:
        """The tabular, below the packages, macros and commands that it needs."""
        last = [*self.parts][-1]
        tabulars = {caption: self._tabular(cells, caption == last) for caption, cells in self.parts.items()}
        text = tabulars[last]
        if last:
            blocks = [f"{one}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for caption, one in tabulars.items()]
            text = "\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(blocks) + "\n\\end{tabular}%\n"
        return preamble(text) + text

    def _tabular(self, cells: pd.DataFrame, is_last: bool) -> str:
        spec = self.spec or default_spec(cells)
        bars = [bool(bar) for _, bar in re.findall(r"([lcr])\s*(\|?)", spec)]
        rows = [row for line in _lines(cells) for row in (line.rule, _latex_row(line.spans, bars)) if row]
        title = rf"\multicolumn{{{len(bars)}}}{{l}}{{\textit{{{escape(self.title)}}}}} \\"
        below = [r"\addlinespace[2pt]", title] if is_last and self.title else []
        lines = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", *rows, r"\bottomrule", *below, r"\end{tabular}%", ""]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        known = self.numbers[::-1]  # the first number of a cell counts
        keys, start, text = dict(zip(zip(known.row, known.column, strict=True), known.key, strict=True)), 0, ""
        for caption, cells in self.parts.items():
            rows = "".join(_html_row(line) for line in _lines(cells, keys, start))
            text += f'<table class="mathjax_ignore" style="{TABLE}">\n{rows}</table>\n'
            text += f"<p><b>{html.escape(caption)}</b></p>\n" if caption else ""
            start += cells.shape[1]
        return text

    def __str__(self) -> str:
        lines = [line for cells in self.parts.values() for line in _lines(cells)]
        return "\n".join("  ".join(plain(span.text) if span else "" for span in line.spans) for line in lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/latex": self.latex, "text/plain": str(self)}


def default_spec(cells: pd.DataFrame) -> str:
    """Return LaTeX's column specification: left for each of the row levels, centered for numbers, groups set apart."""
    groups = [list(some) for _, some in groupby(_labels(cells.columns), key=lambda label: label[:-1])]
    return "l" * len(_names(cells)) + "".join(" " * any(some[0][1:]) + "c" * len(some) for some in groups)


# ---- layout


def _labels(index: pd.Index) -> list[tuple[str, ...]]:
    return [label if isinstance(label, tuple) else (label,) for label in index]


def _names(cells: pd.DataFrame) -> list[str]:
    return [name for name in cells.index.names if name is not None]


def _lines(cells: pd.DataFrame, keys: Keys = {}, start: int = 0) -> list[Line]:  # noqa: B006  not changed
    """Return all rows. `keys` name the numbers by row and column, of which the first is `start`."""
    return [*_head(_names(cells), _labels(cells.columns)), *_body(cells, keys, start)]


def _head(names: list[str], columns: list[tuple[str, ...]]) -> list[Line]:
    if len(columns[0]) == 1:
        return [Line("", [*map(Span, names), *(Span(label) for (label,) in columns)])]
    top: list[Span | None] = [Span(name, rows=2) for name in names]
    below: list[Span | None] = [None] * len(names)
    rules = []
    for group, labels in groupby(columns, key=lambda label: label[0]):
        heads = [label[1] for label in labels]
        if heads == [""]:
            top, below = [*top, Span(group, rows=2)], [*below, None]
            continue
        rules.append(rf"\cmidrule(lr){{{len(top) + 1}-{len(top) + len(heads)}}}")
        top += [Span(group, columns=len(heads)), *[None] * (len(heads) - 1)]
        below += map(Span, heads)
    return [Line("", top), Line(" ".join(rules), below)]


def _body(cells: pd.DataFrame, keys: Keys, start: int) -> Iterator[Line]:
    labels, last, before = _labels(cells.index), cells.index.nlevels - 1, None
    shown = [level for level, name in enumerate(cells.index.names) if name is not None]
    for row, (label, texts) in enumerate(zip(labels, cells.to_numpy(), strict=True)):
        new = next((level for level in range(last) if before is None or label[level] != before[level]), last)
        rule = r"\midrule" if before is None or new == 0 else rf"\cmidrule(lr){{{new + 1}-{len(shown) + len(texts)}}}"
        spans = [Span(label[level], _row_span(labels[row:], level)) if level >= new else None for level in shown]
        numbers = [Span(text, key=keys.get((row, start + column), "")) for column, text in enumerate(texts)]
        yield Line("" if before and new == last else rule, [*spans, *numbers])
        before = label


def _row_span(labels: list[tuple[str, ...]], level: int) -> int:
    """Return the number of rows that the label of a level spans, from the first of these."""
    if level == len(labels[0]) - 1:
        return 1
    return len(list(takewhile(lambda label: label[: level + 1] == labels[0][: level + 1], labels)))


# ---- both languages


def _latex_row(spans: list[Span | None], bars: list[bool]) -> str:
    """Return a row. `bars`: whether a column has a vertical line on its right, which cells over several columns must
    repeat."""
    cells, column = [], 0
    while column < len(spans):
        text, rows, columns, _ = spans[column] or Span()
        column += columns
        text = rf"\multirow{{{rows}}}{{*}}{{{text}}}" if rows > 1 else text
        cells.append(rf"\multicolumn{{{columns}}}{{c{'|' * bars[column - 1]}}}{{{text}}}" if columns > 1 else text)
    return " & ".join(cells) + r" \\"


def _html_row(line: Line) -> str:
    cells = ""
    for text, rows, columns, key in filter(None, line.spans):
        about = f' data-key="{html.escape(key)}"' if key else ""
        style = f"padding:2px 8px;text-align:{'center' if columns > 1 else 'left'}"
        cells += f'<td rowspan="{rows}" colspan="{columns}"{about} style="{style}">{as_html(text)}</td>'
    return f'<tr style="background:none{";border-top:1px solid" * bool(line.rule)}">{cells}</tr>\n'
