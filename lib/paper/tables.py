"""The paper's tables of raw confidence, built from tidy frames. Bold is computed.

A builder takes a frame, {name: label} of models and datasets in the order shown, and notes. A missing number is shown
as --, with its reason below.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from lib.analysis.printed_numbers import ERRORS
from lib.calibrate.calibrators import METHODS
from lib.paper.booktabs import Cell, Stack, Table
from lib.paper.footnotes import pair_label
from lib.paper.latex import mathjax
from lib.paper.layout import Frame, Header, Labels, Layout, Notes, estimator_heading, is_lowest, metric_columns
from lib.paper.number_cells import THREE_DECIMALS, format_3dp, interval_cell, number_cell
from lib.paper.reference import paper_facts
from lib.score.estimators import ESTIMATORS, EXTRAS, Estimator, in_declared_order
from lib.score.metrics import METRICS
from lib.store import PAIR

ACCURACY = {"estimator": "", "metric": "acc"}

# ---- frames for reading


def label_rows(frame: Frame, models: Labels | None, datasets: Labels | None) -> Frame:
    """Return a tidy frame with the labels of the tables for models, datasets, estimators and methods.

    Categories have the order of the run, which sorting and pivoting keep. On the answer's tokens `platt` is labeled
    temperature.
    """
    known = ESTIMATORS | EXTRAS
    in_order = {e.name: e.plain for e in in_declared_order(known.values())}
    estimators = {"base": "base rate"} | in_order | {"ans": "answer tokens"}
    frame = frame.copy()
    if "method" in frame:
        of_answers = ["ans", *(name for name, e in known.items() if e.needs == "answer")]
        plain = {"": "raw"} | {name: method.plain for name, method in METHODS.items()}
        named = plain | {name: method.label.lower().replace("platt", "Platt") for name, method in METHODS.items()}
        is_answer = frame.get("estimator", pd.Series("ans", frame.index)).isin(of_answers)
        words = frame["method"].replace(plain).where(is_answer, frame["method"].replace(named))
        order = [word for word in dict.fromkeys([*plain.values(), *words]) if word in set(words)]
        frame["method"] = pd.Categorical(words, order, ordered=True)
    named_by = {"model": models, "source_model": models, "dataset": datasets, "source_dataset": datasets}
    for column, labels in (named_by | {"estimator": estimators}).items():
        if column in frame and labels:
            here = [label for name, label in labels.items() if name in set(frame[column])]
            frame[column] = pd.Categorical(frame[column].map(dict(labels)), list(dict.fromkeys(here)), ordered=True)
    return frame


# ---- estimators and settings


def estimators() -> Table:
    """Build `tab:estimators` from the registry."""
    defined = [e for e in ESTIMATORS.values() if e.definition]
    # The width avoids line breaks:
    cells = [
        [Cell(latex=e.definition, html=f'<div style="min-width:28em">{mathjax(e.definition)}</div>')] for e in defined
    ]
    index = pd.MultiIndex.from_tuples(
        [(e.group, estimator_heading(e)) for e in defined], names=[None, Cell("Method", bold=True)]
    )
    return Table("ll", pd.DataFrame(cells, index, [Cell("Definition", bold=True)]))


SETTING_FORMATS: dict[str, Any] = {"top_k": int, "min_p": "{:g}".format}  # all others: float


def inference_settings(models: Iterable[Any], notes: Notes = ()) -> Table:
    """Build `tab:inference_settings`: settings in rows, models in columns.

    Models have label, temperature, top_p, top_k, min_p, system_prompt. The only note is a run's title, as no response
    is used.
    """
    models, settings = list(models), paper_facts()["decoding_settings"]
    heads = [Cell(head.replace("$", ""), latex=head, html=re.sub(r"\$(.)\$", r"<i>\1</i>", head)) for head in settings]
    rows = [
        [str(SETTING_FORMATS.get(name, float)(getattr(model, name))) for model in models] for name in settings.values()
    ]
    rows.append(["Yes" if model.system_prompt else "No" for model in models])
    index = pd.Index([*heads, Cell("System prompt")], name=Cell("Setting", bold=True))
    cells = pd.DataFrame(rows, index, [model.label for model in models]).map(Cell)
    return Table("l" + "c" * len(models), cells, notes)


# ---- raw confidence


def mark_lowest_ece(shown: Frame) -> pd.Series:
    """Mark the lowest ECE of each row."""
    return is_lowest(shown, shown["metric"] == "ece")


def result_estimation(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build `tab:result_estimation`: accuracy, then ECE and MCE of every estimator of the frame.

    A bar separates single-pass from multi-pass; the lowest ECE of a row is bold.
    """
    layout = Layout(frame, models, datasets, notes)
    columns = [Header(("Acc.", ""), ACCURACY), *metric_columns(layout.estimators, ("ece", "mce"))]
    groups = [" ".join("cc" for _ in group) for _, group in itertools.groupby(layout.estimators, lambda e: e.group)]
    return layout.by_pair(columns, " | ".join(["llc", *groups]), bold=mark_lowest_ece)


def score_interval(one: Any, show: Any = format_3dp) -> Cell:
    """Return a number with its interval; bold has its own command."""
    return interval_cell(one, (r"\scoreci", r"\bestscoreci"), show)


def result_estimation_full(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Stack:
    """Build `tab:result_estimation_full`: every metric with its interval; `frame` is from `bootstrap`.

    The lowest ECE of a pair over both parts is bold.
    """
    layout = Layout(frame[frame["method"] == ""], models, datasets, notes)

    def columns(some: list[Estimator]) -> list[Header]:
        first = [Header(("Acc.", ""), ACCURACY)] if some[0].group == "single_pass" else []
        return first + metric_columns(some, ERRORS)

    return layout.stack(columns, cell=score_interval, bold=mark_lowest_ece)


def insitu_ptrue(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build `tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent; no bold.

    The latter are rows of metric `token_reduction_pct` (`token_reduction`). A note has the probability of the options
    (`verification_statistics.option_mass`).
    """
    layout = Layout(frame, models, datasets, notes)
    chosen = [ESTIMATORS[name] for name in ("ans_avg", "p_true_insitu", "p_true")]
    labels = [Cell(e.plain, latex=e.label.removeprefix(r"\textsc{").rstrip("}"), bold=True) for e in chosen]
    columns = [
        Header((label,), {"estimator": e.name, "metric": "ece"}) for label, e in zip(labels, chosen, strict=True)
    ]
    saved = {"estimator": "p_true_insitu", "metric": "token_reduction_pct"}
    columns.append(Header((Cell("Reduction (%)", bold=True),), saved))

    def cell(one: Any) -> Cell:
        return number_cell(one, THREE_DECIMALS if one.metric == "ece" else "{:.2f}".format)

    corner = (Cell("Model", bold=True), Cell("Dataset", bold=True))
    return layout.build(layout.pairs, columns, corner, cell=cell, notes=option_mass_note(layout))


def option_mass_note(layout: Layout) -> list[str]:
    """Return a line for each form of P(True): the total probability of both options, median and share below .5."""
    lines = []
    for e in (ESTIMATORS["p_true_insitu"], ESTIMATORS["p_true"]):
        rows = layout.frame[layout.frame["estimator"] == e.name]
        medians, low = (rows[rows["metric"] == name] for name in ("option_mass", "option_mass_low"))
        if medians.empty:
            continue
        least, most = medians.loc[medians["value"].idxmin()], low.loc[low["value"].idxmax()]
        there, worst = (pair_label(row, layout.models, layout.datasets) for row in (least, most))
        spread = f" ({there}) to {medians['value'].max():.3f}" if len(medians) > 1 else ""
        share = f"{(low['value'] * low['n']).sum() / low['n'].sum():.1%} of {low['n'].sum():.0f} responses"
        at_most = f" (at most {most['value']:.1%}, {worst})" if most["value"] and len(low) > 1 else ""
        lines.append(
            f"Probability of both options, {e.plain}: median {least['value']:.3f}{spread}; "
            f"below .5 in {share}{at_most}."
        )
    return lines


# ---- one setting with several values


def dropout_grid_search(
    frame: Frame, models: Labels, datasets: Labels, notes: Notes = (), estimator: str = "c_bald"
) -> Table:
    """Build `tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD on the tuning examples for each dropout rate.

    `frame` is from `evaluate_rate_grid`, with column `rate`; it may have another `estimator`. The row of lowest ECE,
    the selected rate, is bold.
    """
    layout = Layout(frame, models, datasets, notes, "tuning examples of the calibration split")
    rows = layout.by_value("rate", {rate: f"{rate:.2f}" for rate in sorted(frame["rate"].unique())})
    columns = [Header((METRICS[metric].label,), {"estimator": estimator, "metric": metric}) for metric in ERRORS]
    names = ("Model", "Dataset", "Dropout rate")

    def selected(shown: Frame) -> pd.Series:
        """Mark the rows of lowest ECE; ties go to the lower rate."""
        lowest = shown[is_lowest(shown, shown["metric"] == "ece", *PAIR)].drop_duplicates(PAIR)
        return shown["row"].isin(lowest["row"])

    table = layout.build(rows, columns, names, "llcccc", bold=selected)
    labels = [(*labels, Cell(str(rate), bold=ece.bold)) for (*labels, rate), ece in table.cells.iloc[:, 0].items()]
    table.cells.index = pd.MultiIndex.from_tuples(labels, names=names)
    return table


def bin_ablation(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build `tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins; no bold.

    `frame` is from `metrics.ablate_bins`, with column `bins`.
    """
    layout = Layout(frame, models, datasets, notes)
    chosen = [e for e in layout.estimators if e.group == "single_pass"]
    rows = layout.by_value("bins", {bins: str(bins) for bins in frame["bins"].unique()})
    return layout.build(rows, metric_columns(chosen, ERRORS), ("Model", "Dataset", "Bins"))
