"""`fig:calibration_analysis`, and what calibrators learned, drawn. Formatting only."""

import string
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import BLUE, ORANGE, STYLES, WIDTH, Canvas, Figure, looks, style
from lib.paper.reliability import panel

PANELS = string.ascii_lowercase[: len(METHODS) + 1]  # reliability by method, then the sizes
DATASETS_PER_ROW = 3  # datasets side by side


def _log_axis(ax: Axes, sizes: pd.Series, few: bool = False) -> None:
    """The number of calibration rows, in powers; the last tick is all of them. `few`: room for three ticks only."""
    least, most = float(sizes.min()), float(sizes.max())
    ticks = [n for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if 1.35 * n <= most] + [int(most)]
    if few:
        inner = [n for n in ticks if 3 * least <= n <= most / 3]
        ticks = sorted({int(least), *inner[len(inner) // 2 :][:1], int(most)})
    ax.set_xscale("log")
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.minorticks_off()


def _sizes(axes: Mapping[str, Axes], bands: pd.DataFrame, datasets: Mapping[str, str], letter: str = "c") -> None:
    """ECE against the number of calibration rows, a panel for each dataset; dotted the raw score's."""
    shown = bands[bands["dataset"].isin(list(datasets))]
    for place, (name, ax) in enumerate(axes.items()):
        for method, part in shown[shown["dataset"] == name].groupby("method", sort=False):
            _, colour, line, marker, _ = looks()[method]
            if not method:
                ax.axhline(part["mean"].iloc[0], color=colour, linestyle=line, linewidth=1)
                continue
            part = part.sort_values("n")
            ax.plot(part["n"], part["mean"], line, marker=marker, color=colour, markersize=3, linewidth=1)
            ax.fill_between(part["n"], part["low"], part["high"], color=colour, alpha=0.2, linewidth=0)
        part_of_first = shown[(shown["method"] == next(iter(METHODS))) & (shown["dataset"] == name)]
        _log_axis(ax, part_of_first["n"], few=len(axes) > 1)
        ax.set(ylim=(0, 1.05 * shown[["high", "mean"]].to_numpy().max()))
        label = f"({letter}) {datasets[name]}" if place == 0 else datasets[name]
        ax.set_title(label, parse_math=False)
        one_class = int(part_of_first["one_class"].sum())
        ax.set_xlabel("calibration rows" + (f"\n{one_class} of one class" if one_class else ""))
        if place % DATASETS_PER_ROW:
            ax.set_yticklabels([])
        else:
            ax.set_ylabel("ECE")


def _panels(canvas: Canvas, place: Any, datasets: Mapping[str, str]) -> dict[str, Axes]:
    """Axes by dataset in a part of a grid, ABREAST in a row."""
    across = min(len(datasets), DATASETS_PER_ROW)
    grid = place.subgridspec(-(-len(datasets) // across), across)
    return {name: canvas.add_subplot(grid[divmod(i, across)]) for i, name in enumerate(datasets)}


def _legend(canvas: Canvas, title: str, shown: Collection[str], points: bool = True) -> None:
    """What colours and lines mean, once for all panels that show these methods, and the title over them."""
    methods = [Line2D([], [], color=colour, linestyle=line, marker=marker if name != "raw" or points else "",
                      markersize=3.5, linewidth=1, label=name)
               for method, (name, colour, line, marker, _) in looks().items() if method in shown]  # fmt: skip
    canvas.legend(handles=methods, loc="outside lower center", ncols=1 + len(METHODS), handlelength=2.4)
    canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)


def calibration_analysis(
    bins: Mapping[str, pd.DataFrame],
    bands: pd.DataFrame | None = None,
    datasets: Mapping[str, str] | None = None,
    title: str = "",
    where: str = "",
) -> Figure:
    """`fig:calibration_analysis`: (a, b) reliability of raw ("") and calibrated scores, a panel for each method, `bins`
    by method as `reliability_by_method` returns them; (c) if given, `bands` of the ECE against the number of
    calibration rows, as `curve_bands` returns them, of `datasets` {name: label}, a panel for each
    that they hold. `where` names the dataset of (a) and (b)."""
    methods = [method for method in METHODS if method in bins]
    letters, last = string.ascii_lowercase[: len(methods)], string.ascii_lowercase[len(methods)]
    there = [] if bands is None else list(bands["dataset"].unique())
    datasets = {name: label for name, label in (datasets or {n: n for n in there}).items() if name in there}
    below = [0.4 + 1.3 * -(-len(datasets) // DATASETS_PER_ROW)] if datasets else []
    with style():
        canvas = Canvas(figsize=(WIDTH * max(1, len(methods) / 2), 2.9 + sum(below)), layout="constrained")
        grid = canvas.add_gridspec(1 + len(below), 1, height_ratios=[2.4, *below])
        diagrams = grid[0].subgridspec(2, max(1, len(methods)), height_ratios=[1.5, 0.5])
        for place, (method, letter) in enumerate(zip(methods, letters, strict=True)):
            upper, counts = (canvas.add_subplot(diagrams[row, place]) for row in range(2))
            panel(upper, counts, {"": bins[""], method: bins[method]})
            upper.set_title(f"({letter}) {looks()[method][0]}", parse_math=False)
            if place == 0:
                upper.set_ylabel("accuracy")
                counts.set_ylabel("rows")
        if bands is not None and datasets:
            _sizes(_panels(canvas, grid[1], datasets), bands, datasets, last)
        _legend(canvas, f"{title}; ({', '.join(letters)}) {where}" if where else title, bins.keys())
    return Figure(canvas)


def calibrators(maps: pd.DataFrame, title: str = "") -> Figure:
    """What the calibrators of one pair learned, `maps` as `calibration_maps` returns them, a panel for each estimator:
    isotonic regression a staircase, Platt scaling a sigmoid, temperature a cloud (two answers of one confidence may end
    apart; none where no logits were kept), the accuracy of the calibration rows a grey line, and these rows as ticks,
    right above, wrong below."""
    panels = {"ans_avg": ("Ans Avg", "temperature"), "p_true": ("P(True)", "Platt")}
    here = [name for name in panels if (maps["estimator"] == name).any()]
    legend: dict[str, dict[str, Any]] = {"isotonic": {"color": BLUE}}  # in the legend
    dashed = {"linestyle": "--"}
    if not here:
        return Figure(Canvas(figsize=(WIDTH, 0.3)))
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.4), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(1, len(here), sharey=True))
        for ax, name in zip(axes, here, strict=True):
            part = {method: rows for method, rows in maps[maps["estimator"] == name].groupby("method")}
            rows, isotonic, other = part[""], part["isotonic"], part.get("platt")
            saturated = rows["score"].median() > 0.99  # nearly all close to 1: the distance from 1, in powers of ten
            ax.axhline(rows["correct"].astype(float).mean(), color="0.6", linewidth=0.8, zorder=0)
            for correct, height in ((True, 1.05), (False, -0.05)):
                x = _sureness(rows.loc[rows["correct"] == correct, "score"], saturated)
                ax.plot(x, np.full(len(x), height), "|", color="0.3", markersize=5, markeredgewidth=0.5)
            ax.plot(_sureness(isotonic["score"], saturated), isotonic["calibrated"], drawstyle="steps-mid", color=BLUE,
                    zorder=3)  # fmt: skip
            if other is not None:
                cloud = other["correct"].notna().any()
                ax.plot(_sureness(other["score"], saturated), other["calibrated"], "." if cloud else "--", color=ORANGE,
                        markersize=2.5)  # fmt: skip
                legend[panels[name][1]] = {"color": ORANGE, **({"linestyle": "", "marker": "."} if cloud else dashed)}
            ax.set(ylim=(-0.1, 1.1), yticks=[0, 0.5, 1])
            ax.set_title(panels[name][0])
            ax.set_xlabel("nines of the raw score" if saturated else "raw score")  # 3: 1 - 1e-3
        axes[0].set_ylabel("calibrated")
        legend["accuracy"] = {"color": "0.6", "linewidth": 0.8}
        handles = [Line2D([], [], label=label, **look) for label, look in legend.items()]
        canvas.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=1.8, columnspacing=1)
        canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)
    return Figure(canvas)


def _sureness(score: pd.Series, saturated: bool) -> np.ndarray:
    """Where scores stand: themselves, or, close to 1, the distance from 1 in negative powers of ten."""
    values = score.to_numpy(dtype=float)
    return -np.log10(np.maximum(1 - values, 10**-7.25)) if saturated else values


def sample_efficiency(bands: pd.DataFrame, datasets: Mapping[str, str], title: str = "") -> Figure:
    """(c) of `calibration_analysis` alone."""
    datasets = {name: label for name, label in datasets.items() if (bands["dataset"] == name).any()}
    if not datasets:
        return Figure(Canvas(figsize=(WIDTH, 0.3)))
    with style():
        canvas = Canvas(figsize=(WIDTH, 0.9 + 1.3 * -(-len(datasets) // DATASETS_PER_ROW)), layout="constrained")
        _sizes(_panels(canvas, canvas.add_gridspec(1, 1)[0], datasets), bands, datasets)
        _legend(canvas, title, bands["method"].unique(), points=False)
    return Figure(canvas)


def sampling_curves(bands: pd.DataFrame, method: str, title: str = "") -> Figure:
    """Mean ECE of one method on one dataset against the number of calibration rows, by way of sampling, with the middle
    80% of the draws."""
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.5), layout="constrained")
        ax = canvas.subplots()
        ways = bands[bands["method"] == method].groupby("sampling", sort=False)
        for (way, part), (colour, line, marker, _) in zip(ways, STYLES, strict=False):
            part = part.sort_values("n")
            ax.plot(part["n"], part["mean"], line, marker=marker, color=colour, markersize=3.5, linewidth=1, label=way)
            ax.fill_between(part["n"], part["low"], part["high"], color=colour, alpha=0.15, linewidth=0)
        _log_axis(ax, bands["n"])
        ax.set(xlabel="calibration rows", ylabel="ECE", ylim=(0, None))
        ax.set_title(title, parse_math=False)
        canvas.legend(loc="outside lower center", ncols=2, handlelength=2.4, columnspacing=1)
    return Figure(canvas)
