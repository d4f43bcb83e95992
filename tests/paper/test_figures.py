"""Figures: what is drawn of small frames (figures.yaml); same data, same bytes; fonts embedded;
readable sizes."""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.collections import PathCollection
from matplotlib.text import Text

from lib.paper import beyond_figures, figures

CASES = yaml.safe_load(Path(__file__).with_name("figures.yaml").read_text("utf-8"))


def made(told):
    """What a figure is given: columns are a frame, and two words that name something are a pair."""
    if not isinstance(told, dict):
        return told
    if any(isinstance(values, list) for values in told.values()):
        return pd.DataFrame(told)
    return {
        tuple(name.split()) if " " in name else name: made(value) for name, value in told.items()
    }


def drawn(name):
    function, told = name.split()[0], CASES[name]["given"]
    return (vars(figures) | vars(beyond_figures))[function](**made(told))


def places(drawn):
    """The corners of lines and bands; of points their areas, too, and whether they are hollow."""
    if not isinstance(drawn, PathCollection):
        return [path.vertices for path in drawn.get_paths()]
    faces, points = drawn.get_facecolor(), drawn.get_offsets()
    hollow = faces[:, :3].min(axis=1) == 1 if len(faces) else True
    return np.column_stack(
        [points, *(np.broadcast_to(one, len(points)) for one in (drawn.get_sizes(), hollow))]
    )


def seen(canvas):
    """A line for the size of a figure, for each of its panels, and for what is drawn there."""
    yield " x ".join(f"{inches:.3g}" for inches in canvas.get_size_inches())
    for ax in canvas.axes:
        texts = [
            text.get_text() for text in (*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts)
        ]
        words = " | ".join(
            [ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel(), *texts]
        ).replace("\n", " ")
        parts = [(f"{words}:", [ax.get_xlim(), ax.get_ylim()])]
        parts += [(f"line {line.get_label()}", line.get_xydata()) for line in ax.lines]
        parts += [
            (f"{type(one).__name__} {one.get_label()}", places(one)) for one in ax.collections
        ]
        parts += [("bar", bar.get_bbox().get_points()) for bar in ax.patches]
        for name, where in parts:
            yield " ".join(
                [re.sub(" _.*", "", name), *(f"{x:.3g}" for part in where for x in np.ravel(part))]
            )


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn(name):
    assert [*seen(drawn(name).canvas)] == CASES[name]["seen"]


def saved(settings):
    matplotlib.rcParams |= settings
    figure = drawn("main_analysis")
    return figure.save("pdf"), figure.save("png")


def test_same_bytes_in_another_process_whatever_a_notebook_has_set_there(monkeypatch):
    """For print, and without a date; fonts embedded as TrueType, of seven points or more."""
    pdf, png = saved({})
    monkeypatch.setenv("PYTHONHASHSEED", "123")
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        assert other.submit(
            saved, {"font.size": 20, "savefig.dpi": 50, "pdf.fonttype": 3}
        ).result() == (pdf, png)
    assert b"CreationDate" not in pdf and b"matplotlib" not in png
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    texts = [
        text for text in drawn("main_analysis").canvas.findobj(Text) if text.get_text().strip()
    ]
    assert texts and min(text.get_fontsize() for text in texts if text.get_visible()) >= 7
