"""The paper's tables of calibration and transfer, built from tidy frames. Bold is computed.

Each method of `calibrators.METHODS` adds a group of columns, a block of rows, or a column. Temperature scaling is under
the heading Platt, as in the paper. Builders have the arguments of those in `tables`.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lib.analysis.printed_numbers import ERRORS, format_two_digits
from lib.calibrate.calibrators import METHODS
from lib.calibrate.transfer import SOURCE
from lib.paper.booktabs import Cell, Stack, Table
from lib.paper.latex import escape
from lib.paper.layout import Frame, Header, Labels, Layout, Notes, estimator_column, is_lowest
from lib.paper.number_cells import DASH, format_3dp, improvement_cell, interval_cell, number_cell
from lib.score.estimators import Estimator
from lib.score.metrics import METRICS
from lib.store import PAIR

METHOD_HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}  # other methods use their label

# ---- calibration


def result_calibration(frame: Frame, models: Labels, datasets: Labels, notes: Notes = (), full: bool = False) -> Table:
    """Build `tab:result_calibration`: ECE after each method, and its fitted parameters.

    `frame` is the concatenated output of `bootstrap` and `calibrate`. The lowest ECE of an estimator is bold; ties go
    to the largest improvement. `full`: with intervals.
    """
    layout = Layout(frame, models, datasets, [*notes, *calibrator_notes(frame)])
    columns = calibrated_columns(layout)

    def cell(*numbers: Any) -> Cell:
        if numbers[0].metric != "ece":
            return parameters_cell(numbers, full)
        return interval_cell(numbers[0], (r"\calci", r"\bestcalci")) if full else improvement_cell(numbers[0])

    groups = itertools.groupby(columns, lambda column: column.key["method"])
    specification = " | ".join(["ll", *("c" * len(list(group)) for _, group in groups)])
    return layout.by_pair(columns, specification, cell=cell, bold=mark_best_method)


def result_calibration_full(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build `tab:result_calibration_full`: `result_calibration` with intervals."""
    return result_calibration(frame, models, datasets, notes, full=True)


def calibrated_columns(layout: Layout) -> list[Header]:
    """Return the columns by method: ECE of each estimator, preceded once by its fitted parameters.

    The table shows estimators for which some method uses more than the confidence (answer tokens, a margin), or all if
    there are none. The parameters of `ans` belong to both estimators of the answer's tokens.
    """
    errors = layout.frame[layout.frame["metric"] == "ece"]
    fitted = set(zip(errors["method"], errors["estimator"], strict=True))
    learned = layout.frame[~layout.frame["metric"].isin([*METRICS, ""])]
    parameters = learned.groupby(["method", "estimator"])["metric"].agg(lambda s: tuple(s.unique())).to_dict()
    beyond = [name for name, method in METHODS.items() if "confidence" not in method.takes]
    chosen = [e for e in layout.estimators if any((name, e.name) in fitted for name in beyond)] or layout.estimators
    columns = []
    for method, how in METHODS.items():
        group = Cell(METHOD_HEADINGS.get(method, how.label))
        for e in (e for e in chosen if (method, e.name) in fitted):
            learner = "ans" if e.needs == "answer" and (method, "ans") in parameters else e.name
            if names := parameters.pop((method, learner), None):
                columns.append(
                    Header((group, parameter_heading(names)), {"method": method, "estimator": learner, "metric": names})
                )
            columns.append(estimator_column(e, "ece", (group,), method=method))
    return columns


def parameter_heading(names: Sequence[str]) -> Cell:
    """Return t, or (a, b)."""
    text, latex, html = ", ".join(names), ",".join(names), ", ".join(f"<i>{name}</i>" for name in names)
    if len(names) > 1:
        text, latex, html = f"({text})", f"({latex})", f"({html})"
    return Cell(text, latex=f"${latex}$", html=html)


def parameters_cell(numbers: Sequence[Any], full: bool) -> Cell:
    """Return the fitted parameters: 0.53, or (0.61, -1.20), as a formula if intervals are formulas (`full`)."""
    cells = [number_cell(one, format_two_digits) for one in numbers]
    if DASH in cells or len(cells) == 1:
        return DASH if DASH in cells else cells[0]
    text = f"({', '.join(cell.text for cell in cells)})"
    return Cell(text, latex=f"${text.replace(' ', '')}$" if full else None, key=cells[0].key)


def percent_improved(shown: Frame) -> pd.Series:
    """Return the relative improvement as printed."""
    return (100 * shown["relative"]).round()


def mark_best_method(shown: Frame) -> pd.Series:
    """Mark the lowest ECE of each estimator of a row; ties go to the largest improvement as printed."""
    lowest = is_lowest(shown, shown["metric"] == "ece", "row", "estimator")
    gains = percent_improved(shown).fillna(0).where(lowest)
    return gains == gains.groupby([shown["row"], shown["estimator"]]).transform("max")


def calibrator_notes(frame: Frame) -> list[str]:
    """Return a line for each pair and reason of a calibrator, with its estimators."""
    odd = frame[~frame["metric"].isin(METRICS) & (frame["reason"] != "")]
    groups = odd.groupby(["model", "dataset", "reason"], sort=False)["estimator"]
    return [
        f"{model} on {dataset}, {', '.join(names.unique())}: {reason}." for (model, dataset, reason), names in groups
    ]


def result_isotonic(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Stack:
    """Build `tab:result_isotonic`: ECE after isotonic regression, interval and relative improvement.

    The largest improvement of a pair as printed, over both parts, is bold.
    """
    layout = Layout(frame[frame["method"] == "isotonic"], models, datasets, notes)

    def columns(some: list[Estimator]) -> list[Header]:
        return [estimator_column(e, "ece", method="isotonic") for e in some]

    def largest(shown: Frame) -> pd.Series:
        return percent_improved(shown) == percent_improved(shown).groupby(shown["row"]).transform("max")

    cell = partial(interval_cell, commands=(r"\isoCI", r"\isoBestCI"))
    return layout.stack(columns, cell=cell, bold=largest)


# ---- transfer


def family_labels(models: Mapping[str, str]) -> dict[str, str]:
    """Return model labels shortened to their first letters (Llama-3.1-8B: Llama), if these are unique."""
    labels = dict(models)
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) > 1 else labels


def transfer_layout(frame: Frame, models: Labels, datasets: Labels, notes: Notes) -> Layout:
    """Return the layout of transfer results, all of one estimator, with models named by their families."""
    return Layout(frame.assign(estimator=""), family_labels(models), datasets, notes)


def calibration_transfer_full(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build `tab:calibration_transfer_full` from the output of `transfer`: sources in rows, targets in columns.

    Cells whose source is the target are bold.
    """
    layout = transfer_layout(frame, models, datasets, notes)
    there = frame.query("method == '' and metric == 'ece'").dropna(subset="value").set_index(PAIR).index
    kept = [pair for pair in layout.pairs if tuple(pair.key.values()) in there]
    pairs = {" / ".join(map(str, pair.labels)): pair.key for pair in kept}
    rows = [Header(("Uncalibrated", DASH), {"method": "", **dict.fromkeys(SOURCE, "")})]
    rows += [
        Header((how.label, label), {"method": method, **dict(zip(SOURCE, key.values(), strict=True))})
        for method, how in METHODS.items()
        for label, key in pairs.items()
    ]
    columns = [
        Header((label, METRICS[metric].label), {**key, "estimator": "", "metric": metric})
        for label, key in pairs.items()
        for metric in ERRORS
    ]

    def own(shown: Frame) -> Any:
        return (shown[PAIR].to_numpy() == shown[SOURCE].to_numpy()).all(axis=1)

    corner = ("Calibration", Cell("Source \\ Target", latex=r"Source $\backslash$ Target"))
    return layout.build(rows, columns, corner, bold=own)


def calibration_transfer_summary(
    frame: Frame, models: Labels, datasets: Labels, notes: Notes = (), hard: str = ""
) -> Table:
    """Build `tab:calibration_transfer_summary`: change of ECE, first across datasets, then between models.

    Improvements on the dataset `hard` (`find_hardest_dataset`: the one with the lowest accuracy) are bold.
    """
    layout = transfer_layout(frame, models, datasets, notes)
    rows = [
        transfer_row(layout, "across", (model, source), (model, target))
        for model in layout.models
        for source, target in itertools.permutations(layout.datasets, 2)
    ]
    rows += [
        transfer_row(layout, "between", (source, dataset), (target, dataset))
        for dataset in layout.datasets
        for source, target in itertools.permutations(layout.models, 2)
    ]
    change = {"estimator": "", "metric": "delta_ece"}
    columns = [Header((how.label,), {"method": method, **change}) for method, how in METHODS.items()]

    def cell(one: Any) -> Cell:
        cell = number_cell(one, signed_change)
        if cell is DASH:
            return cell
        if cell.text[0] == "-" and one.dataset == hard:
            return replace(cell, latex=rf"$\bm{{{cell.text}}}$", html=f"<b>{cell.text}</b>")
        return replace(cell, latex=f"${cell.text}$")

    latex = r"Calibration Source $\rightarrow$ Evaluation Target"
    title = Cell(latex.replace(r"$\rightarrow$", "\u2192"), latex=latex)
    return layout.build(rows, columns, (None, title), "l" + "r" * len(METHODS), cell)


def transfer_row(layout: Layout, block: str, *ends: tuple[str, str]) -> Header:
    """Return the row of a source and a target, with a label such as Llama: GSM8K -> Llama: GSMHard."""
    words = [f"{layout.models[model]}: {layout.datasets[dataset]}" for model, dataset in ends]
    label = Cell(" \u2192 ".join(words), latex=r" $\rightarrow$ ".join(map(escape, words)))
    return Header((block, label), dict(zip((*SOURCE, *PAIR), itertools.chain(*ends), strict=True)))


def signed_change(value: float) -> str:
    """Return three decimals with a sign: +.012, -.209."""
    return f"{'+' if round(value, 3) >= 0 else '-'}{format_3dp(abs(value))}"
