"""What the confidence is good for (not in the paper): scores beside a constant at the base rate, and when to answer.
Formatting only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lib import store
from lib.paper.booktabs import Cell, Table
from lib.paper.figure_style import STYLES, WIDTH, Canvas, Figure, style
from lib.paper.layout import Frame, Labels, Layout, Line, Notes, heading, is_lowest, plain, short
from lib.paper.tables import score_interval
from lib.score.estimators import ESTIMATORS, EXTRAS, Estimator, in_declared_order
from lib.score.proper_scoring import BASE
from lib.store import PAIR

SELECTIVE_KINDS = ("scores", "thresholds", "curves")
DRAWN = ("seq_avg", "ans_avg", "p_true", "c_bald")  # of the paper's estimators, one of each kind
LEAST = 0.05  # share answered from which on a curve is drawn: before it rests on a handful of rows
RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "skill": "Skill", "log_loss": "Log-loss",
       "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
SPREAD = ("skill", "auroc", "augrc")  # shown with their intervals
AFTER = {"ece": "ECE", "skill": "Skill"}


def load_selective(run: str, models: Sequence[str], datasets: Sequence[str]) -> dict[str, Frame]:
    """What 10 left of these pairs, by `selective_` and KINDS."""
    frames = {
        f"selective_{kind}": store.read_pairs(run, "selective", kind, models, datasets) for kind in SELECTIVE_KINDS
    }
    return {name: frame[frame["model"].isin(list(models)) & frame["dataset"].isin(list(datasets))]
            for name, frame in frames.items()}  # fmt: skip


def show_selective(frame: Frame) -> list[Estimator]:
    """The estimators of a frame, the paper's first."""
    there = set(frame["estimator"])
    return [e for declared in (ESTIMATORS, EXTRAS) for e in in_declared_order(declared.values()) if e.name in there]


# ---- the table


def selective(scores: Frame, thresholds: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()
              ) -> Table:  # fmt: skip
    """A row for the base rate and for each estimator of a pair: `scores` as `compare_with_base_rate` returns them,
    `thresholds` as `selective_thresholds` does."""
    targets = sorted(thresholds["target"].unique())
    wanted = thresholds.assign(metric=[at(t) for t in thresholds["target"]], value=thresholds["answered"], method="")
    layout = Layout.of(pd.concat([scores, wanted], ignore_index=True), models, datasets, notes, ("method",))
    there = set(scores.loc[(scores["metric"] == "ece") & (scores["method"] == ""), [*PAIR, "estimator"]]
                .itertuples(index=False, name=None))  # fmt: skip
    rows = [Line((*pair.labels, label), {**pair.key, "estimator": name}) for pair in layout.pairs
            for name, label in row_labels(scores).items() if (*pair.key.values(), name) in there]  # fmt: skip
    groups = {("Raw", ""): RAW_LABELS, ("Isotonic", "isotonic"): AFTER,
              ("Answered at", ""): {at(t): short(t).rstrip("0") for t in targets}}  # fmt: skip
    columns = [Line((group, head), {"method": method, "metric": metric})
               for (group, method), heads in groups.items() for metric, head in heads.items()]  # fmt: skip
    shown = layout.place(rows, columns)
    shown = shown[(shown["estimator"] != BASE) | (shown["column"] < len(RAW_LABELS))]
    shown = shown.assign(bold=best_of_pair(shown))
    names, widths = ("Model", "Dataset", "Estimator"), (len(heads) for heads in groups.values())
    specification = " ".join(["lll", *("c" * width for width in widths)])
    table = layout.set_cells(shown, rows, columns, names, specification, cell, layout.footnotes(shown))
    return replace(table, notes=[*table.notes, *promise(thresholds)])


def at(precision: float) -> str:
    """The metric under which the share answered at a guaranteed precision stands."""
    return f"answered_{precision:g}"


def row_labels(scores: Frame) -> dict[str, str | Cell]:
    return {BASE: "Base rate"} | {e.name: heading(e) for e in show_selective(scores)}


def cell(one: Any) -> Cell:
    return score_interval(one) if one.metric in SPREAD and not one.method else plain(one, short)


def best_of_pair(shown: Frame) -> pd.Series:
    """The largest skill of a pair, raw and isotonic, its largest share answered at each precision, its smallest
    AUGRC."""
    lower = shown["metric"] == "augrc"
    higher = (shown["metric"] == "skill") | shown["metric"].str.startswith("answered_")
    signed = shown.assign(value=shown["value"].where(lower, -shown["value"]))
    return is_lowest(signed, lower | higher, *PAIR, "column")


def promise(thresholds: Frame) -> list[str]:
    """Lines that say what was promised, and how often the evaluation rows speak against it."""
    found = thresholds[thresholds["threshold"].notna()]
    held = found["held"].dropna()
    said = "None could be guaranteed."
    if len(held):
        broken = int((~held.astype(bool)).sum())
        said = f"On the evaluation rows {broken} of {len(held)} come out below by more than chance (5%)."
    return ["Intervals: 95% bootstrap percentile, over draws of the other tables. Equal mass: ECE of bins with equally "
            "many rows. Log-loss: a score of exactly 0 or 1 that is wrong costs 36.",
            f"Answered at: by a threshold on the raw score, fitted on calibration rows. {said}"]  # fmt: skip


# ---- the figure


def when_to_answer(curves: Frame, thresholds: Frame, model: str, datasets: Mapping[str, str], title: str = ""
                   ) -> Figure:  # fmt: skip
    """Risk-coverage curves of one model, a column for each of the `datasets` {name: label}; `curves` and `thresholds`
    as `risk_coverage_curves` and `selective_thresholds` return them, of which those of the middle precision are
    drawn."""
    targets = sorted(thresholds["target"].unique()) or [0.9]
    precision = targets[len(targets) // 2]
    ours, found = curves[curves["model"] == model], thresholds[thresholds["model"] == model]
    drawn = [e for e in show_selective(ours) if e.name in DRAWN] or show_selective(ours)[: len(STYLES)]
    looks: dict[str, tuple] = {e.name: look for e, look in zip(drawn, STYLES, strict=False)}
    found = found[(found["target"] == precision) & found["answered"].notna() & found["precision"].notna()]
    with style():
        canvas = Canvas(figsize=(WIDTH * max(1, len(datasets) / 2), 3.4), layout="constrained")
        axes = canvas.subplots(2, len(datasets), sharex=True, sharey="col", squeeze=False)
        for column, (dataset, name) in zip(axes.T, datasets.items(), strict=True):
            here, rings = (frame[frame["dataset"] == dataset] for frame in (ours, found))
            for ax, method in zip(column, ("", "isotonic"), strict=True):
                _draw_curves(ax, here[here["method"] == method], looks)
                ax.axhline(precision, color="0.6", linewidth=0.8, zorder=0)
            for ring in rings[rings["estimator"].isin(list(looks))].itertuples():
                column[0].plot(ring.answered, ring.precision, "o", markersize=6, markerfacecolor="none",
                               markeredgecolor=looks[ring.estimator][0], clip_on=False)  # fmt: skip
            column[0].set_title(name, parse_math=False)
            column[1].set_xlabel("share answered")
        for ax, said in zip(axes[:, 0], ("raw", "isotonic"), strict=True):
            ax.set_ylabel(f"accuracy, {said}")
        handles = [Line2D([], [], color=look[0], linestyle=look[1], marker=look[2], markersize=3.5, linewidth=1.2,
                          label=e.plain) for e, look in zip(drawn, looks.values(), strict=False)]  # fmt: skip
        if handles:
            canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.6)
        canvas.suptitle(title, x=0.02, ha="left", size=7.5, parse_math=False)
    return Figure(canvas)


def _draw_curves(ax: Axes, curves: Frame, looks: Mapping[str, tuple]) -> None:
    """The curves of one panel; a mark about every fifth of the way tells them apart without colour."""
    for estimator, part in curves[curves["answered"] >= LEAST].groupby("estimator", sort=False):
        if estimator not in looks:
            continue
        colour, line, marker, _ = looks[str(estimator)]
        part = part.sort_values("answered")
        nearest = [int(np.abs(part["answered"] - share).argmin()) for share in np.linspace(0.2, 1, 5)]
        more: dict[str, Any] = {"marker": marker, "markersize": 3.5, "markevery": sorted(set(nearest))}
        ax.plot(part["answered"], part["accuracy"], line, color=colour, linewidth=1.2, **more)
    ax.set(xlim=(0, 1.02), xticks=[0, 0.5, 1])
