"""The numbers of a tidy frame in the cells of a table, formatted.

A row or a column of a table is a tuple of labels, in LaTeX, and the part of a number's key that it fixes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import pandas as pd

from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results
from lib.paper.booktabs import Table
from lib.paper.latex import COMMANDS, embolden, escape
from lib.store import PAIR

Frame: TypeAlias = pd.DataFrame
Lines = list[tuple[tuple[str, ...], Mapping[str, Any]]]
DASH = "--"  # of a missing number
PAIR_NAMES = ("Model", "Dataset")
ACCURACY: Lines = [(("Acc.", ""), {"estimator": "", "metric": "acc"})]
ERRORS = {"ece": "ECE", "mce": "MCE", "brier": "Brier"}
PARTS = {"(a) Single-pass estimators": "single_pass", "(b) Multi-pass estimators": "multi_pass"}

# ---- rows and columns


def lines(fixed: Mapping[str, Any] = {}, **levels: Mapping[Any, str]) -> Lines:  # noqa: B006  not changed
    """Return the rows (or columns) of all combinations of values, {value: label} by part of the key.

    Labels of models and datasets are a user's words, others LaTeX. `fixed` is the part of the key that all share.
    """
    shown = [[escape(label) if level in PAIR else label for label in levels[level].values()] for level in levels]
    keys = [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]
    return [(labels, {**key, **fixed}) for labels, key in zip(product(*shown), keys, strict=True)]


def pair_lines(results: Results) -> Lines:
    """Return a row for each dataset in the block of each model."""
    return lines(model=results.models, dataset=results.datasets)


# ---- numbers


def place(frame: Frame, rows: Lines, columns: Lines) -> Frame:
    """Return the numbers of the cells, row by row.

    Parameters
    ----------
    frame : DataFrame
        A row per number: columns of NUMBER_KEY, of QUANTITIES, `reason`; those that are absent do not apply.
    rows, columns : Lines
        A tuple of metrics in a key shares one cell.

    Returns
    -------
    DataFrame
        Columns `row` and `column` (positions), the parts of NUMBER_KEY that these fix, QUANTITIES (float, missing if
        the frame lacks the number) and `reason`, the key in one word (`key`), the `text` to print (three decimals) and
        `bold` (False).
    """
    used = {*NUMBER_KEY[1:5], *(name for _, key in (*rows, *columns) for name in key)}
    names = [name for name in NUMBER_KEY if name in used]
    keys = [
        {"row": i, "column": j, **row, **column}
        for i, (_, row) in enumerate(rows)
        for j, (_, column) in enumerate(columns)
    ]
    places = pd.DataFrame(keys, columns=["row", "column", *names]).explode("metric", ignore_index=True)
    found = frame.drop_duplicates(names, keep="last").reindex(columns=[*names, *QUANTITIES, "reason"])
    numbers = places.astype(found[names].dtypes).merge(found, how="left", on=names)
    numbers[QUANTITIES] = numbers[QUANTITIES].apply(pd.to_numeric, errors="coerce").astype(float)
    return numbers.assign(key=number_keys(numbers), text=format_values(numbers.value), bold=False)


def number_keys(numbers: Frame) -> list[str]:
    """Return the key of each number within its table in one word: "tiny/easy/ans_avg/ece/isotonic"."""
    keys = numbers.reindex(columns=NUMBER_KEY[1:]).map(format_key_part).to_numpy()
    return ["/".join([*key[:4], *filter(None, key[4:])]) for key in keys]


def format_key_part(part: Any) -> str:
    """Return a part of a key: empty if it does not apply, 10 for 10.0."""
    return "" if pd.isna(part) else part if isinstance(part, str) else f"{part:g}"


def lowest(numbers: Frame, among: Any, *by: str) -> pd.Series:
    """Mark the lowest number, unrounded, `among` those with equal columns `by` (the row); ties are all marked."""
    values = numbers.value.where(among)
    return values == values.groupby([numbers[column] for column in by or ("row",)]).transform("min")


def set_table(
    numbers: Frame,
    rows: Lines,
    columns: Lines,
    names: Sequence[str | None] = PAIR_NAMES,
    spec: str = "",
    title: str = "",
    parts: Mapping[str, int] = {"": 0},  # noqa: B006  not changed
) -> Table:
    """Return the table of these numbers, from `place`, with their texts, in bold or not.

    Texts of numbers in the same cell are joined. `names` are those of the row levels. `parts`: where the columns of
    each part begin, by caption.
    """
    texts = numbers.text.where(~numbers.bold.astype(bool), numbers.text.map(embolden))
    cells = texts.groupby([numbers.row, numbers.column]).agg("".join).unstack(fill_value="")
    cells = cells.reindex(index=range(len(rows)), columns=range(len(columns)), fill_value="")
    cells.index = pd.MultiIndex.from_tuples([labels for labels, _ in rows], names=names)
    cells.columns = pd.MultiIndex.from_tuples([labels for labels, _ in columns])
    ends = [*[*parts.values()][1:], len(columns)]
    shown = {caption: cells.iloc[:, start:end] for (caption, start), end in zip(parts.items(), ends, strict=True)}
    return Table(shown, numbers, spec, title)


# ---- formats


def format_values(values: pd.Series, form: Callable[[float], str] = "{:.3f}".format) -> pd.Series:
    return values.map(form, na_action="ignore").astype(object).fillna(DASH)


def format_3dp(value: float) -> str:
    """Return three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:z.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:z.3f}"


def format_two_digits(value: float) -> str:
    """Return two decimals, or more if needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"


def format_gains(numbers: Frame) -> pd.Series:
    """Return the relative improvements in whole percent: +66%."""
    return format_values(numbers.relative, lambda gain: rf"{round(100 * gain):+d}\%")


def format_intervals(numbers: Frame, command: str, form: Callable[[float], str] = "{:.3f}".format) -> pd.Series:
    """Return values with their intervals by one of the paper's commands, and relative improvements if it takes them."""
    parts = [format_values(numbers[name], form) for name in ("value", "low", "high")]
    parts += [format_gains(numbers)] * (COMMANDS[command][0] == 4)
    texts = command + sum(("{" + part + "}" for part in parts[1:]), "{" + parts[0] + "}")
    return texts.where(numbers.low.notna() & numbers.high.notna(), parts[0])
