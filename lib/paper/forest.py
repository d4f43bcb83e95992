"""Paired differences of ECE as a forest plot: which of two scores is the better calibrated. Formatting only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from lib.paper.figure_style import WIDTH, Canvas, Figure, style
from lib.paper.tables import label_rows
from lib.score.estimators import ESTIMATORS

PANELS_PER_ROW = 3
CONTRAST = ["estimator", "method", "than", "than_method"]


def called(estimator: str, method: str) -> str:
    """A score in words: Ans Avg, temperature."""
    row = label_rows(pd.DataFrame({"estimator": [estimator], "method": [method]}), None, None).iloc[0]
    return f"{ESTIMATORS[estimator].plain}, {row.method}"


def decided(differences: pd.DataFrame) -> pd.Series:
    """Whether the interval of a difference leaves out 0."""
    return (differences["low"] > 0) | (differences["high"] < 0)


def forest(differences: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Figure:
    """`differences` as `Bootstrap.differences` returns them, of `pairs` {(model, dataset): label}: a panel for each
    contrast, a line for each pair, with its 95% interval; left of 0 the first is lower. Hollow where the interval holds
    0."""
    contrasts = list(differences.groupby(CONTRAST, sort=False))
    across = min(PANELS_PER_ROW, len(contrasts))
    down = -(-len(contrasts) // across)
    with style():
        canvas = Canvas(figsize=(WIDTH * 2, down * (0.75 + 0.15 * len(pairs))), layout="constrained")
        axes = canvas.subplots(down, across, squeeze=False, sharey=True).ravel()
        for ax, (who, part) in zip(axes, contrasts, strict=False):
            part = part.set_index(["model", "dataset"])
            part = part.loc[[pair for pair in pairs if pair in part.index]]
            places = np.array([list(pairs).index(pair) for pair in part.index])
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.hlines(places, part["low"], part["high"], color="black", linewidth=1)
            for sure, few in part.groupby(decided(part).to_numpy()):
                look: dict[str, Any] = {"facecolor": "black" if sure else "white", "edgecolor": "black", "zorder": 3}
                ax.scatter(few["difference"], places[decided(part).to_numpy() == sure], 14, linewidth=0.8, **look)
            first, second = (called(*who[i : i + 2]) for i in (0, 2))
            ax.set_title(f"{first}\n\N{MINUS SIGN} {second}")
            ax.set_yticks(range(len(pairs)), list(pairs.values()), parse_math=False)
            ax.xaxis.set_major_locator(MaxNLocator(3))
            ax.set(xlabel="difference of ECE", ylim=(len(pairs) - 0.5, -0.5))
        for ax in axes[len(contrasts) :]:
            ax.axis("off")
    return Figure(canvas)


def in_short(differences: pd.DataFrame) -> list[str]:
    """Each contrast in a sentence: on how many pairs the first is lower, the interval leaving out 0."""
    said = []
    for who, part in differences.groupby(CONTRAST, sort=False):
        lower = int((decided(part) & (part["difference"] < 0)).sum())
        higher = int((decided(part) & (part["difference"] > 0)).sum())
        first, second = (called(*who[i : i + 2]) for i in (0, 2))
        said.append(f"{first} against {second}: lower on {lower}, higher on {higher} of {len(part)} pairs, "
                    f"undecided on {len(part) - lower - higher}")  # fmt: skip
    return said
