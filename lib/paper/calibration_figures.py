"""`fig:calibration_analysis`, and the heat map of transfer. Formatting only."""

import itertools
import string
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import BLUE, GREY, ORANGE, WIDTH, Canvas, Figure, style
from lib.paper.targets import target

# by turns: colour, line, marker, hatching
STYLES = (BLUE, "-", "o", ""), (ORANGE, "--", "s", "////"), ("0.3", "-.", "^", "...."), (GREY, ":", "D", "xxxx")
RAW = "black"
MARKERS = "o^DvPsX*"  # of datasets, by turns
PANELS = string.ascii_lowercase[: len(METHODS) + 1]  # reliability by method, then the sizes


def looks() -> dict[str, tuple[str, Any, Any, str, str]]:
    """Name and look of the raw score ("") and of every method."""
    named = zip(METHODS.values(), itertools.cycle(STYLES))
    return {"": ("raw", RAW, ":", "x", "")} | {method.name: (method.plain, *style) for method, style in named}


def _reliability(ax: Axes, below: Axes, panel: Mapping[str, pd.DataFrame]) -> None:
    """Accuracy against mean confidence of the bins that hold rows, and below how many rows each holds."""
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0)
    for side, (method, bins) in zip((-0.5, 0.5), panel.items(), strict=True):
        _, colour, line, marker, hatch = looks()[method]
        ax.plot(bins["confidence"], bins["accuracy"], line, marker=marker, color=colour, markersize=3.5, linewidth=1)
        width = (bins["upper"] - bins["lower"]) * 0.42
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.4}
        below.bar((bins["lower"] + bins["upper"]) / 2 + side * width, bins["count"], width, **look)
    ax.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=[0, 0.5, 1], xticklabels=[], yticks=[0, 0.5, 1])
    below.set(xlim=(-0.04, 1.04), xticks=[0, 0.5, 1], xlabel="confidence")
    below.set_yticks([0, max(bins["count"].max() for bins in panel.values())])


def _log_axis(ax: Axes, most: float) -> None:
    ticks = [n for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if 1.35 * n <= most] + [int(most)]
    ax.set_xscale("log")
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.minorticks_off()
    ax.set(xlabel="calibration rows", ylabel="ECE", ylim=(0, None))


def _sizes(ax: Axes, bands: pd.DataFrame, datasets: Mapping[str, str], letter: str = "c") -> None:
    """ECE against the number of calibration rows: colour and line tell the method, markers the dataset."""
    markers = {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(datasets)}
    shown = bands[(bands["method"] != "") & bands["dataset"].isin(list(datasets))]
    for (dataset, method), part in shown.groupby(["dataset", "method"], sort=False):
        _, colour, line, _, _ = looks()[method]
        marker, part = markers[dataset], part.sort_values("n")
        ax.plot(part["n"], part["mean"], line, marker=marker, color=colour, markersize=3.5, linewidth=1)
        ax.fill_between(part["n"], part["low"], part["high"], color=colour, alpha=0.1, linewidth=0)
    _log_axis(ax, shown["n"].max())
    one_class = int(shown.loc[shown["method"] == shown["method"].iloc[0], "one_class"].sum())
    if one_class:
        ax.set_xlabel(f"calibration rows ({one_class} draws held one class only)")
    ax.set_title(f"({letter})")
    marks = [Line2D([], [], color="0.2", linestyle="", marker=markers[name], markersize=3.5, label=label)
             for name, label in datasets.items()]  # fmt: skip
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.02, 0.97), "ncols": len(marks)}
    for text in ax.legend(handles=marks, handlelength=1, columnspacing=1, **place).get_texts():
        text.set_parse_math(False)


def _legend(canvas: Canvas, title: str) -> None:
    """What colours and lines mean, once for all panels, and the title over them."""
    methods = [Line2D([], [], color=colour, linestyle=line, marker=marker, markersize=3.5, linewidth=1, label=name)
               for name, colour, line, marker, _ in looks().values()]  # fmt: skip
    canvas.legend(handles=methods, loc="outside lower center", ncols=1 + len(METHODS), handlelength=2.4)
    canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)


@target("fig_calibration_analysis", "Calibration",
        f"({', '.join(PANELS[:-1])}) Reliability before and after, with the number of rows in each bin. ({PANELS[-1]}) "
        "ECE against the number of calibration rows, with the middle 80% of the draws.", place=6)  # fmt: skip
def calibration_analysis(
    bins: Mapping[str, pd.DataFrame],
    bands: pd.DataFrame | None = None,
    datasets: Mapping[str, str] | None = None,
    title: str = "",
    where: str = "",
) -> Figure:
    """`fig:calibration_analysis`: (a, b) reliability of raw ("") and calibrated scores, a panel for each method, `bins`
    by method as `fitting.reliability` returns them, with the number of rows in each bin below: where no bar stands,
    nothing was measured; (c) if given, `bands` of the ECE against the number of calibration rows, as
    `experiments.curve_bands` returns them, of `datasets` {name: label}. `where` names the dataset of (a) and (b)."""
    methods = [method for method in METHODS if method in bins]
    letters, last = string.ascii_lowercase[: len(methods)], string.ascii_lowercase[len(methods)]
    rows, heights, height = [letters, letters.upper()], [1.5, 0.5], 2.9
    if bands is not None:
        rows, heights, height = [*rows, last * len(methods)], [*heights, 1.6], 4.6
    with style():
        canvas = Canvas(figsize=(WIDTH * max(1, len(methods) / 2), height), layout="constrained")
        axes = canvas.subplot_mosaic(";".join(rows), height_ratios=heights)
        for method, letter, below in zip(methods, letters, letters.upper(), strict=True):
            _reliability(axes[letter], axes[below], {"": bins[""], method: bins[method]})
            axes[letter].set_title(f"({letter}) {looks()[method][0]}", parse_math=False)
        axes["a"].set_ylabel("accuracy")
        axes["A"].set_ylabel("rows")
        if bands is not None:
            _sizes(axes[last], bands, datasets or {name: name for name in bands["dataset"].unique()}, last)
        _legend(canvas, f"{title}; ({', '.join(letters)}) {where}" if where else title)
    return Figure(canvas)


def calibrators(maps: pd.DataFrame, title: str = "") -> Figure:
    """What the calibrators of one pair learned, `maps` as `fitting.maps` returns them, a panel for each estimator:
    isotonic regression a staircase, Platt scaling a sigmoid, temperature a cloud (two answers of one confidence may end
    apart), the accuracy of the calibration rows a grey line, and these rows as ticks, right above, wrong below."""
    panels = {"ans_avg": ("Ans Avg", "temperature"), "p_true": ("P(True)", "Platt")}
    here = [name for name in panels if (maps["estimator"] == name).any()]
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.4), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(1, len(here), sharey=True))
        for ax, name in zip(axes, here, strict=True):
            part = {method: rows for method, rows in maps[maps["estimator"] == name].groupby("method")}
            rows, isotonic, other = part[""], part["isotonic"], part["platt"]
            saturated = rows["score"].median() > 0.99  # nearly all close to 1: the distance from 1, in powers of ten
            ax.axhline(rows["correct"].astype(float).mean(), color="0.6", linewidth=0.8, zorder=0)
            for correct, height in ((True, 1.05), (False, -0.05)):
                x = _sureness(rows.loc[rows["correct"] == correct, "score"], saturated)
                ax.plot(x, np.full(len(x), height), "|", color="0.3", markersize=5, markeredgewidth=0.5)
            ax.plot(_sureness(isotonic["score"], saturated), isotonic["calibrated"], drawstyle="steps-mid", color=BLUE,
                    zorder=3)  # fmt: skip
            cloud = other["correct"].notna().any()
            ax.plot(_sureness(other["score"], saturated), other["calibrated"], "." if cloud else "--", color=ORANGE,
                    markersize=2.5)  # fmt: skip
            ax.set(ylim=(-0.1, 1.1), yticks=[0, 0.5, 1])
            ax.set_title(panels[name][0])
            ax.set_xlabel("nines of the raw score" if saturated else "raw score")  # 3: 1 - 1e-3
        axes[0].set_ylabel("calibrated")
        words = [("isotonic", {"color": BLUE}), ("temperature", {"color": ORANGE, "linestyle": "", "marker": "."}),
                 ("Platt", {"color": ORANGE, "linestyle": "--"}), ("accuracy", {"color": "0.6", "linewidth": 0.8})]
        handles = [Line2D([], [], label=label, **look) for label, look in words]
        canvas.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=1.8, columnspacing=1)
        canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)
    return Figure(canvas)


def _sureness(score: pd.Series, saturated: bool) -> np.ndarray:
    """Where scores stand: themselves, or, close to 1, the distance from 1 in negative powers of ten."""
    values = score.to_numpy(dtype=float)
    return -np.log10(np.maximum(1 - values, 10**-7.25)) if saturated else values


def sample_efficiency(bands: pd.DataFrame, datasets: Mapping[str, str], title: str = "") -> Figure:
    """(c) of `calibration_analysis` alone."""
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.4), layout="constrained")
        _sizes(canvas.subplots(), bands, datasets)
        _legend(canvas, title)
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
        _log_axis(ax, bands["n"].max())
        ax.set_title(title, parse_math=False)
        canvas.legend(loc="outside lower center", ncols=2, handlelength=2.4, columnspacing=1)
    return Figure(canvas)


def signed(value: float) -> str:
    """Two decimals and a sign, .00 without one: +.12, \N{MINUS SIGN}.34."""
    text = f"{value:+.2f}".replace("0.", ".", 1).replace("-", "\N{MINUS SIGN}")
    return text if round(value, 2) else text[1:]


def transfer_map(results: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Figure:
    """Change of ECE by source (rows) and target (columns) of a calibrator, a map for each method; blue, and
    in bold, is better. `results` as `transfer.transfer` returns them, `pairs` {(model, dataset): label}, numbered."""
    columns = ["method", "source_model", "source_dataset", "model", "dataset"]
    change = results[results["metric"] == "delta_ece"].set_index(columns)["value"]
    n, reach = len(pairs), max(float(change.abs().max()), 0.01)
    with style():
        wide = max(1.6 * WIDTH, 1.6 + 0.34 * n)  # room for the digits of every pair
        canvas = Canvas(figsize=(wide, 1.4 + 0.2 * n * len(METHODS)), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(len(METHODS), sharex=True))
        for ax, (method, look) in zip(axes, list(looks().items())[1:], strict=True):
            grid = np.array([[change.get((method, *s, *t), np.nan) for t in pairs] for s in pairs], dtype=float)
            image = ax.imshow(grid, aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach)
            for (i, j), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    colour, weight = "white" if abs(value) > 0.6 * reach else "black", "bold" if value < 0 else "normal"
                    ax.text(j, i, signed(value), size=7, ha="center", va="center", color=colour, weight=weight)
            names = [f"{label}  {i}" for i, label in enumerate(pairs.values(), 1)]
            ax.set_yticks(range(n), names, parse_math=False)
            ax.set(ylabel="fitted on", title=look[0])
        axes[-1].set_xticks(range(n), [str(i) for i in range(1, n + 1)])
        axes[-1].set_xlabel("applied to")
        canvas.colorbar(image, ax=axes, label="change of ECE (bold: lower, so better)", location="top", aspect=40)
    return Figure(canvas)
