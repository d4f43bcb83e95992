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

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from lib import errors, files, paths, row_order
from lib.errors import UserError, nearest
from lib.parameter_schemas import Dataset, is_on_hub
from lib.tasks.answers import MARK, find_answer
from lib.tasks.question_files import (
    find_question_files,
    hash_file,
    read_file,
    read_records,
    shorten_floats,
)
from lib.tasks.written_numbers import canonical_number

CALIBRATION, EVALUATION = "calibration", "evaluation"
# an unpaired surrogate, valid in JSON, but not in tokenizers and files
HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class PublishedRow(NamedTuple):
    part: str  # train, test, ...
    number: int  # in the part or file, from 0
    where: str  # its name in messages
    fields: dict[str, Any]

    def field(self, name: str) -> Any:
        """Return the value of a field. Raise UserError if it is missing."""
        if name not in self.fields:
            raise UserError(f"{self.where}: no field '{name}'; {nearest(name, self.fields)}")
        return self.fields[name]

    def text(self, name: str) -> str:
        """Return the text of a field, stripped. Raise UserError if it is none."""
        value = self.field(name)
        if not isinstance(value, str) or HALF_CHARACTER.search(value):
            raise UserError(f"{self.where}: '{name}' is {value!a:.40}, not a text")
        return value.strip()


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
    if calibration == dataset.calibration and evaluation == dataset.evaluation:
        return
    parts = ", ".join(sorted({row.part for row in rows}))
    raise UserError(
        f"dataset '{dataset.label}': expected {dataset.calibration} {CALIBRATION} and "
        f"{dataset.evaluation} {EVALUATION} questions, found {calibration} and {evaluation}; "
        f"the rows' parts are {parts}: set `parts`, a field `split` in one file, or a `seed`"
    )


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
    """Return the rows in the random order of a seed: the first ones calibrate."""

    def rank(row: PublishedRow) -> str:
        return files.sha256(f"{dataset.seed}|{row.number}".encode())

    assigned = []
    for place, row in enumerate(sorted(rows, key=rank)):
        assigned.append((row, CALIBRATION if place < dataset.calibration else EVALUATION))
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


# ---- sources


def use_local_files(dataset: Dataset) -> Dataset:
    """Return the dataset with the published files as its source, if DATA_FOLDER is set.

    Raise UserError if a file is missing or its checksum differs.

    Examples
    --------
    >>> from lib.params import load_dataset_config
    >>> dataset = load_dataset_config("demo-easy")  # it has no published files
    >>> use_local_files(dataset) is dataset
    True
    """
    if not dataset.folder:
        return dataset
    source = {}
    for part, file in dataset.files.items():
        name = str(dataset.folder / file.path)
        checksum = hash_file(name)
        if checksum != file.sha256:
            differs = f"sha256 {checksum}, expected {file.sha256}"
            raise UserError(f"{name} is not that of dataset '{dataset.label}': {differs}")
        source[part] = name
    split_ids = source.pop("split_ids", None)
    return dataset.model_copy(update={"split_ids": split_ids, "source": source, "files": {}})


def describe_source(dataset: Dataset) -> dict[str, str]:
    """Return the manifest's description of the source: hub name and revision, or the sha256 of
    every local file.

    Published files are named by their path below DATA_FOLDER.

    Examples
    --------
    >>> mine = Dataset(label="Mine", source="me/sums", revision="1f", calibration=1, evaluation=1)
    >>> describe_source(mine)
    {'source': 'me/sums', 'revision': '1f'}
    """
    if dataset.folder:
        return {file.path: file.sha256 for file in dataset.files.values()}
    if is_on_hub(dataset):
        return {"source": str(dataset.source), "revision": dataset.revision or "the newest"}
    names = list(chain.from_iterable(find_files(dataset).values()))
    if dataset.split_ids:
        names.append(dataset.split_ids)
    public = paths.number_equal_names(map(paths.public_path, names))
    return dict(zip(public, map(hash_file, names), strict=True))


def read_rows(dataset: Dataset) -> Iterator[PublishedRow]:
    """Yield the rows of all parts; a row of one file for `all` names its part in the field
    `split`.

    Examples
    --------
    >>> from lib.params import load_dataset_config
    >>> next(read_rows(load_dataset_config("demo-easy"))).part
    'calibration'
    """
    numbers: Counter[str] = Counter()
    for part, where, records in _read_sources(dataset):
        for n, fields in enumerate(records, 1):
            if not isinstance(fields, dict):
                raise UserError(f"{where}, row {n}: {fields!r:.40} is not an object with fields")
            of_row = str(fields.get("split", part)) if part == "all" else part
            yield PublishedRow(of_row, numbers[part], f"{where}, row {n}", fields)
            numbers[part] += 1


def _read_sources(dataset: Dataset) -> Iterator[tuple[str, str, Any]]:
    """Yield the part, the name for messages and the records of each source."""
    if is_on_hub(dataset):
        for part, records in _load_hub_parts(dataset).items():
            yield part, f"{dataset.source}, {part}", records
        return
    for part, names in find_files(dataset).items():
        for name in names:
            where, records = read_records(name)
            yield part, where, records


def _load_hub_parts(dataset: Dataset) -> dict[str, Any]:
    """Load the parts of a dataset of the hub."""
    try:
        import datasets  # slow to import, and local files do not need it

        name = str(dataset.source)
        parts = datasets.load_dataset(name, dataset.config, revision=dataset.revision)
        records = {}
        for part, rows in parts.items():
            table = rows.with_format("arrow")[:]
            records[part] = shorten_floats(table).to_pylist()
        return records
    except Exception as error:
        reason = errors.first_line(error)
        raise UserError(f"hub dataset '{dataset.source}' did not load: {reason}") from error


def find_files(dataset: Dataset) -> dict[str, list[str]]:
    """Return the local files of each part. In a folder, a file's part is a word of its name or
    folder.

    Such names are `train.csv`, `test-00000-of-00001.parquet` and `train/a.jsonl`. With a `seed`,
    all are of one part.

    Examples
    --------
    >>> source = {"train": "mine/easy.csv", "test": "mine/hard.csv"}
    >>> find_files(Dataset(label="Mine", source=source, calibration=1, evaluation=1))
    {'train': ['mine/easy.csv'], 'test': ['mine/hard.csv']}
    """
    if not isinstance(dataset.source, str):
        return {part: [name] for part, name in dataset.source.items()}
    folder = paths.local_path(dataset.source)
    if not folder.is_dir():
        remedy = f"a file is named by its part, as `source: {{all: {dataset.source}}}`"
        raise UserError(f"dataset '{dataset.label}': there is no folder {dataset.source}; {remedy}")
    questions = find_question_files(folder)
    if dataset.seed is not None:
        return {"all": [str(path) for path in questions]}
    parts: dict[str, list[str]] = {part: [] for part in dataset.parts}
    for path in questions:
        words = re.split(r"\W", str(path.relative_to(folder)))
        for part in parts.keys() & words:
            parts[part].append(str(path))
    return parts
