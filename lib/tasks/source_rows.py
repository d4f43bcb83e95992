"""Rows of a dataset as published: on the hub or in a folder, or in a file of one of FORMATS."""

import csv
import gzip
import io
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lib.files import parse_json, read_bytes
from lib.models_and_datasets import Dataset
from lib.paths import ROOT, UserError, first_line, is_path, local_path, nearest, relative_path

Record = tuple[str, Any]  # its name in messages, and its fields
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # an unpaired surrogate, valid in JSON, but not in tokenizers and files


@dataclass(frozen=True)
class SourceRow:
    """A row as published. A missing field or a non-text value raises UserError."""

    part: str  # train, test, all, ...
    index: int  # row number in the part, from 0
    where: str  # its name in messages
    fields: dict[str, Any]

    def field(self, name: str, why: str = "") -> Any:
        if name not in self.fields:
            raise UserError(f"{self.where}: no field '{name}'{why}; {nearest(name, self.fields)}")
        return self.fields[name]

    def text(self, name: str) -> str:
        value = self.field(name)
        if not isinstance(value, str):
            raise UserError(f"{self.where}: '{name}' is {value!r:.40}, not a text")
        if broken := HALF_CHARACTER.search(value):
            raise UserError(f"{self.where}: '{name}' holds {broken.group()!a}, half of a character")
        return value.strip()


def read_source_rows(dataset: Dataset) -> Iterator[SourceRow]:
    """Yield every row of every part. Raise UserError for a missing or malformed file."""
    for part, records in read_parts(dataset):
        for index, (where, record) in enumerate(records):
            yield SourceRow(part, index, where, record)


def read_parts(dataset: Dataset) -> Iterator[tuple[str, Iterable[Record]]]:
    """Yield the name and the records of each part."""
    if not isinstance(dataset.source, str):
        for part, name in dataset.source.items():
            yield part, read_records(name)
    elif is_path(dataset.source):
        for part, names in select_parts(dataset, list_parts(dataset)).items():
            yield part, itertools.chain.from_iterable(map(read_records, names))
    else:
        for part, records in select_parts(dataset, load_hub_parts(dataset)[0]).items():
            yield part, ((f"{dataset.source}, {part}, row {n}", dict(record)) for n, record in enumerate(records))


def select_parts(dataset: Dataset, found: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a split; others, such as `validation`, are ignored. Raise UserError if a split has none."""
    if dataset.seed is not None:
        return found
    chosen = {part: records for part, records in found.items() if part in dataset.parts}
    if not dataset.split_ids and len({dataset.parts[part] for part in chosen}) < 2:
        raise UserError(
            f"dataset '{dataset.label}': {dataset.source} has {', '.join(found)}; "
            "name the parts of both splits, as `parts: {train: calibration, validation: evaluation}`, or give a `seed`"
        )
    return chosen


def load_hub_parts(dataset: Dataset) -> tuple[dict[str, Any], str]:
    """Load a dataset of the hub: its parts, and their commit from the URLs of the downloaded files."""
    try:
        import datasets  # slow to import, and local files do not need it

        parts = datasets.load_dataset(str(dataset.source), dataset.config, revision=dataset.revision)
    except Exception as error:
        raise UserError(f"hub dataset '{dataset.source}' did not load: {first_line(error)}") from error
    urls = [url for records in parts.values() for url in records.info.download_checksums or {}]
    commits = {url.partition("@")[2].partition("/")[0] for url in urls if url.startswith("hf:")}
    return dict(parts), ", ".join(sorted(commits)) or dataset.revision or "unknown"


def list_parts(dataset: Dataset) -> dict[str, list[str]]:
    """Return the files of a dataset's folder by part, as `datasets` tells parts by the files' names."""
    folder = find_folder(dataset)
    try:
        import datasets

        found = datasets.load_dataset_builder(folder, dataset.config).config.data_files
    except Exception as error:
        raise UserError(f"dataset folder '{dataset.source}' did not load: {first_line(error)}") from error
    return {str(part): list(map(str, names)) for part, names in found.items()}


def find_folder(dataset: Dataset) -> str:
    """Return the folder of a dataset whose source is one. Raise UserError for a file, or if there is none."""
    path = local_path(str(dataset.source))
    if path.is_file():
        raise UserError(
            f"dataset '{dataset.label}': files are named by part, as `source: {{all: {dataset.source}}}`; "
            "a text alone is a name on the hub or a folder"
        )
    if not path.is_dir():
        raise UserError(f"dataset '{dataset.label}': there is no folder {dataset.source}")
    return str(path)


# ---- files


def read_records(name: str) -> list[Record]:
    """Return the records of a file in one of FORMATS, which may be compressed (`.gz`).

    Raise UserError for a file with another ending, or with the first record that can't be read.
    """
    path, data = read_source_file(name)
    endings = [ending.lower() for ending in path.suffixes]
    if endings[-1:] == [".gz"]:
        data = decompress(data, path)
        endings.pop()
    ending = endings[-1] if endings else ""
    if ending not in FORMATS:
        raise UserError(f"{path}: files of questions end in {', '.join(FORMATS)}, all also with .gz")
    records = FORMATS[ending](data, path)
    for where, record in records:
        if not isinstance(record, dict):
            raise UserError(f"{where}: {record!r:.40} is not an object with fields")
    return records


def decompress(data: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not gzip ({first_line(error)})") from None


def read_json(data: bytes, path: Path) -> list[Record]:
    """Return the objects of a JSON list, or of JSON lines."""
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return [(f"{path}, item {n}", record) for n, record in enumerate(parse_json(data, path), 1)]
    lines = enumerate(data.split(b"\n"), 1)
    try:
        return [(f"{path}, line {n}", parse_json(line, path, n)) for n, line in lines if line.strip()]
    except UserError as error:
        raise UserError(f"{error}; a line holds one object, or the file one list of them") from None


def read_csv(data: bytes, path: Path, delimiter: str = ",") -> list[Record]:
    """Return the rows below a header; all values are texts. Raise UserError for a row of more or fewer fields."""
    try:
        text = io.StringIO(data.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not text in UTF-8 ({error})") from None
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        header, *rows = [*filter(None, reader)] or [[]]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    if len(header) == 1:
        raise UserError(
            f"{path}: one column {header[0]!r:.60}; {'commas' if delimiter == ',' else 'tabs'} separate columns"
        )
    if twice := [name for name in header if header.count(name) > 1]:
        raise UserError(f"{path}: the column '{twice[0]}' again")
    records = []
    for n, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise UserError(
                f"{path}, row {n}: {len(row)} fields under a header of {len(header)}; "
                f"a text that holds a {'comma' if delimiter == ',' else 'tab'} needs quotes"
            )
        records.append((f"{path}, row {n}", dict(zip(header, row, strict=True))))
    return records


def read_parquet(data: bytes, path: Path) -> list[Record]:
    try:
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not parquet ({first_line(error)})") from None
    return [(f"{path}, row {n}", row) for n, row in enumerate(rows, 1)]


FORMATS: dict[str, Callable[[bytes, Path], list[Record]]] = {
    ".jsonl": read_json,
    ".json": read_json,
    ".ndjson": read_json,
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
    ".parquet": read_parquet,
}


def read_source_file(name: str) -> tuple[Path, bytes]:
    """Return a file's path, from the project's root if inside it, and its bytes.

    Raise UserError if it can't be read, or is missing, with the nearest name.
    """
    path = local_path(name)
    shown = Path(relative_path(path))
    if not os.path.lexists(path):
        folder = next(parent for parent in path.parents if os.path.isdir(parent))
        missing = path.relative_to(folder).parts[0]
        alike = [other.name for other in folder.glob(f"*{Path(missing).suffix}")]
        inside = "" if folder == ROOT else f"in {relative_path(folder)}, "
        raise UserError(f"no file {shown}: {inside}{nearest(missing, alike)}")
    return shown, read_bytes(path, shown)
