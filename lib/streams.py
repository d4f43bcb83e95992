"""Random streams by name: what an example draws hangs on who it is, never on its place in a batch or a file."""

import hashlib

import pandas as pd


def stream_seed(seed: int, *who: str) -> int:
    """Seed of a random stream, from the run's seed and names (model, dataset, example): 63 bits."""
    return int.from_bytes(hashlib.sha256("|".join([str(seed), *who]).encode()).digest()[:8], "big") >> 1


def rank(seed: int, dataset: str, example_id: str) -> int:
    """Place of an example in the one random order of its dataset. Whatever takes part of the rows takes the first of
    this order, so that a larger part holds every smaller one."""
    return stream_seed(seed, "tuning", dataset, example_id)


def first_rows(frame: pd.DataFrame, count: int, seed: int) -> pd.DataFrame:
    """Of each split the first `count` rows (0: all) in the one random order of their dataset; they stay where they
    stand in the frame (dataset, split, example_id and more)."""
    ranks = [rank(seed, *who) for who in zip(frame.dataset, frame.example_id, strict=True)]
    places = pd.Series(ranks, frame.index, dtype=object).groupby(frame.split).transform(
        lambda part: part.map(sorted(part).index))  # fmt: skip
    return frame[places < count].reset_index(drop=True) if count else frame
