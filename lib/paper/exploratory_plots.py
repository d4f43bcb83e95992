"""What notebooks draw and no paper prints: how scores are spread, paired differences, changes by transfer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import RESPONSE_STYLES, WIDTH, Canvas, Figure, looks, style
from lib.paper.tables import label_rows
from lib.score.estimators import ESTIMATORS

PANELS_PER_ROW = 3
CONTRAST = ["estimator", "method", "than", "than_method"]
MARK: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8, "zorder": 3}

# ---- right and wrong responses apart


def histogram(ax: Axes, values: pd.Series, correct: pd.Series, bins: np.ndarray) -> None:
    """The share of right and of wrong ones in each bin, as two outlines; what lies outside counts in no bin."""
    for kind, label, colour, line in RESPONSE_STYLES:
        part = values[(correct == kind).to_numpy(bool)].to_numpy(dtype=float)
        look: dict[str, Any] = {"color": colour, "linestyle": line, "fill": kind, "alpha": 0.25 if kind else 1}
        label = f"{label} (n = {part.size})"
        if part.size:
            sns.histplot(x=part, bins=bins, stat="probability", element="step", label=label, ax=ax, **look)


def answer_density(tokens: pd.DataFrame, title: str = "") -> Figure:
    """Share of answer tokens by probability, right and wrong apart (`tokens`: correct, logprob, as
    `answer_token_logprobs` returns them). Nearly all lie close to 1, hence the axis 1 - p in powers of
    ten; beyond 1e-7, which float32 cannot tell from 1, everything counts in the last bin."""
    powers = -np.log10(np.maximum(-np.expm1(tokens["logprob"].astype(float)), 10**-7.25))  # of ten, in 1 - p
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.1), layout="constrained")
        ax = canvas.subplots()
        histogram(ax, powers, tokens["correct"], np.arange(0, 8, 0.5))
        ax.set_xticks(range(8), ["1", ".1", ".01", ".001", "1e-4", "1e-5", "1e-6", "\u22641e-7"])
        ax.set(xlabel="1 \N{MINUS SIGN} probability of the answer token (surer to the right)")
        ax.set(ylabel="share of tokens", xlim=(0, 7.5))
        ax.set_title(title, parse_math=False)
        ax.legend(loc="best", handlelength=2.6)
    return Figure(canvas)


def confidence_histograms(scores: pd.DataFrame, names: Mapping[str, str], title: str = "") -> Figure:
    """Share of evaluation responses by confidence, right and wrong apart, a panel for each estimator of `names` {name:
    label} (`scores` as `confidence_frame` returns them). The less both overlap, the more the score knows."""
    scores = scores[scores["split"] == "evaluation"]
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.2), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(1, len(names), sharey=True))
        for ax, (name, label) in zip(axes, names.items(), strict=True):
            part = scores[scores["estimator"] == name]
            histogram(ax, part["confidence"], part["correct"], np.linspace(0, 1, 21))
            ax.set(xlabel="confidence", ylabel="share of responses", xlim=(0, 1), xticks=[0, 0.5, 1])
            ax.set_title(label, parse_math=False)
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, handlelength=2.6)
        canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)
    return Figure(canvas)


def bald_histogram(tokens: pd.DataFrame, phi: str = "clip", title: str = "") -> Figure:
    """Share of answer tokens by BALD (nats), right and wrong apart, and over it phi, the confidence that it becomes.
    `tokens` as `answer_tokens` returns them: correct, bald (divided already under `top_k` and `top_p`)."""
    values = tokens["bald"].astype(float)
    least, most = min(0.0, float(values.min())), max(1.05, float(values.max()) * 1.02)
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.3), layout="constrained")
        ax = canvas.subplots()
        histogram(ax, values, tokens["correct"], np.linspace(least, most, 31))
        ax.set(xlabel="BALD (nats)" if phi == "clip" else "BALD / log of the support", ylabel="share of tokens")
        over = ax.twinx()
        x = np.array([least, 0, 1, most])
        over.plot(x, np.clip(1 - x, 0, 1), color="black", linewidth=0.9, label="\N{GREEK SMALL LETTER PHI}")
        over.set(xlim=(least, most), ylim=(0, 1.05), yticks=[0, 0.5, 1], ylabel="\N{GREEK SMALL LETTER PHI}")
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


def option_mass_bars(table: pd.DataFrame) -> Figure:
    """What the next token is likely to be, of one row: a bar for each way to ask, as `option_probabilities` returns
    them, of the probability of either option and of all else."""
    shares = table.iloc[:, :2].astype(float)
    shares["all else"] = (1 - shares.sum(axis=1)).clip(0, 1)
    with style():
        canvas = Canvas(figsize=(WIDTH, 1.1), layout="constrained")
        ax = canvas.subplots()
        look: dict[str, Any] = {"color": ["0.35", "0.75", "white"], "edgecolor": "black", "linewidth": 0.5}
        shares.plot.barh(stacked=True, ax=ax, width=0.7, legend=False, **look)
        ax.set(xlim=(0, 1), xlabel="probability of the next token")
        for bar in ax.containers[1]:
            bar.set_hatch("////")
        ax.invert_yaxis()
        canvas.legend(loc="outside upper center", ncols=3, handlelength=1.6)
    return Figure(canvas)


# ---- differences


def forest_plot(differences: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Figure:
    """Paired differences of ECE, as `Bootstrap.differences` returns them, of `pairs` {(model, dataset): label}: a panel
    for each contrast, a line for each pair, with its 95% interval; left of 0 the first is lower. Hollow where the
    interval holds 0."""
    contrasts = list(differences.groupby(CONTRAST, sort=False))
    across = min(PANELS_PER_ROW, len(contrasts))
    down = -(-len(contrasts) // across)
    with style():
        canvas = Canvas(figsize=(WIDTH * 2, down * (0.75 + 0.15 * len(pairs))), layout="constrained")
        axes = canvas.subplots(down, across, squeeze=False, sharey=True).ravel()
        for ax, (contrast, part) in zip(axes, contrasts, strict=False):
            part = part.set_index(["model", "dataset"]).reindex(list(pairs))
            places, decided = np.arange(len(pairs)), (part["low"] > 0) | (part["high"] < 0)
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.hlines(places, part["low"], part["high"], color="black", linewidth=1)
            ax.scatter(part["difference"], places, 14, facecolor=np.where(decided, "black", "white"), **MARK)
            ax.set_title("\n\N{MINUS SIGN} ".join(score_in_words(*contrast[i : i + 2]) for i in (0, 2)))
            ax.set_yticks(places, list(pairs.values()), parse_math=False)
            ax.xaxis.set_major_locator(MaxNLocator(3))
            ax.set(xlabel="difference of ECE", ylim=(len(pairs) - 0.5, -0.5))
        for ax in axes[len(contrasts) :]:
            ax.axis("off")
    return Figure(canvas)


def score_in_words(estimator: str, method: str) -> str:
    """Ans Avg, temperature."""
    row = label_rows(pd.DataFrame({"estimator": [estimator], "method": [method]}), None, None).iloc[0]
    return f"{ESTIMATORS[estimator].plain}, {row.method}"


def signed(value: float) -> str:
    """Two decimals and a sign, .00 without one: +.12, \N{MINUS SIGN}.34; nothing for NaN."""
    if np.isnan(value):
        return ""
    text = f"{value:+.2f}".replace("0.", ".", 1).replace("-", "\N{MINUS SIGN}")
    return text if round(value, 2) else text[1:]


def transfer_map(results: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Figure:
    """Change of ECE by source (rows) and target (columns) of a calibrator, a map for each method; blue, and
    in bold, is better. `results` as `transfer.transfer` returns them, `pairs` {(model, dataset): label}, numbered."""
    change = results[results["metric"] == "delta_ece"].astype({"value": float})
    n, reach = len(pairs), max(float(change["value"].abs().max()), 0.01)
    names = [f"{label}  {i}" for i, label in enumerate(pairs.values(), 1)]
    with style():
        wide = max(1.6 * WIDTH, 1.6 + 0.34 * n)  # room for the digits of every pair
        canvas = Canvas(figsize=(wide, 1.4 + 0.2 * n * len(METHODS)), layout="constrained")
        axes = np.atleast_1d(canvas.subplots(len(METHODS), sharex=True))
        for ax, method in zip(axes, METHODS, strict=True):
            grid = change[change["method"] == method].pivot(
                index=["source_model", "source_dataset"], columns=["model", "dataset"], values="value"
            )
            grid = grid.reindex(index=list(pairs), columns=list(pairs))
            sns.heatmap(grid, ax=ax, center=0, vmin=-reach, vmax=reach, cmap="RdBu_r", cbar=False,
                        annot=grid.map(signed), fmt="", annot_kws={"size": 7})  # fmt: skip
            for text in ax.texts:
                text.set_weight("bold" if text.get_text()[0] == "\N{MINUS SIGN}" else "normal")
            ax.set_yticks(np.arange(n) + 0.5, names, rotation=0, parse_math=False)
            ax.set(ylabel="fitted on", xlabel="", title=looks()[method][0])
        axes[-1].set_xticks(np.arange(n) + 0.5, [str(i) for i in range(1, n + 1)], rotation=0)
        axes[-1].set_xlabel("applied to")
        label = "change of ECE (bold: lower, so better)"
        canvas.colorbar(axes[-1].collections[0], ax=axes, label=label, location="top", aspect=40)
    return Figure(canvas)


def order_by_accuracy(accuracy: pd.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]
                      ) -> dict[tuple[str, str], str]:  # fmt: skip
    """Pairs and what the map calls them, the most accurate first (`accuracy` as `metrics.evaluate` returns it): in this
    order, what a calibrator costs on another pair grows with the distance from the diagonal."""
    rows = accuracy[accuracy["metric"] == "acc"].sort_values("value", ascending=False, kind="stable")
    return {(row.model, row.dataset): f"{models[row.model]} / {datasets[row.dataset]} ({row.value:.0%})"
            for row in rows.itertuples()}  # fmt: skip


def deduplicated_transfer_plot(both: pd.DataFrame) -> Figure:
    """Change of ECE on all rows (filled) and on those without a twin (hollow), a panel for each method, a line for each
    model, source and target of `both`: method, model, source_dataset, dataset (in words), value, value_unseen."""
    words = both[["model", "source_dataset", "dataset"]].astype(str)
    both = both.assign(arrow=words.model + ": " + words.source_dataset + " \N{RIGHTWARDS ARROW} " + words.dataset)
    methods, arrows = list(dict.fromkeys(both["method"])), list(dict.fromkeys(both["arrow"]))
    with style():
        canvas = Canvas(figsize=(WIDTH * 1.6, 0.8 + 0.16 * len(arrows)), layout="constrained")
        if not methods:
            canvas.text(0, 0.5, "There is one dataset, so no other to carry a calibrator to.")
            return Figure(canvas)
        axes = canvas.subplots(1, len(methods), squeeze=False, sharey=True)[0]
        for ax, method in zip(axes, methods, strict=True):
            part = both[both["method"] == method]
            places = part["arrow"].map(arrows.index)
            every, unseen = (part[name].to_numpy(dtype=float, na_value=np.nan) for name in ("value", "value_unseen"))
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.hlines(places, every, unseen, color="black", linewidth=0.8)
            ax.scatter(unseen, places, 26, facecolor="white", marker="s", label="rows without a twin", **MARK)
            ax.scatter(every, places, 8, facecolor="black", label="all rows", **MARK)
            ax.set_yticks(range(len(arrows)), arrows, parse_math=False)
            ax.set(xlabel="change of ECE", ylim=(len(arrows) - 0.5, -0.5), title=method)
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Figure(canvas)
