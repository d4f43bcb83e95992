"""Figures for the notebooks only: distributions of scores, calibrators, paired differences, changes by transfer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lib.calibrate.calibrators import METHODS
from lib.paper.figure_style import BLUE, MAX_HEIGHT, ORANGE, RESPONSE_STYLES, WIDTH, Canvas, in_paper_style, make_panels
from lib.paper.tables import label_rows
from lib.score.estimators import ESTIMATORS

PANELS_PER_ROW = 3
CONTRAST = ["estimator", "method", "than", "than_method"]
MARKER_LOOK: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8, "zorder": 3}
LEGEND_BELOW: dict[str, Any] = {"loc": "outside lower center", "handlelength": 2.6, "columnspacing": 1}
HEATMAP_LOOK: dict[str, Any] = {"center": 0, "cmap": "RdBu_r", "cbar": False, "annot": True, "fmt": "+.2f"}

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


@in_paper_style
def bald_histogram(tokens: pd.DataFrame, phi: str = "clip", title: str = "") -> Canvas:
    """Draw the share of answer tokens by BALD (nats), for correct and incorrect responses, and the confidence phi.

    `tokens` is from `bald_of_answer_tokens`: correct, bald (already divided under `top_k` and `top_p`).
    """
    values = tokens["bald"].astype(float)
    least, most = min(0.0, float(values.min())), max(1.05, float(values.max()) * 1.02)
    canvas, (ax,) = make_panels(1, 2.3)
    histogram(ax, values, tokens["correct"], np.linspace(least, most, 31), "tokens")
    ax.set(xlabel="BALD (nats)" if phi == "clip" else "BALD / log of the support", title=title)
    over, x, name = ax.twinx(), np.array([least, 0, 1, most]), "\N{GREEK SMALL LETTER PHI}"
    over.plot(x, np.clip(1 - x, 0, 1), color="black", linewidth=0.9, label=name)
    over.set(ylim=(0, 1.05), yticks=[0, 0.5, 1], ylabel=name)
    over.spines["right"].set_visible(True)
    over.text(0.97 * most, 1.04, f"{(values >= 1).mean():.1%} clipped to 0", ha="right", va="top", size=7)
    canvas.legend(ncols=3, **LEGEND_BELOW)
    return canvas


@in_paper_style
def option_mass_bars(table: pd.DataFrame) -> Canvas:
    """Draw a bar for each P(True) variant of one row: the probability of either option and of all other tokens.

    `table` is from `option_probabilities`.
    """
    shares = table.iloc[:, :2].astype(float)
    shares["all else"] = (1 - shares.sum(axis=1)).clip(0, 1)
    canvas, (ax,) = make_panels(1, 1.1)
    look: dict[str, Any] = {"color": ["0.35", "0.75", "white"], "edgecolor": "black", "linewidth": 0.5}
    shares.plot.barh(stacked=True, ax=ax, width=0.7, legend=False, **look)
    ax.set(xlim=(0, 1), xlabel="probability of the next token")
    for bar in ax.containers[1]:
        bar.set_hatch("////")
    ax.invert_yaxis()
    canvas.legend(loc="outside upper center", ncols=3, handlelength=1.6)
    return canvas


# ---- fitted calibrators


@in_paper_style
def calibration_map_plot(maps: pd.DataFrame, title: str = "") -> Canvas:
    """Draw the calibrators of one pair, a panel per estimator; `maps` is from `tabulate_calibration_maps`.

    Isotonic regression is a step function, Platt scaling a sigmoid, temperature a cloud: answers of equal confidence
    can differ after it. The cloud is missing without stored logits. The gray line is the accuracy of the calibration
    rows, and ticks are these rows, correct ones above, incorrect ones below.
    """
    names = {"ans_avg": ("Ans Avg", "temperature"), "p_true": ("P(True)", "Platt")}
    here = [name for name in names if (maps["estimator"] == name).any()]
    if not here:
        return Canvas(figsize=(WIDTH, 0.3))
    canvas, axes = make_panels(len(here), 2.4, title=title, sharey=True)
    for ax, name in zip(axes, here, strict=True):
        part = {method: rows for method, rows in maps[maps["estimator"] == name].groupby("method")}
        rows, isotonic, other = part[""], part["isotonic"], part.get("platt")
        saturated = rows["score"].median() > 0.99  # nearly all close to 1: plot the distance from 1, in powers of ten
        x = _nines(isotonic["score"], saturated)
        ax.plot(x, isotonic["calibrated"], drawstyle="steps-mid", color=BLUE, zorder=3, label="isotonic")
        if other is not None:
            look = "." if other["correct"].notna().any() else "--"
            x = _nines(other["score"], saturated)
            ax.plot(x, other["calibrated"], look, color=ORANGE, markersize=2.5, label=names[name][1])
        ax.axhline(rows["correct"].astype(float).mean(), color="0.6", linewidth=0.8, zorder=0, label="accuracy")
        x, y = _nines(rows["score"], saturated), np.where(rows["correct"].astype(bool), 1.05, -0.05)
        ax.plot(x, y, "|", color="0.3", markersize=5, markeredgewidth=0.5, label="rows (correct above)")
        xlabel = "nines of the raw score" if saturated else "raw score"  # 3: 1 - 1e-3
        ax.set(ylim=(-0.1, 1.1), yticks=[0, 0.5, 1], title=names[name][0], xlabel=xlabel)
    axes[0].set_ylabel("calibrated")
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    canvas.legend(handles.values(), handles, loc="outside lower center", ncols=3, handlelength=1.8, columnspacing=1)
    return canvas


def _nines(score: pd.Series, saturated: bool) -> np.ndarray:
    """Return the scores, or, if close to 1, the distance from 1 in negative powers of ten."""
    values = score.to_numpy(dtype=float)
    return -np.log10(np.maximum(1 - values, 10**-7.25)) if saturated else values


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


@in_paper_style
def transfer_map(results: pd.DataFrame, pairs: Mapping[tuple[str, str], str]) -> Canvas:
    """Draw the change of ECE by source (rows) and target (columns) of a calibrator, a map per method; blue is better.

    `results` is from `transfer.transfer`; `pairs` {(model, dataset): label} are numbered.
    """
    change = results[results["metric"] == "delta_ece"].astype({"value": float})
    n, reach = len(pairs), max(float(change["value"].abs().max()), 0.01)
    numbers = [str(i) for i in range(1, n + 1)]
    names = [f"{label}  {number}" for label, number in zip(pairs.values(), numbers, strict=True)]
    height, width = 1.4 + 0.2 * n * len(METHODS), max(1.6 * WIDTH, 1.6 + 0.34 * n)  # fits the digits of every pair
    canvas, axes = make_panels(1, min(MAX_HEIGHT, height), width, rows=len(METHODS), sharex=True)
    for ax, method in zip(axes, METHODS, strict=True):
        part = change[change["method"] == method].set_index(["source_model", "source_dataset", "model", "dataset"])
        grid = part["value"].unstack(["model", "dataset"]).reindex(index=list(pairs), columns=list(pairs))
        labels = {"xticklabels": numbers, "yticklabels": names}
        sns.heatmap(grid, ax=ax, vmin=-reach, vmax=reach, annot_kws={"size": 7}, **labels, **HEATMAP_LOOK)
        ax.tick_params(axis="x", rotation=0)
        ax.set(ylabel="fitted on", xlabel="", title=METHODS[method].plain)
    axes[-1].set_xlabel("applied to")
    label = "change of ECE (blue: lower, so better)"
    canvas.colorbar(axes[-1].collections[0], ax=axes, label=label, location="top", aspect=40)
    return canvas


def order_by_accuracy(
    accuracy: pd.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return the labels of pairs on the map, the most accurate first; `accuracy` is from `metrics.evaluate`.

    In this order the cost of transferring a calibrator increases with the distance from the diagonal.
    """
    rows = accuracy[accuracy["metric"] == "acc"].sort_values("value", ascending=False, kind="stable")
    return {
        (row.model, row.dataset): f"{models[row.model]} / {datasets[row.dataset]} ({row.value:.0%})"
        for row in rows.itertuples()
    }


@in_paper_style
def deduplicated_transfer_plot(both: pd.DataFrame) -> Canvas:
    """Draw the change of ECE on all rows (filled) and on rows without a near-duplicate (hollow).

    There is a panel per method and a line per model, source and target of `both`: method, model, source_dataset,
    dataset (labels), value, value_unseen.
    """
    words = both[["model", "source_dataset", "dataset"]].astype(str)
    both = both.assign(arrow=words.model + ": " + words.source_dataset + " \N{RIGHTWARDS ARROW} " + words.dataset)
    methods, arrows = list(dict.fromkeys(both["method"])), list(dict.fromkeys(both["arrow"]))
    if not methods:
        canvas = Canvas(figsize=(WIDTH * 1.6, 0.8))
        canvas.text(0, 0.5, "There is one dataset, so no other to carry a calibrator to.")
        return canvas
    canvas, axes = make_panels(len(methods), 0.8 + 0.16 * len(arrows), 1.6 * WIDTH, sharey=True)
    for ax, method in zip(axes, methods, strict=True):
        part = both[both["method"] == method]
        every, unseen = (part[name].to_numpy(dtype=float, na_value=np.nan) for name in ("value", "value_unseen"))
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.hlines(part["arrow"], every, unseen, color="black", linewidth=0.8)
        ax.scatter(unseen, part["arrow"], 26, facecolor="white", marker="s", label="rows without a twin", **MARKER_LOOK)
        ax.scatter(every, part["arrow"], 8, facecolor="black", label="all rows", **MARKER_LOOK)
        ax.set(xlabel="change of ECE", ylim=(len(arrows) - 0.5, -0.5), title=method)
    canvas.legend(*axes[0].get_legend_handles_labels(), ncols=2, **LEGEND_BELOW)
    return canvas
