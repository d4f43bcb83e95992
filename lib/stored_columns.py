"""Schemas of the stored frames, from stored_columns.yaml: name, type and meaning of each column.
`store` checks them at writing and reading. Columns of seconds (`in_situ_seconds`: a row's share of
its batch) are not stored: a manifest has their means.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from lib.errors import UserError

# Words of a frame are Python's own: its rows are read one by one, which Arrow's words make several
# times slower.
pd.set_option("mode.string_storage", "python")

SECONDS = "_seconds"  # suffix of columns with durations
COLDEST, HOTTEST = 0.1, 20.0  # temperatures of answer tokens


def arrow_type(name: Any) -> pa.DataType:
    """Return Arrow's type of a name, or the list type of the name in a list."""
    if isinstance(name, list):
        (element,) = name
        return pa.list_(arrow_type(element))
    return pa.type_for_alias(name)


def make_schema(columns: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """Return the schema of columns, each with a `type` and a `meaning`."""
    fields = []
    for name, column in columns.items():
        metadata = {"meaning": column["meaning"]}
        fields.append(pa.field(name, arrow_type(column["type"]), metadata=metadata))
    return pa.schema(fields)


_TABLE = yaml.safe_load(Path(__file__).with_name("stored_columns.yaml").read_text(encoding="utf-8"))
KEYS = list(_TABLE["first"]["keys"])  # key of a row in every per-example frame
SCHEMAS = {kind: make_schema(columns) for kind, columns in _TABLE["columns"].items()}
OF_RESPONSE = _TABLE["of_response"]
WRITERS = _TABLE["writers"]


def check_columns(kind: str, names: Iterable[str], where: str) -> None:
    """Raise UserError if the columns of a frame are not those of its kind. Kinds without a schema
    may have any."""
    if kind not in SCHEMAS:
        return
    differing = sorted(set(SCHEMAS[kind].names) ^ set(names))
    if differing:
        as_written = f"not as {WRITERS[kind]} writes it (lib/stored_columns.yaml)"
        raise UserError(f"{where}: {', '.join(differing)} {as_written}: run that again")


def to_table(kind: str, frame: pd.DataFrame, where: str) -> pa.Table:
    """Convert a frame to its stored table. Raise UserError for other columns, or values of another
    type."""
    check_columns(kind, list(frame), where)
    schema = None
    if kind in SCHEMAS:
        schema = pa.schema([SCHEMAS[kind].field(name) for name in frame])
    try:
        return pa.Table.from_pandas(frame, schema, preserve_index=False)
    except pa.ArrowException as error:
        raise UserError(f"{where}: {'; '.join(map(str, error.args))}") from None


def is_list_of_lists(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) and pa.types.is_list(type_.value_type)


def arrays_of(cells: pa.ChunkedArray) -> list[np.ndarray]:
    """Return the cells of a column of lists of lists, each as an array (p, k).

    Examples
    --------
    >>> cells = pa.chunked_array([[[[3.0, 1.0], [2.0, 0.0]], [], [[5.0, 4.0]]]])
    >>> [array.shape for array in arrays_of(cells)]
    [(2, 2), (0, 0), (1, 2)]
    """
    lists = cells.combine_chunks()
    numbers = lists.values.values.to_numpy(zero_copy_only=False)
    first_list = lists.offsets.to_numpy()
    first_number = lists.values.offsets.to_numpy()
    arrays = []
    for start, end in pairwise(first_list):
        of_cell = numbers[first_number[start] : first_number[end]]
        shape = (end - start, -1) if len(of_cell) else (end - start, 0)
        arrays.append(of_cell.reshape(shape))
    return arrays


def empty_frame(kind: str) -> pd.DataFrame:
    """Return a frame of a kind without rows."""
    return SCHEMAS[kind].empty_table().to_pandas()


def temperatures(nodes: int) -> np.ndarray:
    """Return the temperatures of `tail_curve`, (nodes,) from COLDEST to HOTTEST, evenly spaced in
    log(1/t)."""
    logarithms = np.linspace(np.log(COLDEST), np.log(HOTTEST), nodes)
    return np.exp(logarithms)
