"""Reliability diagrams after `guo2017calibration`: accuracy against mean confidence by bin. Formatting only.

A point is a bin: its area grows with its number of rows, and it is hollow if it has fewer than MIN_BIN_COUNT rows. A
thin line is its binomial interval, and a wide one the gap to the diagonal; the ECE is the mean gap over rows.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import binomtest

from lib.calibrate.calibrators import METHODS
from lib.paper.cells import format_3dp
from lib.paper.figure_style import WIDTH, Canvas, in_paper_style, make_panels, method_styles

MIN_BIN_COUNT = 5  # bins with fewer rows are hollow


def wilson_intervals(bins: pd.DataFrame) -> pd.DataFrame:
    """Return the 95% Wilson interval of the accuracy of bins (count, accuracy): low, high."""
    right = (bins["count"] * bins["accuracy"]).round().astype(int)
    found = [binomtest(k, int(n)).proportion_ci(method="wilson") for k, n in zip(right, bins["count"], strict=True)]
    return pd.DataFrame({"low": [one.low for one in found], "high": [one.high for one in found]}, index=bins.index)


def ece_of_bins(bins: pd.DataFrame) -> float:
    """Return the ECE of these bins."""
    return float((bins["count"] * (bins["accuracy"] - bins["confidence"]).abs()).sum() / bins["count"].sum())


def draw_reliability(ax: Axes, below: Axes, diagrams: Mapping[str, pd.DataFrame]) -> None:
    """Draw the diagrams of one or two methods on `ax`, and the number of rows in each bin on `below`."""
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0)
    for place, (method, bins) in enumerate(diagrams.items()):
        _bin_points(ax, method, bins)
        _counts(below, method, bins, place, len(diagrams))
    ax.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.2), xticks=[0, 0.5, 1], xticklabels=[], yticks=[0, 0.5, 1])
    below.set(xlim=(-0.06, 1.06), xticks=[0, 0.5, 1], xlabel="confidence")
    below.set_yticks([0, int(max(bins["count"].max() for bins in diagrams.values()))])
    said = "ECE " + " \N{RIGHTWARDS ARROW} ".join(format_3dp(ece_of_bins(bins)) for bins in diagrams.values())
    ax.text(0.03, 0.98, said, size=7, va="top", transform=ax.transAxes)  # above all bins


def _bin_points(ax: Axes, method: str, bins: pd.DataFrame) -> None:
    _, color, _, marker, _ = method_styles()[method]
    ends, x, y = wilson_intervals(bins), bins["confidence"], bins["accuracy"]
    ax.vlines(x, y, x, color=color, alpha=0.25, linewidth=4)
    ax.vlines(x, ends["low"], ends["high"], color=color, linewidth=0.7)
    for few, part in bins.groupby(bins["count"] < MIN_BIN_COUNT):
        area = 8 + 50 * part["count"] / bins["count"].sum()
        look: dict[str, Any] = {"facecolor": "white" if few else color, "edgecolor": color, "linewidth": 0.8}
        ax.scatter(part["confidence"], part["accuracy"], area, marker=marker, zorder=3, **look)


def _counts(below: Axes, method: str, bins: pd.DataFrame, place: int, of: int) -> None:
    _, color, _, _, hatch = method_styles()[method]
    width = (bins["upper"] - bins["lower"]) * 0.84 / of
    middle = (bins["lower"] + bins["upper"]) / 2 + (place - (of - 1) / 2) * width
    below.bar(middle, bins["count"], width, color=color, hatch=hatch, edgecolor="black", linewidth=0.4)


@in_paper_style
def reliability_panels(diagrams: Mapping[str, pd.DataFrame], title: str = "") -> Canvas:
    """Draw a panel per method of an estimator other than an answer's (P(True), say), the raw score first.

    `diagrams` is from `reliability_by_method`. Without any, empty axes have a note.
    """
    shown = [method for method in method_styles() if method in diagrams]
    across = max(1, len(shown))
    canvas, axes = make_panels(across, 2.3, WIDTH * max(1, len(shown) / 3), title, rows=2, height_ratios=[1.5, 0.5])
    if not shown:
        axes[0].set_title("nothing was measured")
    for place, method in enumerate(shown):
        draw_reliability(axes[place], axes[across + place], {method: diagrams[method]})
        axes[place].set_title(METHODS[method].label if method else "Raw")
        if place:
            axes[place].set_yticklabels([])
    axes[0].set_ylabel("accuracy")
    axes[across].set_ylabel("rows")
    return canvas
