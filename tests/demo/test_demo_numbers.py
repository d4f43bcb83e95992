"""The numbers that are shipped with the demo, made again from its shipped signals by the
notebooks."""

import pandas as pd
import pytest
from playing import play

from lib import store


def slow(number):
    return pytest.param(number, marks=pytest.mark.slow)


# tests/paper/test_tables.py compares tables of all of them
@pytest.mark.parametrize("number", [slow("05"), "06", slow("07"), slow("09")])
def test_they_are_as_shipped(number, monkeypatch, tmp_path):
    monkeypatch.setattr("playing.QUICK", {"run": "lab-demo"})  # all else as it stands there
    play(number, monkeypatch, tmp_path)
    paths = list(tmp_path.glob("*/*.parquet"))
    assert paths
    for path in paths:
        ours = store.read_frame(path)
        theirs = store.read_frame(store.find_frame("shipped", path.parent.name, path.stem))
        keys = list(theirs.select_dtypes(exclude="float"))
        # The best temperature of few rows, between nearly equal losses, depends on their last
        # digits.
        near = 1e-5 if path.stem == "curves" else 1e-6
        pd.testing.assert_frame_equal(
            ours.sort_values(keys, ignore_index=True),
            theirs.sort_values(keys, ignore_index=True),
            check_like=True,
            rtol=near,
            atol=1e-9,
        )
