"""The style of all figures, and an object that a notebook shows and the exporter writes.

Figures are one column wide, with text of at least 7 points, as PDF (fonts embedded) and PNG. Figures bypass pyplot, so
they need no closing and never appear twice in a notebook. The same data give the same bytes.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import FigureBase

from lib.calibrate.calibrators import METHODS

P = ParamSpec("P")
WIDTH = 3.3  # inches, a column of the paper
PANELS_PER_ROW = 3
BLUE, ORANGE, GRAY = (sns.color_palette("colorblind")[i] for i in (0, 1, 7))
RESPONSE_STYLES = ((True, "correct", BLUE, "-"), (False, "incorrect", ORANGE, "--"))  # of responses
# Color, line, marker, hatching: any two differ in lightness, too, for grayscale print and color-blind readers.
STYLES = (BLUE, "-", "o", ""), (ORANGE, "--", "s", "////"), ("0.3", "-.", "^", "...."), (GRAY, ":", "D", "xxxx")
MIME_TYPES = {"png": "image/png", "pdf": "application/pdf"}
AXES_STYLE = (
    sns.axes_style("ticks")
    | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "figure.titlesize"), 7.5)
    | dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7)
    | dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6)
    | dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5)
    | dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
    | {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "savefig.dpi": 300}  # this font ships with matplotlib
    | {"axes.titlelocation": "left", "lines.linewidth": 1.4, "hatch.linewidth": 0.5}
    | {"legend.handlelength": 2.6, "legend.columnspacing": 1.2}
    | {"text.parse_math": False}  # a dollar in a label is a dollar
    | {"text.hinting": "none"}  # hinting misaligns the letters of a monospaced font
)


def method_styles() -> dict[str, tuple[str, Any, str, str, str]]:
    """Return label and style of the raw score ("") and of every method."""
    named = zip(METHODS.values(), [*STYLES, *STYLES], strict=False)
    return {"": ("raw", "black", ":", "d", "")} | {method.name: (method.plain, *style) for method, style in named}


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


def add_legend(canvas: Canvas, columns: int = 3) -> None:
    """Add one legend below all axes, with each label once."""
    axes = [ax.get_legend_handles_labels() for ax in canvas.axes]
    handles = {label: handle for some in axes for handle, label in zip(*some, strict=True)}
    if handles:
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


@dataclass(frozen=True)
class Figure:
    """A drawn figure. A notebook's output contains its PNG.

    That of `printed` also has the PDF for the paper, because subsetting its fonts takes longer than drawing.
    """

    canvas: Canvas
    kinds: tuple[str, ...] = ("png",)

    @property
    def printed(self) -> "Figure":
        """The figure for the exporter."""
        return Figure(self.canvas, ("png", "pdf"))

    def save(self, kind: str) -> bytes:
        """Return the figure as `png` or `pdf`, without what differs between two processes."""
        without = ["Software"] if kind == "png" else ["CreationDate", "Creator", "Producer"]
        with paper_style(), io.BytesIO() as buffer:
            self.canvas.savefig(buffer, format=kind, metadata=dict.fromkeys(without))
            return name_fonts_by_order(buffer.getvalue()) if kind == "pdf" else buffer.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        width, height = (round(144 * float(inches)) for inches in self.canvas.get_size_inches())  # on screen
        texts = {MIME_TYPES[kind]: base64.b64encode(self.save(kind)).decode("ascii") for kind in self.kinds}
        return texts | {"text/plain": "<Figure>"}, {"image/png": {"width": width, "height": height}}


def in_paper_style(draw: Callable[P, Canvas]) -> Callable[P, Figure]:
    """Decorate a function that draws on a canvas: use the paper's style and return a Figure."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with paper_style():
            canvas = draw(*args, **kwargs)
            canvas.draw_without_rendering()
            canvas.set_layout_engine("none")  # all files have this layout
            return Figure(canvas)

    return figure


def paper_style() -> Any:
    """Return the context for drawing and saving figures, independent of the notebook's settings."""
    return mpl.style.context(["default", AXES_STYLE])


def name_fonts_by_order(pdf: bytes) -> bytes:
    """Name font subsets by their order; matplotlib names them by `hash`, which differs between processes."""
    for number, name in enumerate(dict.fromkeys(re.findall(rb"/([A-Z]{6})\+", pdf))):
        digest = hashlib.sha256(str(number).encode()).digest()
        pdf = pdf.replace(b"/" + name + b"+", b"/" + bytes(65 + byte % 26 for byte in digest[:6]) + b"+")
    return pdf
