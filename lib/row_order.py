"""The random order of a dataset's rows: every smaller subset is part of every larger one."""

import pandas as pd

from lib.params import check_parameters
from lib.random_streams import stream_seed


def first_positions(
    frame: pd.DataFrame, count: int, seed: int, always_first: str = ""
) -> list[int]:
    """Return the positions of the first rows of each split, in the dataset's random order.

    Every subset takes the first rows of this order, so a larger subset contains every smaller one.
    The splits alternate.

    Parameters
    ----------
    frame : rows with dataset, split and example_id
    count : rows per split; 0: all
    always_first : the example_id that comes first, so every subset contains it

    Raises
    ------
    UserError
        For a negative count or seed.
    """
    check_parameters({"limit": count, "seed": seed})
    rank = [
        stream_seed(seed, "tuning", *names)
        for names in zip(frame.dataset, frame.example_id, strict=True)
    ]
    order = pd.DataFrame(
        {
            "split": frame.split.array,
            "other": (frame.example_id != always_first).array,
            "rank": rank,
        }
    )
    order["turn"] = order.sort_values(["other", "rank"]).groupby("split").cumcount()
    order = order.sort_values(["turn", "split"])
    return order.index[order.turn < (count or len(order))].tolist()


def first_rows(frame: pd.DataFrame, count: int, seed: int, always_first: str = "") -> pd.DataFrame:
    """Return the rows that `first_positions` selects, in the frame's order.

    Parameters
    ----------
    frame : rows with dataset, split and example_id
    count : rows per split; 0: all
    always_first : the example_id that is always included
    """
    return frame.iloc[sorted(first_positions(frame, count, seed, always_first))].reset_index(
        drop=True
    )
