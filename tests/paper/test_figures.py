"""Figures: same data, same bytes; fonts embedded; readable sizes; what a notebook receives."""

import base64
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.text import Text

from lib.paper import figures, prompt_figures
from lib.paths import ROOT

SET = {"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 50, "pdf.fonttype": 3}
PROMPT = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind to $x$ & <y>.<|eot_id|>"


def drawn_curve(name, **columns):
    """A curve of one kind as notebooks draw it, with a narrow interval."""
    frame = pd.DataFrame(columns)
    return frame.assign(correct=name, term=name, low=frame["mean"] - 0.01, high=frame["mean"] + 0.01, n=9)


def all_figures():
    x = np.linspace(0, 1, 11)
    means = pd.concat(
        [drawn_curve(kind, position=x, mean=0.9 + slope * x) for kind, slope in ((True, 0.05), (False, -0.02))]
    )
    entropies = pd.concat(
        drawn_curve(term, passes=[1, 2, 3], mean=mean)
        for term, mean in (("predictive", [0.1, 0.2, 0.25]), ("conditional", [0.1, 0.1, 0.1]))
    )
    in_situ = pd.DataFrame({"dataset": ["a_$b$", "c"], "standard": [0.1, 0.3], "in situ": [0.2, 0.1]})
    return {
        "one": figures.main_analysis(means, title="a_b & $c$ on <d>"),
        "three": figures.main_analysis(means, entropies, in_situ, title="m"),
        "both": prompt_figures.prompt_comparison(PROMPT, PROMPT + "\none\n#### 1\n\nIs it?"),
        "prompt": prompt_figures.prompt_example(PROMPT, "one\n#### 1<|eot_id|>"),
    }


def digests(drawn):
    return {name: hashlib.sha256(figure.pdf + figure.png).hexdigest() for name, figure in drawn.items()}


@pytest.fixture(scope="module")
def drawn():
    return all_figures()


def test_same_bytes_in_another_process_whatever_a_notebook_has_set_there(drawn):
    code = "import json, matplotlib, test_figures as t; matplotlib.rcParams |= t.SET; "
    code += "print(json.dumps(t.digests(t.all_figures())))"
    other = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/paper'}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=other, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == digests(drawn)


def test_no_dates_and_fonts_embedded_as_truetype(drawn):
    for figure in drawn.values():
        assert b"CreationDate" not in figure.pdf and b"matplotlib" not in figure.png
        assert b"/FontFile2" in figure.pdf and b"/Type3" not in figure.pdf
        assert figure.pdf.startswith(b"%PDF") and figure.png.startswith(b"\x89PNG")


def test_a_column_wide_and_seven_points(drawn):
    for name, figure in drawn.items():
        assert figure.canvas.get_size_inches()[0] == pytest.approx(6.6 if name == "both" else 3.3)
        texts = [t for t in figure.canvas.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert texts and min(t.get_fontsize() for t in texts) >= 7


def test_what_a_notebook_receives(drawn):
    """The PDF where it is for print alone."""
    shown, _ = DisplayFormatter().format(drawn["one"])
    data, metadata = DisplayFormatter().format(drawn["one"].printed)
    assert shown == {kind: data[kind] for kind in ("image/png", "text/plain")}
    assert base64.b64decode(data["application/pdf"]) == drawn["one"].pdf
    assert base64.b64decode(data["image/png"]) == drawn["one"].png
    assert metadata["image/png"]["width"] < 600


# ---- prompts


def shown(figure, ax):
    rows = {}
    for text in figure.canvas.axes[ax].texts[1:]:
        if text.get_text() != "\u21aa":
            rows.setdefault(text.get_position()[1], []).append((text.get_position()[0], text.get_text()))
    return ["".join(part for _, part in sorted(row)) for _, row in sorted(rows.items())]


def test_prompt_shows_every_character(drawn):
    marks = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    first = f"{marks[0]}{marks[1]}system"  # the next mark does not fit the line
    assert shown(drawn["prompt"], 0) == [first, marks[2], "Be kind to $x$ & <y>.<|eot_id|>"]
    assert shown(drawn["prompt"], 1) == ["one", "#### 1<|eot_id|>"]


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks():
    drawn = prompt_figures.prompt_example("<\uff5cUser\uff5c> 2 \u2264 3 \U0001f600", "\u4e2d" * 200)
    assert shown(drawn, 0) == ["<|User|> 2 \u2264 3 \\u1f600"]
