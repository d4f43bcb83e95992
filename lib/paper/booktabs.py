"""A table of LaTeX cells, rendered as booktabs for the paper and as HTML for the reader; captions;
the paper's macros; tables of words.

This module knows nothing of models or metrics. The labels of both axes determine the layout: row
labels span their block, labels of column groups span their columns, and rules separate blocks.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pandas as pd
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from latex2mathml.converter import convert

from lib.errors import show_hidden

FOLDER = Path(__file__).parent
_TEXTS = yaml.safe_load((FOLDER / "captions.yaml").read_text(encoding="utf-8"))
OF_PAPER = _TEXTS["of_paper"]
# short and long, of what is exported
CAPTIONS: Mapping[str, tuple[str, str]] = OF_PAPER | _TEXTS["beyond"]
CHOICES: Mapping[str, str] = _TEXTS["choices"]

# ---- LaTeX

# Name, number of arguments and meaning of the paper's macros, and of its commands for scores with
# intervals
DEFINITION = re.compile(r"\\providecommand{(\\\w+)}(?:\[(\d)\])?{(.*)}%")
DEFINITIONS = [*DEFINITION.finditer((FOLDER / "commands.tex").read_text(encoding="utf-8"))]
MACROS = {
    name: meaning for name, count, meaning in (one.groups() for one in DEFINITIONS) if count is None
}
BEST = {r"\scoreci": r"\bestscoreci", r"\calci": r"\bestcalci", r"\isoCI": r"\isoBestCI"}  # in bold
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def escape(text: str) -> str:
    """Escape a user's words as LaTeX text."""
    return "".join(SPECIAL.get(c, c) for c in show_hidden(" ".join(text.split())))


def embolden(latex: str) -> str:
    """Return a cell in bold: by its command, if it is an interval."""
    if latex.startswith("$"):
        return rf"$\bm{{{latex[1:-1]}}}$"
    command = latex.partition("{")[0]
    return (
        BEST[command] + latex.removeprefix(command) if command in BEST else rf"\textbf{{{latex}}}"
    )


def preamble(body: str) -> str:
    """Return the packages as a comment, and the macros and commands that the body uses."""
    used = [one[0] for one in DEFINITIONS if one[1] in body]
    return "\n".join([r"% \usepackage{amsmath,amssymb,bm,booktabs,multirow}", *used, ""])


# ---- HTML

UNESCAPED = {latex: character for character, latex in SPECIAL.items()}
# Escaped characters, the longest first, and what marks small capitals and bold
PIECE = re.compile(
    "|".join([*map(re.escape, sorted(UNESCAPED, key=len)[::-1]), r"\\text(?:sc|bf){", "}"])
)
FORMULA = re.compile(r"(?<!\\)\$(.+?)(?<!\\)\$")
PLAIN_NUMBER = re.compile(r"(?:\\bm{)?([^\\a-z{}]+)}?")  # a formula that is none
REDUCTION = re.compile(r"\(([+-])(\d+%)\)")  # of an error: a plus means that it is lower
COMMAND = re.compile(r"\\\w+((?:\{(?:[^{}\\]|\\.)*\}){3,4})")


def as_html(latex: str) -> str:
    """Return a cell as HTML, its formulas as MathML: \\scoreci{.1}{.0}{.2} as .1 [.0, .2], (+66%)
    as (66% lower)."""
    is_bold = latex.startswith((r"\textbf{", r"$\bm{", *BEST.values()))
    if command := COMMAND.fullmatch(latex):
        value, low, high, *gain = command[1][1:-1].split("}{")
        latex = f"{value} [{low}, {high}]" + "".join(f" ({part})" for part in gain)
    pieces = FORMULA.split(latex)  # text and formulas take turns
    pieces[::2] = [
        html.escape(PIECE.sub(lambda found: UNESCAPED.get(found[0], ""), text))
        for text in pieces[::2]
    ]
    pieces[1::2] = map(_formula_as_html, pieces[1::2])
    page = REDUCTION.sub(
        lambda found: f"({found[2]} {'lower' if found[1] == '+' else 'higher'})", "".join(pieces)
    )
    return f"<b>{page}</b>" if is_bold else page


def _formula_as_html(formula: str) -> str:
    if number := PLAIN_NUMBER.fullmatch(formula):
        return number[1]
    for macro, meaning in MACROS.items():
        formula = formula.replace(macro, meaning)
    return convert(formula.replace(r"\bm{", r"\boldsymbol{"))


# ---- tables

TEMPLATES = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)


@dataclass(frozen=True)
class Table:
    """A table, or several below one another.

    Attributes
    ----------
    cells : cells and labels are LaTeX. A row level without a name is not set by LaTeX, and rules
        separate its blocks.
        Columns have one level, or groups and their labels; one without the second label spans both
        rows of the head.
    specs : LaTeX's column specification by caption; of a single table the caption is ""
    numbers : the numbers that the cells print, from `lib.paper.cells.place`. Text has none.
    title : printed in a row below, in LaTeX only
    """

    cells: pd.DataFrame
    specs: Mapping[str, str]
    numbers: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["row", "column", "key"]), repr=False
    )
    title: str = ""

    def _repr_latex_(self) -> str:
        """Return the tabular, below the packages, macros and commands that it needs."""
        *_, last = self.specs
        parts = self.parts(self.cells)
        texts = [
            tabular(cells, spec, self.title * (caption == last)) for caption, spec, cells in parts
        ]
        if last:
            named = zip(texts, self.specs, strict=True)
            stacked = [f"{text}\\\\[2pt]\n\\textbf{{{escape(caption)}}}" for text, caption in named]
            texts = ["\\begin{tabular}{c}\n" + "\\\\[6pt]\n".join(stacked) + "\n\\end{tabular}%\n"]
        return preamble(texts[0]) + texts[0]

    latex = property(_repr_latex_)

    def parts(self, cells: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """Yield the caption, LaTeX's column specification and the columns of each part."""
        end = 0
        for caption, spec in self.specs.items():
            start, end = end, end + len(re.findall("[lcr]", spec)) - len(_shown_levels(cells))
            yield caption, spec, cells.iloc[:, start:end]

    def _repr_html_(self) -> str:
        page = self.cells.map(as_html)
        for one in self.numbers.drop_duplicates(["row", "column"]).itertuples():
            text = page.iat[one.row, one.column]
            page.iat[one.row, one.column] = f'<span data-key="{html.escape(one.key)}">{text}</span>'
        page, parts = page.rename(index=as_html, columns=as_html), []
        for caption, _, part in self.parts(page):
            labels = [tuple(label) for label in part.columns.to_frame().to_numpy()]
            spans = [
                Counter(label[:end] for label in labels)
                for end in range(1, part.columns.nlevels + 1)
            ]
            parts.append((caption, spans, part.to_numpy()))
        rows, name = page.index.to_frame().to_numpy(), as_html(page.index.names[-1])
        template = TEMPLATES.get_template("tables.html.jinja")
        return template.render(parts=parts, rows=rows, name=name, of_words=self.numbers.empty)


def tabular(cells: pd.DataFrame, spec: str, title: str = "") -> str:
    """Return cells as a LaTeX tabular with rules, and a title below them."""
    bars = [bool(bar) for _, bar in re.findall(r"([lcr])\s*(\|?)", spec)]
    lines = [
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        *_head(cells, bars),
        *_body(cells),
        r"\bottomrule",
    ]
    if title:
        lines += [
            r"\addlinespace[2pt]",
            rf"\multicolumn{{{len(bars)}}}{{l}}{{\textit{{{escape(title)}}}}} \\",
        ]
    return "\n".join([*lines, r"\end{tabular}%", ""])


def _shown_levels(cells: pd.DataFrame) -> list[int]:
    return [level for level, name in enumerate(cells.index.names) if name is not None]


def _head(cells: pd.DataFrame, bars: list[bool]) -> list[str]:
    """Return the heads of the columns. `bars`: whether a column has a vertical line on its right,
    which cells over several columns must repeat."""
    names = [cells.index.names[level] for level in _shown_levels(cells)]
    if cells.columns.nlevels == 1:
        return [" & ".join([*names, *cells.columns.get_level_values(0)]) + r" \\"]
    top, below, rules = [_multirow(2, name) for name in names], [""] * len(names), []
    for group, labels in groupby(cells.columns, key=lambda labels: labels[0]):
        heads = [label for _, label in labels]
        first, last = len(below) + 1, len(below) + len(heads)
        below += heads
        if heads == [""]:
            top.append(_multirow(2, group))
            continue
        bar = "|" * bars[last - 1]
        top.append(
            rf"\multicolumn{{{len(heads)}}}{{c{bar}}}{{{group}}}" if len(heads) > 1 else group
        )
        rules.append(rf"\cmidrule(lr){{{first}-{last}}}")
    return [" & ".join(top) + r" \\", " ".join(rules), " & ".join(below) + r" \\"]


def _body(cells: pd.DataFrame) -> Iterator[str]:
    labels = [tuple(row) for row in cells.index.to_frame().to_numpy()]
    shown = _shown_levels(cells)
    width, last, before = len(shown) + cells.shape[1], cells.index.nlevels - 1, None
    spans = Counter(label[: level + 1] for label in labels for level in range(last))
    for label, texts in zip(labels, cells.to_numpy(), strict=True):
        new = next(
            (level for level in range(last) if before is None or label[level] != before[level]),
            last,
        )
        if before is None or new < last:
            yield (
                r"\midrule"
                if before is None or new == 0
                else rf"\cmidrule(lr){{{new + 1}-{width}}}"
            )
        heads = [
            _multirow(spans[label[: level + 1]], label[level]) if level >= new else ""
            for level in shown
        ]
        yield " & ".join([*heads, *texts]) + r" \\"
        before = label


def _multirow(rows: int, text: str) -> str:
    return rf"\multirow{{{rows}}}{{*}}{{{text}}}" if rows > 1 else text


# ---- tables of words

# notebooks align cells to the right, where sentences are hard to read
ALIGN_LEFT = ' style="text-align: left"'


@dataclass(frozen=True)
class ReportRecords:
    """A frame of words for the reader of the notebook; `records`, if any, are for the report."""

    records: pd.DataFrame | None = field(repr=False)
    shown: pd.DataFrame

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            page = self.shown.to_html(index=False, na_rep="")
        return page.replace("<td>", f"<td{ALIGN_LEFT}>").replace("<th>", f"<th{ALIGN_LEFT}>")

    def _repr_json_(self) -> list | None:
        return (
            None
            if self.records is None
            else json.loads(self.records.to_json(orient="records", double_precision=15))
        )
