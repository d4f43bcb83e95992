"""Load a dataset as a list of examples with a calibration and an evaluation split.

The dataset's file in `params/datasets/` defines fields and splits. Rows come from the hub or
from files (lib.tasks.dataset_sources). There are three ways to split:
- by part: the files of each part, or a row's field `split` in one file for `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle with a `seed`, in the order of sha256("seed|row"), so it does not depend on machine
  or library version: the first `calibration` rows calibrate and the rest evaluate.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from lib import files, row_order
from lib.errors import UserError
from lib.parameter_schemas import Dataset
from lib.tasks.answers import MARK, find_answer
from lib.tasks.dataset_sources import PublishedRow, read_rows, use_local_files
from lib.tasks.question_files import read_file
from lib.tasks.written_numbers import canonical_number

CALIBRATION, EVALUATION = "calibration", "evaluation"


class Example(NamedTuple):
    example_id: str
    split: str
    question: str
    reference: str  # the correct answer in canonical spelling: `-9867630`, `0.0000005`


def load_examples(dataset: Dataset) -> list[Example]:
    """Load a dataset's examples, calibration split first.

    Raises
    ------
    UserError
        If a row lacks a field or a number, a question is in both splits, or a split's size differs
        from the dataset's file.

    Examples
    --------
    >>> from lib.params import load_dataset_config
    >>> load_examples(load_dataset_config("demo-easy"))[0].example_id
    'easy-0000'
    """
    dataset = use_local_files(dataset)
    rows = list(read_rows(dataset))
    examples: dict[str, Example] = {}
    by_question: dict[str, Example] = {}
    for row, split in _assign_splits(dataset, rows):
        example = _read_example(dataset, row, split)
        first = by_question.setdefault(example.question, example)
        if example.example_id in examples:
            raise UserError(f"{row.where}: the id {example.example_id!r} again")
        if first.split != split:
            other = f"its question is that of '{first.example_id}', too, in the other split"
            raise UserError(f"{row.where}: {other}")
        examples[example.example_id] = example
    _check_sizes(dataset, rows, examples.values())
    return sorted(examples.values(), key=lambda example: example.split)


def _check_sizes(
    dataset: Dataset, rows: Sequence[PublishedRow], examples: Iterable[Example]
) -> None:
    """Raise UserError unless both splits have the sizes of the dataset's file."""
    sizes = Counter(example.split for example in examples)
    calibration = sizes[CALIBRATION]
    evaluation = sizes[EVALUATION]
    if dataset.calibration is None and calibration > 0:  # halves
        return
    if calibration == dataset.calibration and evaluation == dataset.evaluation:
        return
    wanted = "halves of at least 1"
    if dataset.calibration is not None:
        wanted = f"{dataset.calibration} {CALIBRATION} and {dataset.evaluation} {EVALUATION}"
    raise UserError(
        f"dataset '{dataset.label}': expected {wanted} questions, "
        f"found {calibration} and {evaluation}; {_suggest_sizes(dataset, rows, sizes)}"
    )


def _suggest_sizes(dataset: Dataset, rows: Sequence[PublishedRow], sizes: Mapping[str, int]) -> str:
    """Return the lines for a dataset's file whose sizes are not those of its rows."""
    if dataset.seed is not None:
        half = len(rows) // 2
        lines = f"`calibration: {half}` and `evaluation: {len(rows) - half}`"
        return f"there are {len(rows)} rows: write {lines}, say, or neither line for halves"
    if sizes[CALIBRATION] and sizes[EVALUATION]:
        fitting = f"`calibration: {sizes[CALIBRATION]}` and `evaluation: {sizes[EVALUATION]}`"
        return f"if these are all, write {fitting}"
    parts = ", ".join(sorted({row.part for row in rows}))
    remedy = "set `parts`, a field `split` in one file, or `seed: 0` in place of both sizes"
    return f"the rows' parts are {parts}: {remedy}"


def select_examples(
    examples: Sequence[Example], count: int, seed: int, dataset: str, always_first: str = ""
) -> list[Example]:
    """Return the first examples of each split, in the dataset's random order.

    The splits alternate, and a larger `count` per split (0: all) starts with the same examples. The
    one with the id `always_first` comes first.

    Examples
    --------
    >>> examples = [Example(name, "evaluation", f"{name}?", "1") for name in "abcd"]
    >>> chosen = select_examples(examples, 2, seed=0, dataset="mine", always_first="c")
    >>> len(chosen), chosen[0].example_id
    (2, 'c')
    """
    frame = pd.DataFrame(examples).assign(dataset=dataset)
    positions = row_order.first_positions(frame, count, seed, always_first)
    return [examples[position] for position in positions]


def find_example(examples: Sequence[Example], example_id: str) -> Example:
    """Return the example with this id, or the first if there is none.

    Examples
    --------
    >>> examples = [Example(name, "evaluation", f"{name}?", "1") for name in "abcd"]
    >>> find_example(examples, "c").question, find_example(examples, "").question
    ('c?', 'a?')
    """
    for example in examples:
        if example.example_id == example_id:
            return example
    return examples[0]


# ---- fields


def _read_example(dataset: Dataset, row: PublishedRow, split: str) -> Example:
    """Create an example from the fields that the dataset's file names."""
    question = " ".join(row.text(name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    example_id = _read_id(dataset, row)
    if not example_id:
        # another seed must not rename the example, so its split does not count
        example_id = f"{split}-{row.number}" if dataset.seed is None else f"row-{row.number}"
    reference = _parse_reference(row.field(dataset.answer), row.where)
    return Example(example_id, split, question, reference)


def _read_id(dataset: Dataset, row: PublishedRow) -> str:
    """Return a row's id from the field that the dataset's file names, else from `id`; empty if null
    or absent.

    Raise UserError unless it is a text or a whole number.
    """
    value = row.field(dataset.id) if dataset.id else row.fields.get("id")
    if value is None:
        return ""
    text = str(value)
    # excludes booleans
    if type(value) not in (str, int) or not text.strip() or not text.isprintable():
        raise UserError(f"{row.where}: the id {value!r:.60} is neither a text nor a whole number")
    return text


def _parse_reference(answer: Any, where: str) -> str:
    """Return the canonical number of a published answer: a number, its text, or the number after
    `####`."""
    text = "" if isinstance(answer, (list, dict)) else str(answer)
    if MARK in text:
        span = find_answer(text)
        text = text[slice(*span)] if span else ""
    number = canonical_number(text)
    if number is None:
        remedy = "write it like 18, -1,234.5, 1e6 or 3/4"
        raise UserError(f"{where}: no number in the answer {str(answer)[-40:]!r}; {remedy}")
    return number


# ---- splits


def _assign_splits(dataset: Dataset, rows: list[PublishedRow]) -> list[tuple[PublishedRow, str]]:
    """Return each row with its split, as the dataset's file defines it; parts of no split are left
    out."""
    if dataset.seed is not None:
        return _shuffle(dataset, rows)
    if dataset.split_ids:
        rows = _order_by_split_ids(dataset, rows)
    assigned: list[tuple[PublishedRow, str]] = []
    for row in rows:
        split = dataset.parts.get(row.part)
        if split:
            assigned.append((row, split))
    return assigned


def _shuffle(dataset: Dataset, rows: list[PublishedRow]) -> list[tuple[PublishedRow, str]]:
    """Return the rows in the random order of a seed: the first ones calibrate, half of all if the
    dataset's file names no size."""
    calibration = dataset.calibration
    if calibration is None:
        calibration = len(rows) // 2

    def rank(row: PublishedRow) -> str:
        return files.sha256(f"{dataset.seed}|{row.number}".encode())

    assigned = []
    for place, row in enumerate(sorted(rows, key=rank)):
        assigned.append((row, CALIBRATION if place < calibration else EVALUATION))
    return assigned


def _order_by_split_ids(dataset: Dataset, rows: list[PublishedRow]) -> list[PublishedRow]:
    """Return the rows in the order of the `split_ids` lists, with the list's name as their part."""
    where, data = read_file(str(dataset.split_ids))
    lists = files.parse_json(data, where)
    form = f"{where}: not of the form {{train: [ids], test: [ids]}}"
    if not isinstance(lists, dict):
        raise UserError(form)
    part_of = {}
    for part, ids in lists.items():
        if not isinstance(ids, list):
            raise UserError(form)
        for example_id in ids:
            part_of[str(example_id)] = part
    row_of = {_read_id(dataset, row): row for row in rows}
    in_one_only = row_of.keys() ^ part_of.keys()
    if in_one_only:
        only = f"is only here, or only in the rows of '{dataset.label}'"
        raise UserError(f"{where}: the id '{min(in_one_only)}' {only}")
    return [row_of[example_id]._replace(part=part) for example_id, part in part_of.items()]
