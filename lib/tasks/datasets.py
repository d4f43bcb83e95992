"""Load a dataset as a list of examples with a calibration and an evaluation split.

The dataset's file in `params/datasets/` defines fields and splits. Rows come from the hub, from a folder, or from local
files: JSON lines, one JSON list, CSV, TSV or parquet. If DATA_FOLDER is set, the published `files` there replace the
hub and give the same examples. There are three ways to split:
- by part: a file for each published part, or a row's field `split` in one file for `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle with a `seed`, in the order of sha256("seed|row"), so it does not depend on machine or library version:
  the first `calibration` rows calibrate and the rest evaluate.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lib import random_streams
from lib.files import parse_json
from lib.models_and_datasets import Dataset
from lib.paths import UserError, is_path, nearest, public_path
from lib.tasks import answers
from lib.tasks.source_rows import SourceRow, find_folder, load_hub_parts, read_source_file, read_source_rows

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
        If a row lacks a field or a number, a question is in both splits, or a split's size differs from the dataset's
        file.
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
            raise UserError(
                f"{row.where}: the question of '{example.example_id}' ({split}) is that of "
                f"'{other.example_id}' ({other.split}), too: leave one of them out"
            )
    sizes = Counter(example.split for example in examples.values())
    expected = f"{dataset.calibration} calibration and {dataset.evaluation} evaluation questions"
    there = f"{sizes[CALIBRATION]} calibration and {sizes[EVALUATION]} evaluation questions"
    if there != expected:
        raise UserError(f"dataset '{dataset.label}': expected {expected}, found {there}")
    return sorted(examples.values(), key=lambda example: example.split)


def select_examples(
    examples: Sequence[Example], count: int, seed: int, dataset: str, always_first: str = ""
) -> list[Example]:
    """Return the first examples of each split, in the dataset's random order.

    The splits alternate, and a larger count starts with the same examples.

    Parameters
    ----------
    count : examples per split; 0: all
    always_first : the id of the example that comes first
    """
    frame = pd.DataFrame(examples).assign(dataset=dataset)
    return [examples[place] for place in random_streams.first_positions(frame, count, seed, always_first)]


def find_example(examples: Sequence[Example], example_id: str) -> Example:
    """Return the example with this id, or the first if there is none."""
    return next((example for example in examples if example.example_id == example_id), examples[0])


def read_example(dataset: Dataset, row: SourceRow, split: str) -> Example:
    """Create an example from the fields that the dataset's file names."""
    question = " ".join(row.text(name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    # a generated id must not depend on a shuffled split: another seed would rename the example
    name = read_id(dataset, row) or f"{split if dataset.seed is None else 'row'}-{row.index}"
    return Example(name, split, question, parse_reference(row.field(dataset.answer), row.where))


def read_id(dataset: Dataset, row: SourceRow) -> str:
    """Return a row's id from the field that the dataset's file names, else from `id`; empty if null or absent.

    Raise UserError unless it is a text or a whole number.
    """
    value = row.field(dataset.id) if dataset.id else row.fields.get("id")
    if value is None:
        return ""
    if type(value) not in (str, int) or not str(value).strip() or not str(value).isprintable():  # excludes booleans
        raise UserError(f"{row.where}: the id {value!r:.60} is neither a text nor a whole number")
    return str(value)


def parse_reference(answer: Any, where: str) -> str:
    """Return the canonical number of a published answer: a number, its text, or the number after `####`."""
    text = str(answer) if isinstance(answer, (str, int, float, Decimal)) else ""
    span = answers.find_answer(text) if answers.MARK in text else (0, len(text))
    number = answers.canonical_number(text[slice(*span)] if span else None)
    if number is None:
        raise UserError(f"{where}: no number in the answer {str(answer)[-40:]!r}")
    return number


# ---- splits


def assign_splits(dataset: Dataset, rows: list[SourceRow]) -> list[tuple[SourceRow, str]]:
    """Return each row with its split, as the dataset's file defines it."""
    if dataset.seed is not None:
        return shuffle_into_splits(dataset, rows)
    if dataset.split_ids:
        rows = order_by_split_ids(dataset, rows)
    return [(row, find_split(dataset, row)) for row in rows]


def find_split(dataset: Dataset, row: SourceRow) -> str:
    """Return the split of a row's part; in one file for `all`, the part is the row's field `split`."""
    why = ", which one file for `all` needs (or a `seed`, or `split_ids`)"
    part = str(row.field("split", why)) if row.part == "all" else row.part
    if part not in dataset.parts:
        raise UserError(f"{row.where}: no split is called '{part}'; {nearest(part, dataset.parts)}")
    return dataset.parts[part]


def order_by_split_ids(dataset: Dataset, rows: list[SourceRow]) -> list[SourceRow]:
    """Return the rows in the order of the `split_ids` lists, with the list's name as their part."""
    path, data = read_source_file(str(dataset.split_ids))
    lists = parse_json(data, path)
    if not isinstance(lists, dict) or not all(isinstance(ids, list) for ids in lists.values()):
        raise UserError(f"{path}: not of the form {{train: [ids], test: [ids]}}")
    places: dict[str, tuple[int, str]] = {}
    for name, part in ((str(name), part) for part, ids in lists.items() for name in ids):
        if name in places:  # for example in both splits
            raise UserError(f"{path}: the id '{name}' is listed again, for {part}")
        places[name] = len(places), part
    placed = []
    for row in rows:
        row.field(dataset.id or "id")
        name = read_id(dataset, row)
        if name not in places:
            raise UserError(f"{row.where}: the id '{name}' is in no list of {path}")
        place, part = places[name]
        placed.append((place, replace(row, part=part)))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def shuffle_into_splits(dataset: Dataset, rows: list[SourceRow]) -> list[tuple[SourceRow, str]]:
    """Shuffle the rows of one file by seed and position, and split them by size."""
    if dataset.split_ids or len({row.part for row in rows}) > 1:
        raise UserError(f"dataset '{dataset.label}': a `seed` splits one file itself; give one, and no `split_ids`")
    order = sorted(rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.index}".encode()).digest())
    return [(row, CALIBRATION if place < dataset.calibration else EVALUATION) for place, row in enumerate(order)]


# ---- the sources of a dataset


def use_local_files(dataset: Dataset) -> Dataset:
    """Return the dataset with the published files as its source, if DATA_FOLDER is set.

    Raise UserError if a file is missing or its checksum differs.
    """
    if not dataset.folder:
        return dataset
    paths = {}
    for part, file in dataset.files.items():
        path, data = read_source_file(str(dataset.folder / file.path))
        found = hashlib.sha256(data).hexdigest()
        if found != file.sha256:
            raise UserError(
                f"{path} is not the file of dataset '{dataset.label}': its sha256 is {found}, expected {file.sha256}"
            )
        paths[part] = str(path)
    lists = paths.pop("split_ids", None)
    return dataset.model_copy(update={"source": paths, "split_ids": lists, "files": {}})


def describe_source(dataset: Dataset) -> dict[str, str]:
    """Return the manifest's description of the source: hub name and revision, or the sha256 of every local file.

    Published files are named by their path below DATA_FOLDER.
    """
    if dataset.folder:
        return {file.path: file.sha256 for file in dataset.files.values()}
    if isinstance(dataset.source, str) and not is_path(dataset.source):
        return {"source": dataset.source, "revision": load_hub_parts(dataset)[1]}
    files = filter(None, [*list_files(dataset), dataset.split_ids])
    return {public_path(name): hashlib.sha256(read_source_file(name)[1]).hexdigest() for name in files}


def list_files(dataset: Dataset) -> list[str]:
    """Return the local files of a dataset: those of its parts, or all of its folder."""
    if not isinstance(dataset.source, str):
        return list(dataset.source.values())
    return sorted(map(str, filter(Path.is_file, Path(find_folder(dataset)).rglob("*"))))
