"""Draw `fig:main_analysis`, the behavior of the signals, from frames. Formatting only."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.analysis.token_statistics import right_minus_wrong
from lib.paper.figure_style import BLUE, ORANGE, RESPONSE_STYLES, WIDTH, Canvas, draw_band, in_paper_style

ZOOM_START = 0.2  # the limits of the axis come from the curves after this position
STABLE_PASSES = 5  # number of passes after which the paper finds the predictive entropy stable


def _running_mean(ax: Axes, curves: pd.DataFrame) -> None:
    """Draw running means, zoomed to their range after the first tokens, which vary most."""
    for correct, label, color, line in RESPONSE_STYLES:
        part = curves[curves["correct"] == correct]
        if len(part):
            label = f"{label} (n = {part['n'].iloc[0]})"
            draw_band(ax, part, "position", color, line, label=label)
    settled = curves[curves["position"] >= ZOOM_START]
    least, most = settled["low"].min(), settled["high"].max()
    room = 0.08 * max(most - least, 1e-3)
    ax.set(ylabel="mean probability so far", xlim=(0, 1), ylim=(least - 3 * room, most + room))
    ax.legend(loc="lower right", handlelength=2.6)


def _difference(ax: Axes, curves: pd.DataFrame) -> None:
    """Draw correct minus incorrect with its interval: the position discriminates if the band excludes 0."""
    ax.axhline(0, color="0.5", linewidth=0.8)
    draw_band(ax, right_minus_wrong(curves), "position", "black", "-", 0.2, linewidth=1.2)
    ax.set(ylabel="correct \N{MINUS SIGN}\nincorrect", xlim=(0, 1))


def _entropies(ax: Axes, frame: pd.DataFrame) -> None:
    ends = {}
    for term, color, line in (("predictive", BLUE, "o-"), ("conditional", ORANGE, "s--")):
        part = frame[frame["term"] == term].sort_values("passes")
        draw_band(ax, part, "passes", color, line, markersize=3, label=term)
        ends[term] = float(part["mean"].iloc[-1])
    passes = int(frame["passes"].max())
    if passes > 1:
        ax.plot([1.07 * passes] * 2, list(ends.values()), marker="_", markersize=3.5, color="black", linewidth=0.7)
        ax.text(1.03 * passes, sum(ends.values()) / 2, "BALD", ha="right", va="center", size=7)
    if passes > STABLE_PASSES:
        ax.axvline(STABLE_PASSES, ymax=0.7, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    ax.set_xticks(sorted({1, STABLE_PASSES, passes} & set(frame["passes"])))
    ax.set(xlabel="passes T", ylabel="entropy (nats)", ylim=(0, 1.4 * frame["high"].max() or None))
    ax.legend(loc="upper left", handlelength=2.6)


def _in_situ(ax: Axes, frame: pd.DataFrame) -> None:
    places, tops = np.arange(len(frame)), frame.select_dtypes("number").to_numpy()
    for shift, column, color, hatch in ((-0.2, "standard", BLUE, ""), (0.2, "in situ", ORANGE, "////")):
        at = places + shift
        ax.bar(at, frame[column], 0.38, label=column, color=color, hatch=hatch, edgecolor="black", linewidth=0.5)
        if f"{column} low" in frame:
            ax.vlines(at, frame[f"{column} low"], frame[f"{column} high"], color="black", linewidth=0.9, linestyle="-")
    slant: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"}
    crowded = sum(map(len, frame["dataset"])) > 14  # letters that fit side by side under half a column
    ax.set_xticks(places, frame["dataset"], **slant if crowded else {})
    ax.set(ylabel="ECE", xlim=(-0.7, len(frame) - 0.3), ylim=(0, 1.4 * tops.max() or None))
    ax.legend(loc="upper left", handlelength=1.6)


@in_paper_style
def main_analysis(
    curves: pd.DataFrame | None = None,
    entropies: pd.DataFrame | None = None,
    in_situ: pd.DataFrame | None = None,
    title: str = "",
    rate: float | None = None,
) -> Canvas:
    """Draw `fig:main_analysis`, with the panels whose data is given and not empty.

    (a) `curves` from `running_mean_curves`, and their difference below if both classes exist; (b) `entropies` from
    `entropy_curves`; (c) `in_situ` from `ece_by_prompt`. `title` (model and dataset) is over the first panel, the
    dropout `rate` over the second.
    """
    panels = {"a": (_running_mean, curves), "b": (_entropies, entropies), "c": (_in_situ, in_situ)}
    given = {letter: (draw, data) for letter, (draw, data) in panels.items() if data is not None and len(data)}
    both = "a" in given and given["a"][1]["correct"].nunique() == 2
    if not given:
        return Canvas(figsize=(WIDTH, 0.3))
    rows = ["aa", "bc"] if len(given) == 3 else [*given]
    if both:
        rows.insert(1, rows[0].replace("a", "d"))
    heights = [{"d": 0.55}.get(row[0], 1.0) for row in rows]
    canvas = Canvas(figsize=(WIDTH, 0.15 + 1.95 * sum(heights)), layout="constrained")
    axes = canvas.subplot_mosaic(";".join(rows), height_ratios=heights)
    for letter, (draw, data) in given.items():
        draw(axes[letter], data)
        words = f"({letter})" if len(given) > 1 else ""
        if letter == min(given):
            words = f"{words} {title}".lstrip()
        if letter == "b" and rate is not None:
            words = f"{words} rate {rate:.2f}".lstrip()
        axes[letter].set_title(words)
    if both:
        axes["a"].set_xticklabels([])
        _difference(axes["d"], given["a"][1])
    if "a" in given:
        axes["d" if both else "a"].set_xlabel("normalized token position")
    return canvas
