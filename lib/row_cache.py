"""Finished rows of a job, kept under a key of what they depend on: a killed run and a larger run find them.

Rows lie in shards, artifacts/<run>/shards/<job>-<key>/, until the frame that they make is written. The key holds the
facts of the manifest, and the code where whoever runs a notebook names it. How many rows are wanted (`limit`) is not
among it.
"""

import hashlib
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from lib import store
from lib.params import BUDGETS
from lib.paths import ARTIFACTS
from lib.validation import RENAMED

WRITTEN = "written"  # in a folder of shards whose rows are in their frame, and which waits for the record of that
RESPONSE = "response"  # column of shards: names the tokens of the response that a row is about
# facts of model and parameters on which no row depends but for its last digits, or at all
NOT_OF_ROWS = {*BUDGETS, "n_tuning_examples", "dropout_rates", "label", "mirror", "size"}


def name_of(item: Any) -> tuple:
    """What the row of an item is known by, a value for each column: the item's `example_id`, or the item itself; of a
    plain tuple, that of each part."""
    return tuple(getattr(part, "example_id", part) for part in (item if type(item) is tuple else (item,)))


class RowCache:
    """The finished rows of a job. A notebook asks it once: `rows = cache.map(work, items)`.

    A shard's name holds its checksum, so a damaged one is noticed, set aside and made again. Items are cut into shards
    by their place in the list, so a resumed run works on the batches of an uninterrupted one.

    Parameters
    ----------
    run, job : names of the run and of the job, which name the folder of shards
    facts : what the rows depend on, as the manifest says it
    rows_per_shard : items between two savings
    more : facts that the rows depend on and the manifest does not hold
    known_by : columns by which a row is known
    earlier : rows of an earlier run (`lib.earlier_rows`), none by default
    generations : the responses that the rows are about, if any: a row is kept with the very tokens of its response,
        whatever else the file of responses holds
    """

    code = ""  # names the code that runs, where rows that other code made are not kept
    record = ""  # names the record of whoever runs the notebook, and forgets the shards after writing it
    earlier_record = ""  # the same, as the version before named it

    def __init__(
        self,
        run: str,
        job: str,
        facts: Mapping[str, Any],
        rows_per_shard: int = 100,
        more: Sequence[Any] = (),
        known_by: Sequence[str] = ("example_id",),
        earlier: pd.DataFrame | None = None,
        generations: pd.DataFrame | None = None,
    ):
        told = {name: value for name, value in facts.items() if generations is None or name != "inputs"}
        keys = [
            store.digest([shard_facts(told), *more], self.code),
            store.digest([earlier_shard_facts(facts), *more], self.earlier_record),
        ]
        shards = ARTIFACTS / store.check_run_name(run) / "shards"
        self.folders = [shards / f"{job}-{key[:16]}" for key in keys]
        self.folder = self.folders[0]
        self.rows_per_shard, self.known_by = rows_per_shard, list(known_by)
        self.earlier = pd.DataFrame(columns=self.known_by) if earlier is None else earlier
        self.responses = None if generations is None else tokens_by_example(generations)
        self.all_asked = True  # whether every row of the shards was asked for
        self.meter = Meter()

    def map(self, work: Callable[[list], pd.DataFrame], items: Sequence[Any], note: Callable[[str], None] = print,
            key: Callable[[Any], tuple] = name_of) -> pd.DataFrame:  # fmt: skip
        """The rows of all items, in their order; those that are finished are not made again.

        Parameters
        ----------
        work : makes the rows of some items, one each
        note : gets a line for each shard
        key : what the row of an item is known by, a value for each of the columns `known_by`
        """
        names = [key(item) for item in items]
        with self.meter:
            kept, saved = self.earlier, self.read_shards(note)
            self.all_asked = self.row_names(saved).keys() <= set(names)
            if count := len(self.row_names(kept).keys() & set(names)):
                note(f"{count} of {len(names)} rows kept from a smaller run")
            parts = [part for part in (kept, saved) if len(part)]
            known = {name for part in parts for name in self.row_names(part)}
            starts = range(0, len(items), self.rows_per_shard)
            for number, start in enumerate(starts, 1):
                began, places = time.time(), range(len(items))[start : start + self.rows_per_shard]
                lacking = [items[place] for place in places if names[place] not in known]
                if lacking:
                    parts.append(self.save_shard(start, work(lacking)))
                said = f"{len(lacking)} rows in {time.time() - began:.1f} s" if lacking else "kept from before"
                note(f"shard {number}/{len(starts)}: {said}")
            rows = pd.concat(parts, ignore_index=True) if parts else kept
            found = self.row_names(rows)
            return rows.iloc[[found[name] for name in names]].reset_index(drop=True)

    def row_names(self, rows: pd.DataFrame) -> dict[tuple, int]:
        """The places of rows by what each is known by."""
        return {name: place for place, name in enumerate(zip(*(rows[name] for name in self.known_by), strict=True))}

    def read_shards(self, note: Callable[[str], None]) -> pd.DataFrame:
        """The rows of the undamaged shards."""
        parts = [pd.DataFrame(columns=self.known_by)]
        for path in (path for folder in self.folders for path in sorted(folder.glob("[0-9]*-*.parquet"))):
            start = int(path.name.split("-")[0])
            if path.is_file() and path.name == shard_name(path, start):
                parts.append(self.about_same_responses(pd.read_parquet(path)))
            else:
                path.replace(path.with_name(f"{path.name}.damaged"))
                note(f"shard from {start}: shards/{path.parent.name}/{path.name} is damaged: set aside, made again")
        return pd.concat(parts[1:], ignore_index=True) if parts[1:] else parts[0]

    def about_same_responses(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those rows of a shard that are about the very tokens of their responses."""
        if self.responses is None or RESPONSE not in rows:
            return rows
        return rows[rows[RESPONSE] == rows.example_id.map(self.responses)].drop(columns=RESPONSE)

    def save_shard(self, start: int, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows as they are read back, once they are a shard."""
        (self.folder / WRITTEN).unlink(missing_ok=True)
        if self.responses is not None:
            rows = rows.assign(**{RESPONSE: rows.example_id.map(self.responses)})
        path = store.write_atomically(
            self.folder / f"{start:05d}.parquet",
            lambda scratch: rows.to_parquet(scratch, index=False),
            lambda scratch: shard_name(scratch, start),
        )
        return self.about_same_responses(pd.read_parquet(path))

    def clear(self) -> None:
        """Forget the shards, once their rows are in a frame; not those of a larger run, of whose rows some are not.

        Whoever runs a notebook for a record forgets them itself, after writing it; here it is told which.
        """
        for folder in self.folders if self.all_asked else ():
            if not self.record:
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.exists():
                store.write_atomically(folder / WRITTEN, lambda path: path.write_text(self.record, encoding="utf-8"))

    def facts(self) -> dict[str, Any]:
        """For the manifest: what `map` cost, what code ran, and from which frame rows were kept."""
        return ({"code": self.code} if self.code else {}) | self.earlier.attrs | self.meter.facts()


def tokens_by_example(generations: pd.DataFrame) -> dict[str, str]:
    """What names the tokens of each response, and the length of its prompt, by example_id."""
    rows = zip(generations.example_id, generations.prompt_tokens, generations.token_ids, strict=True)
    return {
        name: hashlib.sha256(np.array([prompt, *tokens], dtype="<i8").tobytes()).hexdigest()[:16]
        for name, prompt, tokens in rows
    }


def shard_name(path: Path, start: int) -> str:
    """The name of the shard that begins at an item, if it holds the bytes of the file at `path`."""
    return f"{start:05d}-{store.digest(path.parent.name, start, store.sha256(path))[:16]}.parquet"


def row_facts(facts: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Facts of a model or of parameters on which a row depends, `more` aside. What is off counts like what is not
    there."""
    return {name: fact for name, fact in facts.items() if fact is not None and name not in {*NOT_OF_ROWS, *more}}


def shard_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that name a folder of shards: precision and attention among them, for they decide whether rows may
    stand side by side; whether an H100 or an H200 made them does not."""
    told = {name: row_facts(fact) if name in ("model", "parameters") else fact for name, fact in facts.items()}
    if "loaded" in told:
        told["loaded"] = told["loaded"] | {"device": "cpu" if told["loaded"].get("device") == "cpu" else "GPU"}
    return told


def earlier_shard_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that named the same folder in the version before, so that its shards are gone on with."""
    old, parameters = {new: name for name, new in RENAMED.items()}, facts.get("parameters", {})
    return shard_facts(facts) | {
        "model": {"mirror": [], "size": None} | facts.get("model", {}),
        "parameters": {old.get(name, name): fact for name, fact in parameters.items() if name not in BUDGETS},
    }


class Meter:
    """Cost of a piece of work, for its manifest."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self.started = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = round(time.time() - self.started, 1)

    def facts(self) -> dict[str, Any]:
        """Seconds, peak memory of the process (and of the GPU) in MB, and the sizes of batches that it halved."""
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        facts: dict[str, Any] = {"seconds": self.seconds, "peak_memory_mb": round(peak / 1e6)}
        torch = sys.modules.get("torch")  # not imported for its own sake: reading frames needs none of it
        if torch is not None and torch.cuda.is_available():
            facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
        if splits := getattr(sys.modules.get("lib.generate.batching"), "oom_splits", ()):
            facts["halved_for_memory"] = list(splits)
        return facts
