"""Figures: what is drawn of small frames (figures.yaml); same data, same bytes; fonts embedded; readable sizes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from lib.paper import beyond_figures, figures
from lib.paths import ROOT

CASES = yaml.safe_load(Path(__file__).with_name("figures.yaml").read_text("utf-8"))
SET = {"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 50, "pdf.fonttype": 3}


def made(told):
    """What a figure is given: columns are a frame, and two words that name something are a pair."""
    if not isinstance(told, dict):
        return told
    if any(isinstance(values, list) for values in told.values()):
        return pd.DataFrame(told)
    return {tuple(name.split()) if " " in name else name: made(value) for name, value in told.items()}


def drawn(name):
    function, told = name.split()[0], CASES[name]["given"]
    return (vars(figures) | vars(beyond_figures))[function](**made(told))


def places(artist):
    """Where an artist draws: points with their areas, and whether they are hollow; corners of lines, bands and bars."""
    if isinstance(artist, Line2D):
        return artist.get_xydata()
    if isinstance(artist, Rectangle):
        return artist.get_bbox().get_points()
    if not isinstance(artist, PathCollection):
        return [path.vertices for path in artist.get_paths()]
    faces, points = artist.get_facecolor(), artist.get_offsets()
    hollow = faces[:, :3].min(axis=1) == 1 if len(faces) else True
    return np.column_stack([points, *(np.broadcast_to(one, len(points)) for one in (artist.get_sizes(), hollow))])


def seen(canvas):
    """A line for the size of a figure, for each of its panels, and for what is drawn there."""
    yield " x ".join(f"{inches:.3g}" for inches in canvas.get_size_inches())
    for ax in canvas.axes:
        texts = [text.get_text() for text in (*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts)]
        words = [ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel(), *texts]
        limits = np.ravel([ax.get_xlim(), ax.get_ylim()])
        yield f"{' | '.join(words)}: {' '.join(f'{value:.3g}' for value in limits)}".replace("\n", " ")
        for artist in (*ax.lines, *ax.collections, *ax.patches):
            label = artist.get_label() if artist.get_label()[0] != "_" else ""
            where = [f"{value:.3g}" for part in places(artist) for value in np.ravel(part)]
            yield " ".join([type(artist).__name__, label, *where])


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn(name):
    assert [*seen(drawn(name).canvas)] == CASES[name]["seen"]


def test_same_bytes_in_another_process_whatever_a_notebook_has_set_there():
    """For print, and without a date; fonts embedded as TrueType, of seven points or more."""
    figure = drawn("main_analysis")
    pdf, png = figure.save("pdf"), figure.save("png")
    code = f"""import sys, matplotlib, test_figures
matplotlib.rcParams |= {SET}
figure = test_figures.drawn("main_analysis")
sys.stdout.buffer.write(figure.save("pdf") + figure.save("png"))"""
    other = os.environ | {"PYTHONHASHSEED": "123", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/paper'}"}
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=other) == pdf + png
    assert b"CreationDate" not in pdf and b"matplotlib" not in png
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    texts = [t for t in figure.canvas.findobj(Text) if t.get_text().strip() and t.get_visible()]
    assert texts and min(t.get_fontsize() for t in texts) >= 7
