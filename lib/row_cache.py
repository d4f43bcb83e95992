"""Finished rows of a frame, so that a killed run resumes and a larger `limit` only adds rows.

    artifacts/<run>/shards/<job>-<digest of the facts>/<digest of its keys>.parquet

Shards stay after their frame is written. They may be deleted at any time: the next run then makes
their rows again. Several processes may make one frame: each makes the shards whose lock it gets,
and waits for the others'.
"""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lib import store, stored_columns
from lib.files import digest, try_lock, write_atomically
from lib.params import BUDGETS

# columns of shards: digest of what a row is about, the time that it took
KEY, ROW_SECONDS = "row_key", "row_seconds"
# of model and parameters: without effect on a row, or told by what was loaded
NOT_OF_ROWS = {*BUDGETS, "label", "n_tuning_examples", "dropout_rates", "dtype", "attention"}
PAUSE = 0.5  # seconds between two looks at shards that other processes make
RowWork = Callable[[list], pd.DataFrame]


class RowCache:
    """The rows of a frame: `rows = cache.map(work, items)` computes those that no shard of its
    folder holds yet.

    A digest of `facts` (all that every row depends on, as in the manifest) names the folder;
    `limit` is not among them. Shards are written atomically, and equal keys give equal names, so
    processes share the folder: what one makes no other does. `seconds` is the time that all rows of
    `map` took, also in other processes.

    Parameters
    ----------
    run, kind, pair : names of the run, of the kind of frame (as in `lib.stored_columns`), and of
        model and dataset
    rows_per_shard : items that are lost at most if the process is killed
    """

    # set by the workflow: digest of the code that makes rows, unless they survive its changes, and
    # of the files of a local model; empty if that is nothing; None without the workflow
    code = os.environ.get("CALIBRATION_CODE")

    def __init__(
        self, run: str, kind: str, pair: str, facts: Mapping[str, Any], rows_per_shard: int = 100
    ):
        facts_key = digest([row_facts(facts), self.code or ""])[:16]
        name = f"{stored_columns.WRITERS[kind]}__{pair}-{facts_key}"
        self.folder = store.run_folder(run) / "shards" / name
        self.kind = kind
        self.rows_per_shard = rows_per_shard
        self.seconds = 0.0

    def map(
        self, work: RowWork, items: Sequence[Any], about: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the rows of all items in order, and compute only the missing ones.

        Parameters
        ----------
        work : computes the rows of some items, one each, in their order
        items : each is an example_id, or a tuple that begins with one
        about : what else a row depends on, by example_id: its response, for instance
        """
        keys = [row_key(item, about or {}) for item in items]
        shards = self.read_shards()
        finished: set[str] = set()
        for shard in shards:
            finished.update(shard[KEY])
        todo = []
        for key, item in zip(keys, items, strict=True):
            if key not in finished:
                todo.append((key, item))
        starts = range(0, len(todo), self.rows_per_shard)
        waiting = [todo[start : start + self.rows_per_shard] for start in starts]
        while waiting:
            for part in list(waiting):
                shard = self.take_shard(work, part)
                if shard is not None:
                    waiting.remove(part)
                    shards.append(shard)
                    number = len(starts) - len(waiting)
                    seconds = shard[ROW_SECONDS].sum()
                    place = f"{number}/{len(starts)}"
                    print(f"shard {place}: {len(part)} rows in {seconds:.1f} s")
            if waiting:  # other processes make them
                time.sleep(PAUSE)
        if not shards:
            return stored_columns.empty_frame(self.kind)
        by_key = pd.concat(shards).drop_duplicates(KEY).set_index(KEY)
        rows = by_key.loc[keys].reset_index(drop=True)
        self.seconds += rows.pop(ROW_SECONDS).sum()
        return rows

    def read_shards(self) -> list[pd.DataFrame]:
        """Return the rows of all shards. Remove one that a disk has damaged, so that its rows are
        made again."""
        shards = []
        for path in sorted(self.folder.glob("*.parquet")):
            try:
                shards.append(pd.read_parquet(path))
            except (OSError, pa.ArrowException):
                path.unlink()
        return shards

    def take_shard(self, work: RowWork, part: Sequence[tuple[str, Any]]) -> pd.DataFrame | None:
        """Return the shard of some items with their keys, made now or by another process; None
        while another one makes it."""
        keys = [key for key, _ in part]
        path = self.folder / f"{digest(keys)[:16]}.parquet"
        lock = path.with_suffix(".lock")
        with try_lock(lock) as is_free:
            if not is_free:
                return None
            if not path.exists():
                began = time.monotonic()
                rows = work([item for _, item in part])
                write_shard(path, rows, keys, time.monotonic() - began)
            # who comes to the lock from now on finds the shard
            lock.unlink(missing_ok=True)
            return pd.read_parquet(path)

    def clear(self) -> None:
        """Remove the shards, unless the workflow runs the notebook: without it nothing tells
        whether code changed.
        """
        if self.code is None:
            shutil.rmtree(self.folder, ignore_errors=True)


def write_shard(path: Path, rows: pd.DataFrame, keys: Sequence[str], seconds: float) -> None:
    """Write rows with their keys and their share of `seconds`."""
    shard = rows.assign(**{KEY: keys, ROW_SECONDS: seconds / len(rows)})
    write_atomically(path, lambda scratch: shard.to_parquet(scratch, index=False))


def row_key(item: Any, about: Mapping[str, Any]) -> str:
    """Return the key of an item's row: a digest of the item and of what else the row is about."""
    example_id = item[0] if isinstance(item, tuple) else item
    return digest([item, about.get(example_id)])


def row_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts on which rows depend. None counts as absent.

    Rows of different precision or attention are not mixed; rows of different GPUs are.
    """
    of_rows = dict(facts)
    of_rows.pop("inputs", None)  # the key of a row covers its response
    for part in ("model", "parameters"):
        of_rows[part] = {}
        for name, fact in facts.get(part, {}).items():
            if fact is not None and name not in NOT_OF_ROWS:
                of_rows[part][name] = fact
    loaded = facts.get("loaded", {})
    device = "cpu" if loaded.get("device") == "cpu" else "GPU"
    of_rows["loaded"] = loaded | {"device": device}
    return of_rows


def digest_responses(generations: pd.DataFrame) -> dict[str, str]:
    """Return a digest of each response with its question, and with its in-situ logits if they are
    there, by example_id.
    """
    responses = generations.filter(stored_columns.OF_RESPONSE)
    lines = responses.to_json(orient="records", lines=True).splitlines()
    return dict(zip(generations.example_id, map(digest, lines), strict=True))


def measured_facts(*caches: RowCache) -> dict[str, Any]:
    """Return the manifest's facts on how rows were made.

    They are the seconds of all rows, the peak memory of process and GPU in MB, the sizes of batches
    halved on OOM, and the code.
    """
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform != "darwin":  # elsewhere it is in KB
        memory *= 1024
    facts: dict[str, Any] = {
        "seconds": round(sum(cache.seconds for cache in caches), 1),
        "peak_memory_mb": round(memory / 1e6),
        "code": RowCache.code,
    }
    # reading frames imports neither
    torch = sys.modules.get("torch")
    if torch:
        facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
    batching = sys.modules.get("lib.models.batching")
    if batching:
        facts["halved_for_memory"] = list(batching.oom_splits)
    return {name: fact for name, fact in facts.items() if fact}
