"""The paper's tables of calibration and transfer. Each is a function of all results of a run, or of the paper; bold is
computed.

Each method of `calibrators.METHODS` adds a group of columns, a block of rows, or a column. Temperature scaling is under
the heading Platt, as in the paper.
"""

from itertools import groupby, permutations

import pandas as pd

from lib.analysis.results import Results
from lib.calibrate.calibrators import METHODS
from lib.calibrate.fitting import SOURCE
from lib.paper import cells
from lib.paper.booktabs import Table
from lib.paper.cells import Frame, Lines
from lib.paper.frame_labels import family_labels
from lib.paper.latex import escape
from lib.score.estimators import in_columns
from lib.score.metrics import METRICS
from lib.store import PAIR

METHOD_HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}  # other methods use their label

# ---- calibration


def result_calibration(results: Results, full: bool = False) -> Table:
    """Return `tab:result_calibration`: ECE after each method, and its fitted parameters.

    The lowest ECE of an estimator is bold; ties go to the largest improvement as printed. `full`: with intervals.
    """
    frame = results.frames["result_calibration_full" if full else "result_calibration"]
    rows, columns = cells.pair_lines(results), calibrated_columns(frame)
    numbers = cells.place(frame, rows, columns)
    errors, gains = numbers.metric == "ece", cells.format_gains(numbers)
    improved = numbers.text.where(numbers.relative.isna(), numbers.text + " (" + gains + ")")
    shown = cells.format_intervals(numbers, r"\calci") if full else improved
    numbers["text"] = shown.where(errors, parameter_texts(numbers, full))
    best = percent_improved(numbers).fillna(0).where(cells.lowest(numbers, errors, "row", "estimator"))
    numbers["bold"] = best == best.groupby([numbers.row, numbers.estimator]).transform("max")
    groups = ["c" * len(list(group)) for _, group in groupby(columns, lambda column: column[1]["method"])]
    return cells.set_table(numbers, rows, columns, spec=" | ".join(["ll", *groups]), title=results.title)


def result_calibration_full(results: Results) -> Table:
    """Return `tab:result_calibration_full`: `result_calibration` with intervals."""
    return result_calibration(results, full=True)


def calibrated_columns(frame: Frame) -> Lines:
    """Return the columns by method: ECE of each estimator, preceded once by its fitted parameters.

    The table shows estimators for which some method uses more than the confidence (answer tokens, a margin), or all if
    there are none. The parameters of `ans` belong to both estimators of the answer's tokens.
    """
    errors, learned = frame[frame.metric == "ece"], frame[~frame.metric.isin([*METRICS, ""])]
    fitted = set(zip(errors["method"], errors.estimator, strict=True))
    parameters = learned.groupby(["method", "estimator"]).metric.agg(lambda names: tuple(names.unique())).to_dict()
    beyond = [name for name, method in METHODS.items() if "confidence" not in method.inputs]
    shown = in_columns(frame.estimator.unique())
    shown = [e for e in shown if any((method, e.name) in fitted for method in beyond)] or shown
    columns: Lines = []
    for method, how in METHODS.items():
        heading = METHOD_HEADINGS.get(method, how.label)
        for e in (e for e in shown if (method, e.name) in fitted):
            learner = "ans" if e.needs == "answer" and (method, "ans") in parameters else e.name
            if names := parameters.pop((method, learner), None):
                symbols = f"${names[0]}$" if len(names) == 1 else f"$({','.join(names)})$"
                columns.append(((heading, symbols), {"method": method, "estimator": learner, "metric": names}))
            columns.append(((heading, e.label), {"method": method, "estimator": e.name, "metric": "ece"}))
    return columns


def parameter_texts(numbers: Frame, full: bool) -> pd.Series:
    """Return the fitted parameters of a cell with its first number: 0.53, or (0.61, -1.20), as a formula if intervals
    are formulas (`full`)."""

    def join(texts: pd.Series) -> str:
        if len(texts) == 1 or cells.DASH in set(texts):
            return min(texts)  # the dash comes first
        return f"$({','.join(texts)})$" if full else f"({', '.join(texts)})"

    where = ["row", "column"]
    texts = numbers[where].assign(text=cells.format_values(numbers.value, cells.format_two_digits))
    return texts.groupby(where).text.transform(join).mask(texts.duplicated(where), "")


def percent_improved(numbers: Frame) -> pd.Series:
    """Return the relative improvement as printed."""
    return (100 * numbers.relative).round()


def result_isotonic(results: Results) -> Table:
    """Return `tab:result_isotonic`: ECE after isotonic regression, interval and relative improvement.

    The largest improvement of a pair as printed, over both parts, is bold.
    """
    frame = results.frames["result_isotonic"].query("method == 'isotonic'")
    shown = in_columns(frame.estimator.unique())
    groups = [e.group for e in shown]
    parts = {caption: groups.index(group) for caption, group in cells.PARTS.items() if group in groups}
    fixed = {"metric": "ece", "method": "isotonic"}
    rows, columns = cells.pair_lines(results), cells.lines(fixed, estimator={e.name: e.label for e in shown})
    numbers = cells.place(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\isoCI")
    numbers["bold"] = percent_improved(numbers) == percent_improved(numbers).groupby(numbers.row).transform("max")
    return cells.set_table(numbers, rows, columns, title=results.title, parts=parts)


# ---- transfer


def calibration_transfer_full(results: Results) -> Table:
    """Return `tab:calibration_transfer_full`: sources in rows, targets in columns.

    Cells whose source is the target are bold.
    """
    frame = results.frames["calibration_transfer_full"].assign(estimator="")
    models, datasets = family_labels(results.transfer_labels[0]), results.transfer_labels[1]
    raw = set(frame.query("method == '' and metric == 'ece'").dropna(subset="value").set_index(PAIR).index)
    pairs = [(escape(f"{models[m]} / {datasets[d]}"), (m, d)) for m in models for d in datasets if (m, d) in raw]
    rows: Lines = [(("Uncalibrated", cells.DASH), {"method": "", **dict.fromkeys(SOURCE, "")})]
    for method, how in METHODS.items():
        rows += [
            ((how.label, label), {"method": method} | dict(zip(SOURCE, pair, strict=True))) for label, pair in pairs
        ]
    columns: Lines = []
    for label, pair in pairs:
        fixed = {"estimator": "", **dict(zip(PAIR, pair, strict=True))}
        columns += [((label, *metric), key) for metric, key in cells.lines(fixed, metric=cells.ERRORS)]
    numbers = cells.place(frame, rows, columns)
    numbers["bold"] = (numbers[PAIR].to_numpy() == numbers[SOURCE].to_numpy()).all(axis=1) & numbers.value.notna()
    names = ("Calibration", r"Source $\backslash$ Target")
    return cells.set_table(numbers, rows, columns, names, title=results.title)


def calibration_transfer_summary(results: Results) -> Table:
    """Return `tab:calibration_transfer_summary`: change of ECE, first across datasets, then between models.

    Improvements on the dataset with the lowest accuracy are bold.
    """
    models, datasets = family_labels(results.transfer_labels[0]), results.transfer_labels[1]
    moves = [("across", (m, a), (m, b)) for m in models for a, b in permutations(datasets, 2)]
    moves += [("between", (a, d), (b, d)) for d in datasets for a, b in permutations(models, 2)]
    rows: Lines = []
    for block, *ends in moves:
        label = r" $\rightarrow$ ".join(escape(f"{models[model]}: {datasets[dataset]}") for model, dataset in ends)
        rows.append(((block, label), dict(zip((*SOURCE, *PAIR), (*ends[0], *ends[1]), strict=True))))
    methods = {name: how.label for name, how in METHODS.items()}
    columns = cells.lines({"estimator": "", "metric": "delta_ece"}, method=methods)
    numbers = cells.place(results.frames["calibration_transfer_summary"].assign(estimator=""), rows, columns)
    numbers["text"] = cells.format_values(numbers.value, lambda change: f"${format_signed(change)}$")
    numbers["bold"] = numbers.text.str.startswith("$-") & (numbers.dataset == results.hardest_dataset)
    names = (None, r"Calibration Source $\rightarrow$ Evaluation Target")
    return cells.set_table(numbers, rows, columns, names, "l" + "r" * len(METHODS), results.title)


def format_signed(value: float) -> str:
    """Return three decimals with a sign: +.012, -.209."""
    return f"{'+' if round(value, 3) >= 0 else '-'}{cells.format_3dp(abs(value))}"
