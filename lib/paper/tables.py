"""The paper's tables of what was measured before any calibration, built from tidy frames. Bold is computed.

A builder takes a frame, {name: label} of models and datasets in the order shown (by default the names that the frame
holds), and notes. A number that is missing is shown as --, and its reason below.
"""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.paper.booktabs import Cell, Stack, Table
from lib.paper.footnotes import pair_in_words
from lib.paper.latex import mathjax
from lib.paper.layout import (
    GROUPS,
    Frame,
    Labels,
    Layout,
    Line,
    Notes,
    by_metric,
    heading,
    interval,
    is_lowest,
    plain,
    short,
    three_decimals,
)
from lib.score.estimators import ESTIMATORS, EXTRAS, Estimator, in_declared_order
from lib.score.metrics import METRICS
from lib.store import PAIR

ACCURACY = {"estimator": "", "metric": "acc"}
ERRORS = ("ece", "mce", "brier")

# ---- frames for reading


def label_rows(frame: Frame, models: Labels, datasets: Labels) -> Frame:
    """A tidy frame in the words of the tables: labels of models, datasets and estimators, in the order of the run, that
    sorting and pivoting keep, and methods by what they are (`platt` is temperature on the answer's tokens)."""
    known = ESTIMATORS | EXTRAS
    estimators = {
        "base": "base rate",
        **{e.name: e.plain for e in in_declared_order(known.values())},
        "ans": "answer tokens",
    }
    frame = frame.copy()
    if "method" in frame:
        estimator = frame["estimator"] if "estimator" in frame else pd.Series("ans_avg", frame.index)
        of_answers = estimator.map(lambda name: name == "ans" or name in known and known[name].needs == "answer")
        names = {"": "raw"} | {name: method.label for name, method in METHODS.items()}
        plain = {name: method.plain for name, method in METHODS.items()}
        words = [plain.get(name, "raw") if own else names.get(name, name).lower().replace("platt", "Platt")
                 for name, own in zip(frame["method"], of_answers, strict=True)]  # fmt: skip
        order = dict.fromkeys(["raw", *plain.values(), *words])
        frame["method"] = pd.Categorical(words, [word for word in order if word in words], ordered=True)
    for column, labels in {"model": models, "source_model": models, "dataset": datasets, "source_dataset": datasets,
                           "estimator": estimators}.items():  # fmt: skip
        if column in frame and labels:
            here = [label for name, label in labels.items() if name in set(frame[column])]
            frame[column] = pd.Categorical(frame[column].map(dict(labels)), list(dict.fromkeys(here)), ordered=True)
    return frame


# ---- what is measured, and how


def estimators() -> Table:
    """`tab:estimators`, from the declarations."""
    defined = [e for e in ESTIMATORS.values() if e.definition]
    formulas = [f'<div style="min-width:28em">{mathjax(e.definition)}</div>' for e in defined]  # else lines may break
    cells = [[Cell(latex=e.definition, html=formula)] for e, formula in zip(defined, formulas, strict=True)]
    index = pd.MultiIndex.from_tuples([(e.group, heading(e)) for e in defined], names=[None, Cell("Method", bold=True)])
    return Table("ll", pd.DataFrame(cells, index, [Cell("Definition", bold=True)]))


def _math(name: str, symbol: str) -> Cell:
    return Cell(f"{name}-{symbol}", latex=f"{name}-${symbol}$", html=f"{name}-<i>{symbol}</i>")


RESULT_SETTINGS: list[tuple[Cell, Any]] = [
    (Cell("Temperature"), lambda model: str(float(model.temperature))),
    (_math("Top", "p"), lambda model: str(float(model.top_p))),
    (_math("Top", "k"), lambda model: str(int(model.top_k))),
    (_math("Min", "p"), lambda model: f"{model.min_p:g}"),
    (Cell("System prompt"), lambda model: "Yes" if model.system_prompt else "No"),
]


def inference_settings(models: Iterable[Any], notes: Notes = ()) -> Table:
    """`tab:inference_settings`: settings in rows, models (label, temperature, top_p, top_k, min_p, system_prompt) in
    columns; below it a run's title alone, for no response is read."""
    models = list(models)
    index = pd.Index([name for name, _ in RESULT_SETTINGS], name=Cell("Setting", bold=True))
    cells = [[Cell(show(model)) for model in models] for _, show in RESULT_SETTINGS]
    return Table("l" + "c" * len(models), pd.DataFrame(cells, index, [model.label for model in models]), notes)


# ---- raw confidence


def lowest_ece(shown: Frame) -> pd.Series:
    """The lowest ECE of each row."""
    return is_lowest(shown, shown["metric"] == "ece")


def result_estimation(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:result_estimation`: accuracy, then ECE and MCE of every estimator that the frame holds, a bar between
    single-pass and multi-pass; bold is the lowest ECE of a row."""
    layout = Layout.of(frame, models, datasets, notes)
    columns = [Line(("Acc.", ""), ACCURACY), *by_metric(layout.estimators, ("ece", "mce"))]
    groups = [" ".join("cc" for _ in group) for _, group in itertools.groupby(layout.estimators, lambda e: e.group)]
    return layout.by_pair(columns, " | ".join(["llc", *groups]), bold=lowest_ece)


def by_group(layout: Layout) -> dict[str, list[Estimator]]:
    """The estimators of each of GROUPS that there are."""
    groups = {group: [e for e in layout.estimators if e.group == group] for group in GROUPS}
    return {group: some for group, some in groups.items() if some}


def score_interval(one: Any, show: Any = short) -> Cell:
    """A number with its interval, bold by a command of its own."""
    return interval(one, (r"\scoreci", r"\bestscoreci"), show)


def result_estimation_full(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Stack:
    """`tab:result_estimation_full`: every metric with its interval, `frame` as `bootstrap` returns it; bold is the
    lowest ECE of a pair over both parts."""
    layout = Layout.of(frame[frame["method"] == ""], models, datasets, notes)
    first = {"single_pass": [Line(("Acc.", ""), ACCURACY)]}
    columns = {group: first.get(group, []) + by_metric(some, ERRORS) for group, some in by_group(layout).items()}
    specifications = {group: " ".join(["ll" + "c" * (group in first), *("ccc" for _ in some)])
                      for group, some in by_group(layout).items()}  # fmt: skip
    return layout.stack(columns, specifications, score_interval, lowest_ece)


def insitu_ptrue(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent (rows of metric
    `token_reduction_pct`, as `token_reduction` returns them); no bold. Below, how much probability the options
    hold (rows as `verification_statistics.option_mass` returns them)."""
    layout = Layout.of(frame, models, datasets, notes)
    chosen = [ESTIMATORS[name] for name in ("ans_avg", "p_true_insitu", "p_true")]
    labels = [Cell(e.plain, latex=e.label.removeprefix(r"\textsc{").rstrip("}"), bold=True) for e in chosen]
    columns = [Line((label,), {"estimator": e.name, "metric": "ece"}) for label, e in zip(labels, chosen, strict=True)]
    saved = {"estimator": "p_true_insitu", "metric": "token_reduction_pct"}
    columns.append(Line((Cell("Reduction (%)", bold=True),), saved))

    def cell(one: Any) -> Cell:
        return plain(one, three_decimals if one.metric == "ece" else "{:.2f}".format)

    corner = (Cell("Model", bold=True), Cell("Dataset", bold=True))
    table = layout.build(layout.pairs, columns, corner, "llcccc", cell)
    return replace(table, notes=[*table.notes, *option_mass_note(layout)])


def option_mass_note(layout: Layout) -> list[str]:
    """A line for each form of P(True): the probability that both options hold together, median and share below .5."""
    lines = []
    for e in (ESTIMATORS["p_true_insitu"], ESTIMATORS["p_true"]):
        rows = layout.frame[layout.frame["estimator"] == e.name]
        medians, low = (rows[rows["metric"] == name] for name in ("option_mass", "option_mass_low"))
        if medians.empty:
            continue
        least, most = medians.loc[medians["value"].idxmin()], low.loc[low["value"].idxmax()]
        there, worst = (pair_in_words(row, layout.models, layout.datasets) for row in (least, most))
        spread = f" ({there}) to {medians['value'].max():.3f}" if len(medians) > 1 else ""
        share = f"{(low['value'] * low['n']).sum() / low['n'].sum():.1%} of {low['n'].sum():.0f} responses"
        at_most = f" (at most {most['value']:.1%}, {worst})" if most["value"] and len(low) > 1 else ""
        lines.append(f"Probability of both options, {e.plain}: median {least['value']:.3f}{spread}; "
                     f"below .5 in {share}{at_most}.")  # fmt: skip
    return lines


# ---- one choice in several values


def dropout_grid_search(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = (),
                        estimator: str = "c_bald") -> Table:  # fmt: skip
    """`tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD (or another `estimator` of the frame) on the tuning
    examples for each dropout rate (column `rate`, as `evaluate_rate_grid` returns it); bold is the row of lowest ECE,
    the one selected."""
    counted = "tuning examples of the calibration split"
    layout = Layout.of(frame, models, datasets, notes, ("rate",), counted)
    rows = [Line((*pair.labels, f"{rate:.2f}"), {**pair.key, "rate": rate})
            for pair in layout.pairs for rate in sorted(frame["rate"].unique())]  # fmt: skip
    columns = [Line((METRICS[metric].label,), {"estimator": estimator, "metric": metric}) for metric in ERRORS]
    shown = layout.place(rows, columns)
    lowest = shown[is_lowest(shown, shown["metric"] == "ece", *PAIR)]
    selected = set(lowest.drop_duplicates(PAIR)["row"])  # of equal ones the lower rate
    shown["bold"] = shown["row"].isin(selected)
    rows = [line._replace(labels=(*line.labels[:2], Cell(str(line.labels[2]), bold=place in selected)))
            for place, line in enumerate(rows)]  # fmt: skip
    names = ("Model", "Dataset", "Dropout rate")
    return layout.set_cells(shown, rows, columns, names, "llcccc", plain, layout.footnotes(shown))


def bin_ablation(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins (column
    `bins`, as `metrics.ablate_bins` returns it); no bold."""
    layout = Layout.of(frame, models, datasets, notes, ("bins",))
    chosen = [e for e in layout.estimators if e.group == "single_pass"]
    rows = [Line((*pair.labels, str(bins)), {**pair.key, "bins": bins})
            for pair in layout.pairs for bins in frame["bins"].unique()]  # fmt: skip
    specification = " ".join(["lll", *("ccc" for _ in chosen)])
    return layout.build(rows, by_metric(chosen, ERRORS), ("Model", "Dataset", "Bins"), specification)
