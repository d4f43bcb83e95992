"""Figures beyond the paper: distributions of scores, paired differences, cost against quality, when
to answer."""

import math
from collections.abc import Mapping
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
PANEL_WIDTH = 0.95  # inches, of a dataset in the first figure
LEAST_RANGE = 0.1  # of its axis: smaller errors are not told apart
MIN_COVERAGE = 0.05  # curves start at this share answered: below it they depend on a few rows

# ---- all pairs at once


@in_paper_style
def overview(
    errors: Frame, models: Mapping[str, str], datasets: Mapping[str, str], title: str = ""
) -> Canvas:
    """Draw the ECE of each pair's HEADLINE scores with their 95% intervals: a row of panels per
    model {name: label}, a panel per dataset, a line per score.

    `errors` is from `report_contents.headline_errors`. A gray bar ends at the 95th percentile of
    the ECE of perfectly calibrated scores. A hollow marker lies within it.
    """
    width = max(1.2 * style.WIDTH, 1.1 + PANEL_WIDTH * len(datasets))
    canvas = style.new_canvas(0.6 + 1.25 * len(models), width, title=title)
    heights = [1.0] * len(models)
    heights[-1] += 0.15  # of its axis label
    parts = canvas.subfigures(len(models), 1, squeeze=False, height_ratios=heights, frameon=False)
    parts = parts.ravel()
    largest = errors[["value", "high"]].max(axis=None)
    end = max(LEAST_RANGE, 1.05 * largest)
    for part, (model, label) in zip(parts, models.items(), strict=True):
        part.suptitle(label, x=0.02, ha="left")
        axes = part.subplots(1, len(datasets), squeeze=False, sharey=True).ravel()
        for ax, (dataset, name) in zip(axes, datasets.items(), strict=True):
            of_pair = (errors["model"] == model) & (errors["dataset"] == dataset)
            draw_headlines(ax, errors[of_pair])
            ax.set(title=name, xlim=(0, end))
            ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
    parts[-1].supxlabel(style.LOWER_IS_BETTER, fontsize="medium")
    ax.plot([], [], color="0.3", linewidth=1, label="95% interval")
    label = "hollow: could be calibrated"
    ax.scatter([], [], 22, marker="D", facecolor="white", edgecolor="0.3", lw=0.8, label=label)
    return canvas


def draw_headlines(ax: Axes, errors: Frame) -> None:
    """Draw the errors of a pair's HEADLINE scores, a line each, from above."""
    by_score = errors.set_index(["estimator", "method"])
    for place, score in enumerate(HEADLINE):
        estimator, method = score
        rows = by_score.reindex([score])
        look = style.ESTIMATOR_LOOKS[estimator]
        if method:
            look = look._replace(marker="*")
        ax.barh([place], rows["chance_high"], 0.8, color="0.85", label=CHANCE_LABEL)
        at = np.array([place])
        style.draw_estimates(ax, at, rows, "value", rows["calibrated"].eq(True), look)
    ax.set_yticks(range(len(HEADLINE)), list(HEADLINE.values()))
    ax.set_ylim(len(HEADLINE) - 0.5, -0.5)


# ---- correct and incorrect responses separately


def draw_histogram(ax: Axes, values: Frame, bins: np.ndarray, of: str) -> None:
    """Draw the share of correct and of incorrect values (columns `value`, `correct`) in each bin,
    as two outlines; values outside count in no bin."""
    for correct, (label, look) in style.RESPONSE_LOOKS.items():
        is_kind = values["correct"].astype(bool) == correct
        x = values.loc[is_kind, "value"].to_numpy(float)
        if len(x):
            sns.histplot(
                x=x,
                bins=bins,
                stat="probability",
                element="step",
                ax=ax,
                color=look.color,
                linestyle=look.linestyle,
                fill=correct,
                alpha=0.25 if correct else 1,
                label=f"{label} (n = {len(x)})",
            )
    ax.set(ylabel=f"share of {of}", xlim=(bins[0], bins[-1]))


@in_paper_style
def answer_density(tokens: Frame, title: str = "") -> Canvas:
    """Draw the share of answer tokens by probability, for correct and incorrect responses.

    `tokens` (correct, logprob) is from `answer_token_logprobs`. Nearly all probabilities are close
    to 1, so the axis shows 1 - p in powers of ten. The last bin includes all below 1e-7, which
    float32 cannot distinguish from 1.
    """
    complement = -np.expm1(tokens["logprob"].astype(float))  # 1 - p
    powers = -np.log10(np.maximum(complement, 10**-7.25))
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
    responses = evaluation_rows(scores).rename(columns={"confidence": "value"})
    axes = style.add_panels(canvas, len(names), sharey=True)
    for ax, (name, label) in zip(axes, names.items(), strict=True):
        of_estimator = responses[responses["estimator"] == name]
        draw_histogram(ax, of_estimator, np.linspace(0, 1, 21), "responses")
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
    contrasts = list(differences.groupby(CONTRAST, sort=False))
    places = np.arange(len(pairs))
    down = math.ceil(len(contrasts) / style.PANELS_PER_ROW)
    height = 0.75 + 0.15 * len(pairs)  # of a panel
    canvas = style.new_canvas(down * height, 2 * style.WIDTH)
    axes = style.add_panels(canvas, len(contrasts), sharey=True)
    for ax, (contrast, rows) in zip(axes, contrasts, strict=True):
        rows = rows.set_index(PAIR).reindex(list(pairs))
        has_zero = rows["low"] * rows["high"] <= 0
        ax.axvline(0, color="0.6", linewidth=0.8)
        style.draw_estimates(ax, places, rows, "difference", has_zero, style.Look("black", "-"))
        ax.set_yticks(places, list(pairs.values()))
        ax.xaxis.set_major_locator(MaxNLocator(3))
        estimator, method, than, than_method = contrast
        first = f"{ESTIMATORS[estimator].plain}, {label_method(method, estimator)}"
        second = f"{ESTIMATORS[than].plain}, {label_method(than_method, than)}"
        ax.set_title(f"{first}\n\N{MINUS SIGN} {second}")
        ax.set_xlabel("difference of ECE\n(left of 0: the first is lower)")
        ax.set_ylim(len(pairs) - 0.5, -0.5)
    return canvas


# ---- costs


@in_paper_style
def cost_quality_plot(frame: Frame, title: str = "") -> Canvas:
    """Draw ECE and AUROC against tokens: every pair, and larger the means over the pairs that have
    every estimator.

    `frame` is from `cost_and_quality`.
    """
    canvas = style.new_canvas(4.0, title=title)
    quality, ranking = canvas.subplots(2, sharex=True)
    draw_points(quality, frame, "ece")
    draw_points(ranking, frame, "auroc")
    quality.set(ylabel=style.LOWER_IS_BETTER, xscale="log")
    ranking.set(ylabel="AUROC (higher is better)", xscale="log")
    ranking.scatter([], [], s=6, color="0.4", label="small: a pair")
    ranking.scatter([], [], s=50, color="0.4", label="large: mean")
    ranking.set_xlabel("tokens per question")
    ranking.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ranking.xaxis.set_major_formatter("{x:,.0f}")
    ranking.xaxis.set_minor_locator(NullLocator())
    return canvas


def draw_points(ax: Axes, frame: Frame, metric: str) -> None:
    """Draw a metric of each pair and estimator against its tokens, and the means."""
    points = frame.dropna(subset=[metric, "tokens"])
    counts = points.groupby(PAIR)["estimator"].transform("nunique")
    is_complete = counts == points["estimator"].nunique()
    shared = points[is_complete] if is_complete.any() else points
    means = shared.groupby("estimator").agg({"tokens": gmean, metric: "mean"})
    for name, mean in means.reindex(COST_ESTIMATORS).dropna().iterrows():
        look = style.ESTIMATOR_LOOKS[name]
        mark: dict[str, Any] = {"marker": look.marker, "color": look.color, "linewidth": 0.7}
        rows = points[points["estimator"] == name]
        ax.scatter(rows["tokens"], rows[metric], s=6, alpha=0.6, **mark)
        label = ESTIMATORS[name].plain
        ax.scatter(mean["tokens"], mean[metric], s=50, edgecolor="black", label=label, **mark)


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
    is_drawn = (curves["model"] == model) & (curves["answered"] >= MIN_COVERAGE)
    curves = curves[is_drawn].sort_values("answered")
    present = set(curves["estimator"])
    estimators = [name for name in ESTIMATORS_DRAWN if name in present]
    chosen = thresholds[(thresholds["model"] == model) & (thresholds["target"] == precision)]
    chosen = chosen[chosen["estimator"].isin(ESTIMATORS_DRAWN)]
    canvas = style.new_canvas(3.4, style.WIDTH * max(1, len(datasets) / 2), title)
    axes = canvas.subplots(2, len(datasets), squeeze=False, sharex=True, sharey=True)
    for column, (dataset, label) in enumerate(datasets.items()):
        of_dataset = curves[curves["dataset"] == dataset]
        raw, isotonic = axes[:, column]
        draw_accuracies(raw, of_dataset[of_dataset["method"] == ""], estimators)
        draw_accuracies(isotonic, of_dataset[of_dataset["method"] == "isotonic"], estimators)
        draw_rings(raw, chosen[chosen["dataset"] == dataset], precision)
        raw.set_title(label)
        isotonic.set_xlabel("share answered")
    for ax in axes.flat:
        ax.axhline(precision, zorder=0, color="0.6", linewidth=0.8, label=f"accuracy {precision:g}")
        ax.set(xlim=(0, 1.02), xticks=[0, 0.5, 1])
    axes[0, 0].set_ylabel("accuracy, raw")
    axes[1, 0].set_ylabel("accuracy, isotonic")
    return canvas


def draw_accuracies(ax: Axes, curves: Frame, estimators: list[str]) -> None:
    """Draw the accuracy of the answers given against the share answered, by estimator."""
    for name in estimators:
        rows = curves[curves["estimator"] == name]
        look = style.ESTIMATOR_LOOKS[name]
        ax.plot(
            rows["answered"],
            rows["accuracy"],
            label=ESTIMATORS[name].plain,
            markersize=3.5,
            linewidth=1.2,
            markevery=0.25,
            **look._asdict(),
        )


def draw_rings(ax: Axes, thresholds: Frame, precision: float) -> None:
    """Draw a ring at each threshold that guarantees a precision."""
    if thresholds["answered"].notna().any():
        label = f"guaranteed {precision:g}"
        answered = thresholds["answered"]
        ax.scatter(answered, thresholds["precision"], 36, "none", edgecolor="black", label=label)
