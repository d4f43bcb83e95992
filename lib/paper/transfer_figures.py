"""Transfer drawn: by how much a calibrator of one pair changes the error on another. Formatting only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import WIDTH, Canvas, Figure, looks, style


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
                    colour, said = "white" if abs(value) > 0.6 * reach else "black", signed(value)
                    weight = "normal" if said[0] in "+." else "bold"
                    ax.text(j, i, said, size=7, ha="center", va="center", color=colour, weight=weight)
            names = [f"{label}  {i}" for i, label in enumerate(pairs.values(), 1)]
            ax.set_yticks(range(n), names, parse_math=False)
            ax.set(ylabel="fitted on", title=look[0])
        axes[-1].set_xticks(range(n), [str(i) for i in range(1, n + 1)])
        axes[-1].set_xlabel("applied to")
        canvas.colorbar(image, ax=axes, label="change of ECE (bold: lower, so better)", location="top", aspect=40)
    return Figure(canvas)


def by_accuracy(accuracy: pd.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]
                ) -> dict[tuple[str, str], str]:  # fmt: skip
    """Pairs and what the map calls them, the most accurate first (`accuracy` as `metrics.evaluate` returns it): in this
    order, what a calibrator costs on another pair grows with the distance from the diagonal."""
    rows = accuracy[accuracy["metric"] == "acc"].sort_values("value", ascending=False, kind="stable")
    return {(row.model, row.dataset): f"{models[row.model]} / {datasets[row.dataset]} ({row.value:.0%})"
            for row in rows.itertuples()}  # fmt: skip


def seen_and_unseen(both: pd.DataFrame) -> Figure:
    """Change of ECE on all rows (filled) and on those without a twin (hollow), a panel for each method, a line for each
    model, source and target of `both`: method, model, source_dataset, dataset (in words), value, value_unseen."""
    methods = list(dict.fromkeys(both["method"]))
    arrows = list(dict.fromkeys(map(_arrow, both.itertuples())))
    with style():
        canvas = Canvas(figsize=(WIDTH * 1.6, 0.8 + 0.16 * len(arrows)), layout="constrained")
        if not methods:
            canvas.text(0, 0.5, "There is one dataset, so no other to carry a calibrator to.")
            return Figure(canvas)
        axes = canvas.subplots(1, len(methods), squeeze=False, sharey=True)[0]
        for ax, method in zip(axes, methods, strict=True):
            part = both[both["method"] == method]
            places = [arrows.index(_arrow(row)) for row in part.itertuples()]
            every, unseen = (part[name].to_numpy(dtype=float, na_value=np.nan) for name in ("value", "value_unseen"))
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.hlines(places, every, unseen, color="black", linewidth=0.8)
            look: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8, "zorder": 3}
            ax.scatter(unseen, places, 26, facecolor="white", marker="s", label="rows without a twin", **look)
            ax.scatter(every, places, 8, facecolor="black", label="all rows", **look)
            ax.set_yticks(range(len(arrows)), arrows, parse_math=False)
            ax.set(xlabel="change of ECE", ylim=(len(arrows) - 0.5, -0.5), title=method)
        handles = axes[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=2)
    return Figure(canvas)


def _arrow(row: Any) -> str:
    return f"{row.model}: {row.source_dataset} \N{RIGHTWARDS ARROW} {row.dataset}"
