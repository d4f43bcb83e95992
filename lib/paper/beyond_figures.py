"""Figures beyond the paper: distributions of scores, paired differences, cost against quality, when
to answer."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from pandas import DataFrame as Frame
from scipy.stats import gmean

from lib.analysis.costs import EXTRA_TOKEN_ESTIMATORS
from lib.paper import figure_style as style
from lib.paper.cells import HEADLINE, label_method
from lib.paper.figure_style import Canvas, in_paper_style
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR, evaluation_rows

CONTRAST = ["estimator", "method", "than", "than_method"]
COST_ESTIMATORS = ("ans_avg", "seq_avg", *EXTRA_TOKEN_ESTIMATORS)
# of the paper's estimators, one of each kind
ESTIMATORS_DRAWN = ("seq_avg", "ans_avg", "p_true", "c_bald")
CHANCE_LABEL = "chance 95% (calibrated scores)"
MIN_COVERAGE = 0.05  # curves start at this share answered: below it they depend on a few rows

# ---- all pairs at once


@in_paper_style
def overview(
    errors: Frame, models: Mapping[str, str], datasets: Mapping[str, str], title: str = ""
) -> Canvas:
    """Draw the ECE of each pair's HEADLINE scores with their 95% intervals, a panel per model
    {name: label}.

    `errors` is from `report_contents.headline_errors`. A gray bar ends at the 95th percentile of
    the ECE of perfectly calibrated scores. A hollow marker lies within it.
    """
    rows = len(datasets)
    canvas = style.new_canvas(0.9 + len(models) * (0.22 + 0.38 * rows), title=title)
    axes = canvas.subplots(len(models), 1, squeeze=False, sharex=True).ravel()
    for ax, model in zip(axes, models, strict=True):
        for shift, ((estimator, method), score) in zip(
            (-0.3, -0.1, 0.1, 0.3), HEADLINE.items(), strict=True
        ):
            part = errors[
                (errors[["model", "estimator", "method"]] == [model, estimator, method]).all(axis=1)
            ]
            part, places = (
                part.set_index("dataset").reindex(list(datasets)),
                np.arange(rows) + shift,
            )
            look = style.ESTIMATOR_LOOKS[estimator]
            look = look._replace(marker="*") if method else look
            ax.barh(places, part["chance_high"], 0.19, color="0.85", label=CHANCE_LABEL)
            style.draw_estimates(ax, places, part, "value", part["calibrated"].eq(True), look)
            ax.scatter([], [], 22, marker=look.marker, color=look.color, label=score)
        ax.set_yticks(range(rows), list(datasets.values()))
        ax.set(title=models[model], ylim=(rows - 0.5, -0.5))
    axes[-1].set(
        xlabel=style.LOWER_IS_BETTER, xlim=(0, 1.05 * errors[["value", "high"]].max(axis=None))
    )
    axes[-1].plot([], [], color="0.3", linewidth=1, label="95% interval")
    hollow: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.3", "linewidth": 0.8}
    axes[-1].scatter([], [], 22, marker="D", label="hollow: could be calibrated", **hollow)
    return canvas


# ---- correct and incorrect responses separately


def draw_histogram(ax: Axes, values: Frame, bins: np.ndarray, of: str) -> None:
    """Draw the share of correct and of incorrect values (columns `value`, `correct`) in each bin,
    as two outlines; values outside count in no bin."""
    for kind, (label, (color, line, _)) in style.RESPONSE_LOOKS.items():
        part = values.loc[values["correct"].astype(bool) == kind, "value"].to_numpy(float)
        look: dict[str, Any] = {
            "color": color,
            "linestyle": line,
            "fill": kind,
            "alpha": 0.25 if kind else 1,
        }
        if len(part):
            look["label"] = f"{label} (n = {len(part)})"
            sns.histplot(x=part, bins=bins, stat="probability", element="step", ax=ax, **look)
    ax.set(ylabel=f"share of {of}", xlim=(bins[0], bins[-1]))


@in_paper_style
def answer_density(tokens: Frame, title: str = "") -> Canvas:
    """Draw the share of answer tokens by probability, for correct and incorrect responses.

    `tokens` (correct, logprob) is from `answer_token_logprobs`. Nearly all probabilities are close
    to 1, so the axis shows 1 - p in powers of ten. The last bin includes all below 1e-7, which
    float32 cannot distinguish from 1.
    """
    # of 1 - p
    powers = -np.log10(np.maximum(-np.expm1(tokens["logprob"].astype(float)), 10**-7.25))
    canvas = style.new_canvas(2.3, title=title)
    ax = canvas.subplots()
    draw_histogram(ax, tokens.assign(value=powers), np.arange(0, 8, 0.5), "tokens")
    ax.set_xticks(range(8), ["1", ".1", ".01", ".001", "1e-4", "1e-5", "1e-6", "\u22641e-7"])
    ax.set_xlabel("1 \N{MINUS SIGN} probability of the answer token (surer to the right)")
    return canvas


@in_paper_style
def confidence_histograms(scores: Frame, names: Mapping[str, str], title: str = "") -> Canvas:
    """Draw the share of evaluation responses by confidence, for correct and incorrect ones, a panel
    per estimator.

    `scores` is from `confidence_frame`, `names` {name: label}. Less overlap means better
    discrimination.
    """
    canvas = style.new_canvas(2.2, title=title)
    shown = evaluation_rows(scores).rename(columns={"confidence": "value"})
    for ax, (name, label) in zip(
        style.add_panels(canvas, len(names), sharey=True), names.items(), strict=True
    ):
        draw_histogram(ax, shown[shown["estimator"] == name], np.linspace(0, 1, 21), "responses")
        ax.set(xlabel="confidence", xticks=[0, 0.5, 1], title=label)
    return canvas


# ---- differences


@in_paper_style
def forest_plot(differences: Frame, pairs: Mapping[tuple[str, str], str]) -> Canvas:
    """Draw paired differences of ECE with their 95% intervals, a panel per contrast and a line per
    pair.

    `differences` is from `compare_contrasts`, `pairs` {(model, dataset): label}. The first has the
    lower ECE left of 0. A hollow marker means that the interval contains 0.
    """
    contrasts, places = list(differences.groupby(CONTRAST, sort=False)), np.arange(len(pairs))
    down = -(-len(contrasts) // style.PANELS_PER_ROW)
    canvas = style.new_canvas(down * (0.75 + 0.15 * len(pairs)), 2 * style.WIDTH)
    for ax, (contrast, part) in zip(
        style.add_panels(canvas, len(contrasts), sharey=True), contrasts, strict=True
    ):
        part = part.set_index(PAIR).reindex(list(pairs))
        ax.axvline(0, color="0.6", linewidth=0.8)
        style.draw_estimates(
            ax,
            places,
            part,
            "difference",
            part["low"] * part["high"] <= 0,
            style.Look("black", "-"),
        )
        ax.set_yticks(places, list(pairs.values()))
        ax.xaxis.set_major_locator(MaxNLocator(3))
        scores = (
            f"{ESTIMATORS[e].plain}, {label_method(how, e)}"
            for e, how in (contrast[:2], contrast[2:])
        )
        title = "\n\N{MINUS SIGN} ".join(scores)
        ax.set(
            xlabel="difference of ECE\n(left of 0: the first is lower)",
            ylim=(len(pairs) - 0.5, -0.5),
            title=title,
        )
    return canvas


# ---- costs


@in_paper_style
def cost_quality_plot(frame: Frame, title: str = "") -> Canvas:
    """Draw ECE and AUROC against tokens: every pair, and larger the means over the pairs that have
    every estimator.

    `frame` is from `cost_and_quality`.
    """
    canvas = style.new_canvas(4.0, title=title)
    axes = canvas.subplots(2, sharex=True)
    labels = {"ece": style.LOWER_IS_BETTER, "auroc": "AUROC (higher is better)"}
    for ax, metric in zip(axes, labels, strict=True):
        points = frame.dropna(subset=[metric, "tokens"])
        complete = (
            points.groupby(PAIR)["estimator"].transform("nunique") == points["estimator"].nunique()
        )
        shared = points[complete] if complete.any() else points
        means = shared.groupby("estimator").agg({"tokens": gmean, metric: "mean"})
        for name, mean in means.reindex(COST_ESTIMATORS).dropna().iterrows():
            look, rows = style.ESTIMATOR_LOOKS[name], points[points["estimator"] == name]
            mark: dict[str, Any] = {"marker": look.marker, "color": look.color, "linewidth": 0.7}
            ax.scatter(rows["tokens"], rows[metric], s=6, alpha=0.6, **mark)
            ax.scatter(
                mean["tokens"],
                mean[metric],
                s=50,
                edgecolor="black",
                label=ESTIMATORS[name].plain,
                **mark,
            )
        ax.set(ylabel=labels[metric], xscale="log")
    axes[1].scatter([], [], s=6, color="0.4", label="small: a pair")
    axes[1].scatter([], [], s=50, color="0.4", label="large: mean")
    axes[1].set_xlabel("tokens per question")
    axes[1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[1].xaxis.set_major_formatter("{x:,.0f}")
    axes[1].xaxis.set_minor_locator(NullLocator())
    return canvas


# ---- when to answer


@in_paper_style
def risk_coverage_plot(
    curves: Frame, thresholds: Frame, model: str, datasets: Mapping[str, str], title: str = ""
) -> Canvas:
    """Draw risk-coverage curves of one model, raw and after isotonic regression, a column for each
    of the `datasets` {name: label}.

    `curves` and `thresholds` are from `risk_coverage_curves` and `selective_thresholds`. Only
    thresholds of the middle target precision are drawn.
    """
    precision = thresholds["target"].quantile(0.5, interpolation="higher")
    ours = curves[(curves["model"] == model) & (curves["answered"] >= MIN_COVERAGE)].sort_values(
        "answered"
    )
    found = thresholds[(thresholds["model"] == model) & (thresholds["target"] == precision)]
    canvas = style.new_canvas(3.4, style.WIDTH * max(1, len(datasets) / 2), title)
    axes = canvas.subplots(2, len(datasets), squeeze=False, sharex=True, sharey=True)
    panels = product(("", "isotonic"), datasets.items())
    for ax, (method, (dataset, label)) in zip(axes.flat, panels, strict=True):
        rows = ours[(ours["dataset"] == dataset) & (ours["method"] == method)]
        for name in (name for name in ESTIMATORS_DRAWN if name in set(ours["estimator"])):
            part, look = rows[rows["estimator"] == name], style.ESTIMATOR_LOOKS[name]
            line: dict[str, Any] = {
                **look._asdict(),
                "markersize": 3.5,
                "linewidth": 1.2,
                "markevery": 0.25,
            }
            ax.plot(part["answered"], part["accuracy"], label=ESTIMATORS[name].plain, **line)
        rings = found[
            (found["dataset"] == dataset)
            & found["estimator"].isin(ESTIMATORS_DRAWN)
            & (method == "")
        ]
        if rings["answered"].notna().any():
            label_of_ring = f"guaranteed {precision:g}"
            ax.scatter(
                rings["answered"],
                rings["precision"],
                36,
                "none",
                edgecolor="black",
                label=label_of_ring,
            )
        ax.axhline(precision, zorder=0, color="0.6", linewidth=0.8, label=f"accuracy {precision:g}")
        ax.set(
            xlim=(0, 1.02),
            xticks=[0, 0.5, 1],
            **({"xlabel": "share answered"} if method else {"title": label}),
        )
    for ax, said in zip(axes[:, 0], ("raw", "isotonic"), strict=True):
        ax.set_ylabel(f"accuracy, {said}")
    return canvas
