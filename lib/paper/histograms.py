"""How scores are spread, right and wrong responses apart: answer tokens, P(True), BALD. Formatting only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.paper.figure_style import RESPONSE_STYLES, WIDTH, Canvas, Figure, style


def _stairs(ax: Axes, values: pd.Series, correct: pd.Series, bins: np.ndarray) -> None:
    """The share of right and of wrong ones in each bin, as two outlines."""
    for kind, label, colour, line in RESPONSE_STYLES:
        part = values[(correct == kind).to_numpy(bool)].to_numpy(dtype=float)
        if part.size:
            share = np.histogram(part, bins)[0] / part.size
            ax.stairs(share, bins, fill=kind, color=colour, alpha=0.25, linewidth=0)
            label = f"{label} (n = {part.size})"
            ax.stairs(share, bins, color=colour, linestyle=line, linewidth=1.4, label=label)


def answer_density(tokens: pd.DataFrame, title: str = "") -> Figure:
    """Share of answer tokens by probability, right and wrong apart (`tokens`: correct, logprob, as
    `answer_token_logprobs` returns them). Nearly all lie close to 1, hence the axis 1 - p in powers of
    ten; beyond 1e-7, which float32 cannot tell from 1, everything counts in the last bin."""
    powers = -np.log10(np.maximum(-np.expm1(tokens["logprob"].astype(float)), 10**-7.25))  # of ten, in 1 - p
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.1), layout="constrained")
        ax = canvas.subplots()
        _stairs(ax, powers, tokens["correct"], np.arange(0, 8, 0.5))
        ax.set_xticks(range(8), ["1", ".1", ".01", ".001", "1e-4", "1e-5", "1e-6", "\u22641e-7"])
        ax.set(xlabel="1 \N{MINUS SIGN} probability of the answer token (surer to the right)")
        ax.set(ylabel="share of tokens", xlim=(0, 7.5), ylim=(0, None))
        ax.set_title(title, parse_math=False)
        ax.legend(loc="best", handlelength=2.6)
    return Figure(canvas)


def confidence(scores: pd.DataFrame, names: Mapping[str, str], title: str = "") -> Figure:
    """Share of evaluation responses by confidence, right and wrong apart, a panel for each estimator of `names` {name:
    label} (`scores` as `confidence_frame` returns them). The less both overlap, the more the score knows."""
    scores = scores[scores["split"] == "evaluation"]
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.2), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(1, len(names), sharey=True))
        for ax, (name, label) in zip(axes, names.items(), strict=True):
            part = scores[scores["estimator"] == name]
            _stairs(ax, part["confidence"], part["correct"], np.linspace(0, 1, 21))
            ax.set(xlabel="confidence", xlim=(0, 1), xticks=[0, 0.5, 1])
            ax.set_title(label, parse_math=False)
        axes[0].set(ylabel="share of responses", ylim=(0, None))
        handles = axes[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=2, handlelength=2.6)
        canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)
    return Figure(canvas)


def option_mass_bars(table: pd.DataFrame) -> Figure:
    """What the next token is likely to be, of one row: a bar for each way to ask, as `option_probabilities` returns
    them, of the probability of either option and of all else."""
    names = list(table.columns[:2])
    left = np.zeros(len(table))
    shares = {name: table[name].to_numpy(dtype=float) for name in names}
    shares["all else"] = np.clip(1 - sum(shares.values()), 0, 1)
    fills = [("0.35", ""), ("0.75", "////"), ("white", "")]
    with style():
        canvas = Canvas(figsize=(WIDTH, 1.1), layout="constrained")
        ax = canvas.subplots()
        for (name, share), (colour, hatch) in zip(shares.items(), fills, strict=True):
            look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.5}
            ax.barh(list(table.index), share, left=left, height=0.7, label=name, **look)
            left = left + share
        ax.set(xlim=(0, 1), xlabel="probability of the next token")
        ax.invert_yaxis()
        canvas.legend(loc="outside upper center", ncols=3, handlelength=1.6)
    return Figure(canvas)


def bald_histogram(tokens: pd.DataFrame, phi: str = "clip", title: str = "") -> Figure:
    """Share of answer tokens by BALD (nats), right and wrong apart, and over it phi, the confidence that it becomes.
    `tokens` as `dropout_statistics.answer_tokens` returns them: correct, bald (divided already under `top_k` and
    `top_p`)."""
    values = tokens["bald"].astype(float)
    most = max(1.05, float(values.max()) * 1.02)
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.3), layout="constrained")
        ax = canvas.subplots()
        _stairs(ax, values, tokens["correct"], np.linspace(min(0.0, float(values.min())), most, 31))
        ax.set(xlabel="BALD (nats)" if phi == "clip" else "BALD / log of the support", ylabel="share of tokens")
        ax.set(xlim=(min(0.0, float(values.min())), most), ylim=(0, None))
        over = ax.twinx()
        x = np.array([min(0.0, float(values.min())), 0, 1, most])
        over.plot(x, np.clip(1 - x, 0, 1), color="black", linewidth=0.9, label="\N{GREEK SMALL LETTER PHI}")
        over.set(ylim=(0, 1.05), yticks=[0, 0.5, 1], ylabel="\N{GREEK SMALL LETTER PHI}")
        over.spines["right"].set_visible(True)
        over.text(0.97 * most, 1.04, clipped_in_words(tokens), ha="right", va="top", size=7)
        handles = [*ax.get_legend_handles_labels()[0], *over.get_lines()]
        canvas.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=2.6, columnspacing=1)
        ax.set_title(title, parse_math=False)
    return Figure(canvas)


def clipped_in_words(tokens: pd.DataFrame) -> str:
    """The share of tokens to which phi gives no confidence at all."""
    share = (tokens["bald"].astype(float) >= 1).mean() if len(tokens) else 0
    return f"{share:.1%} clipped to 0"
