"""The style of all figures, and an object that a notebook shows and the exporter writes.

`figure_style.mplstyle` beside this module is matplotlib's style sheet. Figures are one column wide, as PDF (fonts
embedded) and PNG. They bypass pyplot, so they need no closing and never appear twice in a notebook. The same data give
the same bytes.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import FigureBase

from lib.calibrate.calibrators import METHODS
from lib.score.evaluation import BASE

P = ParamSpec("P")
WIDTH = 3.3  # inches, a column of the paper
PANELS_PER_ROW = 3
DPI = 300  # of a PNG
LONG_LABEL = 16  # letters; a legend with longer ones has two columns
BLUE, ORANGE, GREEN, PINK, PALE_PINK = (sns.color_palette("colorblind")[i] for i in (0, 1, 2, 4, 6))
RESPONSE_STYLES = ((True, "correct", GREEN, "-"), (False, "incorrect", "0.2", "--"))  # of responses
# Color, line, marker, hatching. A color other than gray and green belongs to one estimator, in every figure.
ESTIMATOR_STYLES: dict[str, tuple[Any, str, str, str]] = {
    "seq_avg": (BLUE, "-", "o", ""),
    "ans_avg": (ORANGE, "--", "s", ""),
    "p_true": (PINK, "-.", "^", ""),
    "p_true_insitu": (PALE_PINK, "-.", "v", "////"),
    "c_bald": ("0.25", ":", "D", ""),
    BASE: ("black", ":", "P", ""),
}
# Of methods and other ways to make a number, in grays. Any two differ in line and marker, too.
STYLES = ("0.15", "-", "o", ""), ("0.5", "--", "s", "////"), ("0.35", "-.", "^", "...."), ("0.65", ":", "D", "xxxx")
LOWER_IS_BETTER = "ECE (lower is better)"
STYLE_SHEETS = "default", "seaborn-v0_8-ticks", str(Path(__file__).with_suffix(".mplstyle"))


def method_styles() -> dict[str, tuple[str, Any, str, str, str]]:
    """Return label and style of the raw score ("") and of every method."""
    named = zip(METHODS.values(), [*STYLES, *STYLES], strict=False)
    styles = {method.name: (method.answer_label, *style) for method, style in named}
    return {"": ("raw", "black", ":", "d", "")} | styles


def new_canvas(height: float, width: float = WIDTH, title: str = "") -> Canvas:
    """Return a canvas, with a title over all of its axes."""
    canvas = Canvas(figsize=(width, height), layout="constrained")
    if title:
        canvas.suptitle(title, x=0.02, ha="left")
    return canvas


def add_panels(part: FigureBase, count: int, **more: Any) -> np.ndarray:
    """Add axes to a figure, at most PANELS_PER_ROW side by side, and return them."""
    across = max(1, min(count, PANELS_PER_ROW))
    axes = part.subplots(max(1, -(-count // across)), across, squeeze=False, **more).ravel()
    for ax in axes[count:]:
        ax.axis("off")
    return axes[:count]


def draw_band(ax: Axes, rows: pd.DataFrame, x: str, color: Any, line: str, alpha: float = 0.25, **look: Any) -> None:
    """Draw the mean of rows against the column `x`, and the band from low to high."""
    ax.plot(rows[x], rows["mean"], line, color=color, **look)
    ax.fill_between(rows[x], rows["low"], rows["high"], color=color, alpha=alpha, linewidth=0)


@dataclass(frozen=True)
class Figure:
    """A drawn figure. A notebook's output contains its PNG.

    That of `printed` also has the PDF for the paper, because subsetting its fonts takes longer than drawing.
    """

    canvas: Canvas
    has_pdf: bool = False

    @property
    def printed(self) -> "Figure":
        """The figure for the exporter."""
        return Figure(self.canvas, has_pdf=True)

    def save(self, kind: str) -> bytes:
        """Return the figure as `png` or `pdf`, without what differs between two processes.

        It is drawn once; `savefig` would draw it twice.
        """
        self.canvas.set_dpi(DPI)
        with style.context(STYLE_SHEETS), io.BytesIO() as buffer:
            if kind == "png":
                FigureCanvasAgg(self.canvas).print_png(buffer, metadata={"Software": None})
            else:
                without = dict.fromkeys(["CreationDate", "Creator", "Producer"])
                FigureCanvasPdf(self.canvas).print_pdf(buffer, metadata=without)
            return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = (round(144 * float(inches)) for inches in self.canvas.get_size_inches())  # on screen
        return self.save("png"), {"width": width, "height": height}

    def _repr_pdf_(self) -> bytes | None:
        return self.save("pdf") if self.has_pdf else None


def in_paper_style(draw: Callable[P, Canvas]) -> Callable[P, Figure]:
    """Decorate a function that draws on a canvas: use the paper's style, add a legend and return a Figure."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(STYLE_SHEETS):  # whatever a notebook has set
            canvas = draw(*args, **kwargs)
            add_legend(canvas)
            canvas.draw_without_rendering()
            canvas.set_layout_engine("none")  # all files have this layout
            return Figure(canvas)

    return figure


def add_legend(canvas: Canvas) -> None:
    """Add one legend below all axes without a legend of their own, with each label once."""
    axes = [ax.get_legend_handles_labels() for ax in canvas.axes if not ax.get_legend()]
    handles = {label: handle for some in axes for handle, label in zip(*some, strict=True)}
    if handles:
        across = 2 if max(map(len, handles)) > LONG_LABEL else 3
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=across)
