"""Random streams by name: what an example draws depends on its id, never on its place in a batch or a file."""

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

import pandas as pd

from lib.paths import UserError


def stream_seed(seed: int, *who: str) -> int:
    """Seed of a random stream, from the run's seed and names (model, dataset, example): 63 bits."""
    return int.from_bytes(hashlib.sha256("|".join([str(seed), *who]).encode()).digest()[:8], "big") >> 1


def random_rank(seed: int, dataset: str, example_id: str) -> int:
    """Place of an example in the one random order of its dataset. Whatever takes part of the rows takes the first of
    this order, so that a larger part holds every smaller one."""
    return stream_seed(seed, "tuning", dataset, example_id)


def first_places(keys: Sequence[tuple[str, str, str]], count: int, seed: int, followed: str = "") -> list[int]:
    """Places of the first rows of each split, in the one random order of their dataset.

    The splits take turns, so a larger count begins with the same places.

    Parameters
    ----------
    keys : (dataset, split, example_id) of each row
    count : rows per split; 0: all
    followed : the example_id that comes first, so that no part is without it

    Raises
    ------
    UserError
        For a negative count or seed.
    """
    for name, value in (("limit", count), ("seed", seed)):
        if value < 0:
            raise UserError(f"parameters: '{name}' is {value}; 0 or more is meant")
    by_split: dict[str, list[int]] = {split: [] for split in sorted({split for _, split, _ in keys})}
    order = [(name != followed, random_rank(seed, where, name), place) for place, (where, _, name) in enumerate(keys)]
    for *_, place in sorted(order):
        by_split[keys[place][1]].append(place)
    turns = zip_longest(*(part[: count or None] for part in by_split.values()))
    return [place for turn in turns for place in turn if place is not None]


def first_places_of_frame(frame: pd.DataFrame, count: int, seed: int, followed: str = "") -> list[int]:
    """`first_places` of a frame's rows (dataset, split, example_id and more)."""
    return first_places(list(zip(frame.dataset, frame.split, frame.example_id, strict=True)), count, seed, followed)


def first_rows(frame: pd.DataFrame, count: int, seed: int, followed: str = "") -> pd.DataFrame:
    """Those rows of a frame, in the frame's order.

    Parameters
    ----------
    frame : rows with dataset, split and example_id
    count : rows per split; 0: all
    followed : the example_id that is always among them
    """
    if not count:
        return frame
    return frame.iloc[sorted(first_places_of_frame(frame, count, seed, followed))].reset_index(drop=True)
