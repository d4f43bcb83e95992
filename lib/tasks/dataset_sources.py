"""The published rows of a dataset: from the hub, a folder, or local files
(lib.tasks.question_files).

If DATA_FOLDER is set, the published `files` there replace the hub and give the same rows.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from lib import errors, paths
from lib.errors import UserError, nearest
from lib.parameter_schemas import Dataset, is_on_hub
from lib.tasks.question_files import find_question_files, hash_file, read_records, shorten_floats

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


# ---- which source


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


# ---- rows


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
