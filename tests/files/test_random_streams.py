"""Where the seeds of random streams come from: their names alone."""

import hashlib

from lib.random_streams import stream_seed


def test_a_seed_is_the_first_63_bits_of_the_hash_of_its_names():
    """As anyone finds it with `printf '5|a model|row-7' | sha256sum`."""
    digits = hashlib.sha256(b"5|a model|row-7").hexdigest()
    bits = f"{int(digits, 16):0256b}"
    assert stream_seed(5, "a model", "row-7") == int(bits[:63], 2)


def test_another_seed_or_name_is_another_stream():
    seeds = {stream_seed(5, "a", "b"), stream_seed(6, "a", "b"), stream_seed(5, "b", "a")}
    assert len(seeds) == 3
