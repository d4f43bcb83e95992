"""Load a dataset as a list of examples with a calibration and an evaluation split.

The dataset's file in `params/datasets/` defines fields and splits. Rows come from the hub, from a
folder, or from local files (lib.tasks.question_files). If DATA_FOLDER is set, the published `files`
there replace the hub and give the same examples. There are three ways to split:
- by part: the files of each part, or a row's field `split` in one file for `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle with a `seed`, in the order of sha256("seed|row"), so it does not depend on machine
  or library version:
  the first `calibration` rows calibrate and the rest evaluate.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from lib import errors, files, paths, row_order
from lib.errors import UserError, nearest
from lib.parameter_schemas import Dataset, is_on_hub
from lib.tasks import answers
from lib.tasks.question_files import (
    find_question_files,
    hash_file,
    read_file,
    read_records,
    shorten_floats,
)

CALIBRATION, EVALUATION = "calibration", "evaluation"
# an unpaired surrogate, valid in JSON, but not in tokenizers and files
HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class PublishedRow(NamedTuple):
    part: str  # train, test, ...
    number: int  # in the part or file, from 0
    where: str  # its name in messages
    fields: dict[str, Any]


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
    """
    examples: dict[str, Example] = {}
    asked: dict[str, Example] = {}
    dataset = use_local_files(dataset)
    rows = list(read_rows(dataset))
    for row, split in assign_splits(dataset, rows):
        example = read_example(dataset, row, split)
        first = asked.setdefault(example.question, example)
        if example.example_id in examples:
            raise UserError(f"{row.where}: the id {example.example_id!r} again")
        if first.split != split:
            raise UserError(
                f"{row.where}: its question is that of '{first.example_id}', too, in the other split"
            )
        examples[example.example_id] = example
    sizes = Counter(example.split for example in examples.values())
    if (sizes[CALIBRATION], sizes[EVALUATION]) != (dataset.calibration, dataset.evaluation):
        raise UserError(
            f"dataset '{dataset.label}': expected {dataset.calibration} {CALIBRATION} and {dataset.evaluation} "
            f"{EVALUATION} questions, found {sizes[CALIBRATION]} and {sizes[EVALUATION]}; the rows' parts are "
            f"{', '.join(sorted({row.part for row in rows}))}: set `parts`, a field `split` in one file, or a `seed`"
        )
    return sorted(examples.values(), key=lambda example: example.split)


def select_examples(
    examples: Sequence[Example], count: int, seed: int, dataset: str, always_first: str = ""
) -> list[Example]:
    """Return the first examples of each split, in the dataset's random order.

    The splits alternate, and a larger `count` per split (0: all) starts with the same examples. The
    one with the id `always_first` comes first.
    """
    frame = pd.DataFrame(examples).assign(dataset=dataset)
    return [
        examples[place] for place in row_order.first_positions(frame, count, seed, always_first)
    ]


def find_example(examples: Sequence[Example], example_id: str) -> Example:
    """Return the example with this id, or the first if there is none."""
    return next((example for example in examples if example.example_id == example_id), examples[0])


# ---- fields


def read_example(dataset: Dataset, row: PublishedRow, split: str) -> Example:
    """Create an example from the fields that the dataset's file names."""
    question = " ".join(read_text(row, name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    # a generated id must not depend on a shuffled split: another seed would rename the example
    name = read_id(dataset, row) or f"{split if dataset.seed is None else 'row'}-{row.number}"
    return Example(
        name, split, question, parse_reference(read_field(row, dataset.answer), row.where)
    )


def read_field(row: PublishedRow, name: str) -> Any:
    if name not in row.fields:
        raise UserError(f"{row.where}: no field '{name}'; {nearest(name, row.fields)}")
    return row.fields[name]


def read_text(row: PublishedRow, name: str) -> str:
    value = read_field(row, name)
    if not isinstance(value, str) or HALF_CHARACTER.search(value):
        raise UserError(f"{row.where}: '{name}' is {value!a:.40}, not a text")
    return value.strip()


def read_id(dataset: Dataset, row: PublishedRow) -> str:
    """Return a row's id from the field that the dataset's file names, else from `id`; empty if null
    or absent.

    Raise UserError unless it is a text or a whole number.
    """
    value = read_field(row, dataset.id) if dataset.id else row.fields.get("id")
    if value is None:
        return ""
    # excludes booleans
    if type(value) not in (str, int) or not str(value).strip() or not str(value).isprintable():
        raise UserError(f"{row.where}: the id {value!r:.60} is neither a text nor a whole number")
    return str(value)


def parse_reference(answer: Any, where: str) -> str:
    """Return the canonical number of a published answer: a number, its text, or the number after
    `####`."""
    text = "" if isinstance(answer, (list, dict)) else str(answer)
    span = answers.find_answer(text) if answers.MARK in text else (0, len(text))
    number = answers.canonical_number(text[slice(*span)] if span else None)
    if number is None:
        remedy = "write it like 18, -1,234.5, 1e6 or 3/4"
        raise UserError(f"{where}: no number in the answer {str(answer)[-40:]!r}; {remedy}")
    return number


# ---- splits


def assign_splits(dataset: Dataset, rows: list[PublishedRow]) -> list[tuple[PublishedRow, str]]:
    """Return each row with its split, as the dataset's file defines it; parts of no split are left
    out."""
    if dataset.seed is not None:
        order = sorted(
            rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.number}".encode()).digest()
        )
        return [
            (row, CALIBRATION if n < dataset.calibration else EVALUATION)
            for n, row in enumerate(order)
        ]
    if dataset.split_ids:
        rows = order_by_split_ids(dataset, rows)
    return [(row, dataset.parts[row.part]) for row in rows if row.part in dataset.parts]


def order_by_split_ids(dataset: Dataset, rows: list[PublishedRow]) -> list[PublishedRow]:
    """Return the rows in the order of the `split_ids` lists, with the list's name as their part."""
    where, data = read_file(str(dataset.split_ids))
    lists = files.parse_json(data, where)
    if not isinstance(lists, dict) or not all(isinstance(ids, list) for ids in lists.values()):
        raise UserError(f"{where}: not of the form {{train: [ids], test: [ids]}}")
    parts = {str(name): part for part, ids in lists.items() for name in ids}
    by_id = {read_id(dataset, row): row for row in rows}
    if alone := by_id.keys() ^ parts.keys():
        raise UserError(
            f"{where}: the id '{min(alone)}' is only here, or only in the rows of '{dataset.label}'"
        )
    return [by_id[name]._replace(part=part) for name, part in parts.items()]


# ---- sources


def use_local_files(dataset: Dataset) -> Dataset:
    """Return the dataset with the published files as its source, if DATA_FOLDER is set.

    Raise UserError if a file is missing or its checksum differs.
    """
    if not dataset.folder:
        return dataset
    local = {part: str(dataset.folder / file.path) for part, file in dataset.files.items()}
    for part, name in local.items():
        found, expected = hash_file(name), dataset.files[part].sha256
        if found != expected:
            raise UserError(
                f"{name} is not that of dataset '{dataset.label}': sha256 {found}, expected {expected}"
            )
    return dataset.model_copy(
        update={"split_ids": local.pop("split_ids", None), "source": local, "files": {}}
    )


def describe_source(dataset: Dataset) -> dict[str, str]:
    """Return the manifest's description of the source: hub name and revision, or the sha256 of
    every local file.

    Published files are named by their path below DATA_FOLDER.
    """
    if dataset.folder:
        return {file.path: file.sha256 for file in dataset.files.values()}
    if is_on_hub(dataset):
        return {"source": str(dataset.source), "revision": dataset.revision or "the newest"}
    names = [name for part in find_files(dataset).values() for name in part]
    names += [dataset.split_ids] if dataset.split_ids else []
    public = paths.number_equal_names(map(paths.public_path, names))
    return {shown: hash_file(name) for shown, name in zip(public, names, strict=True)}


def read_rows(dataset: Dataset) -> Iterator[PublishedRow]:
    """Yield the rows of all parts; a row of one file for `all` names its part in the field
    `split`."""
    if is_on_hub(dataset):
        parts = {
            part: [(f"{dataset.source}, {part}", rows)]
            for part, rows in load_hub_parts(dataset).items()
        }
    else:
        parts = {
            part: [read_records(name) for name in names]
            for part, names in find_files(dataset).items()
        }
    for part, sources in parts.items():
        named = [
            (f"{where}, row {n}", fields)
            for where, records in sources
            for n, fields in enumerate(records, 1)
        ]
        for number, (where, fields) in enumerate(named):
            if not isinstance(fields, dict):
                raise UserError(f"{where}: {fields!r:.40} is not an object with fields")
            yield PublishedRow(
                str(fields.get("split", part)) if part == "all" else part, number, where, fields
            )


def load_hub_parts(dataset: Dataset) -> dict[str, Any]:
    """Load the parts of a dataset of the hub."""
    try:
        import datasets  # slow to import, and local files do not need it

        source, revision = str(dataset.source), dataset.revision
        parts = datasets.load_dataset(source, dataset.config, revision=revision)
        tables = {part: rows.with_format("arrow")[:] for part, rows in parts.items()}
        return {part: shorten_floats(table).to_pylist() for part, table in tables.items()}
    except Exception as error:
        raise UserError(
            f"hub dataset '{dataset.source}' did not load: {errors.first_line(error)}"
        ) from error


def find_files(dataset: Dataset) -> dict[str, list[str]]:
    """Return the local files of each part. In a folder, a file's part is a word of its name or
    folder.

    Such names are `train.csv`, `test-00000-of-00001.parquet` and `train/a.jsonl`. With a `seed`,
    all are of one part.
    """
    if not isinstance(dataset.source, str):
        return {part: [name] for part, name in dataset.source.items()}
    folder = paths.local_path(dataset.source)
    if not folder.is_dir():
        remedy = f"a file is named by its part, as `source: {{all: {dataset.source}}}`"
        raise UserError(f"dataset '{dataset.label}': there is no folder {dataset.source}; {remedy}")
    questions = find_question_files(folder)
    words = {str(file): re.split(r"\W", str(file.relative_to(folder))) for file in questions}
    parts = {part: [file for file in words if part in words[file]] for part in dataset.parts}
    return parts if dataset.seed is None else {"all": list(words)}
