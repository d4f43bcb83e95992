"""A dataset as a list of examples: which fields of a row are read, and which rows calibrate and which evaluate.

Both are said by the dataset's file in `params/datasets/`. There are three ways to split:
- by part: the published ones, a file each, or what a row's own field `split` names where one file holds `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle, where a `seed` is given: in the order of sha256("seed|row"), alike on every machine and library
  version, the first `calibration` rows calibrate and the rest evaluate.
"""

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lib import streams
from lib.params import Dataset
from lib.project import UserError, nearest, parse_json
from lib.tasks import answers
from lib.tasks.sources import SourceRow, read_source_file, read_source_rows, use_local_files

CALIBRATION, EVALUATION = "calibration", "evaluation"
_WORD = re.compile(r"[^\W\d_]+")


class Example(NamedTuple):
    example_id: str
    split: str
    question: str
    reference: str  # the right answer, spelt canonically: `-9867630`, `0.0000005`


def load_examples(dataset: Dataset) -> list[Example]:
    """Load a dataset's examples, calibration split first.

    Raises
    ------
    UserError
        Where a row lacks a field or a number, a question stands in both splits, or a split has another size than the
        dataset's file expects.
    """
    dataset = use_local_files(dataset)
    examples: dict[str, Example] = {}
    asked: dict[str, Example] = {}
    for row, split in assign_splits(dataset, list(read_source_rows(dataset))):
        example = read_example(dataset, row, split)
        if example.example_id in examples:
            raise UserError(f"{row.where}: the id {example.example_id!r} again")
        examples[example.example_id] = example
        other = asked.setdefault(example.question, example)
        if other.split != split:
            raise UserError(f"{row.where}: the question of '{example.example_id}' ({split}) is that of "
                            f"'{other.example_id}' ({other.split}), too: leave one of them out")  # fmt: skip
    calibration = [example for example in examples.values() if example.split == CALIBRATION]
    evaluation = [example for example in examples.values() if example.split == EVALUATION]
    expected = f"{dataset.calibration} calibration and {dataset.evaluation} evaluation questions"
    there = f"{len(calibration)} calibration and {len(evaluation)} evaluation questions"
    if there != expected:
        raise UserError(f"dataset '{dataset.label}': expected {expected}, found {there}")
    return calibration + evaluation


def select_examples(
    examples: Sequence[Example], count: int, seed: int, dataset: str, followed: str = ""
) -> list[Example]:
    """Of each split the first `count` examples (0: all) in the dataset's one random order, led by the one that is
    `followed`, the splits taking turns: a larger count begins with the same examples, and adds others."""
    keys = [(dataset, example.split, example.example_id) for example in examples]
    return [examples[place] for place in streams.first_places(keys, count, seed, followed)]


def find_example(examples: Sequence[Example], example_id: str) -> Example:
    """The example of this id; where there is none, the first."""
    return next((example for example in examples if example.example_id == example_id), examples[0])


def hash_words(question: str) -> list[int]:
    """A question's words, numbers put aside, each as the CRC-32 of its small letters; sorted. They tell whether two
    questions are alike, and hold no text."""
    return sorted({zlib.crc32(word.lower().encode()) for word in _WORD.findall(question)})


def read_example(dataset: Dataset, row: SourceRow, split: str) -> Example:
    """What a row holds under the fields that the dataset's file names."""
    question = " ".join(row.text(name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    name = read_id(dataset, row)
    if not name:  # an id must not hang on a drawn split: another seed would rename the example
        name = f"{split}-{row.index}" if dataset.seed is None else f"row-{row.index}"
    return Example(name, split, question, parse_reference(row.field(dataset.answer), row.where))


def read_id(dataset: Dataset, row: SourceRow) -> str:
    """The id that a row has under the field that the dataset's file names, else under `id`; empty where that is null
    or, unnamed, not there. Raises UserError for what is neither a text nor a whole number."""
    value = row.field(dataset.id) if dataset.id else row.fields.get("id")
    if value is None:
        return ""
    known = type(value) in (str, int)  # a truth value is no number
    if not known or not str(value).strip() or not str(value).isprintable():
        raise UserError(f"{row.where}: the id {value!r:.60} is neither a text nor a whole number")
    return str(value)


def parse_reference(answer: Any, where: str) -> str:
    """The canonical number of a published answer: a number, a text that is one, or the one after `####`."""
    text = answer if isinstance(answer, str) else repr(answer) if isinstance(answer, (int, float)) else ""
    span = answers.find_answer(text) if answers.MARK in text else (0, len(text))
    number = answers.parse_number(text[slice(*span)]) if span else None
    if number is None:
        raise UserError(f"{where}: no number in the answer {str(answer)[-40:]!r}")
    return answers.format_number(number)


def assign_splits(dataset: Dataset, rows: list[SourceRow]) -> list[tuple[SourceRow, str]]:
    """Each row with its split, in the way that the dataset's file asks for."""
    if dataset.seed is not None:
        return shuffle_into_splits(dataset, rows)
    if dataset.split_ids:
        rows = order_by_split_ids(dataset, rows)
    return [(row, find_split(dataset, row)) for row in rows]


def find_split(dataset: Dataset, row: SourceRow) -> str:
    """The split that a row's part is; of one file for `all`, the part that the row itself says."""
    part = row.part
    if part == "all":
        part = str(row.field("split", ", which one file for `all` needs (or a `seed`, or `split_ids`)"))
    if part not in dataset.parts:
        raise UserError(f"{row.where}: no split is called '{part}'; {nearest(part, dataset.parts)}")
    return dataset.parts[part]


def order_by_split_ids(dataset: Dataset, rows: list[SourceRow]) -> list[SourceRow]:
    """The rows in the order of the lists of `split_ids`, each of the part in whose list its id is."""
    path, data = read_source_file(str(dataset.split_ids))
    lists = parse_json(data, path)
    if not isinstance(lists, dict) or not all(isinstance(ids, list) for ids in lists.values()):
        raise UserError(f"{path}: not of the form {{train: [ids], test: [ids]}}")
    order = [(str(name), part) for part, ids in lists.items() for name in ids]
    parts, places = dict(order), {name: place for place, (name, _) in enumerate(order)}
    if len(parts) < len(order):  # in both splits, say
        twice = next(name for place, (name, _) in enumerate(order) if places[name] != place)
        raise UserError(f"{path}: the id '{twice}' is listed again, for {parts[twice]}")
    placed = []
    for row in rows:
        row.field(dataset.id or "id")
        name = read_id(dataset, row)
        if name not in parts:
            raise UserError(f"{row.where}: the id '{name}' is in no list of {path}")
        placed.append((places[name], replace(row, part=parts[name])))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def shuffle_into_splits(dataset: Dataset, rows: list[SourceRow]) -> list[tuple[SourceRow, str]]:
    """The rows of one file in an order that hangs on seed and place alone, and their splits by size."""
    if dataset.split_ids or len({row.part for row in rows}) > 1:
        raise UserError(f"dataset '{dataset.label}': a `seed` splits one file itself; give one, and no `split_ids`")
    order = sorted(rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.index}".encode()).digest())
    return [(row, CALIBRATION if place < dataset.calibration else EVALUATION) for place, row in enumerate(order)]
