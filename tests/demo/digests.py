"""Frames in a few numbers each, kept in a file beside the test that makes them again."""

import json

import numpy as np
import pandas as pd
import pytest


def digest(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Of every column of numbers: how many there are, their mean, and their mean weighted by place; of others, how many
    different ones."""
    found, places = {}, np.arange(1, len(frame) + 1)
    for column in frame:
        if pd.api.types.is_numeric_dtype(frame[column]) or pd.api.types.is_bool_dtype(frame[column]):
            values = frame[column].astype("Float64").to_numpy(float, na_value=np.nan)
            there = ~np.isnan(values)
            means = [values[there].mean(), (values * places)[there].sum() / places.sum()] if there.any() else []
            found[str(column)] = [int(there.sum()), *(float(f"{value:.9g}") for value in means)]
        else:
            found[str(column)] = [frame[column].astype(str).nunique()]
    return found


def check(path, found) -> None:
    """What was `found`, by name and column, is what the file says."""
    known = json.loads(path.read_text())
    assert list(known) == list(found)
    for name, columns in found.items():
        assert list(known[name]) == list(columns), name
        for column, values in columns.items():
            near = 1e-4 if column == "printed" else 1e-6  # a last digit may turn on another processor
            numbers = all(isinstance(value, int | float) for value in values)
            expected = known[name][column]
            same = values == (pytest.approx(expected, rel=near, abs=1e-9) if numbers else expected)
            assert same, (name, column, values, expected)


def write(path, found) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(columns)}" for name, columns in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
