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
    order = pd.DataFrame({"split": frame.split.array})
    order["comes_later"] = (frame.example_id != always_first).array
    # the name is that of the order's first use: tuning rows
    names = zip(frame.dataset, frame.example_id, strict=True)
    order["rank"] = [stream_seed(seed, "tuning", *row) for row in names]
    order["turn"] = order.sort_values(["comes_later", "rank"]).groupby("split").cumcount()
    if count:
        order = order[order.turn < count]
    return order.sort_values(["turn", "split"]).index.tolist()


def first_rows(frame: pd.DataFrame, count: int, seed: int, always_first: str = "") -> pd.DataFrame:
    """Return the rows that `first_positions` selects, in the frame's order.

    Parameters
    ----------
    frame : rows with dataset, split and example_id
    count : rows per split; 0: all
    always_first : the example_id that is always included
    """
    positions = first_positions(frame, count, seed, always_first)
    return frame.iloc[sorted(positions)].reset_index(drop=True)
