"""The numbers of a tidy frame in the cells of a table, formatted; tidy frames with the tables'
labels, for notebooks.

The rows or columns of a table are a frame, too: their labels, in LaTeX, are its index, and each
column is a part of a number's key that they fix.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any

import pandas as pd

from lib.analysis.result_tables import NUMBER_KEY, QUANTITIES
from lib.calibrate.calibrators import METHODS
from lib.paper.booktabs import Table, embolden, escape
from lib.score.estimators import ESTIMATORS, Estimator, in_column_order
from lib.score.evaluation import BASE

Labels = Mapping[str, str] | None
DASH = "--"  # of a missing number
HEADLINE = {  # scores that are compared first, by estimator and method
    ("seq_avg", ""): "Seq Avg",
    ("ans_avg", ""): "Ans Avg",
    ("ans_avg", "isotonic"): "Ans Avg, isotonic",
    (BASE, ""): "a constant",
}
OVERVIEW = HEADLINE | {("p_true", ""): "P(True)", ("p_true_insitu", ""): "P(True) in situ"}
CHANCE_MARK = "\N{DEGREE SIGN}"  # of an ECE that cannot be told from that of calibrated scores
ERRORS = {"ece": "ECE", "mce": "MCE", "brier": "Brier"}
HEADINGS = {
    "model": "Model",
    "dataset": "Dataset",
    "rate": "Dropout rate",
    "bins": "Bins",
    "estimator": "Estimator",
}
PARTS = {"single_pass": "(a) Single-pass estimators", "multi_pass": "(b) Multi-pass estimators"}

# ---- rows and columns


def lines(levels: Mapping[Any, Mapping[Any, str]], **fixed: Any) -> pd.DataFrame:
    """Return the rows (or columns) of all combinations of values, {value: label} by part of the
    key.

    A level may fix several parts, by a tuple of their values. `fixed` is what all have in common.
    """
    names = [HEADINGS.get(level) for level in levels]
    labels = pd.MultiIndex.from_product(
        [values.values() for values in levels.values()], names=names
    )
    frame = pd.DataFrame(index=labels).assign(**fixed)
    every = list(product(*levels.values()))  # none if a level has no values
    for i, level in enumerate(levels):
        frame[list(level) if isinstance(level, tuple) else level] = [values[i] for values in every]
    return frame


def pair_lines(
    models: Mapping[str, str], datasets: Mapping[str, str], **levels: Mapping[Any, str]
) -> pd.DataFrame:
    """Return the rows of each dataset in the block of each model, by further levels. Labels are a
    user's words."""
    named = {"model": models, "dataset": datasets}
    return lines(
        {level: {k: escape(v) for k, v in labels.items()} for level, labels in named.items()}
        | levels
    )


def estimators_shown(frame: pd.DataFrame) -> list[Estimator]:
    """Return the estimators of a frame, the paper's first."""
    there = set(frame["estimator"])
    declared = in_column_order(e for e in ESTIMATORS.values() if e.name in there)
    return sorted(declared, key=lambda estimator: estimator.own)


def estimators_of(frame: pd.DataFrame) -> list[Estimator]:
    """Return the estimators of a frame that have columns, single-pass before multi-pass."""
    return sorted(
        (e for e in estimators_shown(frame) if e.definition), key=lambda e: [*PARTS].index(e.group)
    )


def specs_by_part(shown: Sequence[Estimator], each: str, first: str = "") -> dict[str, str]:
    """Return LaTeX's column specifications of a table of single-pass estimators above one of the
    others, by caption.

    `each` is for the columns of one estimator, `first` for the column before the first.
    """
    specs: dict[str, str] = {}
    for part, group in groupby(shown, lambda e: e.group):
        specs[PARTS[part]] = "ll" + ("" if specs else first) + "".join(each for _ in group)
    return specs


# ---- numbers


def place(frame: pd.DataFrame, rows: pd.DataFrame, columns: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of the cells, row by row.

    Parameters
    ----------
    frame : DataFrame
        A row per number: columns of NUMBER_KEY and of QUANTITIES; those that are absent do not
        apply.
    rows, columns : DataFrame
        From `lines`. A tuple of metrics shares one cell.

    Returns
    -------
    DataFrame
        Columns `row` and `column` (positions), the parts of NUMBER_KEY that these fix, QUANTITIES
        (float, missing if the frame lacks the number), the key in one word (`key`), the `text` to
        print (by default three decimals) and `bold` (False).
    """
    places = rows.assign(row=range(len(rows))).merge(
        columns.assign(column=range(len(columns))), how="cross"
    )
    places = places.explode("metric", ignore_index=True)
    names = [name for name in NUMBER_KEY if name in places]
    found = frame.drop_duplicates(names, keep="last").reindex(columns=[*names, *QUANTITIES])
    numbers = places.astype(found[names].dtypes).merge(found, how="left", on=names)
    numbers = numbers.astype(dict.fromkeys(QUANTITIES, float))
    # tiny/easy/ans_avg/ece
    keys = ["/".join(key).rstrip("/") for key in numbers[names].astype(str).to_numpy()]
    return numbers.assign(key=keys, text=format_values(numbers.value), bold=False)


def lowest(numbers: pd.DataFrame, among: Any, *by: str) -> pd.Series:
    """Mark the lowest number, unrounded, `among` those with equal columns `by` (the row); ties are
    all marked."""
    values = numbers.value.where(among)
    return values == values.groupby([numbers[column] for column in by or ("row",)]).transform("min")


def set_table(
    numbers: pd.DataFrame,
    rows: pd.DataFrame,
    columns: pd.DataFrame,
    spec: Any,
    title: str,
    join: Any = "".join,
) -> Table:
    """Return the table of these numbers, from `place`, with their texts, in bold or not.

    `spec` is LaTeX's column specification, or one for each part of the table by caption. `join`
    makes one text of the numbers in a cell.
    """
    texts = numbers.text.where(~numbers.bold.astype(bool), numbers.text.map(embolden))
    cells = texts.groupby([numbers.row, numbers.column]).agg(join).unstack(fill_value="")
    cells = cells.reindex(index=range(len(rows)), columns=range(len(columns)), fill_value="")
    cells = (
        cells.set_axis(rows.index)
        .set_axis(columns.index, axis=1)
        .rename_axis(columns=lambda name: None)
    )
    return Table(cells, {"": spec} if isinstance(spec, str) else spec, numbers, title)


# ---- formats


def format_values(values: pd.Series, form: Callable[[float], str] = "{:.3f}".format) -> pd.Series:
    return values.map(form, na_action="ignore").astype(object).fillna(DASH)


def format_3dp(value: float, sign: str = "") -> str:
    """Return three decimals without a leading zero: .053, -.209, 1.000; +.012 with the sign "+"."""
    text = f"{value:{sign}z.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text


def mark_calibrated(errors: pd.DataFrame) -> pd.Series:
    """Return the ECEs of `compare_with_chance` with CHANCE_MARK, in parentheses the mean that
    chance gives."""
    marks = errors.calibrated.map({True: CHANCE_MARK, False: ""})
    return errors.value.map(format_3dp) + marks + " (" + errors.chance.map(format_3dp) + ")"


def format_overview(ece: float, spread: float, dsc: float) -> str:
    """Return the cell of a score in the first table: its ECE, and in parentheses spread and DSC."""
    return f"{format_3dp(ece)} ({format_3dp(spread)}; {format_3dp(dsc)})"


def format_two_digits(value: float) -> str:
    """Return two decimals, or more if needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"


def format_gains(numbers: pd.DataFrame) -> pd.Series:
    """Return the relative improvements in whole percent: +66%."""
    return format_values(numbers.relative, lambda gain: rf"{round(100 * gain):+d}\%")


def format_intervals(
    numbers: pd.DataFrame, command: str, form: Callable[[float], str] = "{:.3f}".format
) -> pd.Series:
    """Return values with their intervals by one of the paper's commands, and relative improvements
    unless it is \\scoreci."""
    parts = [format_values(numbers[name], form) for name in ("value", "low", "high")]
    parts += [format_gains(numbers)] * (command != r"\scoreci")
    texts = command + sum(("{" + part + "}" for part in parts[1:]), "{" + parts[0] + "}")
    return texts.where(numbers.low.notna() & numbers.high.notna(), parts[0])


# ---- frames for notebooks


def label_rows(frame: pd.DataFrame, models: Labels, datasets: Labels) -> pd.DataFrame:
    """Return a tidy frame with the labels of the tables for models, datasets, estimators and
    methods.

    Categories have the order of the run, which sorting and pivoting keep.
    """
    known = {e.name: e.plain for e in in_column_order(ESTIMATORS.values())}
    estimators = {"base": "base rate"} | known | {"ans": "answer tokens"}
    labels = {
        "model": models,
        "source_model": models,
        "dataset": datasets,
        "source_dataset": datasets,
    }
    frame = frame.copy()
    if "method" in frame:
        scored = frame["estimator"] if "estimator" in frame else ["ans"] * len(frame)
        order = [
            label_method(name, estimator)
            for estimator in ("ans", "p_true")
            for name in ("", *METHODS)
        ]
        frame["method"] = categorize(map(label_method, frame["method"], scored), order)
    for column, names in (labels | {"estimator": estimators}).items():
        if column in frame and names:
            frame[column] = categorize(frame[column].map(dict(names)), names.values())
    return frame


def label_method(method: str, estimator: str = "ans") -> str:
    """Return the label of a method: raw, isotonic, temperature on the answer's tokens and Platt on
    a margin."""
    if method not in METHODS:
        return "raw"
    how, answers = (
        METHODS[method],
        ["ans", *(name for name, e in ESTIMATORS.items() if e.needs == "answer")],
    )
    return how.label if "answers" in how.inputs and estimator not in answers else how.answer_label


def categorize(values: Iterable[str], order: Iterable[str]) -> pd.Categorical:
    """Return words as categories in this order, without those that are absent."""
    words = list(values)
    return pd.Categorical(
        words, [word for word in dict.fromkeys(order) if word in set(words)], ordered=True
    )


def pivot_labeled(
    frame: pd.DataFrame,
    models: Labels,
    datasets: Labels,
    index: Any,
    columns: Any,
    values: Any = "value",
) -> pd.DataFrame:
    """Return values of a tidy frame with labels, three decimals, in the order of the run."""
    wide = label_rows(frame, models, datasets).pivot(index=index, columns=columns, values=values)
    return wide.where(wide.notna(), math.nan).astype(float).round(3)
