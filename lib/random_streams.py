"""Named random streams, seeded by example id and not by position in a batch or file."""

import hashlib


def stream_seed(seed: int, *who: str) -> int:
    """Return the 63-bit seed of a random stream from the run's seed and names (model, dataset,
    example)."""
    name = "|".join([str(seed), *who])
    first_bytes = hashlib.sha256(name.encode()).digest()[:8]
    return int.from_bytes(first_bytes, "big") >> 1
