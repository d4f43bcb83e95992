"""The paper's tables of calibration and transfer, built from frames. Formatting only; bold is computed.

`results` are what `bootstrap.bootstrap` and `experiments.transfer` return. Temperature scaling is printed under the
heading Platt, as in the paper.
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.paper.cells import Cell, Row, Rule, Stack, Table, escape
from lib.paper.layout import (
    DASH,
    DATASET,
    MODEL,
    Labels,
    Values,
    by_pair,
    labels_of,
    ruled,
    short,
    stack,
    stand_behind,
)
from lib.score.estimators import Estimator, in_columns
from lib.score.metrics import METRICS


def _learned(value: float) -> str:
    """Two decimals, more where needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"


def result_calibration(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = (), full: bool = False
) -> Table:
    """`tab:result_calibration` and, with intervals, `tab:result_calibration_full`: ECE after isotonic regression and
    after temperature or Platt scaling of the estimators that have both, t and (a, b). `results` as `bootstrap` and
    `calibrate` return them, below one another. Bold is the lower ECE of the two, of equal ones the larger
    improvement."""
    values = Values(results, "method")
    both = results[(results["method"] == "platt") & (results["metric"] == "ece")]
    chosen = in_columns(both["estimator"].unique())
    answer = [e for e in chosen if e.needs == "answer"]
    other = [e for e in chosen if e.needs != "answer"]

    def ece(pair: tuple, e: Estimator, method: str) -> Cell:
        keys = {how: (*pair, e.name, "ece", how) for how in ("isotonic", "platt")}
        ranks = {how: (values.found.get(key, math.inf), -(values.relative(key) or 0)) for how, key in keys.items()}
        bold = ranks[method] == min(ranks.values()) and ranks[method][0] < math.inf
        key, commands = keys[method], (r"\calci", r"\bestcalci")
        return values.interval(commands, *key, bold=bold) if full else values.improved(*key, bold=bold)

    def slope(pair: tuple, e: Estimator) -> Cell:
        parts = [values.cell(*pair, e.name, metric, "platt", show=_learned) for metric in ("a", "b")]
        text = "({}, {})".format(*(part.text for part in parts))
        latex = "$" + text.replace(" ", "") + "$" if full else None
        return DASH if DASH in parts else Cell(text, latex=latex, about=parts[0].about)

    def row(*pair: str) -> Row:
        cells: Row = [ece(pair, e, "isotonic") for e in chosen]
        if answer:
            cells.append(values.cell(*pair, "ans", "t", "platt", show="{:.2f}".format))
        cells += [ece(pair, e, "platt") for e in answer]
        return cells + [cell for e in other for cell in (slope(pair, e), ece(pair, e, "platt"))]

    names = {e.name: Cell(e.plain, latex=e.label) for e in chosen}
    t, ab = Cell("t", latex="$t$", html="<i>t</i>"), Cell("(a, b)", latex="$(a,b)$", html="(<i>a</i>, <i>b</i>)")
    below: Row = [*names.values(), *[t] * bool(answer), *(names[e.name] for e in answer)]
    below += [cell for e in other for cell in (ab, names[e.name])]
    one, two = len(chosen), len(below) - len(chosen)
    top = [Cell("Isotonic Regression", columns=one), Cell("Platt Scaling", columns=two)]
    lines = Rule(((3, 2 + one), (3 + one, 2 + one + two)))
    head: list[Row | Rule] = [[MODEL, DATASET, *top], lines, [None, None, *below]]
    body = by_pair(results, models, datasets, row)
    odd = results[results["metric"].isin(["t", "a", ""]) & (results["reason"] != "")]
    groups = odd.groupby(["model", "dataset", "reason"], sort=False)["estimator"]
    said = [f"{key[0]} on {key[1]}, {', '.join(part.unique())}: {key[2]}." for key, part in groups]
    return Table(f"ll | {'c' * one} | {'c' * two}", head, body, values.notes([*notes, *said]))


def result_isotonic(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Stack:
    """`tab:result_isotonic`: ECE after isotonic regression, interval and relative improvement; bold is the largest
    improvement of a pair as printed, over both parts."""
    results = results[results["method"] == "isotonic"]
    values, chosen = Values(results), in_columns(results["estimator"].unique())

    def part(some: list[Estimator], group: str) -> Table:
        def row(*pair: str) -> Row:
            gains = {e.name: values.relative((*pair, e.name, "ece")) for e in chosen}
            best = max((gain for gain in gains.values() if gain is not None), default=None)
            commands = (r"\isoCI", r"\isoBestCI")
            return [values.interval(commands, *pair, e.name, "ece", bold=best is not None and gains[e.name] == best)
                    for e in some]  # fmt: skip

        head: Row = [Cell("Model"), Cell("Dataset"), *(Cell(e.plain, latex=e.label) for e in some)]
        body = by_pair(results, models, datasets, row)
        return Table("ll" + "c" * len(some), [head], body, values.notes(notes) if some[-1] is chosen[-1] else ())

    return stack(chosen, part)


# ---- transfer


def families(models: Labels) -> dict[str, str]:
    """Model labels cut to their first letters (Llama-3.1-8B: Llama), where these tell the models apart."""
    labels = dict(models or {})
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) > 1 else labels


def calibration_transfer_full(
    results: pd.DataFrame, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:calibration_transfer_full` from what `transfer` returns: sources in rows, targets in columns; bold where
    they are the same."""
    metrics = ("ece", "mce", "brier")
    values = Values(results.assign(estimator=""), "method", "source_model", "source_dataset")
    models = families(labels_of(models, results, "model"))
    sets = labels_of(datasets, results, "dataset")
    there = [(m, d) for m in models for d in sets if (m, d, "", "ece", "", "", "") in values.found]
    pairs = {(m, d): f"{models[m]} / {sets[d]}" for m, d in there}

    def cells(method: str, source: tuple) -> Row:
        keys = [(target, (*target, "", metric, method, *source)) for target in pairs for metric in metrics]
        return [values.cell(*key, bold=target == source) for target, key in keys]

    blocks: list[list[Row | Rule]] = [[[Cell("Uncalibrated"), DASH, *cells("", ("", ""))]]]
    for method, how in METHODS.items():
        rows: list[Row | Rule] = [[Cell(label), *cells(method, source)] for source, label in pairs.items()]
        blocks.append(stand_behind(how.label, rows))
    starts = range(3, 3 + 3 * len(pairs), 3)
    corner = [Cell("Calibration", rows=2), Cell("Source \\ Target", latex=r"Source $\backslash$ Target", rows=2)]
    top: Row = [*corner, *(Cell(label, columns=3) for label in pairs.values())]
    below: Row = [None, None, *(Cell(METRICS[metric].label) for _ in pairs for metric in metrics)]
    head: list[Row | Rule] = [top, Rule(tuple((start, start + 2) for start in starts)), below]
    return Table(" ".join(["ll", *["ccc"] * len(pairs)]), head, ruled(blocks, Rule()), values.notes(notes))


def calibration_transfer_summary(
    results: pd.DataFrame, hard: str, models: Labels = None, datasets: Labels = None, notes: Sequence[str] = ()
) -> Table:
    """`tab:calibration_transfer_summary`: change of ECE for the arrows that change the dataset, then for those that
    change the model; bold is an improvement on the dataset `hard` (the least accurate one, `hardest`)."""
    values = Values(results.assign(estimator=""), "method", "source_model", "source_dataset")
    models = families(labels_of(models, results, "model"))
    sets = labels_of(datasets, results, "dataset")
    across = [((m, d), (m, e)) for m in models for d, e in itertools.permutations(sets, 2)]
    between = [((m, d), (n, d)) for d in sets for m, n in itertools.permutations(models, 2)]

    def row(source: tuple, target: tuple) -> Row:
        one, other = (f"{models[m]}: {sets[d]}" for m, d in (source, target))
        cells: Row = [Cell(f"{one} \u2192 {other}", latex=rf"{escape(one)} $\rightarrow$ {escape(other)}")]
        for method in METHODS:
            cell = values.cell(*target, "", "delta_ece", method, *source, show=_signed)
            if cell is not DASH:
                bold = cell.text[0] == "-" and target[1] == hard
                latex, html = (rf"$\bm{{{cell.text}}}$", f"<b>{cell.text}</b>") if bold else (f"${cell.text}$", None)
                cell = replace(cell, latex=latex, html=html)
            cells.append(cell)
        return cells

    arrow = r"Calibration Source $\rightarrow$ Evaluation Target"
    methods = [Cell(how.label) for how in METHODS.values()]
    head: Row = [Cell("Calibration Source \u2192 Evaluation Target", latex=arrow), *methods]
    body = ruled([[row(*arrow) for arrow in block] for block in (across, between) if block], Rule())
    return Table("l" + "r" * len(METHODS), [head], body, values.notes(notes))


def hardest(results: pd.DataFrame) -> str:
    """The dataset of least accuracy, averaged over models, from `bootstrap`'s or `metrics.evaluate`'s results."""
    accuracy = results[results["metric"] == "acc"].astype({"value": float})
    return str(accuracy.groupby("dataset", sort=False)["value"].mean().idxmin())


def _signed(value: float) -> str:
    return ("+" if round(value, 3) >= 0 else "-") + short(abs(value))
