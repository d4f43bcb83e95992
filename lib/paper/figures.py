"""Draw the paper's figures, `fig:main_analysis` and `fig:calibration_analysis`, from frames.
Formatting only.

Reliability diagrams are after `guo2017calibration`: accuracy against mean confidence by bin. A
point is a bin: its area grows with its number of rows. A thin line is its binomial interval, and a
wide one the gap to the diagonal; the ECE is the mean gap over rows. Bins of fewer than
MIN_BIN_COUNT rows are only counted.
"""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from pandas import DataFrame as Frame
from scipy.stats import binomtest

from lib.analysis.token_statistics import right_minus_wrong
from lib.calibrate.calibrators import METHODS
from lib.paper import figure_style as style
from lib.paper.cells import format_3dp, label_method
from lib.paper.figure_style import Canvas, Look, in_paper_style

ZOOM_START = 0.2  # the limits of the axis come from the curves after this position
STABLE_PASSES = 5  # number of passes after which the paper finds the predictive entropy stable
MIN_BIN_COUNT = 5  # bins with fewer rows are not drawn
POSITION = "normalized token position"

# ---- fig:main_analysis


def draw_running_means(ax: Axes, curves: Frame) -> None:
    """Draw running means, zoomed to their range after the first tokens, which vary most."""
    for correct, (label, look) in style.RESPONSE_LOOKS.items():
        part = curves[curves["correct"] == correct]
        if len(part):
            label = f"{label} (n = {part['n'].iloc[0]})"
            style.draw_band(ax, part, "position", look, alpha=0.25, label=label)
    settled = curves[curves["position"] >= ZOOM_START]
    least = settled["low"].min()
    most = settled["high"].max()
    room = 0.08 * max(most - least, 1e-3)
    ax.set(xlim=(0, 1), ylim=(least - 3 * room, most + room))
    ax.set(xlabel=POSITION, ylabel="mean probability so far")
    ax.legend(loc="lower right")


def draw_difference(ax: Axes, curves: Frame) -> None:
    """Draw correct minus incorrect with its interval: the position discriminates if the band
    excludes 0."""
    differences = right_minus_wrong(curves)
    ax.axhline(0, color="0.5", linewidth=0.8)
    style.draw_band(ax, differences, "position", Look("black", "-"), linewidth=1.2)
    ax.set(ylabel="correct \N{MINUS SIGN}\nincorrect", xlabel=POSITION, xlim=(0, 1))


def draw_entropies(ax: Axes, frame: Frame) -> None:
    """Draw both entropies by passes; BALD is the gap between them."""
    for term, look in zip(("predictive", "conditional"), style.LOOKS, strict=False):
        part = frame[frame["term"] == term].sort_values("passes")
        style.draw_band(
            ax, part, "passes", look, alpha=0.25, marker=look.marker, markersize=3, label=term
        )
    passes = int(frame["passes"].max())
    ends = frame.loc[frame["passes"] == passes, "mean"]
    if passes > 1:
        ax.plot([1.07 * passes] * 2, ends, marker="_", markersize=3.5, color="black", linewidth=0.7)
        ax.text(1.03 * passes, ends.mean(), "BALD", ha="right", va="center", size=7)
    if passes > STABLE_PASSES:
        ax.axvline(STABLE_PASSES, ymax=0.7, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    ticks = {1, STABLE_PASSES, passes}
    ax.set_xticks(sorted(ticks & set(frame["passes"])))
    ax.set(xlabel="passes T", ylabel="entropy (nats)", ylim=room_for_legend(frame["high"].max()))
    ax.legend(loc="upper left")


def room_for_legend(highest: float) -> tuple[float, float | None]:
    """Return limits of a vertical axis with room for a legend above the highest value."""
    return 0, 1.4 * highest or None


def draw_in_situ(ax: Axes, frame: Frame) -> None:
    """Draw the ECE of both forms of P(True) by dataset, with intervals if there are any."""
    places = np.arange(len(frame))
    bars = (-0.2, "standard", "p_true", ""), (0.2, "in situ", "p_true_insitu", "////")
    for shift, column, name, hatch in bars:
        color = style.ESTIMATOR_LOOKS[name].color
        ax.bar(
            places + shift,
            frame[column],
            0.38,
            color=color,
            hatch=hatch,
            label=column,
            lw=0.5,
            edgecolor="black",
        )
        low = frame.get(f"{column} low", np.nan)
        high = frame.get(f"{column} high", np.nan)
        ax.vlines(places + shift, low, high, color="black", linewidth=0.9)
    ax.set_xticks(places, frame["dataset"], rotation=20, ha="right", rotation_mode="anchor")
    highest = frame.max(numeric_only=True).max()
    ax.set(ylabel=style.LOWER_IS_BETTER, ylim=room_for_legend(highest))
    ax.legend(loc="upper left", handlelength=1.6)


PANELS = {  # of fig:main_analysis
    "a": (draw_running_means, "token probability"),
    "b": (draw_entropies, "dropout passes"),
    "c": (draw_in_situ, "P(True), raw"),
}


@in_paper_style
def main_analysis(
    curves: Frame | None = None,
    entropies: Frame | None = None,
    in_situ: Frame | None = None,
    title: str = "",
) -> Canvas:
    """Draw `fig:main_analysis`, with the panels whose data is given and not empty.

    (a) `curves` from `running_mean_curves`, and their difference below if both classes exist; (b)
    `entropies` from `entropy_curves`; (c) `in_situ` from `ece_by_prompt`.
    """
    data = {"a": curves, "b": entropies, "c": in_situ}
    given = {}
    for letter, frame in data.items():
        if frame is not None and len(frame):
            given[letter] = frame
    rows, heights = arrange_panels(given)
    canvas = style.new_canvas(0.3 + 1.95 * sum(heights), title=title)
    axes = {}
    if rows:
        axes = canvas.subplot_mosaic(";".join(rows), height_ratios=heights)
    for letter, frame in given.items():
        draw, heading = PANELS[letter]
        if len(given) > 1:
            heading = f"({letter}) {heading}"
        draw(axes[letter], frame)
        axes[letter].set_title(heading)
    if "d" in axes:
        draw_difference(axes["d"], given["a"])
        axes["a"].set(xlabel="", xticklabels=[])
    return canvas


def arrange_panels(given: Mapping[str, Frame]) -> tuple[list[str], list[float]]:
    """Return the rows of `fig:main_analysis`, two letters each, and their heights.

    (a) has a row of its own; where both classes exist, (d) below it is their difference.
    """
    rows = []
    heights = []
    if "a" in given:
        rows.append("aa")
        heights.append(1.0)
        if given["a"]["correct"].nunique() == 2:
            rows.append("dd")
            heights.append(0.55)
    beside = "".join(letter for letter in "bc" if letter in given)
    if len(beside) == 1:
        beside = 2 * beside
    if beside:
        rows.append(beside)
        heights.append(1.0)
    return rows, heights


# ---- reliability diagrams


def wilson_intervals(bins: Frame) -> Frame:
    """Return the 95% Wilson interval of the accuracy of bins (count, accuracy): low, high."""
    right = (bins["count"] * bins["accuracy"]).round().astype(int)
    intervals = []
    for k, n in zip(right, bins["count"], strict=True):
        intervals.append(binomtest(k, int(n)).proportion_ci(method="wilson"))
    return Frame(intervals, columns=["low", "high"], index=bins.index)


def draw_reliability(part: FigureBase, panels: Mapping[str, Frame], look: Look) -> None:
    """Draw a diagram per panel {title: bins of `reliability_diagram`}, and below it the number of
    rows in each bin.

    Without panels, empty axes have a note.
    """
    columns = max(1, len(panels))
    axes = part.subplots(
        2, columns, squeeze=False, sharex=True, sharey="row", height_ratios=[1.5, 0.5]
    )
    axes[0, 0].set(ylabel="accuracy", title="nothing was measured")
    axes[1, 0].set(ylabel="rows")
    for (ax, below), (title, bins) in zip(axes.T, panels.items(), strict=False):
        draw_bins(ax, bins, look)
        error = bins["product"].sum()
        ax.set_title(f"{title}\nECE {format_3dp(error)}")
        middle = (bins["lower"] + bins["upper"]) / 2
        width = 0.84 * (bins["upper"] - bins["lower"])
        below.bar(middle, bins["count"], width, color=look.color)
        below.set(xlabel="confidence")


def draw_bins(ax: Axes, bins: Frame, look: Look) -> None:
    """Draw the accuracy of bins against their mean confidence, with intervals and gaps."""
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0, label="calibrated")
    large = bins[bins["count"] >= MIN_BIN_COUNT]
    x = large["confidence"]
    y = large["accuracy"]
    ax.vlines(x, y, x, color=look.color, alpha=0.3, linewidth=4, label="gap")
    ends = wilson_intervals(large)
    ax.vlines(x, ends["low"], ends["high"], color=look.color, linewidth=0.8, label="95% interval")
    area = 8 + 50 * large["count"] / bins["count"].sum()
    label = f"bin of {MIN_BIN_COUNT} rows or more"
    ax.scatter(x, y, area, color=look.color, marker=look.marker, zorder=3, label=label)
    ticks = [0, 0.5, 1]
    ax.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=ticks, yticks=ticks)


# ---- learning curves


def draw_learning(
    part: FigureBase,
    bands: Frame,
    panels: Mapping[str, str],
    column: str = "dataset",
    by: str = "method",
) -> None:
    """Draw ECE against the number of calibration rows: a panel {value: title} of a column, if it
    has rows, and a curve of each value of the column `by`. The dotted line is the raw score."""
    bands = bands[bands[column].isin(list(panels))].sort_values("n")
    ways = METHODS if by == "method" else bands[by].unique()
    looks = dict(zip(ways, [*style.LOOKS, *style.LOOKS], strict=False))
    with_rows = [value for value in panels if (bands[column] == value).any()]
    highest = bands[["high", "mean"]].max(axis=None)
    axes = style.add_panels(part, len(with_rows), sharey=True)
    for ax, value in zip(axes, with_rows, strict=True):
        draw_curves(ax, bands[bands[column] == value], by, looks)
        ax.set(title=panels[value], xlabel="calibration rows", ylim=(0, 1.05 * highest))
        ax.set_ylabel(style.LOWER_IS_BETTER)
        ax.yaxis.label.set_visible(ax.get_subplotspec().is_first_col())


def draw_curves(ax: Axes, bands: Frame, by: str, looks: Mapping[str, Look]) -> None:
    """Draw a curve of each value of the column `by`, and a dotted line at the raw score."""
    curves = bands[bands["method"] != ""]
    for name, rows in curves.groupby(by, sort=False):
        label = name.replace("wrong", "incorrect")
        if by == "method":
            label = label_method(name)
        look = looks[name]
        style.draw_band(
            ax, rows, "n", look, marker=look.marker, markersize=3, linewidth=1, label=label
        )
    raw = bands.loc[bands["method"] == "", "mean"]
    if len(raw):
        ax.axhline(raw.iloc[0], color="black", linestyle=":", linewidth=1, label="raw")
    sizes = curves["n"].unique().astype(int)
    ticks = sizes[:: -max(1, len(sizes) // 2)]  # the last one is all rows
    ax.set_xscale("log")
    ax.set_xticks(ticks, ticks)
    ax.minorticks_off()


def height_of_panels(count: int) -> float:
    """Return the height of so many panels of learning curves, in inches."""
    return 1.3 * math.ceil(count / style.PANELS_PER_ROW)


@in_paper_style
def draw_learning_curves(bands: Frame, datasets: Mapping[str, str], title: str = "") -> Canvas:
    """Draw the ECE by method, a panel for each of `datasets` {name: label}; `bands` are from
    `summarize_curves`."""
    canvas = style.new_canvas(0.9 + height_of_panels(len(datasets)), title=title)
    draw_learning(canvas, bands, datasets)
    return canvas


@in_paper_style
def sampling_curves(bands: Frame, title: str = "") -> Canvas:
    """Draw the ECE on one dataset by sampling scheme, a panel for each method."""
    canvas = style.new_canvas(2.4, 2 * style.WIDTH, title)
    methods = {name: label_method(name) for name in METHODS}
    draw_learning(canvas, bands, methods, "method", "sampling")
    return canvas


# ---- fig:calibration_analysis


@in_paper_style
def calibration_analysis(
    bins: Mapping[str, Frame],
    bands: Frame | None = None,
    datasets: Mapping[str, str] | None = None,
    title: str = "",
    estimator: str = "ans_avg",
) -> Canvas:
    """Draw `fig:calibration_analysis`, as far as there is data.

    Reliability of the raw score of an estimator, and (a, b) after each method, a panel each, from
    `bins` by method (`reliability_by_method`). (c), if given, `bands` of the ECE against the number
    of calibration rows (`summarize_curves`), a panel for each of `datasets` {name: label} in them.
    """
    panels = {}
    if "" in bins:
        panels["raw"] = bins[""]
    methods = [name for name in METHODS if name in bins]
    letters = iter("abcdefgh")
    for method in methods:
        panels[f"({next(letters)}) {label_method(method, estimator)}"] = bins[method]
    datasets = datasets if datasets is not None else {}
    heights = [2.5]
    if bands is not None:
        heights.append(0.4 + height_of_panels(len(datasets)))
    width = style.WIDTH * max(1, len(panels) / 3)
    canvas = style.new_canvas(sum(heights), width, title)
    # Frames are not drawn: their positions vary in the last digit, and so would the PDF
    rows = len(heights)
    parts = canvas.subfigures(rows, 1, height_ratios=heights, squeeze=False, frameon=False).ravel()
    draw_reliability(parts[0], panels, style.ESTIMATOR_LOOKS[estimator])
    if bands is not None:
        draw_learning(parts[1], bands, datasets)
        for ax in parts[1].axes[:1]:
            ax.set_title(f"({next(letters)}) {ax.get_title('left')}")
    return canvas
