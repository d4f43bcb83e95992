"""A table as cells and rules, written as booktabs LaTeX for the paper and as HTML for the reader.

Knows nothing of models or metrics. The LaTeX is the tabular alone, to be input by a document that loads the
packages in its first line; every text is escaped in both languages unless it is given as markup.
"""

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# The paper's macros that labels and definitions use; a document that has its own keeps them.
MACROS = {
    r"\ptrue": r"p(\mathrm{True})",
    r"\yans": r"\bm{y}^{\text{ans}}",
    r"\yreason": r"\bm{y}^{\text{reason}}",
}
# Its commands for scores with intervals: number of arguments, and what they set.
_SCORE, _BEST = r"\ensuremath{#1_{\scriptscriptstyle[#2,#3]}}", r"\ensuremath{\mathbf{#1}_{\scriptscriptstyle[#2,#3]}}"
COMMANDS = {
    r"\scoreci": (3, _SCORE),
    r"\bestscoreci": (3, _BEST),
    r"\calci": (4, _SCORE[:-1] + r"\,(#4)}"),
    r"\bestcalci": (4, _BEST[:-1] + r"\,\mathbf{(#4)}}"),
    r"\isoCI": (4, _SCORE + r"\hspace{0.15em}\ensuremath{(#4)}"),
    r"\isoBestCI": (4, _BEST + r"\hspace{0.15em}\textbf{\ensuremath{(#4)}}"),
}
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def escape(text: str) -> str:
    """A user's words as LaTeX text."""
    return "".join(SPECIAL.get(c, c) for c in " ".join(text.split()))


def _uses(macro: str) -> re.Pattern:
    return re.compile(re.escape(macro) + r"(?![A-Za-z])")


def mathjax(latex: str) -> str:
    """LaTeX formulas as HTML for a notebook's MathJax, which knows neither the paper's macros nor bm."""
    for macro, meaning in MACROS.items():
        latex = _uses(macro).sub(meaning.replace("\\", "\\\\"), latex)
    return html.escape(latex.replace(r"\bm{", r"\boldsymbol{"))


# ---- cells, rules, tables


@dataclass(frozen=True)
class Cell:
    """Text (escaped), or markup in both languages; `rows` and `columns` it covers; the key of the number it shows."""

    text: str = ""
    latex: str | None = None
    html: str | None = None
    bold: bool = False
    rows: int = 1
    columns: int = 1
    about: str = ""

    def as_latex(self, bar: bool) -> str:
        body = escape(self.text) if self.latex is None else self.latex
        body = rf"\textbf{{{body}}}" if self.bold else body
        body = rf"\multirow{{{self.rows}}}{{*}}{{{body}}}" if self.rows > 1 else body
        return rf"\multicolumn{{{self.columns}}}{{c{'|' * bar}}}{{{body}}}" if self.columns > 1 else body

    def as_html(self, style: str) -> str:
        body = html.escape(self.text) if self.html is None else self.html
        covered = {"rowspan": self.rows, "colspan": self.columns}
        spans = "".join(f' {name}="{n}"' for name, n in covered.items() if n > 1)
        spans += f' data-about="{html.escape(self.about)}"' if self.about else ""
        return f'<td{spans} style="padding:2px 8px;{style}">{f"<b>{body}</b>" if self.bold else body}</td>'


@dataclass(frozen=True)
class Rule:
    """A line before the next row: whole, or over `spans` of columns (counted from 1, both ends included)."""

    spans: tuple[tuple[int, int], ...] = ()

    def as_latex(self) -> str:
        return " ".join(rf"\cmidrule(lr){{{a}-{b}}}" for a, b in self.spans) or r"\midrule"


Row = list[Cell | None]  # None where a cell above reaches down


@dataclass(frozen=True)
class Table:
    """`columns` is LaTeX's column specification; `notes` are printed below."""

    columns: str
    head: Sequence[Row | Rule]
    body: Sequence[Row | Rule]
    notes: Sequence[str] = ()

    @property
    def width(self) -> int:
        return len(re.findall("[lcr]", self.columns))

    @property
    def bars(self) -> set[int]:
        """Columns, counted from 1, with a vertical line on their right."""
        return {len(re.findall("[lcr]", self.columns[: m.start()])) for m in re.finditer(r"\|", self.columns)}

    def placed(self, row: Row) -> Iterable[tuple[int, Cell | None]]:
        """The cells of a row, each with the number of the last column it covers."""
        column = 0
        for cell in row:
            column += cell.columns if cell else 1
            yield column, cell

    def _latex_row(self, row: Row | Rule) -> str:
        if isinstance(row, Rule):
            return row.as_latex()
        cells = (cell.as_latex(end in self.bars) if cell else "" for end, cell in self.placed(row))
        return " & ".join(cells) + r" \\"

    def _latex_notes(self) -> list[str]:
        """Notes as rows of their own, wrapped to about the table's width so that they do not widen it."""
        wide: dict[int, int] = {}
        for row in [*self.head, *self.body]:
            for end, cell in [] if isinstance(row, Rule) else self.placed(row):
                if cell and cell.columns == 1:
                    wide[end] = max(wide.get(end, 0), len(cell.text))
        width = max(40, sum(wide.values()) + 2 * len(wide))
        lines = [line for note in self.notes for line in textwrap.wrap(note, width)]
        rows = [rf"\multicolumn{{{self.width}}}{{l}}{{\textit{{{escape(line)}}}}} \\" for line in lines]
        return [r"\addlinespace[2pt]", *rows] if rows else []

    @property
    def tabular(self) -> str:
        rows = [self._latex_row(row) for row in (*self.head, Rule(), *self.body)]
        lines = [rf"\begin{{tabular}}{{{self.columns}}}", r"\toprule", *rows, r"\bottomrule"]
        return "\n".join([*lines, *self._latex_notes(), r"\end{tabular}%", ""])

    @property
    def latex(self) -> str:
        return _preamble(self.tabular) + self.tabular

    def _html_rows(self, rows: Sequence[Row | Rule], line: str) -> str:
        """`line` is the style of a whole rule that stands before the first row."""
        letters, out = re.findall("[lcr]", self.columns), []
        spans: tuple[tuple[int, int], ...] = ()
        for row in rows:
            if isinstance(row, Rule):
                line, spans = ("" if row.spans else "border-top:1px solid;"), row.spans
                continue
            cells = []
            for end, cell in self.placed(row):
                start = end - (cell.columns if cell else 1) + 1
                style = f"text-align:{'left' if letters[start - 1] == 'l' else 'center'};"
                style += "border-right:1px solid;" if end in self.bars else ""
                style += "border-top:1px solid #8888;" if any(a <= start <= b for a, b in spans) else ""
                cells.append(cell.as_html(style) if cell else "")
            out.append(f'<tr style="background:none;{line}">{"".join(cells)}</tr>')
            line, spans = "", ()
        return "\n".join(out)

    def _repr_html_(self) -> str:
        frame = "border-collapse:collapse;table-layout:auto;white-space:nowrap;"
        frame += "border-top:2px solid;border-bottom:2px solid;"
        head, body = self._html_rows(self.head, ""), self._html_rows(self.body, "border-top:1px solid;")
        notes = "".join(f"<p><i>{html.escape(note)}</i></p>" for note in self.notes)
        parts = f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>"
        return f'<table style="{frame}">\n{parts}\n</table>\n{notes}'

    def __str__(self) -> str:
        rows = [row for row in (*self.head, *self.body) if not isinstance(row, Rule)]
        return "\n".join("  ".join(cell.text if cell else "" for cell in row) for row in rows)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/latex": self.latex, "text/plain": str(self)}


def _preamble(body: str) -> str:
    """Packages as a comment, and the macros and commands that the body uses."""
    lines = [r"% \usepackage{amsmath,amssymb,bm,booktabs,multirow}"]
    lines += [rf"\providecommand{{{name}}}{{{MACROS[name]}}}%" for name in MACROS if _uses(name).search(body)]
    lines += [rf"\providecommand{{{name}}}[{count}]{{{meaning}}}%" for name, (count, meaning) in COMMANDS.items()
              if _uses(name).search(body)]  # fmt: skip
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Stack(Table):
    """Tables below one another, each with its caption; together a tabular of one column."""

    columns: str = "c"
    head: Sequence[Row | Rule] = ()
    body: Sequence[Row | Rule] = ()
    parts: Sequence[tuple[Table, str]] = ()

    @property
    def tabular(self) -> str:
        parts = [f"{table.tabular}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for table, caption in self.parts]
        return "\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(parts) + "\n\\end{tabular}%\n"

    def _repr_html_(self) -> str:
        return "\n".join(f"{table._repr_html_()}<p><b>{html.escape(caption)}</b></p>" for table, caption in self.parts)

    def __str__(self) -> str:
        return "\n\n".join(f"{table}\n{caption}" for table, caption in self.parts)
