"""Random streams by name: what an example draws hangs on who it is, never on its place in a batch or a file."""

import hashlib


def stream_seed(seed: int, *who: str) -> int:
    """Seed of a random stream, from the run's seed and names (model, dataset, example): 63 bits."""
    return int.from_bytes(hashlib.sha256("|".join([str(seed), *who]).encode()).digest()[:8], "big") >> 1


def rank(seed: int, dataset: str, example_id: str) -> int:
    """Place of an example in the one random order of its dataset. Whatever takes part of the rows takes the first of
    this order, so that a larger part holds every smaller one."""
    return stream_seed(seed, "tuning", dataset, example_id)
