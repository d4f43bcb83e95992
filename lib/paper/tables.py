"""The paper's tables, built from frames. Formatting only; bold is computed, never listed.

`frame` is what `metrics.evaluate` returns, if a builder says no other. Rows and column groups follow `models` and
`datasets` in the order given ({name: label}; by default the names that the frame holds), so another model adds a block.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.paper.latex import mathjax
from lib.paper.table import Cell, Rule, Stack, Table, TableRow
from lib.paper.targets import table_target
from lib.paper.values import (
    DATASET,
    MODEL,
    Frame,
    Labels,
    Notes,
    Values,
    grouped_head,
    over_estimators,
    ruled,
    short,
    stack,
)
from lib.row_cache import devices_of
from lib.score.estimators import ESTIMATORS, EXTRAS, Estimator, in_declared_order
from lib.score.metrics import METRICS

# ---- notes


NOT_AT_HAND = ("Responses and log-probabilities from a file, the model not at hand, so that nothing is known of "
               "P(True), passes with dropout and temperature")  # fmt: skip


def made(manifests: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """How rows were made, from the manifests of generations, verification and dropout, each with the label that its
    model has now: a line per device and precision, with the models, their sources and revisions; and one of those that
    are not at hand, which says what stays empty."""
    models: dict[str, dict[str, None]] = {}
    absent: dict[str, None] = {}
    for label, facts in manifests:
        if (loaded := facts.get("loaded")) is None:
            absent[label] = None
            continue
        revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
        how = " and ".join(devices_of(facts))
        models.setdefault(how, {})[f"{label} ({loaded['source']}{revision})"] = None
    lines = [f"Made on {how}: {', '.join(names)}." for how, names in models.items()]
    return lines + ([f"{NOT_AT_HAND}: {', '.join(absent)}."] if absent else [])


SHARES = {"unparsed": "No parsable answer", "cut": "Cut by length", "unclosed": "Thinking never closed"}


def notes(title: str = "", coverage: Frame | None = None, how: Sequence[str] = ()) -> list[str]:
    """What is printed under a result table: the run's `title` (say "Demo models"), `how` it was made, and the shares
    of responses without a parsable answer, cut by length, of thinking never closed, and graded otherwise by the other
    graders (`coverage` as `answer_coverage` returns it, with the labels of models and datasets)."""
    lines = [title.strip().rstrip(".") + ".", *how] if title.strip() else list(how)
    if coverage is None or not len(coverage):
        return lines
    total = coverage["rows"].sum()
    for column, what in SHARES.items():
        if column not in coverage or (column == "unclosed" and not coverage[column].any()):
            continue
        share = (coverage[column] * coverage["rows"]).sum() / total
        worst = coverage.loc[coverage[column].idxmax()]
        most = f" (at most {worst[column]:.1%}, {worst['model']} on {worst['dataset']})" if share else ""
        lines.append(f"{what}: {share:.1%} of {total} responses{most}.")
    least = coverage.groupby("model", sort=False)["unparsed"].min()
    if silent := list(least.index[least == 1]):
        lines.append(f"No answer of {' and '.join(silent)} could be read: the findings leave that out.")
    others = [column for column in coverage if column not in ("model", "dataset", "rows", *SHARES)]
    if others:
        shares = {grader: (coverage[grader] * coverage["rows"]).sum() / total for grader in others}
        lines.append("Graded otherwise: " + ", ".join(f"{share:.1%} by {name}" for name, share in shares.items()) + ".")
    return lines


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


@table_target(
    "tab_estimators",
    "Estimators",
    "How each estimator turns probabilities into one confidence for a response.",
    place=1,
    arguments=lambda run: (),
)
def estimators() -> Table:
    """`tab:estimators`, from the declarations."""
    groups: dict[str, list[TableRow | Rule]] = {}
    for e in ESTIMATORS.values():
        if e.definition:
            formula = f'<div style="min-width:28em">{mathjax(e.definition)}</div>'  # else MathJax may break its lines
            row: TableRow = [Cell(e.plain, latex=e.label), Cell(latex=e.definition, html=formula)]
            groups.setdefault(e.group, []).append(row)
    head: TableRow = [Cell("Method", bold=True), Cell("Definition", bold=True)]
    return Table("ll", [head], ruled(groups.values(), Rule()))


def _math(name: str, symbol: str) -> Cell:
    return Cell(f"{name}-{symbol}", latex=f"{name}-${symbol}$", html=f"{name}-<i>{symbol}</i>")


RESULT_SETTINGS: list[tuple[Cell, Any]] = [
    (Cell("Temperature"), lambda model: str(float(model.temperature))),
    (_math("Top", "p"), lambda model: str(float(model.top_p))),
    (_math("Top", "k"), lambda model: str(int(model.top_k))),
    (_math("Min", "p"), lambda model: f"{model.min_p:g}"),
    (Cell("System prompt"), lambda model: "Yes" if model.system_prompt else "No"),
]


@table_target("tab_inference_settings", "Decoding settings", "How each model was sampled.", place=8,
       arguments=lambda run: (run.settings, run.notes[:1]))  # fmt: skip
def inference_settings(models: Iterable[Any], notes: Notes = ()) -> Table:
    """`tab:inference_settings`: settings in rows, models (label, temperature, top_p, top_k, min_p, system_prompt) in
    columns; below it a run's title alone, for no response is read."""
    models = list(models)
    head: TableRow = [Cell("Setting", bold=True), *(Cell(model.label) for model in models)]
    body: list[TableRow | Rule] = [[name, *(Cell(show(model)) for model in models)] for name, show in RESULT_SETTINGS]
    return Table("l" + "c" * len(models), [head], body, notes)


# ---- raw confidence


@table_target("tab_result_estimation", "Raw confidence",
       "Accuracy, and ECE and MCE of each estimator before any calibration; the lowest ECE of a row is bold.",
       place=2)  # fmt: skip
def result_estimation(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:result_estimation`: accuracy, then ECE and MCE of every estimator that the frame holds, a bar between
    single-pass and multi-pass; bold is the lowest ECE of a row."""
    values, metrics = Values(frame, models, datasets), ("ece", "mce")
    chosen = values.estimators

    def row(*pair: str) -> TableRow:
        best = values.lowest((*pair, e.name, "ece") for e in chosen)
        keys = [(*pair, e.name, metric) for e in chosen for metric in metrics]
        return [values.cell(*pair, "", "acc"), *(values.cell(*key, bold=key in best) for key in keys)]

    body = values.by_pair(row)
    head = grouped_head([MODEL, DATASET, Cell("Acc.")], over_estimators(chosen, metrics))
    groups = [" ".join("cc" for _ in group) for _, group in itertools.groupby(chosen, key=lambda e: e.group)]
    return Table(" | ".join(["llc", *groups]), head, body, values.notes(notes))


@table_target("tab_result_estimation_full", "Raw confidence with intervals",
       "Every metric with its 95% bootstrap percentile interval over evaluation rows.", place=11)  # fmt: skip
def result_estimation_full(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Stack:
    """`tab:result_estimation_full`: every metric with its interval, `frame` as `bootstrap` returns it; bold is the
    lowest ECE of a pair over both parts."""
    values = Values(frame[frame["method"] == ""], models, datasets)
    chosen, metrics, commands = values.estimators, ("ece", "mce", "brier"), (r"\scoreci", r"\bestscoreci")

    def part(some: list[Estimator], group: str) -> Table:
        accuracy = [("", "acc")] if group == "single_pass" else []
        shown = accuracy + [(e.name, metric) for e in some for metric in metrics]

        def row(*pair: str) -> TableRow:
            best = values.lowest((*pair, e.name, "ece") for e in chosen)
            keys = [(*pair, *key) for key in shown]
            return [values.interval(commands, *key, bold=key in best, show=short) for key in keys]

        body = values.by_pair(row)
        head = grouped_head([MODEL, DATASET, *(Cell("Acc.") for _ in accuracy)], over_estimators(some, metrics))
        columns = " ".join(["ll" + "c" * len(accuracy), *("ccc" for _ in some)])
        return Table(columns, head, body, values.notes(notes) if some[-1] is chosen[-1] else ())

    return stack(chosen, part)


@table_target("tab_insitu_ptrue", "In-situ verification",
       "ECE of P(True) on the live trajectory and by a prompt of its own, beside Ans Avg, and the tokens saved.",
       place=4)  # fmt: skip
def insitu_ptrue(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved in percent (rows of metric
    `token_reduction_pct`, as `token_reduction` returns them); no bold. Below, how much probability the options
    hold (rows as `confidence.option_mass` returns them)."""
    values = Values(frame, models, datasets)
    chosen = [ESTIMATORS[name] for name in ("ans_avg", "p_true_insitu", "p_true")]

    def row(*pair: str) -> TableRow:
        errors = [values.cell(*pair, e.name, "ece") for e in chosen]
        return [*errors, values.cell(*pair, "p_true_insitu", "token_reduction_pct", show="{:.2f}".format)]

    body = values.by_pair(row)
    labels = [Cell(e.plain, latex=e.label.removeprefix(r"\textsc{").rstrip("}"), bold=True) for e in chosen]
    head: TableRow = [Cell("Model", bold=True), Cell("Dataset", bold=True), *labels, Cell("Reduction (%)", bold=True)]
    return Table("llcccc", [head], body, [*values.notes(notes), *option_mass_note(values)])


def option_mass_note(values: Values) -> list[str]:
    """A line for each form of P(True): the probability that both options hold together, median and share below .5."""
    lines = []
    for e in (ESTIMATORS["p_true_insitu"], ESTIMATORS["p_true"]):
        rows = values.frame[values.frame["estimator"] == e.name]
        medians, low = (rows[rows["metric"] == name] for name in ("option_mass", "option_mass_low"))
        if medians.empty:
            continue
        least, most = medians.loc[medians["value"].idxmin()], low.loc[low["value"].idxmax()]
        spread = f" to {medians['value'].max():.3f}" if len(medians) > 1 else ""
        share = f"{(low['value'] * low['n']).sum() / low['n'].sum():.1%} of {low['n'].sum():.0f} responses"
        worst = f" (at most {most['value']:.1%}, {values.where(most)})" if most["value"] and len(low) > 1 else ""
        where = f" ({values.where(least)})" if spread else ""
        lines.append(f"Probability of both options, {e.plain}: median {least['value']:.3f}{where}{spread}; "
                     f"below .5 in {share}{worst}.")  # fmt: skip
    return lines


# ---- one choice in several values


@table_target("tab_dropout_grid_search", "Dropout rates",
       "c_BALD on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.", place=9)  # fmt: skip
def dropout_grid_search(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = (),
                        estimator: str = "c_bald") -> Table:  # fmt: skip
    """`tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD (or another `estimator` of the frame) on the tuning
    examples for each dropout rate (column `rate`, as `evaluate_rate_grid` returns it); bold is the row of lowest ECE,
    the one selected."""
    values, metrics = Values(frame, models, datasets, "rate"), ("ece", "mce", "brier")
    rates = sorted(frame["rate"].unique())

    def rows(*pair: str) -> list[TableRow]:
        lowest = values.lowest((*pair, estimator, "ece", rate) for rate in rates)
        selected = min((key[-1] for key in lowest), default=None)
        return [[Cell(f"{rate:.2f}", bold=rate == selected),
                 *(values.cell(*pair, estimator, metric, rate, bold=rate == selected) for metric in metrics)]
                for rate in rates]  # fmt: skip

    body = values.blocks(rows, Rule(((2, 6),)))
    head: TableRow = [Cell("Model"), Cell("Dataset"), Cell("Dropout rate"), *(Cell(METRICS[m].label) for m in metrics)]
    return Table("llcccc", [head], body, values.notes(notes, "tuning examples of the calibration split"))


@table_target("tab_bin_ablation", "Number of bins", "The single-pass estimators measured with other numbers of bins.",
       place=10, arguments=lambda run: (run.frames["bin_ablation"], run.binned, run.datasets, run.notes))  # fmt: skip
def bin_ablation(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number of bins (column
    `bins`, as `metrics.ablate_bins` returns it); no bold."""
    values, metrics = Values(frame, models, datasets, "bins"), ("ece", "mce", "brier")
    chosen = [e for e in values.estimators if e.group == "single_pass"]

    def rows(*pair: str) -> list[TableRow]:
        return [[Cell(str(bins)), *(values.cell(*pair, e.name, metric, bins) for e in chosen for metric in metrics)]
                for bins in frame["bins"].unique()]  # fmt: skip

    body = values.blocks(rows, Rule(((2, 3 + 3 * len(chosen)),)))
    head = grouped_head([MODEL, DATASET, Cell("Bins")], over_estimators(chosen, metrics))
    return Table(" ".join(["lll", *("ccc" for _ in chosen)]), head, body, values.notes(notes))
