"""Rows of a dataset as they were published: from the hub, or from local files of JSON lines or one JSON list.

Where DATA_FOLDER names a folder, the published files in it, which a dataset's own file describes (`files`: paths and
checksums), are read in place of the hub, and give the same examples.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.params import Dataset, is_path
from lib.project import ROOT, UserError, first_line, nearest, parse_json, public_path, read_bytes

_SURROGATE = re.compile("[\ud800-\udfff]")


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
        alike = []
        with suppress(OSError):  # a folder that may not be listed
            alike = [other.name for other in folder.iterdir() if other.suffix == Path(missing).suffix]
        raise UserError(f"no file {path}: in {folder}, {nearest(missing, alike)}")
    return path, read_bytes(path)
