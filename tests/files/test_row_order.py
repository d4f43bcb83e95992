"""The random order of a dataset's rows, of which a run takes the first."""

import pandas as pd

from lib.row_order import first_positions, first_rows

FRAME = pd.DataFrame(
    {
        "dataset": "d",
        "split": ["calibration"] * 4 + ["evaluation"] * 4,
        "example_id": [f"e{i}" for i in range(8)],
    }
)


def test_splits_take_turns():
    order = FRAME.iloc[first_positions(FRAME, 0, seed=0)]
    assert order.split.tolist() == ["calibration", "evaluation"] * 4


def test_the_first_rows_stand_in_the_order_of_the_frame():
    rows = first_rows(FRAME, 2, seed=0)
    assert rows.example_id.tolist() == sorted(rows.example_id)
    assert set(rows.example_id) == set(FRAME.iloc[first_positions(FRAME, 2, seed=0)].example_id)
