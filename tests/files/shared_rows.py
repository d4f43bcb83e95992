"""A process that makes rows beside others: `python shared_rows.py FOLDER SECONDS`.

It appends a line to FOLDER/made for each shard that it begins, and prints the digest of the whole
frame.
"""

import os
import sys
import time
from pathlib import Path

import pandas as pd

from lib import row_cache, store
from lib.files import digest

ROWS, ROWS_PER_SHARD = 60, 3
FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()
SECONDS = float(sys.argv[2]) if __name__ == "__main__" else 0.0  # of a shard


def work(items: list) -> pd.DataFrame:
    """Sleep, then make rows of numbers."""
    line = f"{os.getpid()} {items[0]}\n"
    with (FOLDER / "made").open("a") as file:
        file.write(line)
    time.sleep(SECONDS)
    return pd.DataFrame({"x": [item * item for item in items]})


if __name__ == "__main__":
    store.ARTIFACTS = FOLDER
    row_cache.PAUSE = 0.05
    cache = row_cache.RowCache("mine", "generations", "pair", {}, ROWS_PER_SHARD)
    began = time.monotonic()
    frame = cache.map(work, range(ROWS))
    print(digest(frame.x.tolist()), round(time.monotonic() - began, 2))
