"""Figures: same data, same bytes; fonts embedded; readable sizes; what a notebook receives."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from nbformat import v4, validate

from lib.paper import calibration_figures, exploratory_plots, figure_style, figures, prompt_figures
from lib.paths import ROOT

PROMPT = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind to $x$ & <y>.<|eot_id|>"


def curves():
    x = np.linspace(0, 1, 11)
    parts = [
        pd.DataFrame({"correct": kind, "position": x, "mean": y, "low": y - 0.01, "high": y + 0.01, "n": 9})
        for kind, y in ((True, 0.9 + x / 20), (False, 0.9 - x / 50))
    ]
    return pd.concat(parts)


def tokens():
    x = np.random.default_rng(0).exponential(1e-3, 100)
    return pd.DataFrame({"correct": np.arange(100) % 3 > 0, "logprob": -np.where(x < 1e-4, 0, x)})


def all_figures():
    terms = {"predictive": np.array([0.1, 0.2, 0.25]), "conditional": np.full(3, 0.1)}
    entropies = pd.concat(
        pd.DataFrame({"term": term, "passes": [1, 2, 3], "mean": mean, "low": mean - 0.02, "high": mean + 0.02})
        for term, mean in terms.items()
    )
    in_situ = pd.DataFrame({"dataset": ["a_$b$", "c"], "standard": [0.1, 0.3], "in situ": [0.2, 0.1]})
    return {
        "one": figures.main_analysis(curves(), title="a_b & $c$ on <d>"),
        "two": figures.main_analysis(curves(), in_situ=in_situ),
        "three": figures.main_analysis(curves(), entropies, in_situ, title="m"),
        "bars": figures.main_analysis(in_situ=in_situ, title="m"),
        "both": prompt_figures.prompt_comparison(PROMPT, PROMPT + "\none\n#### 1\n\nIs it?"),
        "density": exploratory_plots.answer_density(tokens()),
        "prompt": prompt_figures.prompt_example(PROMPT, "one\n#### 1<|eot_id|>"),
    }


def digests(drawn):
    return {name: hashlib.sha256(figure.pdf + figure.png).hexdigest() for name, figure in drawn.items()}


@pytest.fixture(scope="module")
def drawn():
    return all_figures()


def test_same_bytes_in_another_process(drawn):
    code = "import json; from tests import test_figures as t; print(json.dumps(t.digests(t.all_figures())))"
    other = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=other, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == digests(drawn)


def test_same_bytes_whatever_the_notebook_has_set(drawn):
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 50, "pdf.fonttype": 3}):
        again = figures.main_analysis(curves(), title="a_b & $c$ on <d>")
    assert again.pdf == drawn["one"].pdf and again.png == drawn["one"].png


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


def test_nothing_is_left_open_in_pyplot(drawn):
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


def test_what_a_notebook_receives(drawn):
    """The PDF where it is for print alone."""
    shown, _ = DisplayFormatter().format(drawn["one"])
    data, metadata = DisplayFormatter().format(drawn["one"].printed)
    assert shown == {kind: data[kind] for kind in ("image/png", "text/plain")}
    assert base64.b64decode(data["application/pdf"]) == drawn["one"].pdf
    assert base64.b64decode(data["image/png"]) == drawn["one"].png
    output = v4.new_output("display_data", data=data, metadata=metadata | {"paper": "fig_main_analysis"})
    validate(v4.new_notebook(cells=[v4.new_code_cell(outputs=[output])]))
    assert metadata["image/png"]["width"] < 600


def letters(figure):
    return [ax.get_title(loc="left")[:3] for ax in figure.canvas.axes]


def test_panels_follow_the_data(drawn):
    assert letters(drawn["one"])[0] == "a_b" and letters(drawn["one"])[1:] == [""]  # the difference
    assert sorted(filter(None, letters(drawn["two"]))) == ["(a)", "(c)"]
    assert sorted(filter(None, letters(drawn["three"]))) == ["(a)", "(b)", "(c)"]
    assert len(figures.main_analysis(curves().query("correct")).canvas.axes) == 1, "nothing to subtract"


def test_kinds_differ_in_line_style_and_lightness(drawn):
    lines = drawn["one"].canvas.axes[0].get_lines()
    assert [line.get_linestyle() for line in lines] == ["-", "--"]
    greys = [np.dot(mpl.colors.to_rgb(line.get_color()), (0.299, 0.587, 0.114)) for line in lines]
    assert abs(greys[0] - greys[1]) > 0.15


def test_one_kind_only_is_drawn():
    figures.main_analysis(curves().query("correct"))
    exploratory_plots.answer_density(tokens().query("correct"))


def test_density_counts_every_token(drawn):
    ax = drawn["density"].canvas.axes[0]
    (wrong,), (right,) = ax.lines, ax.collections
    x, y = right.get_paths()[0].vertices.T
    area = abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2
    assert [wrong.get_ydata()[:-1].sum(), area / 0.5] == pytest.approx([1, 1])
    assert wrong.get_ydata()[-1] > 0 and y[x == x.max()].max() > 0, "a probability of exactly 1"


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
    assert [t.get_text() for t in drawn["prompt"].canvas.axes[0].texts[1:] if t.get_weight() == "bold"] == marks


def test_both_verifications_stand_side_by_side(drawn):
    left, right = drawn["both"].canvas.axes
    assert left.get_position().height == right.get_position().height and left.get_ylim() == right.get_ylim()
    assert left.get_position().x1 <= right.get_position().x0
    assert shown(drawn["both"], 0) == shown(drawn["both"], 1)[:3]
    assert shown(drawn["both"], 1)[-1] == "Is it?"


def test_bands_are_drawn_around_both_entropies(drawn):
    (middle,) = [ax for ax in drawn["three"].canvas.axes if ax.get_xlabel() == "passes T"]
    assert [line.get_label() for line in middle.get_lines()][:2] == ["predictive", "conditional"]
    assert "BALD" in [text.get_text() for text in middle.texts]
    assert len(middle.collections) == 2 and middle.get_ylim()[1] > 0.27


def test_wrapping_keeps_every_word_within_the_width():
    text = "a long line of words and one " + "x" * 70 + " end\n\n  indented\tby tab"
    lines = prompt_figures._wrapped(text, 30, 99)
    assert all(len(line) <= 30 for line, _ in lines)
    assert "".join("" if more else "\n" for _, more in lines).count("\n") == 3
    joined = re.sub(r"\s", "", "".join(line for line, _ in lines))
    assert joined == re.sub(r"\s", "", text)


def test_long_texts_lose_their_middle():
    lines = prompt_figures._wrapped("\n".join(map(str, range(5000))), 30, 60)
    assert len(lines) == 61 and lines[30] == ("[... 4940 lines left out ...]", False)
    assert lines[0][0] == "0" and lines[-1][0] == "4999"


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks():
    text = prompt_figures._drawable("<\uff5cUser\uff5c>\u2581 2 \u2264 3 \U0001f600\u4e2d")
    assert text == "<|User|>\u2581 2 \u2264 3 \\u1f600\\u4e2d"
    prompt_figures.prompt_example("\u4e2d" * 200, "\U0001f600")


# ---- curves and maps


def lightness(colour):
    return np.dot(mpl.colors.to_rgb(colour), (0.299, 0.587, 0.114))


def test_methods_differ_in_greyscale():
    greys = sorted(lightness(colour) for _, colour, *_ in figure_style.looks().values())
    assert min(np.diff(greys)) > 0.15


def test_no_legend_lies_on_curves():
    bands = pd.DataFrame(
        [("m", "d", way, "isotonic", n, 0.2, 0.1, 0.4, 0) for way in ("uniform", "more wrong") for n in (5, 200, 300)],
        columns=["model", "dataset", "sampling", "method", "n", "mean", "low", "high", "one_class"],
    )
    sampling = calibration_figures.sampling_curves(bands, "isotonic")
    (ax,), (legend,) = sampling.canvas.axes, sampling.canvas.legends
    renderer = FigureCanvasAgg(sampling.canvas).get_renderer()
    assert ax.get_legend() is None
    assert not ax.get_window_extent(renderer).overlaps(legend.get_window_extent(renderer))
    assert len(ax.collections) == 2 and [t.get_text() for t in ax.get_xticklabels()][-1] == "300"


def test_the_transfer_map_is_read_without_colour():
    minus = "\N{MINUS SIGN}"
    said = [exploratory_plots.signed(value) for value in (-0.0049, 0.002, -0.006, 0.12)]
    assert said == [".00", ".00", f"{minus}.01", "+.12"]
    pairs = {(f"m{i}", "d"): f"model {i}" for i in range(9)}
    cells = [(method, *source, *target, "delta_ece", 0.1 if source < target else -0.1)
             for method in ("isotonic", "platt") for source in pairs for target in pairs]  # fmt: skip
    columns = ["method", "source_model", "source_dataset", "model", "dataset", "metric", "value"]
    figure = exploratory_plots.transfer_map(pd.DataFrame(cells, columns=columns), pairs)
    texts = [text for ax in figure.canvas.axes for text in ax.texts]
    assert len(texts) == 2 * 81
    assert {(text.get_text(), text.get_weight()) for text in texts} == {("+.10", "normal"), (f"{minus}.10", "bold")}
