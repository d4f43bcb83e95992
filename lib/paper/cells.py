"""The numbers of a tidy frame in the cells of a table, formatted; tidy frames with the tables'
labels, for notebooks.

The rows or columns of a table are a frame, too: their labels, in LaTeX, are its index, and each
column is a part of a number's key that they fix.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from lib.analysis.results import NUMBER_KEY, QUANTITIES
from lib.calibrate.calibrators import METHODS
from lib.paper.booktabs import Table, embolden, escape
from lib.score.baselines import BASE
from lib.score.estimators import ESTIMATORS, Estimator, in_column_order

pd.options.display.max_columns = None  # a notebook shows every column of a table
Labels = Mapping[str, str] | None
DASH = "--"  # of a missing number
HEADLINE = {  # scores that are compared first, by estimator and method
    ("seq_avg", ""): "Seq Avg",
    ("ans_avg", ""): "Ans Avg",
    ("ans_avg", "isotonic"): "Ans Avg, isotonic",
    (BASE, ""): "a constant",
    ("p_true", ""): "P(True)",
}
OVERVIEW = HEADLINE | {("p_true_insitu", ""): "P(True) in situ"}
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
    texts = [list(labels.values()) for labels in levels.values()]
    index = pd.MultiIndex.from_product(texts, names=names)
    frame = pd.DataFrame(index=index).assign(**fixed)
    combinations = list(product(*levels.values()))  # none if a level has no values
    for position, level in enumerate(levels):
        parts = list(level) if isinstance(level, tuple) else level
        frame[parts] = [values[position] for values in combinations]
    return frame


def pair_lines(
    models: Mapping[str, str], datasets: Mapping[str, str], **levels: Mapping[Any, str]
) -> pd.DataFrame:
    """Return the rows of each dataset in the block of each model, by further levels. Labels are a
    user's words."""
    pairs = {"model": models, "dataset": datasets}
    escaped: dict[str, Mapping[Any, str]] = {}
    for level, labels in pairs.items():
        escaped[level] = {name: escape(label) for name, label in labels.items()}
    return lines(escaped | levels)


def estimators_shown(frame: pd.DataFrame) -> list[Estimator]:
    """Return the estimators of a frame, the paper's first."""
    names = set(frame["estimator"])
    declared = in_column_order(e for e in ESTIMATORS.values() if e.name in names)
    return sorted(declared, key=lambda estimator: estimator.own)


def estimators_of(frame: pd.DataFrame) -> list[Estimator]:
    """Return the estimators of a frame that have columns, single-pass before multi-pass."""
    with_column = [estimator for estimator in estimators_shown(frame) if estimator.definition]
    groups = list(PARTS)
    return sorted(with_column, key=lambda estimator: groups.index(estimator.group))


def specs_by_part(listed: Sequence[Estimator], each: str, first: str = "") -> dict[str, str]:
    """Return LaTeX's column specifications of a table of single-pass estimators above one of the
    others, by caption.

    `each` is for the columns of one estimator, `first` for the column before the first.
    """
    specs: dict[str, str] = {}
    for group, caption in PARTS.items():
        count = sum(estimator.group == group for estimator in listed)
        if count:
            specs[caption] = "ll" + first + each * count
            first = ""
    return specs


# ---- numbers


def place_numbers(frame: pd.DataFrame, rows: pd.DataFrame, columns: pd.DataFrame) -> pd.DataFrame:
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
    numbered_rows = rows.assign(row=range(len(rows)))
    numbered_columns = columns.assign(column=range(len(columns)))
    places = numbered_rows.merge(numbered_columns, how="cross")
    places = places.explode("metric", ignore_index=True)
    names = [name for name in NUMBER_KEY if name in places]
    frame = frame.drop_duplicates(names, keep="last").reindex(columns=[*names, *QUANTITIES])
    places = places.astype(frame[names].dtypes)
    numbers = places.merge(frame, how="left", on=names)
    numbers = numbers.astype(dict.fromkeys(QUANTITIES, float))
    keys = numbers[names].astype(str).to_numpy()
    numbers["key"] = ["/".join(key).rstrip("/") for key in keys]  # tiny/easy/ans_avg/ece
    return numbers.assign(text=format_values(numbers.value), bold=False)


def lowest(numbers: pd.DataFrame, among: Any, *by: str) -> pd.Series:
    """Mark the lowest number, unrounded, `among` those with equal columns `by` (the row); ties are
    all marked."""
    values = numbers.value.where(among)
    groups = [numbers[column] for column in by] if by else numbers.row
    return values == values.groupby(groups).transform("min")


def set_table(
    numbers: pd.DataFrame,
    rows: pd.DataFrame,
    columns: pd.DataFrame,
    spec: Any,
    title: str,
    join: Any = "".join,
) -> Table:
    """Return the table of these numbers, from `place_numbers`, with their texts, in bold or not.

    `spec` is LaTeX's column specification, or one for each part of the table by caption. `join`
    makes one text of the numbers in a cell.
    """
    is_bold = numbers.bold.astype(bool)
    texts = numbers.text.mask(is_bold, numbers.text.map(embolden))
    cells = texts.groupby([numbers.row, numbers.column]).agg(join).unstack(fill_value="")
    cells = cells.reindex(index=range(len(rows)), columns=range(len(columns)), fill_value="")
    cells = cells.set_axis(rows.index).set_axis(columns.index, axis=1)
    cells = cells.rename_axis(columns=lambda name: None)
    specs = {"": spec} if isinstance(spec, str) else spec
    return Table(cells, specs, numbers, title)


# ---- formats


def format_values(values: pd.Series, form: Callable[[float], str] = "{:.3f}".format) -> pd.Series:
    return values.map(form, na_action="ignore").astype(object).fillna(DASH)


def format_3dp(value: float, sign: str = "") -> str:
    """Return three decimals without a leading zero: .053, -.209, 1.000; +.012 with the sign "+"."""
    text = f"{value:{sign}z.3f}"
    if abs(value) >= 0.9995:  # 1.000
        return text
    return text.replace("0.", ".", 1)


def mark_calibrated(errors: pd.DataFrame) -> pd.Series:
    """Return the ECEs of `compare_with_chance` with CHANCE_MARK, in parentheses the mean that
    chance gives."""
    marks = errors.calibrated.map({True: CHANCE_MARK, False: ""})
    chance = errors.chance.map(format_3dp)
    return errors.value.map(format_3dp) + marks + " (" + chance + ")"


def format_overview(ece: float, spread: float, dsc: float) -> str:
    """Return the cell of a score in the first table: its ECE, and in parentheses spread and DSC."""
    return f"{format_3dp(ece)} ({format_3dp(spread)}; {format_3dp(dsc)})"


def format_two_digits(value: float) -> str:
    """Return two decimals, or more if needed for two significant digits: 0.53, 0.054."""
    if value == 0:
        return "0.00"
    digits = 1 - math.floor(math.log10(abs(value)))
    decimals = min(max(digits, 2), 6)
    return f"{value:.{decimals}f}"


def format_gains(numbers: pd.DataFrame) -> pd.Series:
    """Return the relative improvements in whole percent: +66%."""
    return format_values(numbers.relative, lambda gain: rf"{round(100 * gain):+d}\%")


def format_intervals(
    numbers: pd.DataFrame, command: str, form: Callable[[float], str] = "{:.3f}".format
) -> pd.Series:
    """Return values with their intervals by one of the paper's commands, and relative improvements
    unless it is \\scoreci."""
    value, low, high = (format_values(numbers[name], form) for name in ("value", "low", "high"))
    texts = command + "{" + value + "}{" + low + "}{" + high + "}"
    if command != r"\scoreci":
        texts = texts + "{" + format_gains(numbers) + "}"
    return texts.where(numbers.low.notna() & numbers.high.notna(), value)


# ---- frames for notebooks


def label_rows(frame: pd.DataFrame, models: Labels, datasets: Labels) -> pd.DataFrame:
    """Return a tidy frame with the labels of the tables for models, datasets, estimators and
    methods.

    Categories have the order of the run, which sorting and pivoting keep.
    """
    known = {e.name: e.plain for e in in_column_order(ESTIMATORS.values())}
    labels = {
        "model": models,
        "source_model": models,
        "dataset": datasets,
        "source_dataset": datasets,
        "estimator": {"base": "base rate"} | known | {"ans": "answer tokens"},
    }
    frame = frame.copy()
    if "method" in frame:
        frame["method"] = categorize_methods(frame)
    for column, names in labels.items():
        if column in frame and names:
            frame[column] = categorize(frame[column].map(dict(names)), names.values())
    return frame


def categorize_methods(frame: pd.DataFrame) -> pd.Categorical:
    """Return the labels of a frame's methods, raw first, those on the answer's tokens before those
    on a margin."""
    methods = ["", *METHODS]
    order = [label_method(method) for method in methods]
    order += [label_method(method, "p_true") for method in methods]
    estimators = frame["estimator"] if "estimator" in frame else ["ans"] * len(frame)
    return categorize(map(label_method, frame["method"], estimators), order)


def label_method(method: str, estimator: str = "ans") -> str:
    """Return the label of a method: raw, isotonic, temperature on the answer's tokens and Platt on
    a margin."""
    if method not in METHODS:
        return "raw"
    how = METHODS[method]
    reads_answers = estimator == "ans"
    if estimator in ESTIMATORS:
        reads_answers = ESTIMATORS[estimator].needs == "answer"
    if "answers" in how.inputs and not reads_answers:
        return how.label
    return how.answer_label


def categorize(values: Iterable[str], order: Iterable[str]) -> pd.Categorical:
    """Return words as categories in this order, without those that are absent."""
    words = list(values)
    present = set(words)
    categories = [word for word in dict.fromkeys(order) if word in present]
    return pd.Categorical(words, categories, ordered=True)


def pivot_labeled(
    frame: pd.DataFrame,
    models: Labels,
    datasets: Labels,
    index: Any,
    columns: Any,
    values: Any = "value",
) -> pd.DataFrame:
    """Return values of a tidy frame with labels, three decimals, in the order of the run."""
    labeled = label_rows(frame, models, datasets)
    wide = labeled.pivot(index=index, columns=columns, values=values)
    numbers = wide.where(wide.notna(), math.nan).astype(float)
    return numbers.round(3)
