"""Files of questions, read whole: JSON lines, one JSON list, CSV, TSV or parquet, also with `.gz`.

Numbers of JSON stay exact, and a row of a table has one field for each column.
"""

import csv
import gzip
import io
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from lib import errors, files, paths
from lib.errors import UserError, nearest


def read_texts(data: pa.Buffer, delimiter: str) -> pa.Table:
    """Return the table below a header; all values are texts. Raise an error for a stray quote, or a
    row of more or fewer fields.

    Examples
    --------
    >>> read_texts(pa.py_buffer(b"question,answer\\nHow many?,18\\n"), ",").to_pylist()
    [{'question': 'How many?', 'answer': '18'}]
    """
    # read whole and strictly, as Arrow reads on after a stray quote
    text = io.StringIO(str(data, "utf-8-sig"), newline="")
    header, *_ = csv.reader(text, delimiter=delimiter, strict=True)
    return arrow_csv.read_csv(
        data,
        arrow_csv.ReadOptions(use_threads=False),
        arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
    )


READERS = {
    ".csv": partial(read_texts, delimiter=","),
    ".tsv": partial(read_texts, delimiter="\t"),
    ".parquet": pq.read_table,
}
FILE_ENDINGS = (".jsonl", ".json", ".ndjson", *READERS)
# about the questions: of `save_to_disk`, and of repositories on the hub
METADATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


def read_file(name: str) -> tuple[str, bytes]:
    """Return a file's name for messages, from the project's root if inside it, and its bytes.

    Raise UserError if it can't be read, or is missing, with the nearest name.

    Examples
    --------
    >>> where, data = read_file("demo/questions/demo-easy.jsonl")
    >>> where, data[:1]
    ('demo/questions/demo-easy.jsonl', b'{')
    """
    path = paths.local_path(name)
    where = paths.relative_path(path)
    if path.parent.is_dir() and not os.path.lexists(path):
        alike = [other.name for other in path.parent.glob(f"*{path.suffix}")]
        raise UserError(f"no file {where}; {nearest(path.name, alike)}")
    return where, files.read_bytes(path)


def hash_file(name: str) -> str:
    """Return the SHA-256 of a file. Raise as `read_file`.

    Examples
    --------
    >>> len(hash_file("demo/questions/demo-easy.jsonl"))
    64
    """
    _, data = read_file(name)
    return files.sha256(data)


def find_question_files(folder: Path) -> list[Path]:
    """Return the files of questions in a folder and those below, without hidden ones and METADATA.

    Raise UserError if all are .arrow files, which `save_to_disk` of the library datasets writes.

    Examples
    --------
    >>> [path.name for path in find_question_files(paths.local_path("demo/questions"))]
    ['demo-easy.jsonl', 'demo-hard.jsonl', 'demo-medium.jsonl']
    """
    visible = files.list_files(folder)
    questions = [path for path in visible if find_ending(path.name) and path.name not in METADATA]
    if not questions and any(path.suffix == ".arrow" for path in visible):
        where = paths.relative_path(folder)
        remedy = "write each part by `to_parquet` instead, as train.parquet"
        raise UserError(f"{where} holds .arrow files of `save_to_disk`: {remedy}")
    return questions


def find_ending(name: str) -> str | None:
    """Return the ending that tells how a file of questions is read; None for other files.

    Examples
    --------
    >>> find_ending("TRAIN.CSV.gz"), find_ending("README.md")
    ('.csv', None)
    """
    ending = Path(name.lower().removesuffix(".gz")).suffix
    return ending if ending in FILE_ENDINGS else None


def read_records(name: str) -> tuple[str, list[Any]]:
    """Return a file's name for messages, and its records. Raise UserError for the first that can't
    be read.

    Examples
    --------
    >>> where, records = read_records("demo/questions/demo-easy.jsonl")
    >>> len(records), records[0]["id"]
    (500, 'easy-0000')
    """
    where, data = read_file(name)
    ending = find_ending(name)
    if ending is None:
        endings = ", ".join(FILE_ENDINGS)
        raise UserError(f"{where}: files of questions end in {endings}, all also with .gz")
    try:
        if name.lower().endswith(".gz"):
            data = gzip.decompress(data)
        if ending in READERS:
            table = READERS[ending](pa.py_buffer(data))
            table = table.select(table.column_names)  # refuses a name of two columns
            return where, shorten_floats(table).to_pylist()
    except Exception as error:  # each library has its own
        raise UserError(f"{where} is not what its name says: {errors.first_line(error)}") from None
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return where, files.parse_json(data, where)
    records = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            records.append(files.parse_json(line, where, number))
    return where, records


def shorten_floats(table: pa.Table) -> pa.Table:
    """Return a table whose numbers of 32 bits are those of 64 bits with the same shortest spelling.

    A stored .1 is .1 and not .10000000149011612, which no answer would equal.

    Examples
    --------
    >>> shorten_floats(pa.table({"answer": pa.array([0.1], pa.float32())})).to_pylist()
    [{'answer': 0.1}]
    """
    for column, field in enumerate(table.schema):
        if pa.types.is_float32(field.type):
            numbers = [shorten_float(number) for number in table.column(column).to_pylist()]
            table = table.set_column(column, field.name, pa.array(numbers, pa.float64()))
    return table


def shorten_float(value: float | None) -> float | None:
    """Return the number of 64 bits with the shortest spelling of one of 32 bits.

    Examples
    --------
    >>> shorten_float(float(np.float32(0.1)))
    0.1
    """
    return None if value is None else float(str(np.float32(value)))
