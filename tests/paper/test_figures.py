"""Figures: same data, same bytes; fonts embedded; readable sizes; and what is drawn, by hand."""

import hashlib
import html
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.text import Text

from lib.paper import beyond_figures, figures, response_views
from lib.paper.cells import HEADLINE
from lib.paths import ROOT
from lib.score import metrics
from lib.tasks.prompts import QUERY
from workflow.export import results_document
from workflow.run import typeset

SET = {"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 50, "pdf.fonttype": 3}
PROMPT = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind to $x$ & <y>.<|eot_id|>"


def drawn():
    """The main figure as notebooks draw it, of narrow intervals."""
    x = np.linspace(0, 1, 11)
    curves = [
        pd.DataFrame({"position": x, "mean": 0.9 + slope * x, "correct": right, "n": 9})
        for right, slope in ((True, 0.05), (False, -0.02))
    ] + [
        pd.DataFrame({"passes": [1, 2, 3], "mean": mean, "term": term})
        for term, mean in (("predictive", [0.1, 0.2, 0.25]), ("conditional", [0.1, 0.1, 0.1]))
    ]
    curves = [curve.assign(low=curve["mean"] - 0.01, high=curve["mean"] + 0.01) for curve in curves]
    in_situ = pd.DataFrame({"dataset": ["a_$b$", "c"], "standard": [0.1, 0.3], "in situ": [0.2, 0.1]})
    return figures.main_analysis(pd.concat(curves[:2]), pd.concat(curves[2:]), in_situ, title="a_b & $c$ on <d>")


def digest():
    return hashlib.sha256(drawn().save("pdf") + drawn().save("png")).hexdigest()


def test_same_bytes_in_another_process_whatever_a_notebook_has_set_there():
    code = "import matplotlib, test_figures as t; matplotlib.rcParams |= t.SET; print(t.digest())"
    other = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/paper'}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=other, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == digest()


def test_for_print():
    """No dates; fonts embedded as TrueType, of seven points or more; a column wide."""
    figure = drawn()
    pdf, png = figure.save("pdf"), figure.save("png")
    assert b"CreationDate" not in pdf and b"matplotlib" not in png
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    assert figure.canvas.get_size_inches()[0] == pytest.approx(3.3)
    texts = [t for t in figure.canvas.findobj(Text) if t.get_text().strip() and t.get_visible()]
    assert texts and min(t.get_fontsize() for t in texts) >= 7


# ---- prompts


HOSTILE = "<\uff5cUser\uff5c> 2 \u2264 3, Ren\u00e9\u2019s \u4e2d <b>&amp; \\end{lstlisting}\\input{x} 100% $x_1$ #{}~^"


def test_prompts_show_every_character():
    """On a page each letter, none of them markup; in LaTeX what it can set, or the letter's code."""
    page = response_views.prompt_comparison(PROMPT, PROMPT + HOSTILE + QUERY)._repr_html_()
    texts = [html.unescape(re.sub("<[^>]*>", "", one)) for one in re.findall("(?s)<pre[^>]*>(.*?)</pre>", page)]
    assert texts == [PROMPT, PROMPT + HOSTILE + QUERY] and page.count(f"<mark>{html.escape(QUERY)}</mark>") == 1
    latex = response_views.prompt_example(PROMPT, HOSTILE)._repr_latex_()
    assert PROMPT in latex and r"<|User|> 2 \u2264 3, Ren\xe9's \u4e2d <b>&amp;" in latex
    assert latex.count(r"\end{lstlisting}") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_prompts_compile(tmp_path):
    prompt = response_views.prompt_example(PROMPT, HOSTILE + "\tword " * 99)._repr_latex_()
    (tmp_path / "fig_prompt_example.tex").write_text(prompt)
    (tmp_path / "results.tex").write_text(results_document("x", {"fig_prompt_example.tex": prompt.encode()}))
    assert typeset(tmp_path) == "", (tmp_path / "results.log").read_text()[-2000:]
    text = subprocess.run(["pdftotext", tmp_path / "results.pdf", "-"], capture_output=True, text=True, check=True)
    seen = "".join(text.stdout.split())  # lines are broken anywhere
    assert "<|eot_id|>" in seen and "100%$x_1$#{}" in seen and seen.count("word") == 99


# ---- what is drawn, by hand on small frames

CORRECT = np.repeat([True, False, True, False], [2, 2, 72, 24])
BINS = metrics.reliability_diagram(np.repeat([0.15, 0.95], [4, 96]), CORRECT)  # of 4 and of 96 rows


def test_bins_of_few_rows_are_counted_and_not_drawn():
    """The bin of four rows has a bar, and no point."""
    canvas = figures.calibration_analysis({"": BINS}).canvas
    diagram, below = canvas.axes
    assert diagram.get_title("left") == "raw\nECE .206"
    (points,) = (part for part in diagram.collections if isinstance(part, PathCollection))
    np.testing.assert_allclose(points.get_offsets(), [[0.95, 0.75]])
    assert [bar.get_height() for bar in below.patches] == [4, 96]


# ---- all pairs at once


def test_the_overview_is_hollow_where_chance_could_give_the_error():
    """Of two datasets of a model, one without a constant."""
    rows = [
        ("m", dataset, *key, 0.1 * place, 0.05, dataset == "d")
        for dataset in ("d", "e") for place, key in enumerate(HEADLINE, 1) if (dataset, key[0]) != ("e", "base")
    ]  # fmt: skip
    columns = ["model", "dataset", "estimator", "method", "value", "chance_high", "calibrated"]
    frame = pd.DataFrame(rows, columns=columns).assign(low=0.0, high=1.0)
    (ax,) = beyond_figures.overview(frame, {"m": "M"}, {"d": "D", "e": "E"}).canvas.axes
    drawn = [part for part in ax.collections if isinstance(part, PathCollection) and len(part.get_offsets()) == 2]
    assert [part.get_facecolor()[0].tolist() for part in drawn] == [[1, 1, 1, 1]] * 4
    assert [part.get_offsets()[0][0] for part in drawn] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert all(part.get_facecolor()[1].tolist() != [1, 1, 1, 1] for part in drawn)
    assert ax.get_xlabel() == "ECE (lower is better)" and ax.get_title("left") == "M"
