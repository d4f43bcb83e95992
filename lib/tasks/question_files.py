"""Files of questions, read whole: JSON lines, one JSON list, CSV, TSV or parquet, also with `.gz`.

Numbers of JSON stay exact, and a row of a table has one field for each column.
"""

import csv
import gzip
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lib import files, paths
from lib.paths import UserError, nearest

FILE_ENDINGS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet")


def read_file(name: str) -> tuple[str, bytes]:
    """Return a file's name for messages, from the project's root if inside it, and its bytes.

    Raise UserError if it can't be read, or is missing, with the nearest name.
    """
    path = paths.local_path(name)
    where = paths.relative_path(path)
    if path.parent.is_dir() and not os.path.lexists(path):
        alike = [other.name for other in path.parent.glob(f"*{path.suffix}")]
        raise UserError(f"no file {where}; {nearest(path.name, alike)}")
    return where, files.read_bytes(path, where)


def hash_file(name: str) -> str:
    return hashlib.sha256(read_file(name)[1]).hexdigest()


def find_ending(name: str) -> str | None:
    ending = Path(name.lower().removesuffix(".gz")).suffix
    return ending if ending in FILE_ENDINGS else None


def read_records(name: str) -> tuple[str, list[Any]]:
    """Return a file's name for messages, and its records. Raise UserError for the first that can't be read."""
    where, data = read_file(name)
    ending = find_ending(name)
    if ending is None:
        raise UserError(f"{where}: files of questions end in {', '.join(FILE_ENDINGS)}, all also with .gz")
    try:
        data = gzip.decompress(data) if name.lower().endswith(".gz") else data
        if ending == ".parquet":
            return where, pq.read_table(io.BytesIO(data)).to_pylist()
        if ending in (".csv", ".tsv"):
            return where, read_table(data.decode("utf-8-sig"), where, "," if ending == ".csv" else "\t")
    except UserError:
        raise
    except Exception as error:  # each library has its own
        raise UserError(f"{where} is not what its name says: {paths.first_line(error)}") from None
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return where, files.parse_json(data, where)
    lines = enumerate(data.split(b"\n"), 1)
    return where, [files.parse_json(line, where, n) for n, line in lines if line.strip()]


def read_table(text: str, where: str, delimiter: str) -> list[Any]:
    """Return the rows below a header; all values are texts. Raise UserError for a row of more or fewer fields."""
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, header = list(reader), reader.fieldnames or []
    for n, row in enumerate(rows, 1):
        if None in row or None in row.values() or len(row) < len(header):
            raise UserError(
                f"{where}, row {n}: not one field for each of the {len(header)} columns {', '.join(header)}; "
                f"a text that holds {delimiter!r} needs quotes"
            )
    return rows
