"""Tables of scores with labels, as `./run_all.sh judge` takes them: CSV, TSV, JSONL or parquet.

A row is an answer. The column `correct` says whether it is right; every column of numbers is a
confidence in [0, 1]; `id` names a row, and `group` what belongs together, such as answers to one
question. Columns of words, such as the question, are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.errors import UserError, nearest
from lib.tasks.question_files import find_ending, hash_file, read_records

LABELS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
NOT_SCORES = ("correct", "id", "group")
MOST_ROWS = 50_000  # with 5,000 resamples they take 1.8 GB


@dataclass(frozen=True)
class ScoreTable:
    """A table that was read and checked, n rows in the order of their ids.

    Attributes
    ----------
    name : the file's name without its ending
    rows : DataFrame with `id` and `group` (texts) and `correct` (bool); without a column `group`,
        each row is a group
    scores : DataFrame with a column per confidence, (n, columns) in [0, 1]
    left_out : columns without a number
    sha256 : of the file
    """

    name: str
    rows: pd.DataFrame
    scores: pd.DataFrame
    left_out: list[str]
    sha256: str


def read_score_table(path: str) -> ScoreTable:
    """Read and check a table of scores.

    Parameters
    ----------
    path : of the file, from the project's root or absolute

    Raises
    ------
    UserError
        For the first thing that is wrong, with its row: counted from 1, below the head.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "scores.csv")
    ...     _ = file.write_text("correct,stated,text\\ntrue,0.9,Paris\\nfalse,0.5,Rome\\n")
    ...     table = read_score_table(str(file))
    >>> table.scores.to_numpy().tolist(), table.rows.correct.tolist(), table.left_out
    ([[0.9], [0.5]], [True, False], ['text'])
    """
    check_ending(path)
    where, records = read_records(path)
    columns = collect_columns(where, records)
    rows = pd.DataFrame({"id": read_ids(where, columns)})
    rows["group"] = read_groups(where, columns, rows.id)
    rows["correct"] = read_labels(where, columns["correct"])
    scores = pd.DataFrame(index=rows.index)
    left_out = []
    for name, values in columns.items():
        if name in NOT_SCORES:
            continue
        if any(map(is_number, values)):
            scores[name] = read_confidence(where, name, values)
        else:
            left_out.append(name)
    if scores.empty:
        raise UserError(f"{where} has no column of confidence: numbers in [0, 1]")
    order = rows.id.argsort(kind="stable")
    return ScoreTable(
        name=Path(where.removesuffix(".gz")).stem,
        rows=rows.iloc[order].reset_index(drop=True),
        scores=scores.iloc[order].reset_index(drop=True),
        left_out=left_out,
        sha256=hash_file(path),
    )


def check_ending(path: str) -> None:
    """Raise UserError unless a file's name says that it is a table.

    Examples
    --------
    >>> check_ending("scores.csv.gz")
    """
    if find_ending(path) is None:
        raise UserError(
            f"{Path(path).name}: a table of scores is a .csv, .tsv, .jsonl or .parquet file"
        )


def collect_columns(where: str, records: list[Any]) -> dict[str, list[Any]]:
    """Return the values of each column, None where a row has none.

    Raise UserError for a table without rows or without `correct`, for one that is too long, or for
    a row that is no record.

    Examples
    --------
    >>> collect_columns("a.jsonl", [{"correct": 1}, {"correct": 0, "p": 0.5}])
    {'correct': [1, 0], 'p': [None, 0.5]}
    """
    if not records:
        raise UserError(f"{where} has no rows")
    if len(records) > MOST_ROWS:
        count = f"{len(records):,} rows: a table may have {MOST_ROWS:,}"
        raise UserError(f"{where} has {count}; draw so many at random")
    names: dict[str, None] = {}
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise UserError(f"{where}, row {number}: it is no record {{column: value, ...}}")
        names |= dict.fromkeys(map(str, record))
    if "correct" not in names:
        raise UserError(
            f"{where} has no column 'correct' (true or false); {nearest('correct', names)}"
        )
    columns = {}
    for name in names:
        columns[name] = [record.get(name) for record in records]
    return columns


def is_missing(value: Any) -> bool:
    """Whether a cell is empty.

    Examples
    --------
    >>> is_missing(" "), is_missing(None), is_missing(0)
    (True, True, False)
    """
    return value is None or (isinstance(value, str) and not value.strip())


def is_number(value: Any) -> bool:
    """Whether a cell holds a number, perhaps as a text; true and false are none.

    Examples
    --------
    >>> is_number("0.5"), is_number(True), is_number("seven")
    (True, False, False)
    """
    if isinstance(value, bool) or is_missing(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def read_confidence(where: str, name: str, values: Iterable[Any]) -> np.ndarray:
    """Return a column of confidence, (n,) in [0, 1]. Raise UserError for the first other value.

    Examples
    --------
    >>> read_confidence("a.csv", "stated", ["0.5", 1])
    array([0.5, 1. ])
    """
    scores = []
    for number, value in enumerate(values, 1):
        place = f"{where}, row {number}: '{name}'"
        if is_missing(value):
            raise UserError(f"{place} is missing")
        if not is_number(value):
            raise UserError(
                f"{place} is '{value}', and no number: leave the column out, or mend it"
            )
        score = float(value)
        if not 0 <= score <= 1:
            remedy = (
                "a confidence lies in [0, 1]: divide percentages by 100, leave out other numbers"
            )
            raise UserError(f"{place} is {value}; {remedy}")
        scores.append(score)
    return np.array(scores)


def read_labels(where: str, values: Iterable[Any]) -> list[bool]:
    """Return what is correct. Raise UserError for a label that is missing or unknown, or if all
    rows have the same.

    Examples
    --------
    >>> read_labels("a.csv", ["True", 0])
    [True, False]
    """
    labels = []
    for number, value in enumerate(values, 1):
        place = f"{where}, row {number}: 'correct'"
        if is_missing(value):
            raise UserError(f"{place} is missing: label the row, or leave it out")
        word = str(value).strip().lower()
        if word not in LABELS:
            raise UserError(f"{place} is '{value}': write true or false, or 1 or 0")
        labels.append(LABELS[word])
    if len(set(labels)) == 1:
        kind = "right" if labels[0] else "wrong"
        last = f"up to row {len(labels)}"
        raise UserError(f"{where}: every answer is {kind}, {last}; both kinds are needed")
    return labels


def read_ids(where: str, columns: dict[str, list[Any]]) -> list[str]:
    """Return a name for each row: its `id`, or its number. Raise UserError for one that is missing,
    or given twice.

    Examples
    --------
    >>> read_ids("a.csv", {"correct": [True, False]})
    ['1', '2']
    """
    if "id" not in columns:
        count = len(columns["correct"])
        width = len(str(count))  # so that their order is that of the rows
        return [str(number).zfill(width) for number in range(1, count + 1)]
    first: dict[str, int] = {}
    for number, value in enumerate(columns["id"], 1):
        if is_missing(value):
            raise UserError(f"{where}, row {number}: 'id' is missing")
        name = str(value)
        earlier = first.setdefault(name, number)
        if earlier != number:
            raise UserError(
                f"{where}, row {number}: the id '{name}' is that of row {earlier}, too; "
                "rows that belong together share a 'group'"
            )
    return list(first)


def read_groups(where: str, columns: dict[str, list[Any]], ids: Iterable[str]) -> list[str]:
    """Return the group of each row: itself without a column `group`. Raise UserError for one that
    is missing, or if all rows are of one.

    Examples
    --------
    >>> read_groups("a.csv", {"group": [7, 8]}, ["a", "b"])
    ['7', '8']
    """
    if "group" not in columns:
        return list(ids)
    groups = []
    for number, value in enumerate(columns["group"], 1):
        if is_missing(value):
            raise UserError(f"{where}, row {number}: 'group' is missing")
        groups.append(str(value))
    if len(set(groups)) == 1:
        raise UserError(f"{where}: every row is of group '{groups[0]}', and a half needs another")
    return groups
