"""Rows of a dataset as published: on the hub, or in a file of JSON lines, one JSON list, or CSV."""

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.configs import Dataset
from lib.paths import ROOT, UserError, first_line, is_path, nearest, parse_json, read_bytes

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
    if isinstance(dataset.source, str):
        for part, records in load_hub_parts(dataset)[0].items():
            if part in dataset.parts or dataset.seed is not None:  # others, such as `validation`, are ignored
                for index, record in enumerate(records):
                    yield SourceRow(part, index, f"{dataset.source}, {part}, row {index}", dict(record))
    else:
        for part, name in dataset.source.items():
            for index, (where, record) in enumerate(read_records(name)):
                yield SourceRow(part, index, where, record)


def load_hub_parts(dataset: Dataset) -> tuple[dict[str, Any], str]:
    """Load a hub dataset: its parts, and their commit from the URLs of the downloaded files.

    Raise UserError if the source is a path.
    """
    if is_path(str(dataset.source)) and not os.path.isdir(str(dataset.source)):
        raise UserError(
            f"dataset '{dataset.label}': files are named by part, as `source: {{all: {dataset.source}}}`; "
            "a text alone is a name on the hub"
        )
    try:
        import datasets  # slow to import, and local files do not need it

        parts = datasets.load_dataset(dataset.source, dataset.config, revision=dataset.revision)
    except Exception as error:
        raise UserError(f"hub dataset '{dataset.source}' did not load: {first_line(error)}") from error
    urls = [url for records in parts.values() for url in records.info.download_checksums or {}]
    commits = {url.partition("@")[2].partition("/")[0] for url in urls if url.startswith("hf:")}
    return dict(parts), ", ".join(sorted(commits)) or dataset.revision or "unknown"


def read_records(name: str) -> list[tuple[str, Any]]:
    """Return (where, record) for each record of a JSON list, JSON lines, or a CSV file (all values as texts)."""
    path, data = read_source_file(name)
    if path.suffix == ".csv":
        try:
            table = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
        except ValueError as error:
            raise UserError(f"{path}: not CSV ({first_line(error)})") from None
        return [(f"{path}, row {n}", record) for n, record in enumerate(table.to_dict("records"), 1)]
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
    """Return a file's path and bytes; relative names start from the project's root.

    Raise UserError if it can't be read, or is missing, with the nearest name.
    """
    path = ROOT / os.path.expanduser(name)
    if not os.path.lexists(path):
        folder = next(parent for parent in path.parents if os.path.isdir(parent))
        missing = path.relative_to(folder).parts[0]
        alike = [other.name for other in folder.glob(f"*{Path(missing).suffix}")]
        raise UserError(f"no file {path}: in {folder}, {nearest(missing, alike)}")
    return path, read_bytes(path)
