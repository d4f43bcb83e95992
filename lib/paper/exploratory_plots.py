"""Figures for the notebooks only: distributions of scores, paired differences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lib.paper.figure_style import RESPONSE_STYLES, WIDTH, Canvas, in_paper_style, make_panels
from lib.paper.frame_labels import label_rows
from lib.score.estimators import ESTIMATORS

PANELS_PER_ROW = 3
CONTRAST = ["estimator", "method", "than", "than_method"]
MARKER_LOOK: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8, "zorder": 3}
LEGEND_BELOW: dict[str, Any] = {"loc": "outside lower center", "handlelength": 2.6, "columnspacing": 1}

# ---- correct and incorrect responses separately


def histogram(ax: Axes, values: pd.Series, correct: pd.Series, bins: np.ndarray, of: str) -> None:
    """Draw the share of correct and of incorrect values in each bin, as two outlines; values outside count in no
    bin."""
    for kind, label, color, line in RESPONSE_STYLES:
        part = values[(correct == kind).to_numpy(bool)].to_numpy(dtype=float)
        look: dict[str, Any] = {"color": color, "linestyle": line, "fill": kind, "alpha": 0.25 if kind else 1}
        if part.size:
            look["label"] = f"{label} (n = {part.size})"
            sns.histplot(x=part, bins=bins, stat="probability", element="step", ax=ax, **look)
    ax.set(ylabel=f"share of {of}", xlim=(bins[0], bins[-1]))


@in_paper_style
def answer_density(tokens: pd.DataFrame, title: str = "") -> Canvas:
    """Draw the share of answer tokens by probability, for correct and incorrect responses.

    `tokens` (correct, logprob) is from `answer_token_logprobs`. Nearly all probabilities are close to 1, so the axis
    shows 1 - p in powers of ten. The last bin includes all below 1e-7, which float32 cannot distinguish from 1.
    """
    powers = -np.log10(np.maximum(-np.expm1(tokens["logprob"].astype(float)), 10**-7.25))  # of 1 - p
    canvas, (ax,) = make_panels(1, 2.1)
    histogram(ax, powers, tokens["correct"], np.arange(0, 8, 0.5), "tokens")
    ax.set_xticks(range(8), ["1", ".1", ".01", ".001", "1e-4", "1e-5", "1e-6", "\u22641e-7"])
    ax.set(xlabel="1 \N{MINUS SIGN} probability of the answer token (surer to the right)", title=title)
    ax.legend(loc="best", handlelength=2.6)
    return canvas


@in_paper_style
def confidence_histograms(scores: pd.DataFrame, names: Mapping[str, str], title: str = "") -> Canvas:
    """Draw the share of evaluation responses by confidence, for correct and incorrect ones, a panel per estimator.

    `scores` is from `confidence_frame`, `names` {name: label}. Less overlap means better discrimination.
    """
    canvas, axes = make_panels(len(names), 2.2, title=title, sharey=True)
    for ax, (name, label) in zip(axes, names.items(), strict=True):
        part = scores[(scores["estimator"] == name) & (scores["split"] == "evaluation")]
        histogram(ax, part["confidence"], part["correct"], np.linspace(0, 1, 21), "responses")
        ax.set(xlabel="confidence", xticks=[0, 0.5, 1], title=label)
    canvas.legend(*axes[0].get_legend_handles_labels(), ncols=2, **LEGEND_BELOW)
    return canvas


# ---- differences


@in_paper_style
def forest_plot(differences: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Canvas:
    """Draw paired differences of ECE with their 95% intervals, a panel per contrast and a line per pair.

    `differences` is from `Bootstrap.differences`, `pairs` {(model, dataset): label}. The first has the lower ECE left
    of 0. A hollow marker means that the interval contains 0.
    """
    contrasts = list(differences.groupby(CONTRAST, sort=False))
    across, places = min(PANELS_PER_ROW, len(contrasts)), np.arange(len(pairs))
    down = -(-len(contrasts) // across)
    canvas, axes = make_panels(across, down * (0.75 + 0.15 * len(pairs)), 2 * WIDTH, rows=down, sharey=True)
    for ax, (contrast, part) in zip(axes, contrasts, strict=False):
        part = part.set_index(["model", "dataset"]).reindex(list(pairs))
        decided = (part["low"] > 0) | (part["high"] < 0)
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.hlines(places, part["low"], part["high"], color="black", linewidth=1)
        ax.scatter(part["difference"], places, 14, facecolor=np.where(decided, "black", "white"), **MARKER_LOOK)
        ax.set_yticks(places, list(pairs.values()))
        ax.xaxis.set_major_locator(MaxNLocator(3))
        title = "\n\N{MINUS SIGN} ".join(label_score(*contrast[i : i + 2]) for i in (0, 2))
        ax.set(xlabel="difference of ECE", ylim=(len(pairs) - 0.5, -0.5), title=title)
    for ax in axes[len(contrasts) :]:
        ax.axis("off")
    return canvas


def label_score(estimator: str, method: str) -> str:
    """Return a label such as Ans Avg, temperature."""
    row = label_rows(pd.DataFrame({"estimator": [estimator], "method": [method]}), None, None).iloc[0]
    return f"{ESTIMATORS[estimator].plain}, {row.method}"
