"""Draw `fig:calibration_analysis` and learning curves. Formatting only."""

import string
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import STYLES, WIDTH, Canvas, draw_band, in_paper_style, make_panels, method_styles
from lib.paper.reliability import draw_reliability

DATASETS_PER_ROW = 3  # datasets side by side
LEARNING: dict[str, Any] = {"markersize": 3, "linewidth": 1}  # curves by the number of calibration rows


def _log_axis(ax: Axes, sizes: pd.Series, few: bool = False) -> None:
    """Label the number of calibration rows on a log axis; the last tick is all rows. `few`: at most three ticks."""
    least, most = float(sizes.min()), float(sizes.max())
    ticks = [n for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if 1.35 * n <= most] + [int(most)]
    if few:
        inner = [n for n in ticks if 3 * least <= n <= most / 3]
        ticks = sorted({int(least), *inner[len(inner) // 2 :][:1], int(most)})
    ax.set_xscale("log")
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.minorticks_off()


def _sizes(canvas: Canvas, place: Any, bands: pd.DataFrame, datasets: Mapping[str, str], letter: str = "c") -> None:
    """Draw ECE against the number of calibration rows, a panel per dataset; the dotted line is the raw score."""
    shown = bands[bands["dataset"].isin(list(datasets))]
    across = min(len(datasets), DATASETS_PER_ROW)
    grid = place.subgridspec(-(-len(datasets) // across), across)
    for at, (name, label) in enumerate(datasets.items()):
        ax, of_dataset = canvas.add_subplot(grid[divmod(at, across)]), shown[shown["dataset"] == name]
        for method, part in of_dataset.groupby("method", sort=False):
            _, color, line, marker, _ = method_styles()[method]
            if not method:
                ax.axhline(part["mean"].iloc[0], color=color, linestyle=line, linewidth=1)
            else:
                draw_band(ax, part.sort_values("n"), "n", color, line, 0.2, marker=marker, **LEARNING)
        of_first = of_dataset[of_dataset["method"] == next(iter(METHODS))]
        _log_axis(ax, of_first["n"], few=len(datasets) > 1)
        one_class = int(of_first["one_class"].sum())
        ax.set(ylim=(0, 1.05 * shown[["high", "mean"]].to_numpy().max()), title=label if at else f"({letter}) {label}")
        ax.set_xlabel("calibration rows" + (f"\n({one_class} one-class)" if one_class else ""))
        if at % DATASETS_PER_ROW:
            ax.set_yticklabels([])
        else:
            ax.set_ylabel("ECE")


def _legend(canvas: Canvas, title: str, shown: Collection[str]) -> None:
    """Add the title, and one legend of colors and lines for all panels that show these methods."""
    methods = [
        Line2D([], [], color=color, linestyle=line, marker=marker, markersize=3.5, linewidth=1, label=name)
        for method, (name, color, line, marker, _) in method_styles().items()
        if method in shown
    ]
    canvas.legend(handles=methods, loc="outside lower center", ncols=1 + len(METHODS), handlelength=2.4)
    canvas.suptitle(title, x=0.02, ha="left", size=7.5)


@in_paper_style
def calibration_analysis(
    bins: Mapping[str, pd.DataFrame],
    bands: pd.DataFrame | None = None,
    datasets: Mapping[str, str] | None = None,
    title: str = "",
    where: str = "",
) -> Canvas:
    """Draw `fig:calibration_analysis`.

    (a, b) Reliability of raw ("") and calibrated scores, a panel per method, from `bins` by method
    (`reliability_by_method`). (c), if given, `bands` of the ECE against the number of calibration rows
    (`summarize_curves`), a panel for each of `datasets` {name: label} in them. `where`: the dataset of (a) and (b).
    """
    methods = [method for method in METHODS if method in bins]
    letters, last = string.ascii_lowercase[: len(methods)], string.ascii_lowercase[len(methods)]
    there = () if bands is None else set(bands["dataset"])
    datasets = {name: label for name, label in (datasets or {}).items() if name in there}
    below = [0.4 + 1.3 * -(-len(datasets) // DATASETS_PER_ROW)] if datasets else []
    canvas = Canvas(figsize=(WIDTH * max(1, len(methods) / 2), 2.9 + sum(below)), layout="constrained")
    grid = canvas.add_gridspec(1 + len(below), 1, height_ratios=[2.4, *below])
    diagrams = grid[0].subgridspec(2, max(1, len(methods)), height_ratios=[1.5, 0.5])
    for place, (method, letter) in enumerate(zip(methods, letters, strict=True)):
        upper, counts = (canvas.add_subplot(diagrams[row, place]) for row in range(2))
        draw_reliability(upper, counts, {"": bins[""], method: bins[method]})
        upper.set_title(f"({letter}) {method_styles()[method][0]}")
        if place == 0:
            upper.set_ylabel("accuracy")
            counts.set_ylabel("rows")
    if bands is not None and datasets:
        _sizes(canvas, grid[1], bands, datasets, last)
    _legend(canvas, f"{title}; ({', '.join(letters)}) {where}" if where else title, bins.keys())
    return canvas


@in_paper_style
def draw_learning_curves(bands: pd.DataFrame, datasets: Mapping[str, str], title: str = "") -> Canvas:
    """Draw only (c) of `calibration_analysis`."""
    datasets = {name: label for name, label in datasets.items() if (bands["dataset"] == name).any()}
    if not datasets:
        return Canvas(figsize=(WIDTH, 0.3))
    canvas = Canvas(figsize=(WIDTH, 0.9 + 1.3 * -(-len(datasets) // DATASETS_PER_ROW)), layout="constrained")
    _sizes(canvas, canvas.add_gridspec(1, 1)[0], bands, datasets)
    _legend(canvas, title, bands["method"].unique())
    return canvas


@in_paper_style
def sampling_curves(bands: pd.DataFrame, method: str, title: str = "") -> Canvas:
    """Draw the mean ECE of one method on one dataset against the number of calibration rows, by sampling scheme.

    Bands are the middle 80% of the draws.
    """
    canvas, (ax,) = make_panels(1, 2.5)
    ways = bands[bands["method"] == method].groupby("sampling", sort=False)
    for (way, part), (color, line, marker, _) in zip(ways, STYLES, strict=False):
        label = way.replace("wrong", "incorrect")
        draw_band(ax, part.sort_values("n"), "n", color, line, 0.15, marker=marker, label=label, **LEARNING)
    _log_axis(ax, bands["n"])
    ax.set(xlabel="calibration rows", ylabel="ECE", ylim=(0, None), title=title)
    canvas.legend(loc="outside lower center", ncols=2, handlelength=2.4, columnspacing=1)
    return canvas
