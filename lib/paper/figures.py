"""Draw the paper's figures, `fig:main_analysis` and `fig:calibration_analysis`, from frames.
Formatting only.

Reliability diagrams are after `guo2017calibration`: accuracy against mean confidence by bin. A
point is a bin: its area grows with its number of rows. A thin line is its binomial interval, and a
wide one the gap to the diagonal; the ECE is the mean gap over rows. Bins of fewer than
MIN_BIN_COUNT rows are only counted.
"""

from collections.abc import Mapping
from typing import Any

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
CURVE: dict[str, Any] = {"markersize": 3, "linewidth": 1}

# ---- fig:main_analysis


def draw_running_means(ax: Axes, curves: Frame) -> None:
    """Draw running means, zoomed to their range after the first tokens, which vary most."""
    for correct, (label, look) in style.RESPONSE_LOOKS.items():
        part = curves[curves["correct"] == correct]
        if len(part):
            style.draw_band(
                ax, part, "position", look, alpha=0.25, label=f"{label} (n = {part['n'].iloc[0]})"
            )
    settled = curves[curves["position"] >= ZOOM_START]
    least, most = settled["low"].min(), settled["high"].max()
    room = 0.08 * max(most - least, 1e-3)
    ax.set(
        ylabel="mean probability so far",
        xlabel=POSITION,
        xlim=(0, 1),
        ylim=(least - 3 * room, most + room),
    )
    ax.legend(loc="lower right")


def draw_difference(ax: Axes, curves: Frame) -> None:
    """Draw correct minus incorrect with its interval: the position discriminates if the band
    excludes 0."""
    ax.axhline(0, color="0.5", linewidth=0.8)
    style.draw_band(ax, right_minus_wrong(curves), "position", Look("black", "-"), linewidth=1.2)
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
    ax.set_xticks(sorted({1, STABLE_PASSES, passes} & set(frame["passes"])))
    ax.set(xlabel="passes T", ylabel="entropy (nats)", ylim=(0, 1.4 * frame["high"].max() or None))
    ax.legend(loc="upper left")


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
            edgecolor="black",
            lw=0.5,
            label=column,
        )
        low, high = (frame.get(f"{column} {end}", np.nan) for end in ("low", "high"))
        ax.vlines(places + shift, low, high, color="black", linewidth=0.9)
    ax.set_xticks(places, frame["dataset"], rotation=20, ha="right", rotation_mode="anchor")
    ax.set(ylabel=style.LOWER_IS_BETTER, ylim=(0, 1.4 * frame.max(numeric_only=True).max() or None))
    ax.legend(loc="upper left", handlelength=1.6)


PANELS = {  # of fig:main_analysis; the difference is below (a)
    "a": (draw_running_means, "token probability"),
    "d": (draw_difference, ""),
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
    given = {letter: frame for letter, frame in data.items() if frame is not None and len(frame)}
    titles = {letter: f"({letter}) " * (len(given) > 1) + PANELS[letter][1] for letter in given}
    if curves is not None and curves["correct"].nunique() == 2:
        given["d"] = curves
    rows = ["".join(letter for letter in row if letter in given) for row in ("a", "d", "bc")]
    rows = [row.ljust(2, row[0]) for row in rows if row]
    heights = [0.55 if row == "dd" else 1.0 for row in rows]
    canvas = style.new_canvas(0.3 + 1.95 * sum(heights), title=title)
    axes = canvas.subplot_mosaic(";".join(rows), height_ratios=heights) if rows else {}
    for letter, frame in given.items():
        PANELS[letter][0](axes[letter], frame)
        axes[letter].set_title(titles.get(letter, ""))
    if "d" in axes:
        axes["a"].set(xlabel="", xticklabels=[])
    return canvas


# ---- reliability diagrams


def wilson_intervals(bins: Frame) -> Frame:
    """Return the 95% Wilson interval of the accuracy of bins (count, accuracy): low, high."""
    right = (bins["count"] * bins["accuracy"]).round().astype(int)
    found = [
        binomtest(k, int(n)).proportion_ci(method="wilson")
        for k, n in zip(right, bins["count"], strict=True)
    ]
    return Frame(found, columns=["low", "high"], index=bins.index)


def draw_reliability(part: FigureBase, panels: Mapping[str, Frame], look: Look) -> None:
    """Draw a diagram per panel {title: bins of `reliability_diagram`}, and below it the number of
    rows in each bin.

    Without panels, empty axes have a note.
    """
    axes = part.subplots(
        2, max(1, len(panels)), squeeze=False, sharex=True, sharey="row", height_ratios=[1.5, 0.5]
    )
    axes[0, 0].set(ylabel="accuracy", title="nothing was measured")
    axes[1, 0].set(ylabel="rows")
    for (ax, below), (title, bins) in zip(axes.T, panels.items(), strict=False):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0, label="calibrated")
        drawn = bins[bins["count"] >= MIN_BIN_COUNT]
        ends, x, y = wilson_intervals(drawn), drawn["confidence"], drawn["accuracy"]
        ax.vlines(x, y, x, color=look.color, alpha=0.3, linewidth=4, label="gap")
        ax.vlines(
            x, ends["low"], ends["high"], color=look.color, linewidth=0.8, label="95% interval"
        )
        area, label = (
            8 + 50 * drawn["count"] / bins["count"].sum(),
            f"bin of {MIN_BIN_COUNT} rows or more",
        )
        ax.scatter(x, y, area, color=look.color, marker=look.marker, zorder=3, label=label)
        ax.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        ax.set_title(f"{title}\nECE {format_3dp(bins['product'].sum())}")
        middle, width = (bins["lower"] + bins["upper"]) / 2, 0.84 * (bins["upper"] - bins["lower"])
        below.bar(middle, bins["count"], width, color=look.color)
        below.set(xlabel="confidence")


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
    shown = [value for value in panels if (bands[column] == value).any()]
    for ax, value in zip(style.add_panels(part, len(shown), sharey=True), shown, strict=True):
        of_panel = bands[bands[column] == value]
        raw = of_panel.loc[of_panel["method"] == "", "mean"]
        curves = of_panel[of_panel["method"] != ""]
        for name, rows in curves.groupby(by, sort=False):
            label = label_method(name) if by == "method" else name.replace("wrong", "incorrect")
            style.draw_band(
                ax, rows, "n", looks[name], marker=looks[name].marker, label=label, **CURVE
            )
        for mean in raw[:1]:
            ax.axhline(mean, color="black", linestyle=":", linewidth=1, label="raw")
        sizes = curves["n"].unique().astype(int)
        ticks = sizes[:: -max(1, len(sizes) // 2)]  # the last one is all rows
        most = 1.05 * bands[["high", "mean"]].max(axis=None)
        ax.set(title=panels[value], xlabel="calibration rows", xscale="log", ylim=(0, most))
        ax.set_ylabel(style.LOWER_IS_BETTER)
        ax.set_xticks(ticks, ticks)
        ax.minorticks_off()
        ax.yaxis.label.set_visible(ax.get_subplotspec().is_first_col())


@in_paper_style
def draw_learning_curves(bands: Frame, datasets: Mapping[str, str], title: str = "") -> Canvas:
    """Draw the ECE by method, a panel for each of `datasets` {name: label}; `bands` are from
    `summarize_curves`."""
    canvas = style.new_canvas(0.9 + 1.3 * -(-len(datasets) // style.PANELS_PER_ROW), title=title)
    draw_learning(canvas, bands, datasets)
    return canvas


@in_paper_style
def sampling_curves(bands: Frame, title: str = "") -> Canvas:
    """Draw the ECE on one dataset by sampling scheme, a panel for each method."""
    canvas = style.new_canvas(2.4, 2 * style.WIDTH, title)
    draw_learning(
        canvas, bands, {name: label_method(name) for name in METHODS}, "method", "sampling"
    )
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
    letters, panels = iter("abcdefgh"), {"raw": bins[""]} if "" in bins else {}
    for method in (name for name in METHODS if name in bins):
        panels[f"({next(letters)}) {label_method(method, estimator)}"] = bins[method]
    heights = (
        [2.5]
        if bands is None
        else [2.5, 0.4 + 1.3 * -(-len(datasets or {}) // style.PANELS_PER_ROW)]
    )
    canvas = style.new_canvas(sum(heights), style.WIDTH * max(1, len(panels) / 3), title)
    # Frames are not drawn: their positions vary in the last digit, and so would the PDF
    parts = canvas.subfigures(
        len(heights), 1, height_ratios=heights, squeeze=False, frameon=False
    ).ravel()
    draw_reliability(parts[0], panels, style.ESTIMATOR_LOOKS[estimator])
    if bands is not None:
        draw_learning(parts[1], bands, datasets or {})
        for ax in parts[1].axes[:1]:
            ax.set_title(f"({next(letters)}) {ax.get_title('left')}")
    return canvas
