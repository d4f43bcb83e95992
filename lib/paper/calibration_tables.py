"""The paper's tables of calibration, built from frames. Formatting only; bold is computed.

`frame` is what `bootstrap.bootstrap` returns. Each method of `calibrators.METHODS` brings a group of columns;
temperature scaling is printed under the heading Platt, as in the paper.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from lib.calibrate.calibrators import METHODS
from lib.paper.table import Cell, Stack, Table, TableRow
from lib.paper.targets import table_target
from lib.paper.values import DASH, DATASET, MODEL, Frame, Labels, Notes, Values, grouped_head, stack
from lib.score.estimators import Estimator
from lib.score.metrics import METRICS

HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}  # of any other method: its label


class MethodColumn(NamedTuple):
    """What a column shows: `ece` of an estimator, or the metrics that say what a method learned for it (for `ans`: for
    both estimators that rest on the answer's tokens)."""

    head: Cell
    method: str
    estimator: str
    metrics: tuple[str, ...] = ("ece",)


def _groups(frame: Frame, estimators: list[Estimator]) -> dict[str, list[MethodColumn]]:
    """The columns of each method. Shown are the estimators for which some method takes more than their confidence
    (answer tokens, a margin), or all, where none does: their ECE, and before it, once, what was learned for them."""
    errors, learned = frame[frame["metric"] == "ece"], frame[~frame["metric"].isin([*METRICS, ""])]
    fitted = set(zip(errors["method"], errors["estimator"], strict=True))
    special = {name for method, name in fitted if method in METHODS and "confidence" not in METHODS[method].takes}
    special = special or {name for _, name in fitted}
    parameters = learned.groupby(["method", "estimator"])["metric"].agg(lambda names: tuple(names.unique())).to_dict()
    groups: dict[str, list[MethodColumn]] = {}
    for method in METHODS:
        columns: list[MethodColumn] = []
        chosen = [e for e in estimators if e.name in special and (method, e.name) in fitted]
        for e in chosen:
            learner = "ans" if e.needs == "answer" and (method, "ans") in parameters else e.name
            if (method, learner) in parameters and learner not in {column.estimator for column in columns}:
                names = parameters[method, learner]
                columns.append(MethodColumn(_symbols(names), method, learner, names))
            columns.append(MethodColumn(Cell(e.plain, latex=e.label), method, e.name))
        if columns:
            groups[method] = columns
    return groups


def _symbols(names: Sequence[str]) -> Cell:
    """t, or (a, b)."""
    text, latex, html = ", ".join(names), ",".join(names), ", ".join(f"<i>{name}</i>" for name in names)
    if len(names) > 1:
        text, latex, html = f"({text})", f"({latex})", f"({html})"
    return Cell(text, latex=f"${latex}$", html=html)


def _two_digits(value: float) -> str:
    """Two decimals, more where needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"


def _learned(values: Values, pair: tuple, column: MethodColumn, full: bool) -> Cell:
    cells = [values.cell(*pair, column.estimator, metric, column.method, show=_two_digits) for metric in column.metrics]
    if DASH in cells or len(cells) == 1:
        return DASH if DASH in cells else cells[0]
    text = f"({', '.join(cell.text for cell in cells)})"
    numbers = tuple(number for cell in cells for number in cell.numbers)
    return Cell(text, latex=f"${text.replace(' ', '')}$" if full else None, numbers=numbers)


def _error(values: Values, pair: tuple, column: MethodColumn, full: bool) -> Cell:
    def rank(method: str) -> tuple[float, float]:
        key = (*pair, column.estimator, "ece", method)
        value = values.known(key)
        return (math.inf if value is None else value, -(values.relative(key) or 0))

    key = (*pair, column.estimator, "ece", column.method)
    bold = values.known(key) is not None and rank(column.method) == min(map(rank, METHODS))
    return values.interval((r"\calci", r"\bestcalci"), *key, bold=bold) if full else values.improved(*key, bold=bold)


@table_target("tab_result_calibration", "After calibration",
       "ECE after isotonic regression and after temperature (answer estimators) or Platt scaling (P(True)), change "
       "against the raw score in parentheses, and the learned parameters.", place=5)  # fmt: skip
def result_calibration(
    frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = (), full: bool = False
) -> Table:
    """`tab:result_calibration`: ECE after each method, and what it learned. `frame` as `bootstrap` and `calibrate`
    return them, below one another. Bold is the lowest ECE of an estimator, of equal ones the one of the largest
    improvement. `full`: with intervals."""
    values = Values(frame, models, datasets, "method")
    groups = _groups(frame, values.estimators)
    columns = [column for group in groups.values() for column in group]

    def cell(pair: tuple, column: MethodColumn) -> Cell:
        if column.metrics == ("ece",):
            return _error(values, pair, column, full)
        return _learned(values, pair, column, full)

    body = values.by_pair(lambda *pair: [cell(pair, column) for column in columns])
    head = grouped_head([MODEL, DATASET], [
        (Cell(HEADINGS.get(method, METHODS[method].label)), [column.head for column in group])
        for method, group in groups.items()])  # fmt: skip
    specification = " | ".join(["ll", *("c" * len(group) for group in groups.values())])
    return Table(specification, head, body, values.notes([*notes, *_remarks(frame)]))


def _remarks(frame: Frame) -> list[str]:
    """A line for each pair and reason that calibrators gave, with the estimators."""
    odd = frame[~frame["metric"].isin(METRICS) & (frame["reason"] != "")]
    groups = odd.groupby(["model", "dataset", "reason"], sort=False)["estimator"]
    return [f"{model} on {dataset}, {', '.join(names.unique())}: {reason}."
            for (model, dataset, reason), names in groups]  # fmt: skip


@table_target("tab_result_calibration_full", "After calibration, with intervals",
       "ECE after calibration with its 95% interval; the lower of the two methods is bold.", place=12)  # fmt: skip
def result_calibration_full(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """`tab:result_calibration_full`: `result_calibration` with intervals."""
    return result_calibration(frame, models, datasets, notes, full=True)


@table_target("tab_result_isotonic", "Isotonic regression on every estimator",
       "ECE after isotonic regression, 95% interval, and change against the raw score.", place=13)  # fmt: skip
def result_isotonic(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Stack:
    """`tab:result_isotonic`: ECE after isotonic regression, interval and relative improvement; bold is the largest
    improvement of a pair as printed, over both parts."""
    values = Values(frame[frame["method"] == "isotonic"], models, datasets, "method")
    chosen, commands = values.estimators, (r"\isoCI", r"\isoBestCI")

    def part(some: list[Estimator], group: str) -> Table:
        def row(*pair: str) -> TableRow:
            gains = {e.name: values.relative((*pair, e.name, "ece", "isotonic")) for e in chosen}
            largest = max((gain for gain in gains.values() if gain is not None), default=math.inf)
            return [values.interval(commands, *pair, e.name, "ece", "isotonic", bold=gains[e.name] == largest)
                    for e in some]  # fmt: skip

        body = values.by_pair(row)
        head: TableRow = [Cell("Model"), Cell("Dataset"), *(Cell(e.plain, latex=e.label) for e in some)]
        last = values.notes(notes) if some[-1] is chosen[-1] else ()
        return Table("ll" + "c" * len(some), [head], body, last)

    return stack(chosen, part)
