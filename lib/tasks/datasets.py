"""A dataset as a list of examples: which fields of a row are read, and which rows calibrate and which evaluate.

The dataset's file in `params/datasets/` says both. Rows come from the hub, or from local files of JSON lines or one
JSON list. Where DATA_FOLDER names a folder, the published files in it (`files`) are read in place of the hub, and give
the same examples. There are three ways to split:
- by part: the published ones, a file each, or what a row's own field `split` names where one file holds `all`;
- by lists of ids, in a file `split_ids` {train: [ids], test: [ids]};
- by a shuffle, where a `seed` is given: in the order of sha256("seed|row"), alike on every machine and library
  version, the first `calibration` rows calibrate and the rest evaluate.
"""

import hashlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lib import random_streams
from lib.configs import Dataset
from lib.paths import ROOT, UserError, first_line, is_path, nearest, parse_json, public_path, read_bytes
from lib.tasks import answers

CALIBRATION, EVALUATION = "calibration", "evaluation"
_WORD = re.compile(r"[^\W\d_]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Example(NamedTuple):
    example_id: str
    split: str
    question: str
    reference: str  # the right answer, spelled canonically: `-9867630`, `0.0000005`


@dataclass(frozen=True)
class SourceRow:
    """A row as published; a field that it lacks, or a text that is none, is the user's error."""

    part: str  # train, test, all, ...
    index: int  # place there, from 0
    where: str  # how a message names it
    fields: dict[str, Any]

    def field(self, name: str, why: str = "") -> Any:
        if name not in self.fields:
            raise UserError(f"{self.where}: no field '{name}'{why}; {nearest(name, self.fields)}")
        return self.fields[name]

    def text(self, name: str) -> str:
        value = self.field(name)
        if not isinstance(value, str):
            raise UserError(f"{self.where}: '{name}' is {value!r:.40}, not a text")
        if broken := _SURROGATE.search(value):  # JSON can spell it, but no tokenizer and no file takes it
            raise UserError(f"{self.where}: '{name}' holds {broken.group()!a}, half of a character")
        return value.strip()


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
    sizes = Counter(example.split for example in examples.values())
    expected = f"{dataset.calibration} calibration and {dataset.evaluation} evaluation questions"
    there = f"{sizes[CALIBRATION]} calibration and {sizes[EVALUATION]} evaluation questions"
    if there != expected:
        raise UserError(f"dataset '{dataset.label}': expected {expected}, found {there}")
    return sorted(examples.values(), key=lambda example: example.split)


def select_examples(
    examples: Sequence[Example], count: int, seed: int, dataset: str, followed: str = ""
) -> list[Example]:
    """The first examples of each split, in the dataset's one random order.

    The splits take turns: a larger count begins with the same examples, and adds others.

    Parameters
    ----------
    count : examples per split; 0: all
    followed : the id of the example that comes first
    """
    keys = [(dataset, example.split, example.example_id) for example in examples]
    return [examples[place] for place in random_streams.first_places(keys, count, seed, followed)]


def find_example(examples: Sequence[Example], example_id: str) -> Example:
    """The example of this id; where there is none, the first."""
    return next((example for example in examples if example.example_id == example_id), examples[0])


def hash_words(question: str) -> list[int]:
    """A question's words, numbers put aside, each as the CRC-32 of its small letters; sorted. They tell whether two
    questions are alike, and hold no text."""
    return sorted({zlib.crc32(word.lower().encode()) for word in _WORD.findall(question)})


# ---- what a row holds


def read_example(dataset: Dataset, row: SourceRow, split: str) -> Example:
    """What a row holds under the fields that the dataset's file names."""
    question = " ".join(row.text(name) for name in dataset.question).strip()
    if not question:
        raise UserError(f"{row.where}: an empty question")
    # an id that is made up must not hang on a drawn split: another seed would rename the example
    name = read_id(dataset, row) or f"{split if dataset.seed is None else 'row'}-{row.index}"
    return Example(name, split, question, parse_reference(row.field(dataset.answer), row.where))


def read_id(dataset: Dataset, row: SourceRow) -> str:
    """The id that a row has under the field that the dataset's file names, else under `id`; empty where that is null
    or, unnamed, not there. Raises UserError for what is neither a text nor a whole number."""
    value = row.field(dataset.id) if dataset.id else row.fields.get("id")
    if value is None:
        return ""
    if type(value) not in (str, int) or not str(value).strip() or not str(value).isprintable():  # no truth value
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


# ---- splits


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
    listed = [(str(name), part) for part, ids in lists.items() for name in ids]
    places = {name: (place, part) for place, (name, part) in enumerate(listed)}
    for twice, count in Counter(name for name, _ in listed).items():
        if count > 1:  # in both splits, say
            raise UserError(f"{path}: the id '{twice}' is listed again, for {places[twice][1]}")
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
    """The rows of one file in an order that hangs on seed and place alone, and their splits by size."""
    if dataset.split_ids or len({row.part for row in rows}) > 1:
        raise UserError(f"dataset '{dataset.label}': a `seed` splits one file itself; give one, and no `split_ids`")
    order = sorted(rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.index}".encode()).digest())
    return [(row, CALIBRATION if place < dataset.calibration else EVALUATION) for place, row in enumerate(order)]


# ---- where rows come from


def read_source_rows(dataset: Dataset) -> Iterator[SourceRow]:
    """Every row of every part. Raises UserError for a file that is not there or is not JSON."""
    if isinstance(dataset.source, str):
        for part, records in load_hub_parts(dataset)[0].items():
            if part in dataset.parts or dataset.seed is not None:  # others, such as `validation`, are left alone
                for index, record in enumerate(records):
                    yield SourceRow(part, index, f"{dataset.source}, {part}, row {index}", dict(record))
    else:
        for part, name in dataset.source.items():
            for index, (where, record) in enumerate(read_records(name)):
                yield SourceRow(part, index, where, record)


def use_local_files(dataset: Dataset) -> Dataset:
    """The dataset, its source being the published files where their folder is named.

    Raises UserError where one of them is missing, or is another file.
    """
    if not dataset.folder:
        return dataset
    paths = {}
    for part, file in dataset.files.items():
        path, data = read_source_file(str(dataset.folder / file.path))
        found = hashlib.sha256(data).hexdigest()
        if found != file.sha256:
            raise UserError(f"{path} is not the file of dataset '{dataset.label}': its sha256 is {found}, "
                            f"expected {file.sha256}")  # fmt: skip
        paths[part] = str(path)
    lists = paths.pop("split_ids", None)
    return dataset.model_copy(update={"source": paths, "split_ids": lists, "files": {}})


def describe_source(dataset: Dataset) -> dict[str, str]:
    """What is read, for the manifest: the hub's name and resolved revision, or the sha256 of every file; of published
    ones by their names in their folder, wherever that is."""
    if dataset.folder:
        return {file.path: file.sha256 for file in dataset.files.values()}
    if isinstance(dataset.source, str):
        return {"source": dataset.source, "revision": load_hub_parts(dataset)[1]}
    files = filter(None, [*dataset.source.values(), dataset.split_ids])
    return {public_path(name): hashlib.sha256(read_source_file(name)[1]).hexdigest() for name in files}


def load_hub_parts(dataset: Dataset) -> tuple[dict[str, Any], str]:
    """The hub's parts, and the commit they came from, which the addresses of the downloaded files name. Raises
    UserError for a path, which is no name on the hub."""
    if is_path(str(dataset.source)) and not os.path.isdir(str(dataset.source)):
        raise UserError(f"dataset '{dataset.label}': files are named by part, as `source: {{all: {dataset.source}}}`; "
                        "a text alone is a name on the hub")  # fmt: skip
    try:
        import datasets  # here, since it is slow to import and local files do without it

        parts = datasets.load_dataset(dataset.source, dataset.config, revision=dataset.revision)
    except Exception as error:
        raise UserError(f"hub dataset '{dataset.source}' did not load: {first_line(error)}") from error
    urls = [url for records in parts.values() for url in records.info.download_checksums or {}]
    commits = {url.partition("@")[2].partition("/")[0] for url in urls if url.startswith("hf:")}
    return dict(parts), ", ".join(sorted(commits)) or dataset.revision or "unknown"


def read_records(name: str) -> list[tuple[str, Any]]:
    """(where, record) of a file that holds one JSON list, or one JSON object per line."""
    path, data = read_source_file(name)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        records = [(f"{path}, item {n}", record) for n, record in enumerate(parse_json(data, path), 1)]
    else:
        lines = enumerate(data.split(b"\n"), 1)
        records = [(f"{path}, line {n}", parse_json(line, path, n)) for n, line in lines if line.strip()]
    for where, record in records:
        if not isinstance(record, dict):
            raise UserError(f"{where}: {record!r:.40} is not an object with fields")
    return records


def read_source_file(name: str) -> tuple[Path, bytes]:
    """A file's path and bytes; a relative name starts from the project's root. Raises UserError where there is no such
    file, with the nearest one, and for one that can't be read."""
    path = ROOT / os.path.expanduser(name)
    if not os.path.lexists(path):
        folder = next(parent for parent in path.parents if os.path.isdir(parent))
        missing = path.relative_to(folder).parts[0]
        alike = [other.name for other in folder.glob(f"*{Path(missing).suffix}")]
        raise UserError(f"no file {path}: in {folder}, {nearest(missing, alike)}")
    return path, read_bytes(path)
