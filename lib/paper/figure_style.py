"""The style of all figures, and an object that a notebook shows and the exporter writes.

`figure_style.mplstyle` beside this module is matplotlib's style sheet. Figures are one column wide,
as PDF (fonts embedded) and PNG. They bypass pyplot, so they need no closing and never appear twice
in a notebook. The same data give the same bytes.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import FigureBase

from lib.score.baselines import BASE

P = ParamSpec("P")
WIDTH = 3.3  # inches, a column of the paper
PANELS_PER_ROW = 3
DPI = 300  # of a PNG
LONG_LABEL = 16  # letters; a legend with longer ones has two columns
_PALETTE = sns.color_palette("colorblind")
BLUE, ORANGE, GREEN = _PALETTE[:3]
PINK = _PALETTE[4]
PALE_PINK = _PALETTE[6]
LOWER_IS_BETTER = "ECE (lower is better)"
STYLE_SHEETS = ("default", "seaborn-v0_8-ticks", str(Path(__file__).with_suffix(".mplstyle")))


class Look(NamedTuple):
    """How one kind of number is drawn, in every figure."""

    color: Any
    linestyle: str
    marker: str = "o"


RESPONSE_LOOKS = {True: ("correct", Look(GREEN, "-")), False: ("incorrect", Look("0.2", "--"))}
ESTIMATOR_LOOKS = {  # a color other than gray and green belongs to one estimator
    "seq_avg": Look(BLUE, "-", "o"),
    "ans_avg": Look(ORANGE, "--", "s"),
    "p_true": Look(PINK, "-.", "^"),
    "p_true_insitu": Look(PALE_PINK, "-.", "v"),
    "c_bald": Look("0.25", ":", "D"),
    BASE: Look("black", ":", "P"),
}
# Of methods and other ways to make a number, in grays. Any two differ in line and marker, too.
LOOKS = (
    Look("0.15", "-", "o"),
    Look("0.5", "--", "s"),
    Look("0.35", "-.", "^"),
    Look("0.65", ":", "D"),
)


def new_canvas(height: float, width: float = WIDTH, title: str = "") -> Canvas:
    """Return a canvas, with a title over all of its axes."""
    canvas = Canvas(figsize=(width, height), layout="constrained")
    if title:
        canvas.suptitle(title, x=0.02, ha="left")
    return canvas


def add_panels(part: FigureBase, count: int, **more: Any) -> np.ndarray:
    """Add axes to a figure, at most PANELS_PER_ROW side by side, and return them."""
    across = max(1, min(count, PANELS_PER_ROW))
    down = max(1, math.ceil(count / across))
    axes = part.subplots(down, across, squeeze=False, **more).ravel()
    for ax in axes[count:]:
        ax.axis("off")
    return axes[:count]


def draw_band(
    ax: Axes, rows: pd.DataFrame, x: str, look: Look, alpha: float = 0.2, **more: Any
) -> None:
    """Draw the mean of rows against the column `x`, and the band from low to high."""
    ax.plot(rows[x], rows["mean"], look.linestyle, color=look.color, **more)
    low, high = rows["low"], rows["high"]
    ax.fill_between(rows[x], low, high, color=look.color, alpha=alpha, linewidth=0)


def draw_estimates(
    ax: Axes, places: np.ndarray, rows: pd.DataFrame, column: str, hollow: pd.Series, look: Look
) -> None:
    """Draw a column of rows with its intervals (low, high) at these places, a marker each, `hollow`
    or not."""
    ax.hlines(places, rows["low"], rows["high"], color=look.color, linewidth=1)
    faces = ["white" if is_hollow else look.color for is_hollow in hollow]
    ax.scatter(
        rows[column],
        places,
        22,
        marker=look.marker,
        facecolor=faces,
        edgecolor=look.color,
        linewidth=0.8,
        zorder=3,
        clip_on=False,  # also at 0
    )


@dataclass(frozen=True)
class Figure:
    """A drawn figure. A notebook's output contains its PNG.

    That of `printed` also has the PDF for the paper, because subsetting its fonts takes longer than
    drawing.
    """

    canvas: Canvas
    has_pdf: bool = False

    @property
    def printed(self) -> "Figure":
        """The figure for the exporter."""
        return Figure(self.canvas, has_pdf=True)

    def save(self, kind: str) -> bytes:
        """Return the figure as `png` or `pdf`, without what differs between two processes."""
        names = ["Software"] if kind == "png" else ["CreationDate", "Creator", "Producer"]
        left_out = dict.fromkeys(names)
        with style.context(STYLE_SHEETS), io.BytesIO() as buffer:
            self.canvas.savefig(buffer, format=kind, dpi=DPI, metadata=left_out)
            return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = self.canvas.get_size_inches()
        on_screen = {"width": round(144 * float(width)), "height": round(144 * float(height))}
        return self.save("png"), on_screen

    def _repr_pdf_(self) -> bytes | None:
        return self.save("pdf") if self.has_pdf else None


def in_paper_style(draw: Callable[P, Canvas]) -> Callable[P, Figure]:
    """Decorate a function that draws on a canvas: use the paper's style, add a legend and return a
    Figure."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(STYLE_SHEETS):  # whatever a notebook has set
            canvas = draw(*args, **kwargs)
            add_legend(canvas)
            canvas.draw_without_rendering()
            canvas.set_layout_engine(None)  # all files have this layout
            return Figure(canvas)

    return figure


def add_legend(canvas: Canvas) -> None:
    """Add one legend below all axes without a legend of their own, with each label once."""
    handles: dict[str, Any] = {}
    for ax in canvas.axes:
        if not ax.get_legend():
            new_handles, labels = ax.get_legend_handles_labels()
            handles |= dict(zip(labels, new_handles, strict=True))
    if handles:
        across = 2 if max(map(len, handles)) > LONG_LABEL else 3
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=across)
