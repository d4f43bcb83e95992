"""The style of all figures, and an object that a notebook shows and the exporter writes.

Figures are one column wide, with text of at least 7 points, as PDF (fonts embedded) and PNG. Figures bypass pyplot, so
they need no closing and never appear twice in a notebook. The same data give the same bytes.
"""

import base64
import copy
import hashlib
import io
import itertools
import re
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, ParamSpec

import matplotlib as mpl
import matplotlib.style
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lib.calibrate.calibrators import METHODS

P = ParamSpec("P")
WIDTH = 3.3  # inches, a column of the paper
BLUE, ORANGE, GRAY = (sns.color_palette("colorblind")[i] for i in (0, 1, 7))
RESPONSE_STYLES = ((True, "correct", BLUE, "-"), (False, "incorrect", ORANGE, "--"))  # of responses
# cycled over methods: color, line, marker, hatching
STYLES = (BLUE, "-", "o", ""), (ORANGE, "--", "s", "////"), ("0.3", "-.", "^", "...."), (GRAY, ":", "D", "xxxx")
RAW_STYLE = ("black", ":", "d", "")
AXES_STYLE = (
    sns.axes_style("ticks")
    | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 7.5)
    | dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7)
    | dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6)
    | dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5)
    | dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
    | {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "savefig.dpi": 300}  # this font ships with matplotlib
    | {"axes.titlelocation": "left", "lines.linewidth": 1.4, "hatch.linewidth": 0.5}
    | {"text.parse_math": False}  # a dollar in a label is a dollar
    | {"text.hinting": "none"}  # hinting misaligns the letters of a monospaced font
)


def paper_style() -> Any:
    """Return the context for drawing and saving figures, independent of the notebook's settings."""
    return mpl.style.context(["default", AXES_STYLE])


def method_styles() -> dict[str, tuple[str, Any, Any, str, str]]:
    """Return name and look of the raw score ("") and of every method.

    Any two differ in color, lightness and line style or hatching, for grayscale print and color-blind readers.
    """
    named = zip(METHODS.values(), itertools.cycle(STYLES))
    return {"": ("raw", *RAW_STYLE)} | {method.name: (method.answer_label, *style) for method, style in named}


def make_panels(
    columns: int, height: float, width: float = WIDTH, title: str = "", rows: int = 1, **more: Any
) -> tuple:
    """Return a canvas with a title over all of its axes, and the axes row by row."""
    canvas = Canvas(figsize=(width, height), layout="constrained")
    if title:
        canvas.suptitle(title, x=0.02, ha="left", size=7.5)
    return canvas, canvas.subplots(rows, columns, squeeze=False, **more).ravel()


def draw_band(ax: Axes, rows: pd.DataFrame, x: str, color: Any, line: str, alpha: float = 0.25, **look: Any) -> None:
    """Draw the mean of rows against the column `x`, and the band from low to high."""
    ax.plot(rows[x], rows["mean"], line, color=color, **look)
    ax.fill_between(rows[x], rows["low"], rows["high"], color=color, alpha=alpha, linewidth=0)


class Figure:
    """A drawn figure as `pdf` and `png` bytes.

    A notebook's output contains the PNG. That of `printed` also has the PDF for the paper, because subsetting its fonts
    takes longer than drawing.
    """

    def __init__(self, canvas: Canvas):
        self.canvas = canvas
        self.png = self._save("png", "Software")
        self.shown = {"image/png": self.png}

    @cached_property
    def pdf(self) -> bytes:
        return _named_by_order(self._save("pdf", "CreationDate", "Creator", "Producer"))

    @property
    def printed(self) -> "Figure":
        """A copy for the exporter."""
        other = copy.copy(self)
        other.shown = {"application/pdf": self.pdf, "image/png": self.png}
        return other

    def _save(self, kind: str, *without: str) -> bytes:
        with paper_style(), io.BytesIO() as buffer:
            self.canvas.savefig(buffer, format=kind, metadata=dict.fromkeys(without))
            return buffer.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        width, height = (round(144 * float(inches)) for inches in self.canvas.get_size_inches())  # on screen
        texts = {kind: base64.b64encode(content).decode("ascii") for kind, content in self.shown.items()}
        return texts | {"text/plain": "<Figure>"}, {"image/png": {"width": width, "height": height}}


def in_paper_style(draw: Callable[P, Canvas]) -> Callable[P, Figure]:
    """Decorate a function that draws on a canvas: use the paper's style and return a Figure."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with paper_style():
            return Figure(draw(*args, **kwargs))

    return figure


def _named_by_order(pdf: bytes) -> bytes:
    """Name font subsets by their order; matplotlib names them by `hash`, which differs between processes."""
    for number, name in enumerate(dict.fromkeys(re.findall(rb"/([A-Z]{6})\+", pdf))):
        digest = hashlib.sha256(str(number).encode()).digest()
        pdf = pdf.replace(b"/" + name + b"+", b"/" + bytes(65 + byte % 26 for byte in digest[:6]) + b"+")
    return pdf
