"""The paper's tables of transfer, built from what `transfer.transfer` returns. Formatting only; bold is computed.

Each method of `calibrators.METHODS` brings a block of rows, or a column.
"""

import itertools
import re
from dataclasses import replace

from lib.calibrate.calibrators import METHODS
from lib.paper.latex import escape
from lib.paper.table import Cell, Rule, Table, TableRow
from lib.paper.targets import table_target
from lib.paper.values import DASH, Frame, Labels, Notes, Values, grouped_head, ruled, short, stand_behind
from lib.score.metrics import METRICS


def families(models: Labels) -> dict[str, str]:
    """Model labels cut to their first letters (Llama-3.1-8B: Llama), where these tell the models apart."""
    labels = dict(models or {})
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) > 1 else labels


def _moved(frame: Frame, models: Labels, datasets: Labels) -> Values:
    """The numbers of transfer, all of one estimator, with models called by their families."""
    frame = frame.assign(estimator="")
    names = Values(frame, models, datasets).models
    return Values(frame, families(names), datasets, "method", "source_model", "source_dataset")


@table_target("tab_calibration_transfer_full", "Transfer in full",
       "Every calibrator on every target; bold where it was learned on the target itself.", place=14,
       arguments=lambda run: (run.frames["calibration_transfer_full"], *run.moved, run.notes))  # fmt: skip
def calibration_transfer_full(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:calibration_transfer_full` from what `transfer` returns: sources in rows, targets in columns; bold where
    they are the same."""
    values, metrics = _moved(frame, models, datasets), ("ece", "mce", "brier")
    pairs = {(model, dataset): f"{values.models[model]} / {values.datasets[dataset]}"
             for model in values.models for dataset in values.datasets
             if values.known((model, dataset, "", "ece", "", "", "")) is not None}  # fmt: skip

    def cells(method: str, *source: str) -> TableRow:
        return [values.cell(*pair, "", metric, method, *source, bold=pair == source)
                for pair in pairs for metric in metrics]  # fmt: skip

    blocks: list[list[TableRow | Rule]] = [[[Cell("Uncalibrated"), DASH, *cells("", "", "")]]]
    for method, how in METHODS.items():
        blocks.append(stand_behind(how.label, [[Cell(label), *cells(method, *pair)] for pair, label in pairs.items()]))
    corner = [Cell("Calibration"), Cell("Source \\ Target", latex=r"Source $\backslash$ Target")]
    head = grouped_head(corner, [(Cell(label), [Cell(METRICS[metric].label) for metric in metrics])
                                 for label in pairs.values()])  # fmt: skip
    return Table(" ".join(["ll", *("ccc" for _ in pairs)]), head, ruled(blocks, Rule()), values.notes(notes))


@table_target("tab_calibration_transfer_summary", "Transfer in short",
       "Change of ECE on the target when the calibrator was learned on the source; improvements on the hard dataset "
       "are bold.", place=7,
       arguments=lambda run: (run.frames["calibration_transfer_summary"], *run.moved, run.notes, run.hard))  # fmt: skip
def calibration_transfer_summary(
    frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = (), hard: str = ""
) -> Table:
    """`tab:calibration_transfer_summary`: change of ECE for the arrows that change the dataset, then for those that
    change the model; bold is an improvement on the dataset `hard` (`results.hardest`: the least accurate one)."""
    values = _moved(frame, models, datasets)
    across = [((model, source), (model, target)) for model in values.models
              for source, target in itertools.permutations(values.datasets, 2)]  # fmt: skip
    between = [((source, dataset), (target, dataset)) for dataset in values.datasets
               for source, target in itertools.permutations(values.models, 2)]  # fmt: skip

    def change(source: tuple, target: tuple, method: str) -> Cell:
        cell = values.cell(*target, "", "delta_ece", method, *source, show=_signed)
        if cell is DASH:
            return cell
        if cell.text[0] == "-" and target[1] == hard:
            return replace(cell, latex=rf"$\bm{{{cell.text}}}$", html=f"<b>{cell.text}</b>")
        return replace(cell, latex=f"${cell.text}$")

    def row(source: tuple, target: tuple) -> TableRow:
        ends = [f"{values.models[model]}: {values.datasets[dataset]}" for model, dataset in (source, target)]
        arrow = Cell(" \u2192 ".join(ends), latex=r" $\rightarrow$ ".join(map(escape, ends)))
        return [arrow, *(change(source, target, method) for method in METHODS)]

    title = Cell("Calibration Source \u2192 Evaluation Target",
                 latex=r"Calibration Source $\rightarrow$ Evaluation Target")  # fmt: skip
    head: TableRow = [title, *(Cell(how.label) for how in METHODS.values())]
    body = ruled([[row(*arrow) for arrow in arrows] for arrows in (across, between) if arrows], Rule())
    return Table("l" + "r" * len(METHODS), [head], body, values.notes(notes))


def _signed(value: float) -> str:
    sign = "+" if round(value, 3) >= 0 else "-"
    return sign + short(abs(value))
