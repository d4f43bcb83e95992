"""The tables and figures of 10_judge: what a table of scores says of its columns.

Names of columns are a user's: they are escaped wherever they are set.
"""

from collections.abc import Iterable

import pandas as pd

from lib.analysis.judged_scores import COMPARED, CONSTANT, METRICS
from lib.errors import show_hidden
from lib.paper import figure_style as style
from lib.paper.booktabs import Table, embolden, escape
from lib.paper.cells import CHANCE_MARK, format_3dp
from lib.paper.figure_style import Canvas, in_paper_style
from lib.paper.figures import draw_reliability
from lib.score.reliability import reliability_diagram
from lib.score.score_files import ScoreTable

HEADS = {"ece": "ECE", "brier": "Brier", "mcb": "MCB", "dsc": "DSC", "auroc": "AUROC"}
METHOD_HEADS = {"": "raw", "isotonic": "isotonic", "platt": "Platt", CONSTANT: "constant"}
LONGEST = 28  # letters of a column's name in tables and figures
INCHES = 2.3  # of a row of diagrams
LOOK = style.Look(style.BLUE, "-")


def shorten_heading(name: str) -> str:
    """Return a column's name, cut if it is long."""
    if len(name) <= LONGEST:
        return name
    return name[: LONGEST - 3] + "..."


def head_of(name: str) -> str:
    """Return a column's name, cut if it is long, as LaTeX."""
    return escape(shorten_heading(name))


def interval_cell(value: float, low: float, high: float, sign: str = "") -> str:
    """Return a number with its interval as LaTeX."""
    if pd.isna(value):
        return "--"
    numbers = [format_3dp(number, sign) for number in (value, low, high)]
    return r"\scoreci{" + "}{".join(numbers) + "}"


def chance_cell(error: pd.Series) -> str:
    """Return what chance gives: its mean to its 95% point, with a mark if the ECE is within."""
    mark = CHANCE_MARK if error.calibrated else ""
    return f"{format_3dp(error.chance)} to {format_3dp(error.chance_high)}{mark}"


def excludes_zero(low: float, high: float) -> bool:
    """Whether an interval decides the sign of a difference."""
    return bool(low > 0 or high < 0)


def difference_cell(difference: float, low: float, high: float) -> str:
    """Return a difference with its interval as LaTeX, bold if it excludes 0."""
    cell = interval_cell(difference, low, high, "+")
    if excludes_zero(low, high):
        return embolden(cell)
    return cell


def set_cells(cells: pd.DataFrame, title: str) -> Table:
    """Return the table of cells, whose labels are escaped by now."""
    levels = cells.index.nlevels
    spec = "l" * levels + "c" * cells.shape[1]
    return Table(cells, {"": spec}, title=title)


# ---- tables


def columns_table(results: pd.DataFrame, title: str = "") -> Table:
    """Return the table of every column on all rows, from `judge_raw`."""
    rows = {}
    for name, part in results.groupby("column", sort=False):
        by_metric = part.set_index("metric")
        cells = {"chance": chance_cell(by_metric.loc["ece"])}
        for metric in METRICS:
            number = by_metric.loc[metric]
            cells[HEADS[metric]] = interval_cell(number.value, number.low, number.high)
        rows[head_of(str(name))] = cells
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("column")
    return set_cells(frame[["ECE", "chance", "Brier", "MCB", "DSC", "AUROC"]], title)


def differences_table(differences: pd.DataFrame, title: str = "") -> Table:
    """Return the table of paired differences between columns; bold ones exclude 0."""
    records = []
    for (first, second), part in differences.groupby(["column", "than"], sort=False):
        cells = {"column": head_of(first), "minus": head_of(second)}
        for row in part.itertuples():
            cells[HEADS[row.metric]] = difference_cell(row.difference, row.low, row.high)
        records.append(cells)
    heads = [HEADS[metric] for metric in COMPARED]
    frame = pd.DataFrame(records, columns=["column", "minus", *heads])
    return set_cells(frame.set_index(["column", "minus"]), title)


def calibrated_table(results: pd.DataFrame, title: str = "") -> Table:
    """Return the table of the second half, raw and calibrated, from `judge_calibrated`: bold is a
    difference of Brier scores to raw that excludes 0."""
    records = []
    for (column, method), part in results.groupby(["column", "method"], sort=False):
        cells = {"column": head_of(column), "method": METHOD_HEADS[method]}
        cells["chance"] = chance_cell(part.set_index("metric").loc["ece"])
        for row in part.itertuples():
            cells[HEADS[row.metric]] = interval_cell(row.value, row.low, row.high)
            if row.metric == "brier" and method:
                cells["Brier minus raw"] = difference_cell(
                    row.difference, row.difference_low, row.difference_high
                )
        records.append(cells)
    heads = ["ECE", "chance", "Brier", "AUROC", "Brier minus raw"]
    frame = pd.DataFrame(records, columns=["column", "method", *heads])
    frame = frame.astype(object).fillna("")
    return set_cells(frame.set_index(["column", "method"]), title)


def thresholds_table(thresholds: pd.DataFrame, title: str = "") -> Table:
    """Return the table of thresholds by column and target, from `judge_thresholds`."""
    records = []
    for row in thresholds.to_dict("records"):
        cells = {"column": head_of(row["column"]), "target": format_3dp(row["target"])}
        if pd.isna(row["threshold"]):
            cells["threshold"] = "--"
            cells["more labels"] = describe_more_labels(row["more_labels"])
        else:
            cells["threshold"] = f"{row['threshold']:.6g}"
            cells["answered"] = format_3dp(row["answered"])
            cells["precision"] = interval_cell(row["precision"], row["low"], row["high"])
        records.append(cells)
    heads = ["threshold", "answered", "precision", "more labels"]
    frame = pd.DataFrame(records, columns=["column", "target", *heads])
    frame = frame.astype(object).fillna("")
    return set_cells(frame.set_index(["column", "target"]), title)


def describe_more_labels(count: object) -> str:
    """Return about how many more labels a guarantee takes, in two digits.

    Examples
    --------
    >>> describe_more_labels(453), describe_more_labels(pd.NA)
    ('about 450', 'not often enough right')
    """
    if pd.isna(count):
        return "not often enough right"
    if not count:
        return "a few"
    two_digits = float(f"{count:.2g}")
    return f"about {two_digits:,.0f}"


# ---- figures


def diagram_title(name: str) -> str:
    """Return a user's name as matplotlib sets it: a dollar sign begins no formula."""
    words = " ".join(show_hidden(shorten_heading(name)).split())
    return words.replace("$", r"\$")


@in_paper_style
def reliability_figure(table: ScoreTable, n_bins: int = 10, title: str = "") -> Canvas:
    """Draw the reliability diagram of every column on all rows, three side by side."""
    names = list(table.scores)
    across = style.PANELS_PER_ROW
    starts = range(0, len(names), across)
    lines = [names[start : start + across] for start in starts]
    width_of_panel = style.WIDTH * 1.3 / across
    width = width_of_panel * len(lines[0])
    canvas = style.new_canvas(INCHES * len(lines), width, diagram_title(title))
    parts = canvas.subfigures(len(lines), 1, squeeze=False, frameon=False).ravel()
    for part, line in zip(parts, lines, strict=True):
        panels = {}
        for name in line:
            confidence = table.scores[name]
            diagram = reliability_diagram(confidence, table.rows.correct, n_bins)
            panels[diagram_title(name)] = diagram
        if lines[0] != line and len(line) < across:  # a last line: its panels are no wider
            widths = [len(line), across - len(line)]
            part = part.subfigures(1, 2, width_ratios=widths, frameon=False)[0]
        draw_reliability(part, panels, LOOK)
    return canvas


@in_paper_style
def calibrated_figure(scores: pd.DataFrame, n_bins: int = 10, title: str = "") -> Canvas:
    """Draw the diagrams of the second half, raw and after each method, a line per column, from
    `judge_calibrated`."""
    columns = list(scores.groupby("column", sort=False))
    width = style.WIDTH * 1.3
    canvas = style.new_canvas(INCHES * len(columns), width, diagram_title(title))
    parts = canvas.subfigures(len(columns), 1, squeeze=False, frameon=False).ravel()
    for part, (name, rows) in zip(parts, columns, strict=True):
        panels = {}
        for method, scored in rows.groupby("method", sort=False):
            if method != CONSTANT:
                head = METHOD_HEADS[method]
                if not method:
                    head = f"{diagram_title(name)}, raw"
                panels[head] = reliability_diagram(scored.confidence, scored.correct, n_bins)
        draw_reliability(part, panels, LOOK)
    return canvas


def join_words(words: Iterable[str]) -> str:
    """Return words as in a sentence: "a, b and c"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
