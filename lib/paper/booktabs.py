"""A table of LaTeX cells, rendered as booktabs for the paper and as HTML for the reader; captions;
the paper's macros.

This module knows nothing of models or metrics. The labels of both axes determine the layout: row
labels span their block, labels of column groups span their columns, and rules separate blocks.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from latex2mathml.converter import convert

from lib.errors import show_hidden

FOLDER = Path(__file__).parent
_TEXTS = yaml.safe_load((FOLDER / "captions.yaml").read_text(encoding="utf-8"))
# short and long, of what is exported
PAPER_CAPTIONS: Mapping[str, tuple[str, str]] = _TEXTS["of_paper"]
CAPTIONS: Mapping[str, tuple[str, str]] = {**PAPER_CAPTIONS, **_TEXTS["beyond"]}
TABLE_CAPTIONS: Mapping[str, tuple[str, str]] = _TEXTS["of_table"]  # of a table of scores
CHOICES: Mapping[str, str] = _TEXTS["choices"]

# ---- LaTeX

# the paper's macros, and its commands for scores with intervals, which have arguments
DEFINITION = re.compile(
    r"\\providecommand{(?P<name>\\\w+)}(?:\[(?P<arguments>\d)\])?{(?P<meaning>.*)}%"
)
DEFINITIONS = list(DEFINITION.finditer((FOLDER / "commands.tex").read_text(encoding="utf-8")))
MACROS = {macro["name"]: macro["meaning"] for macro in DEFINITIONS if macro["arguments"] is None}
BOLD_COMMANDS = {r"\scoreci": r"\bestscoreci", r"\calci": r"\bestcalci", r"\isoCI": r"\isoBestCI"}
SPECIAL = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def escape(text: str) -> str:
    """Escape a user's words as LaTeX text."""
    one_line = show_hidden(" ".join(text.split()))
    return "".join(SPECIAL.get(character, character) for character in one_line)


def embolden(latex: str) -> str:
    """Return a cell in bold: by its command, if it is an interval."""
    if latex.startswith("$"):
        return rf"$\bm{{{latex[1:-1]}}}$"
    command = latex.partition("{")[0]
    if command in BOLD_COMMANDS:
        return BOLD_COMMANDS[command] + latex.removeprefix(command)
    return rf"\textbf{{{latex}}}"


def preamble(body: str) -> str:
    """Return the packages as a comment, and the macros and commands that the body uses."""
    further = ",longtable" if r"\begin{longtable}" in body else ""
    packages = rf"% \usepackage{{amsmath,amssymb,bm,booktabs,multirow{further}}}"
    used = [definition[0] for definition in DEFINITIONS if definition["name"] in body]
    return "\n".join([packages, *used, ""])


# ---- HTML

UNESCAPED = {latex: character for character, latex in SPECIAL.items()}
LONGEST_FIRST = sorted(UNESCAPED, key=len, reverse=True)
ESCAPED = "|".join(map(re.escape, LONGEST_FIRST))
PIECE = re.compile(ESCAPED + r"|\\text(?:sc|bf){|}")  # and what marks small capitals and bold
FORMULA = re.compile(r"(?<!\\)\$(.+?)(?<!\\)\$")
PLAIN_NUMBER = re.compile(r"(?:\\bm{)?([^\\a-z{}]+)}?")  # a formula that is none
REDUCTION = re.compile(r"\(([+-])(\d+%)\)")  # of an error: a plus means that it is lower
INTERVAL = re.compile(r"\\\w+((?:\{(?:[^{}\\]|\\.)*\}){3,4})")


def as_html(latex: str) -> str:
    """Return a cell as HTML, its formulas as MathML: \\scoreci{.1}{.0}{.2} as .1 [.0, .2], (+66%)
    as (66% lower)."""
    is_bold = latex.startswith((r"\textbf{", r"$\bm{", *BOLD_COMMANDS.values()))
    interval = INTERVAL.fullmatch(latex)
    if interval:
        value, low, high, *gain = interval[1][1:-1].split("}{")
        latex = f"{value} [{low}, {high}]"
        if gain:
            latex += f" ({gain[0]})"
    pieces = []
    for position, piece in enumerate(FORMULA.split(latex)):
        is_formula = position % 2 == 1  # text and formulas take turns
        if is_formula:
            pieces.append(_formula_as_html(piece))
        else:
            pieces.append(_text_as_html(piece))
    page = REDUCTION.sub(_reduction_in_words, "".join(pieces))
    if is_bold:
        return f"<b>{page}</b>"
    return page


def _text_as_html(text: str) -> str:
    plain = PIECE.sub(lambda piece: UNESCAPED.get(piece[0], ""), text)
    return html.escape(plain)


def _formula_as_html(formula: str) -> str:
    number = PLAIN_NUMBER.fullmatch(formula)
    if number:
        return number[1]
    for macro, meaning in MACROS.items():
        formula = formula.replace(macro, meaning)
    return convert(formula.replace(r"\bm{", r"\boldsymbol{"))


def _reduction_in_words(reduction: re.Match) -> str:
    direction = "lower" if reduction[1] == "+" else "higher"
    return f"({reduction[2]} {direction})"


# ---- tables

TEMPLATES = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
PAGE_ROWS = 100  # a longer table, shrunk to a page, could not be read


class Part(NamedTuple):
    """The columns of a table that stand below one caption, with LaTeX's specification of them."""

    caption: str
    spec: str
    cells: pd.DataFrame


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
    numbers : the numbers that the cells print, from `lib.paper.cells.place_numbers`. Text has none.
    title : printed in a row below, in LaTeX only
    """

    cells: pd.DataFrame
    specs: Mapping[str, str]
    numbers: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["row", "column", "key"]), repr=False
    )
    title: str = ""

    def _repr_latex_(self) -> str:
        """Return the tabular, below the packages, macros and commands that it needs; of more than
        PAGE_ROWS a longtable, which runs over several pages."""
        *others, last = self.parts(self.cells)
        if len(self.cells) > PAGE_ROWS:
            tables = [longtable(part) for part in others]
            body = "".join([*tables, longtable(last, self.title)])
            return preamble(body) + body
        tabulars = [_captioned(part) for part in others]
        tabulars.append(_captioned(last, self.title))
        body = "\\\\[6pt]\n".join(tabulars)
        if last.caption:
            body = f"\\begin{{tabular}}{{c}}\n{body}\n\\end{{tabular}}%\n"
        return preamble(body) + body

    latex = property(_repr_latex_)

    def parts(self, cells: pd.DataFrame) -> Iterator[Part]:
        """Yield the parts of cells like the table's own."""
        labels = len(_shown_levels(cells))
        start = 0
        for caption, spec in self.specs.items():
            end = start + len(re.findall("[lcr]", spec)) - labels
            yield Part(caption, spec, cells.iloc[:, start:end])
            start = end

    def _repr_html_(self) -> str:
        page = self.cells.map(as_html)
        for number in self.numbers.drop_duplicates(["row", "column"]).itertuples():
            text = page.iat[number.row, number.column]
            key = html.escape(number.key)
            page.iat[number.row, number.column] = f'<span data-key="{key}">{text}</span>'
        page = page.rename(index=as_html, columns=as_html)
        parts = []
        for part in self.parts(page):
            parts.append((part.caption, _head_spans(part.cells), part.cells.to_numpy()))
        return TEMPLATES.get_template("tables.html.jinja").render(
            parts=parts,
            rows=page.index.to_frame().to_numpy(),
            name=as_html(page.index.names[-1]),
            of_words=self.numbers.empty,
        )


def _head_spans(cells: pd.DataFrame) -> list[Counter]:
    """Return for each level of the head how many columns a label spans, by it and those above."""
    labels = [tuple(label) for label in cells.columns.to_frame().to_numpy()]
    spans = []
    for end in range(1, cells.columns.nlevels + 1):
        spans.append(Counter(label[:end] for label in labels))
    return spans


def _captioned(part: Part, title: str = "") -> str:
    """Return a part as a LaTeX tabular, with its caption below it."""
    text = tabular(part.cells, part.spec, title)
    if not part.caption:
        return text
    return f"{text}\\\\[2pt]\n\\textbf{{{escape(part.caption)}}}"


def tabular(cells: pd.DataFrame, spec: str, title: str = "") -> str:
    """Return cells as a LaTeX tabular with rules, and a title below them."""
    has_bar = _find_bars(spec)
    lines = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    lines += _head(cells, has_bar)
    lines += _body(cells)
    lines += _foot(len(has_bar), title)
    return "\n".join([*lines, r"\end{tabular}%", ""])


def longtable(part: Part, title: str = "") -> str:
    """Return a part as a LaTeX longtable: its head is on each page, its caption in a first row, and
    the title in a last one."""
    has_bar = _find_bars(part.spec)
    head = _head(part.cells, has_bar)
    lines = [rf"\begin{{longtable}}{{{part.spec}}}"]
    if part.caption:
        caption = rf"\textbf{{{escape(part.caption)}}}"
        lines.append(rf"\multicolumn{{{len(has_bar)}}}{{c}}{{{caption}}} \\")
    lines += [r"\toprule", *head, r"\endfirsthead"]
    lines += [r"\toprule", *head, r"\midrule", r"\endhead"]
    lines += [r"\bottomrule", r"\endfoot"]
    lines += [*_foot(len(has_bar), title), r"\endlastfoot"]
    lines += _body(part.cells)
    return "\n".join([*lines, r"\end{longtable}", ""])


def _find_bars(spec: str) -> list[bool]:
    """Return whether each column has a vertical line on its right."""
    return [bar == "|" for bar in re.findall(r"[lcr]\s*(\|?)", spec)]


def _foot(columns: int, title: str) -> list[str]:
    """Return the rule below the rows, and a title below it."""
    lines = [r"\bottomrule"]
    if title:
        lines.append(r"\addlinespace[2pt]")
        lines.append(rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{escape(title)}}}}} \\")
    return lines


def _shown_levels(cells: pd.DataFrame) -> list[int]:
    return [level for level, name in enumerate(cells.index.names) if name is not None]


def _line(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


def _head(cells: pd.DataFrame, has_bar: list[bool]) -> list[str]:
    """Return the heads of the columns. `has_bar`: whether a column has a vertical line on its
    right, which cells over several columns must repeat."""
    names = [cells.index.names[level] for level in _shown_levels(cells)]
    if cells.columns.nlevels == 1:
        return [_line([*names, *cells.columns.get_level_values(0)])]
    top = [_multirow(2, name) for name in names]
    below = [""] * len(names)
    rules = []
    for group, labels in groupby(cells.columns, key=lambda label: label[0]):
        heads = [label for _, label in labels]
        first = len(below) + 1
        below += heads
        if heads == [""]:
            top.append(_multirow(2, group))
            continue
        last = len(below)
        rules.append(rf"\cmidrule(lr){{{first}-{last}}}")
        if len(heads) > 1:
            alignment = "c|" if has_bar[last - 1] else "c"
            group = rf"\multicolumn{{{len(heads)}}}{{{alignment}}}{{{group}}}"
        top.append(group)
    return [_line(top), " ".join(rules), _line(below)]


def _body(cells: pd.DataFrame) -> Iterator[str]:
    """Yield the rows, with a rule above each block; a label spans its block."""
    levels = _shown_levels(cells)
    width = len(levels) + cells.shape[1]
    blocks = cells.index.nlevels - 1  # levels of blocks
    labels = [tuple(row) for row in cells.index.to_frame().to_numpy()]
    spans: Counter = Counter()
    for label in labels:
        spans.update(label[: level + 1] for level in range(blocks))
    before = None
    for label, texts in zip(labels, cells.to_numpy(), strict=True):
        first_new = _first_difference(label, before, blocks)
        if before is None or first_new < blocks:
            yield r"\midrule" if first_new == 0 else rf"\cmidrule(lr){{{first_new + 1}-{width}}}"
        heads = []
        for level in levels:
            rows = spans[label[: level + 1]]
            heads.append(_multirow(rows, label[level]) if level >= first_new else "")
        yield _line([*heads, *texts])
        before = label


def _first_difference(label: tuple, before: tuple | None, blocks: int) -> int:
    """Return the first level of blocks at which a label differs from the one before it; `blocks` if
    there is none."""
    if before is None:
        return 0
    for level in range(blocks):
        if label[level] != before[level]:
            return level
    return blocks


def _multirow(rows: int, text: str) -> str:
    return rf"\multirow{{{rows}}}{{*}}{{{text}}}" if rows > 1 else text
