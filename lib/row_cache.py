"""Cache of finished rows, so that a killed run resumes and a larger run reuses them.

Shards are stored in artifacts/<run>/shards/<job>-<key>/ until the frame is written. The key is a digest of the
manifest's facts, and of the code if the workflow passes it. It does not depend on the number of rows (`limit`).
"""

import hashlib
import io
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd

from lib import schemas, store
from lib.earlier_rows import find_earlier_rows, row_facts, tokens_by_example
from lib.params import BUDGETS
from lib.paths import ARTIFACTS, write_atomically
from lib.validation import RENAMED

WRITTEN = "written"  # file in a shard folder whose rows are in their frame; the workflow removes the folder
RESPONSE = "response"  # column of shards: digest of the response's tokens


def key_of(item: Any) -> tuple:
    """Return the key of an item's row: its `example_id`, or the item itself."""
    return item if type(item) is tuple else (getattr(item, "example_id", item),)


class RowCache:
    """The finished rows of a frame, for one or several calls `rows = cache.map(work, items)`.

    A shard's name contains its checksum, so a damaged one is detected, set aside and regenerated. Items are split into
    shards by position, so a resumed run has the same batches as an uninterrupted one. Rows of an earlier run under the
    same facts are reused, too.

    Parameters
    ----------
    run, kind, pair : names of the run, of the kind of frame (as in `lib.schemas`), and of model and dataset
    facts : what the rows depend on, as in the manifest
    rows_per_shard : items per shard
    more : further facts that are not in the manifest
    known_by : key columns of a row
    generations : the responses that the rows refer to, if any; a row is reused if its response's tokens are the same
    """

    # set by the workflow: digest of the current code, if rows of other code are not reused
    code = os.environ.get("CALIBRATION_CODE", "")
    # the record of this job, if the workflow removes the shards itself; and under the parameter names of version 1.0.0
    record = os.environ.get("CALIBRATION_RECORD", "")
    earlier_record = os.environ.get("CALIBRATION_EARLIER_RECORD", "")

    def __init__(
        self,
        run: str,
        kind: str,
        pair: str,
        facts: Mapping[str, Any],
        rows_per_shard: int = 100,
        more: Sequence[Any] = (),
        known_by: Sequence[str] = ("example_id",),
        generations: pd.DataFrame | None = None,
    ):
        told = {name: value for name, value in facts.items() if generations is None or name != "inputs"}
        keys = [
            store.digest([shard_facts(told), *more], self.code),
            store.digest([earlier_shard_facts(facts), *more], self.earlier_record),
        ]
        shards = ARTIFACTS / store.check_run_name(run) / "shards"
        self.folders = [shards / f"{schemas.WRITERS[kind]}__{pair}-{key[:16]}" for key in keys]
        self.folder = self.folders[0]
        self.rows_per_shard, self.known_by = rows_per_shard, list(known_by)
        self.earlier = find_earlier_rows(run, kind, pair, facts, generations, self.code)
        self.responses = None if generations is None else tokens_by_example(generations)
        self.asked: set[tuple] = set()  # the keys of all rows that were requested
        self.found: set[tuple] = set()  # the keys of all rows that were in shards
        self.meter = Meter()

    def map(self, work: Callable[[list], pd.DataFrame], items: Sequence[Any], **constant: Any) -> pd.DataFrame:
        """Return the rows of all items in order, and compute only the missing ones.

        Parameters
        ----------
        work : computes the rows of some items, one each
        items : each is the key of its row, a value for each of the other columns `known_by`, or has an `example_id`
        constant : values of the first columns `known_by`, the same for all items
        """
        names = [(*constant.values(), *key_of(item)) for item in items]
        with self.meter:
            saved = self.read_shards()
            self.asked |= {*names}
            self.found |= {*self.row_names(*saved)}
            if count := len({*self.row_names(self.earlier)} & {*names}):
                print(f"{count} of {len(names)} rows kept from a smaller run")
            parts = [self.earlier, *saved]
            known = {*self.row_names(*parts)}
            starts = range(0, len(items), self.rows_per_shard)
            for number, start in enumerate(starts, 1):
                began, places = time.time(), range(len(items))[start : start + self.rows_per_shard]
                lacking = [items[place] for place in places if names[place] not in known]
                if lacking:
                    parts.append(self.save_shard(start, work(lacking).assign(**constant)))
                said = f"{len(lacking)} rows in {time.time() - began:.1f} s" if lacking else "kept from before"
                print(f"shard {number}/{len(starts)}: {said}")
            rows = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
            found = {name: place for place, name in enumerate(self.row_names(rows))}
            return rows.iloc[[found[name] for name in names]].reset_index(drop=True)

    def row_names(self, *parts: pd.DataFrame) -> list[tuple]:
        """Return the key of each row."""
        return [name for rows in parts if len(rows) for name in zip(*map(rows.get, self.known_by), strict=True)]

    def read_shards(self) -> list[pd.DataFrame]:
        """Return the rows of the undamaged shards, and set damaged ones aside."""
        parts = []
        for path in (path for folder in self.folders for path in sorted(folder.glob("[0-9]*-*.parquet"))):
            start, content = int(path.name.split("-")[0]), path.read_bytes() if path.is_file() else b""
            if path.name == shard_name(path.parent, start, content):
                parts.append(self.about_same_responses(content))
            else:
                path.replace(path.with_name(f"{path.name}.damaged"))
                print(f"shard from {start}: shards/{path.parent.name}/{path.name} is damaged: set aside, rerun")
        return parts

    def about_same_responses(self, content: bytes) -> pd.DataFrame:
        """Return the rows of a shard whose responses still have the same tokens."""
        rows = pd.read_parquet(io.BytesIO(content))
        if self.responses is None or RESPONSE not in rows:
            return rows
        return rows[rows[RESPONSE] == rows.example_id.map(self.responses)].drop(columns=RESPONSE)

    def save_shard(self, start: int, rows: pd.DataFrame) -> pd.DataFrame:
        """Write rows as a shard, and return them as they are read back."""
        (self.folder / WRITTEN).unlink(missing_ok=True)
        if self.responses is not None:
            rows = rows.assign(**{RESPONSE: rows.example_id.map(self.responses)})
        content = rows.to_parquet(index=False)
        path = self.folder / shard_name(self.folder, start, content)
        write_atomically(path, lambda scratch: scratch.write_bytes(content))
        return self.about_same_responses(content)

    def clear(self) -> None:
        """Remove the shards once all their rows are in a frame.

        If the workflow keeps a record, it removes them after writing that; this only marks the folder.
        """
        if not self.found <= self.asked:
            return
        for folder in self.folders:
            if not self.record:
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.exists():
                write_atomically(folder / WRITTEN, lambda path: path.write_text(self.record, encoding="utf-8"))

    def facts(self) -> dict[str, Any]:
        """Return the manifest's facts: the cost of `map`, the code, and the source of reused rows."""
        return ({"code": self.code} if self.code else {}) | self.earlier.attrs | self.meter.facts()


def shard_name(folder: Path, start: int, content: bytes) -> str:
    """Return the name of the shard that starts at an item and has this content."""
    return f"{start:05d}-{store.digest(folder.name, start, hashlib.sha256(content).hexdigest())[:16]}.parquet"


def shard_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that identify a shard folder.

    Rows of different precision or attention are not mixed; rows of different GPUs are.
    """
    told = {name: row_facts(fact) if name in ("model", "parameters") else fact for name, fact in facts.items()}
    if "loaded" in told:
        told["loaded"] = told["loaded"] | {"device": "cpu" if told["loaded"].get("device") == "cpu" else "GPU"}
    return told


def earlier_shard_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that version 1.0.0 hashed for the same shard folder, so that its shards are reused."""
    old, parameters = {new: name for name, new in RENAMED.items()}, facts.get("parameters", {})
    return shard_facts(facts) | {
        "model": {"mirror": [], "size": None} | facts.get("model", {}),
        "parameters": {old.get(name, name): fact for name, fact in parameters.items() if name not in BUDGETS},
    }


class Meter:
    """Measure the cost of a computation, for its manifest."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self.started = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = round(time.time() - self.started, 1)

    def facts(self) -> dict[str, Any]:
        """Return seconds, peak memory of process and GPU in MB, and the sizes of batches halved on OOM."""
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage reports bytes on macOS, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        facts: dict[str, Any] = {"seconds": self.seconds, "peak_memory_mb": round(peak / 1e6)}
        torch = sys.modules.get("torch")  # only if already imported: reading frames does not need it
        if torch is not None and torch.cuda.is_available():
            facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
        if splits := getattr(sys.modules.get("lib.generate.batching"), "oom_splits", ()):
            facts["halved_for_memory"] = list(splits)
        return facts
