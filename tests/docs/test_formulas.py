"""Every formula that a reader of the notebooks sees, as JupyterLab's own MathJax sets it: nothing in red."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from lib.paper import latex, tables
from lib.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
JUPYTERLAB = Path(sys.prefix) / "share" / "jupyter" / "lab" / "static"
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", flags=re.S)


def formulas(text: str) -> list[str]:
    """The formulas of a Markdown or HTML text; what stands in `code` is none."""
    return [display or inline for display, inline in FORMULA.findall(re.sub(r"`[^`\n]*`", "", text))]


def shown() -> dict[str, list[str]]:
    """The formulas of every notebook's paragraphs, and of the table of estimators."""
    found = {
        path.stem: [
            formula
            for cell in nbformat.read(path, 4).cells
            if cell.cell_type == "markdown"
            for formula in formulas(cell.source)
        ]
        for path in NOTEBOOKS
    }
    return found | {"tab_estimators": formulas(html.unescape(tables.estimators()._repr_html_()))}


def problems(some: list[str]) -> list[list[str]]:
    """What JupyterLab's MathJax cannot set of each formula."""
    if not shutil.which("node") or not JUPYTERLAB.is_dir():
        pytest.skip("needs JupyterLab's built files and node, which runs them outside a browser")
    done = subprocess.run(
        ["node", ROOT / "tests" / "mathjax.js", JUPYTERLAB],
        input=json.dumps(some),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("where", shown())
def test_every_formula_is_set_by_jupyterlab(where):
    some = shown()[where]
    wrong = {formula: problem for formula, problem in zip(some, problems(some), strict=True) if problem}
    assert not wrong


def test_what_it_cannot_set_is_found():
    assert problems([r"\bm{x}", r"\boldsymbol{x}", r"\frac{1}{", r"\textsc{Ans}"]) == [
        [r"\bm"],
        [],
        ["Missing close brace"],
        [r"\textsc"],
    ]


def test_no_macro_of_the_papers_own_is_left():
    """Without node, too: the paper's macros and bm, which its LaTeX knows."""
    for where, some in shown().items():
        own = [macro for formula in some for macro in (r"\bm", *latex.MACROS) if latex._macro(macro).search(formula)]
        assert not own, (where, own)
