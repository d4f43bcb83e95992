"""Figures beyond the paper: cost against quality, and selective prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from pandas import DataFrame as Frame

from lib.analysis.costs import EXTRA_TOKEN_ESTIMATORS
from lib.paper.figure_style import STYLES, WIDTH, Canvas, in_paper_style, make_panels
from lib.paper.tables import ALL_ESTIMATORS, estimators_shown
from lib.store import PAIR

ESTIMATOR_MARKERS = dict(zip(("ans_avg", "seq_avg", *EXTRA_TOKEN_ESTIMATORS), ("o", "s", "^", "v", "D"), strict=True))
ESTIMATORS_DRAWN = ("seq_avg", "ans_avg", "p_true", "c_bald")  # of the paper's estimators, one of each kind
MIN_COVERAGE = 0.05  # curves start at this share answered: below it they depend on a few rows
CURVE_LOOK: dict[str, Any] = {"linewidth": 1.2, "markersize": 3.5}
THRESHOLD_LOOK: dict[str, Any] = {"marker": "o", "markersize": 6, "markerfacecolor": "none", "linestyle": "none"}
TARGET_LOOK: dict[str, Any] = {"color": "0.6", "linewidth": 0.8}

# ---- costs


@in_paper_style
def cost_quality_plot(frame: Frame, title: str = "") -> Canvas:
    """Draw ECE and AUROC against tokens; `frame` is from `cost_and_quality`."""
    canvas, axes = make_panels(1, 4.0, rows=2, sharex=True)
    for ax, (metric, label, sign) in zip(axes, (("ece", "ECE", 1), ("auroc", "AUROC", -1)), strict=True):
        _draw_points(ax, frame.dropna(subset=[metric, "tokens"]), metric, sign)
        ax.set(ylabel=label, xscale="log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.minorticks_off()
    axes[1].set_xlabel("tokens per question")
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        canvas.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=1.2)
    axes[0].set_title(title)
    return canvas


def _draw_points(ax: Axes, frame: Frame, metric: str, sign: int) -> None:
    """Draw every pair, the means over the pairs that have every estimator, and the Pareto front of the means."""
    means, every = {}, frame["estimator"].nunique()
    complete = frame.groupby(PAIR)["estimator"].transform("nunique") == every
    for (name, mark), look in zip(ESTIMATOR_MARKERS.items(), [*STYLES, *STYLES], strict=False):
        rows = frame[frame["estimator"] == name]
        if rows.empty:
            continue
        shared = rows[complete[rows.index]] if complete.any() else rows
        means[name] = at = float(np.exp(np.log(shared["tokens"]).mean())), float(shared[metric].mean())
        color = look[0] if len(means) <= len(STYLES) else "white"
        more: dict[str, Any] = {"color": color, "markeredgecolor": "black", "linestyle": "none", "marker": mark}
        ax.plot(rows["tokens"], rows[metric], markersize=2.5, alpha=0.5, **{**more, "markeredgecolor": "0.4"})
        ax.plot(*at, markersize=7, markeredgewidth=0.7, label=ALL_ESTIMATORS[name].plain, **more)
    front = pareto_front(means.values(), sign)
    if front:
        line: dict[str, Any] = {"color": "0.5", "linewidth": 0.8, "zorder": 0, "label": "best so far"}
        ax.step(*zip(*front, strict=True), where="post", **line)


def pareto_front(points: Any, sign: int) -> list[tuple[float, float]]:
    """Return the Pareto front of points (tokens, value): lower values are better if `sign` is 1, higher ones if it
    is -1."""
    front: list[tuple[float, float]] = []
    for tokens, value in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not front or sign * value < sign * front[-1][1]:
            front.append((tokens, value))
    return front


# ---- when to answer


@in_paper_style
def risk_coverage_plot(
    curves: Frame, thresholds: Frame, model: str, datasets: Mapping[str, str], title: str = ""
) -> Canvas:
    """Draw risk-coverage curves of one model, a column for each of the `datasets` {name: label}.

    `curves` and `thresholds` are from `risk_coverage_curves` and `selective_thresholds`. Only thresholds of the middle
    target precision are drawn.
    """
    targets = sorted(thresholds["target"].unique()) or [0.9]
    precision = targets[len(targets) // 2]
    ours, found = curves[curves["model"] == model], thresholds[thresholds["model"] == model]
    shown = [e for e in estimators_shown(ours) if e.name in ESTIMATORS_DRAWN] or estimators_shown(ours)[: len(STYLES)]
    looks: dict[str, tuple] = {e.name: look for e, look in zip(shown, STYLES, strict=False)}
    found = found[(found["target"] == precision) & found["answered"].notna() & found["precision"].notna()]
    width = WIDTH * max(1, len(datasets) / 2)
    canvas, axes = make_panels(len(datasets), 3.4, width, title, rows=2, sharex=True, sharey="col")
    axes = axes.reshape(2, -1)
    for column, (dataset, name) in zip(axes.T, datasets.items(), strict=True):
        here, rings = (frame[frame["dataset"] == dataset] for frame in (ours, found))
        for ax, method in zip(column, ("", "isotonic"), strict=True):
            _draw_curves(ax, here[here["method"] == method], looks)
            ax.axhline(precision, zorder=0, **TARGET_LOOK)
        for ring in rings[rings["estimator"].isin(list(looks))].itertuples():
            color = looks[ring.estimator][0]
            column[0].plot(ring.answered, ring.precision, markeredgecolor=color, clip_on=False, **THRESHOLD_LOOK)
        column[0].set_title(name)
        column[1].set_xlabel("share answered")
    for ax, said in zip(axes[:, 0], ("raw", "isotonic"), strict=True):
        ax.set_ylabel(f"accuracy, {said}")
    handles = [
        Line2D([], [], color=color, linestyle=line, marker=marker, label=ALL_ESTIMATORS[name].plain, **CURVE_LOOK)
        for name, (color, line, marker, _) in looks.items()
    ]
    handles.append(Line2D([], [], markeredgecolor="black", label=f"guaranteed {precision:g}", **THRESHOLD_LOOK))
    handles.append(Line2D([], [], label=f"accuracy {precision:g}", **TARGET_LOOK))
    canvas.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2), handlelength=2.6)
    return canvas


def _draw_curves(ax: Axes, curves: Frame, looks: Mapping[str, tuple]) -> None:
    """Draw the curves of one panel, with about five markers each to distinguish them without color."""
    for estimator, part in curves[curves["answered"] >= MIN_COVERAGE].groupby("estimator", sort=False):
        if estimator not in looks:
            continue
        color, line, marker, _ = looks[str(estimator)]
        part = part.sort_values("answered")
        nearest = [int(np.abs(part["answered"] - share).argmin()) for share in np.linspace(0.2, 1, 5)]
        look = CURVE_LOOK | {"color": color, "marker": marker, "markevery": sorted(set(nearest))}
        ax.plot(part["answered"], part["accuracy"], line, **look)
    ax.set(xlim=(0, 1.02), xticks=[0, 0.5, 1])
