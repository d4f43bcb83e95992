"""What every figure is drawn with: a style, and an object that a notebook shows and the exporter writes.

A column wide, text of 7 points or more, PDF (fonts embedded) and PNG. No figure passes through pyplot: there
is none to close, and none shows twice in a notebook. The same data give the same bytes.
"""

import base64
import copy
import hashlib
import io
import itertools
import re
from functools import cached_property
from typing import Any

import matplotlib as mpl
import matplotlib.style
import seaborn as sns
from matplotlib.figure import Figure as Canvas

from lib.calibrate.calibrators import METHODS

WIDTH = 3.3  # inches, a column of the paper
BLUE, ORANGE, GREY = (sns.color_palette("colorblind")[i] for i in (0, 1, 7))
RESPONSE_STYLES = ((True, "right", BLUE, "-"), (False, "wrong", ORANGE, "--"))  # of responses
# of methods, by turns: colour, line, marker, hatching
STYLES = (BLUE, "-", "o", ""), (ORANGE, "--", "s", "////"), ("0.3", "-.", "^", "...."), (GREY, ":", "D", "xxxx")
RAW_STYLE = ("black", ":", "d", "")
AXES_STYLE = sns.axes_style("ticks") | {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.4,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "text.parse_math": False,  # a dollar in a label is one
    "text.hinting": "none",  # hinted letters of a monospaced font drift apart
}


def style() -> Any:
    """Context in which figures are drawn and written, whatever the notebook has set."""
    return mpl.style.context(["default", AXES_STYLE])


def looks() -> dict[str, tuple[str, Any, Any, str, str]]:
    """Name and look of the raw score ("") and of every method. Two kinds in a plot always differ in colour, lightness
    and line style or hatching, for greyscale print and for colour-blind readers."""
    named = zip(METHODS.values(), itertools.cycle(STYLES))
    return {"": ("raw", *RAW_STYLE)} | {method.name: (method.plain, *style) for method, style in named}


class Figure:
    """A drawn figure as `pdf` and `png` bytes. Displayed, a notebook's output holds the PNG; that of `printed` the PDF,
    too, which the paper needs and no screen: to cut its fonts to the glyphs in it takes longer than to draw it."""

    def __init__(self, canvas: Canvas):
        self.canvas = canvas
        self.png = self._save("png", "Software")
        self.shown = {"image/png": self.png}

    @cached_property
    def pdf(self) -> bytes:
        return _named_by_order(self._save("pdf", "CreationDate", "Creator", "Producer"))

    @property
    def printed(self) -> "Figure":
        """The same for the exporter."""
        other = copy.copy(self)
        other.shown = {"application/pdf": self.pdf, "image/png": self.png}
        return other

    def _save(self, kind: str, *without: str) -> bytes:
        with style(), io.BytesIO() as buffer:
            self.canvas.savefig(buffer, format=kind, metadata=dict.fromkeys(without))
            return buffer.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        width, height = (round(144 * float(inches)) for inches in self.canvas.get_size_inches())  # on screen
        texts = {kind: base64.b64encode(content).decode("ascii") for kind, content in self.shown.items()}
        return texts | {"text/plain": "<Figure>"}, {"image/png": {"width": width, "height": height}}


def _named_by_order(pdf: bytes) -> bytes:
    """matplotlib names font subsets by `hash`, so differently in each process; here by their order."""
    for number, name in enumerate(dict.fromkeys(re.findall(rb"/([A-Z]{6})\+", pdf))):
        digest = hashlib.sha256(str(number).encode()).digest()
        pdf = pdf.replace(b"/" + name + b"+", b"/" + bytes(65 + byte % 26 for byte in digest[:6]) + b"+")
    return pdf
