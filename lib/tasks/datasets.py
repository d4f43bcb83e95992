"""A dataset as a list of examples: which fields of a row are read, and which rows calibrate and which evaluate.

Both are said by the dataset's file in `params/datasets/`. There are three ways to split:
- by part: the published ones, a file each, or what a row's own field `split` names where one file holds `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle, where a `seed` is given: in the order of sha256("seed|row"), alike on every machine and library
  version, the first `calibration` rows calibrate and the rest evaluate.
"""

import hashlib
from collections import Counter
from typing import Any, NamedTuple

from lib.params import Dataset
from lib.project import UserError, nearest
from lib.tasks import answers
from lib.tasks.sources import Row, parse_json, read_file, rows_of

CALIBRATION, EVALUATION = "calibration", "evaluation"


class Example(NamedTuple):
    example_id: str
    split: str
    question: str
    reference: str  # the right answer, spelt canonically: `-9867630`, `0.0000005`


def load(dataset: Dataset) -> list[Example]:
    """All examples, the calibration split first, as many of each split as the dataset's file expects."""
    examples: dict[str, Example] = {}
    for row, split in split_rows(dataset, list(rows_of(dataset))):
        example = read_example(dataset, row, split)
        if example.example_id in examples:
            raise UserError(f"{row.where}: the id {example.example_id!r} again")
        examples[example.example_id] = example
    sizes = Counter(example.split for example in examples.values())
    expected = f"{dataset.calibration} calibration and {dataset.evaluation} evaluation questions"
    there = f"{sizes[CALIBRATION]} calibration and {sizes[EVALUATION]} evaluation questions"
    if there != expected:
        raise UserError(f"dataset '{dataset.label}': expected {expected}, found {there}")
    return sorted(examples.values(), key=lambda example: example.split)


def limited(examples: list[Example], limit: int) -> list[Example]:
    """The first `limit` examples of each split; all of them when it is 0."""
    calibration = [example for example in examples if example.split == CALIBRATION]
    evaluation = [example for example in examples if example.split == EVALUATION]
    count = limit or len(examples)
    return calibration[:count] + evaluation[:count]


def read_example(dataset: Dataset, row: Row, split: str) -> Example:
    """What a row holds under the fields that the dataset's file names."""
    question = " ".join(row.text(name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    own_id = row.field(dataset.id) if dataset.id else row.fields.get("id")
    if own_id is None:  # an id must not hang on a drawn split: another seed would rename the example
        own_id = f"{split}-{row.index}" if dataset.seed is None else f"row-{row.index}"
    return Example(str(own_id), split, question, reference(row.field(dataset.answer), row.where))


def reference(answer: Any, where: str) -> str:
    """The canonical number of a published answer: a number, a text that is one, or the one after `####`."""
    text = answer if isinstance(answer, str) else repr(answer)
    span = answers.find_answer(text) if answers.MARK in text else (0, len(text))
    number = answers.parse_number(text[slice(*span)]) if span else None
    if number is None:
        raise UserError(f"{where}: no number in the answer {text[-40:]!r}")
    return answers.canonical(number)


def split_rows(dataset: Dataset, rows: list[Row]) -> list[tuple[Row, str]]:
    """Each row with its split, in the way that the dataset's file asks for."""
    if dataset.seed is not None:
        return shuffled(dataset, rows)
    if dataset.split_ids:
        return listed(dataset, rows)
    return [(row, split_of(dataset, published_part(row), row.where)) for row in rows]


def split_of(dataset: Dataset, part: str, where: object) -> str:
    """The split that a part is. Raises UserError for a part that is none of the dataset's `parts`."""
    if part not in dataset.parts:
        raise UserError(f"{where}: no split is called '{part}'; {nearest(part, dataset.parts)}")
    return dataset.parts[part]


def published_part(row: Row) -> str:
    """The part that a row was published in; of one file for `all`, what the row itself says."""
    if row.part != "all":
        return row.part
    return str(row.field("split", ", which one file for `all` needs (or a `seed`, or `split_ids`)"))


def listed(dataset: Dataset, rows: list[Row]) -> list[tuple[Row, str]]:
    """Each row with the split in whose list of `split_ids` its id is."""
    path, data = read_file(str(dataset.split_ids))
    lists = parse_json(data, path)
    if not isinstance(lists, dict) or not all(isinstance(ids, list) for ids in lists.values()):
        raise UserError(f"{path}: not of the form {{train: [ids], test: [ids]}}")
    splits = {str(name): split_of(dataset, part, path) for part, ids in lists.items() for name in ids}
    names = [str(row.field(dataset.id or "id")) for row in rows]
    for row, name in zip(rows, names, strict=True):
        if name not in splits:
            raise UserError(f"{row.where}: the id '{name}' is in no list of {path}")
    return [(row, splits[name]) for row, name in zip(rows, names, strict=True)]


def shuffled(dataset: Dataset, rows: list[Row]) -> list[tuple[Row, str]]:
    """The rows of one file in an order that hangs on seed and place alone, and their splits by size."""
    if dataset.split_ids or len({row.part for row in rows}) > 1:
        raise UserError(f"dataset '{dataset.label}': a `seed` splits one file itself; give one, and no `split_ids`")
    order = sorted(rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.index}".encode()).digest())
    return [(row, CALIBRATION if place < dataset.calibration else EVALUATION) for place, row in enumerate(order)]
