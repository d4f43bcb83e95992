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

from lib.paper import tables
from lib.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
JUPYTERLAB = Path(sys.prefix) / "share" / "jupyter" / "lab" / "static"
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", flags=re.S)


def formulas(text: str) -> list[str]:
    """The formulas of a Markdown or HTML text; what stands in `code` is none."""
    return [display or inline for display, inline in FORMULA.findall(re.sub(r"`[^`\n]*`", "", text))]


def shown() -> list[str]:
    """The formulas of all notebooks' paragraphs, and of the table of estimators."""
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
    texts = [*(cell.source for cell in cells), html.unescape(tables.estimators()._repr_html_())]
    return [formula for text in texts for formula in formulas(text)]


def problems(some: list[str]) -> list[list[str]]:
    """What JupyterLab's MathJax cannot set of each formula."""
    if not shutil.which("node") or not JUPYTERLAB.is_dir():
        pytest.skip("needs JupyterLab's built files and node, which runs them outside a browser")
    words = ["node", ROOT / "tests" / "mathjax.js", JUPYTERLAB]
    done = subprocess.run(words, input=json.dumps(some), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_formula_is_set_by_jupyterlab():
    some = shown()
    wrong = {formula: problem for formula, problem in zip(some, problems(some), strict=True) if problem}
    assert len(some) > 50 and not wrong
