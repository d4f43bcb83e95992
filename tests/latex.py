"""Reading LaTeX tables, the paper's and ours, cell by cell."""

import re

import pytest

from lib.paths import ROOT

PAPER = ROOT.parent / "shared" / "paper" / "paper.tex"
paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's LaTeX is not beside the project")


def parse(latex):
    """A tabular as rows of cells and rules, white space put aside."""
    plain = re.sub(r"(?m)^ *%.*\n|(?<!\\)%.*", "", latex)
    body = plain.split(r"\toprule")[1].split(r"\bottomrule")[0]
    parts = re.split(r"(\\midrule|\\cmidrule\(lr\)\{[0-9-]+\})|\\\\", body)
    rows = []
    for part in parts:
        if part and part.strip():
            cells = [re.sub(r"\s+", " ", cell).strip() for cell in re.split(r"(?<!\\)&", part)]
            cells = [re.sub(r"\$[^$]*\$", without_blanks, cell) for cell in cells]
            rows.append(cells if len(cells) > 1 else cells[0])
    return rows


def without_blanks(match):
    return match.group().replace(" ", "")


def specification(latex):
    return re.search(r"\\begin\{tabular\}\{(.*)\}", latex).group(1).replace(" ", "")


def tabulars(latex):
    """Each tabular that holds rows: of a table in two parts, both."""
    parts = latex.split(r"\begin{tabular}")[1:]
    return [r"\begin{tabular}" + part for part in parts if r"\toprule" in part]


def printed(label):
    """The paper's tabulars of that label."""
    lines = PAPER.read_text(encoding="utf-8").split("\n")
    text = "\n".join(line for line in lines if not line.lstrip().startswith("%"))
    return tabulars(text[: text.index(rf"\label{{tab:{label}}}")].rsplit(r"\begin{table", 1)[1])
