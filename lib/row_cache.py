"""Finished rows of a job, kept under a key of what they depend on: a killed run and a larger run find them.

Rows lie in shards, artifacts/<run>/shards/<job>-<key>/, until the frame that they make is written. The key holds the
facts of the manifest, and the code where whoever runs a notebook names it. How many rows are wanted (`limit`) is not
among it. Rows of frames that an earlier run left, shipped or set aside, are kept under the same facts.
"""

import hashlib
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import schemas, store
from lib.params import BUDGETS
from lib.paths import ARTIFACTS, UserError
from lib.validation import RENAMED

WRITTEN = "written"  # in a folder of shards whose rows are in their frame, and which waits for the record of that
RESPONSE = "response"  # column of shards: names the tokens of the response that a row is about
SAME_MODEL = ("architecture", "parameters", "chat_template", "tokenizer")  # of what a manifest says was loaded
CACHE_PARTS = ("model", "parameters")  # of facts
# facts of model and parameters on which no row depends, but for its last digits
NOT_OF_ROWS = {*BUDGETS, "n_tuning_examples", "dropout_rates", "label", "mirror", "size"}
OF_MACHINES = {"dtype", "attention"}  # and those by which rows of another machine differ in their last digits


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
    earlier : rows of an earlier run (`find_earlier_responses`, `find_earlier_rows`), none by default
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
        key = store.digest([shard_facts(part) for part in (told, *more)], self.code)
        earlier_key = store.digest([earlier_shard_facts(part) for part in (facts, *more)], self.earlier_record)
        shards = ARTIFACTS / store.check_run_name(run) / "shards"
        self.folder, before = shards / f"{job}-{key[:16]}", shards / f"{job}-{earlier_key[:16]}"
        self.folders = list(dict.fromkeys([self.folder, before]))
        self.rows_per_shard, self.known_by = rows_per_shard, list(known_by)
        self.earlier = pd.DataFrame() if earlier is None else earlier
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
            shards = self.intact_shards(note)
            self.all_asked = self.names_of(shards) <= set(names)
            if kept := len(self.names_of([self.earlier]) & set(names)):
                note(f"{kept} of {len(names)} rows kept from a smaller run")
            parts = [part for part in (self.earlier, *shards) if len(part)]
            known = self.names_of(parts)
            starts = range(0, len(items), self.rows_per_shard)
            for number, start in enumerate(starts, 1):
                part, began = range(start, min(start + self.rows_per_shard, len(items))), time.time()
                lacking = [items[place] for place in part if names[place] not in known]
                if lacking:
                    parts.append(self.save_shard(start, work(lacking)))
                said = f"{len(lacking)} rows in {time.time() - began:.1f} s" if lacking else "kept from before"
                note(f"shard {number}/{len(starts)}: {said}")
            rows = pd.concat(parts, ignore_index=True) if parts else self.earlier
            places = {name: place for place, name in enumerate(self.row_names(rows))}
            return rows.iloc[[places[name] for name in names]].reset_index(drop=True)

    def intact_shards(self, note: Callable[[str], None]) -> list[pd.DataFrame]:
        """The undamaged shards."""
        parts = []
        for path in [path for folder in self.folders for path in sorted(folder.glob("[0-9]*-*.parquet"))]:
            start = int(path.name.split("-")[0])
            if path.is_file() and path.name == shard_name(path, start):
                parts.append(self.about_same_responses(pd.read_parquet(path)))
            else:
                path.replace(path.with_name(f"{path.name}.damaged"))
                note(f"shard from {start}: shards/{path.parent.name}/{path.name} is damaged: set aside, made again")
        return parts

    def about_same_responses(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those rows of a shard that are about the very tokens of their responses."""
        if self.responses is None or RESPONSE not in rows:
            return rows
        return rows[rows[RESPONSE] == rows.example_id.map(self.responses)].drop(columns=RESPONSE)

    def row_names(self, rows: pd.DataFrame) -> list[tuple]:
        """What each row is known by."""
        return list(zip(*(rows[name].tolist() for name in self.known_by), strict=True)) if len(rows) else []

    def names_of(self, parts: Sequence[pd.DataFrame]) -> set:
        """What the rows of all parts are known by."""
        return {name for part in parts for name in self.row_names(part)}

    def save_shard(self, start: int, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows as they are read back, once they are a shard."""
        (self.folder / WRITTEN).unlink(missing_ok=True)
        path = self.folder / f"{start:05d}.parquet"
        if self.responses is not None:
            rows = rows.assign(**{RESPONSE: rows.example_id.map(self.responses)})
        write = partial(rows.to_parquet, index=False)
        return self.about_same_responses(
            pd.read_parquet(store.write_atomically(path, write, lambda scratch: shard_name(scratch, start)))
        )

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
        code = {"code": self.code} if self.code else {}
        return code | self.earlier.attrs | self.meter.facts()


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


def row_facts(facts: Mapping[str, Any], spared: Set[str] = NOT_OF_ROWS) -> dict[str, Any]:
    """Facts of a model or of parameters on which a row depends. What is off counts like what is not there."""
    return {name: value for name, value in facts.items() if name not in spared and value is not None}


def shard_facts(facts: Any) -> Any:
    """The facts that name a folder of shards: precision and attention among them, for they decide whether rows may
    stand side by side; whether an H100 or an H200 made them does not."""
    if not isinstance(facts, Mapping):
        return facts
    told = dict(facts) | {name: row_facts(facts[name]) for name in facts.keys() & set(CACHE_PARTS)}
    if "loaded" in told:
        told["loaded"] = told["loaded"] | {"device": "cpu" if told["loaded"].get("device") == "cpu" else "GPU"}
    return told


def earlier_shard_facts(facts: Any) -> Any:
    """The facts that named the same folder in the version before, so that its shards are gone on with."""
    if not isinstance(facts, Mapping):
        return facts
    told = dict(facts) | {name: shard_facts(facts)[name] for name in {"loaded"} & facts.keys()}
    if "model" in told:
        told["model"] = {"mirror": [], "size": None} | told["model"]
    if "parameters" in told:
        old = {new: name for name, new in RENAMED.items()}
        told["parameters"] = {old.get(name, name): value for name, value in told["parameters"].items()
                              if name not in BUDGETS}  # fmt: skip
    return told


# ---- rows of frames that an earlier run left


def earlier_frames(run: str, kind: str, pair: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Frames of a pair, with their manifests, that are not the run's own now: shipped, or set aside. None of the demo,
    whose models really run, on every machine and after every change."""
    below = f"{kind}/{pair}.parquet"
    aside = sorted((ARTIFACTS / run / "stale").glob(f"*/artifacts/{run}/{below}"))
    for path in [store.shipped_folder(run) / below, *aside] if store.shipped_folder(run) != store.SHIPPED else ():
        with suppress(UserError, OSError):
            yield path, store.read_manifest(path)


def made_alike(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a manifest is of rows of the same model, under the same parameters, whatever the machine; and of the code
    that runs, where that is named."""
    now = json.loads(json.dumps(facts))
    if RowCache.code and manifest.get("code") != RowCache.code:
        return False
    same = all(manifest.get("loaded", {}).get(name) == now["loaded"][name] for name in SAME_MODEL)
    spared = NOT_OF_ROWS | OF_MACHINES
    return same and all(row_facts(manifest[name], spared) == row_facts(now[name], spared) for name in CACHE_PARTS)


def find_earlier_responses(run: str, pair: str, facts: Mapping[str, Any]) -> pd.DataFrame:
    """The most responses of a pair that an earlier run left under the same facts, with their in-situ verdicts.

    `attrs` are for the manifest. Damaged frames are passed over.
    """
    found = [schemas.empty_frame("generations")]
    for path, manifest in earlier_frames(run, "generations", pair):
        verdicts = path.parent.parent / "in_situ" / path.name
        with suppress(UserError, OSError):
            if made_alike(manifest, facts) and store.read_manifest(verdicts)["generations"] == manifest["sha256"]:
                rows = store.read_frame(path).merge(store.read_frame(verdicts), on=store.KEYS, validate="one_to_one")
                found.append(with_source(rows, manifest))
    return max(found, key=len)


def find_earlier_rows(run: str, kind: str, pair: str, facts: Mapping[str, Any], generations: pd.DataFrame
                      ) -> pd.DataFrame:  # fmt: skip
    """The most rows of a kind (verification, dropout) that an earlier run left under the same facts about the very
    tokens of `generations`; `attrs` as `find_earlier_responses`."""
    tokens = tokens_by_example(generations)
    responses = {manifest["sha256"]: path for path, manifest in earlier_frames(run, "generations", pair)}
    found = [schemas.empty_frame(kind)]
    for path, manifest in earlier_frames(run, kind, pair):
        (made_from,) = manifest["inputs"].values()
        if made_from in responses and made_alike(manifest, facts):
            with suppress(UserError, OSError):
                old, rows = store.read_frame(responses[made_from]), store.read_frame(path)
                same = [name for name, ids in tokens_by_example(old).items() if tokens.get(name) == ids]
                found.append(with_source(rows[rows.example_id.isin(same)], manifest))
    return max(found, key=len)


def with_source(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Rows with what a later manifest says of where they come from."""
    if len(rows):
        source = {"rows": len(rows), "sha256": manifest["sha256"], "made_on": devices_of(manifest)}
        rows.attrs = {"kept_from": source}
    return rows


def devices_of(manifest: Mapping[str, Any]) -> list[str]:
    """The devices and precisions in which the rows of a frame were made, by its manifest: those that it kept first."""
    kept, loaded = manifest.get("kept_from"), manifest["loaded"]
    places: list[str] = []
    if kept:
        places += kept.get("made_on") or [f"{kept['device']}, {kept['dtype']}"]  # as older manifests say it
    if not kept or manifest["rows"] > kept["rows"]:
        places.append(f"{loaded['device']}, {loaded['dtype']}")
    return list(dict.fromkeys(places))


# ---- cost


class Meter:
    """Cost of a piece of work, for its manifest: seconds, and the process's (and the GPU's) peak memory in MB."""

    seconds, halved = 0.0, 0

    def __enter__(self) -> "Meter":
        self.started = time.time()
        self.halved = len(halved_batches())
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = round(time.time() - self.started, 1)

    def facts(self) -> dict[str, Any]:
        """Seconds, peak memory, and the sizes of batches that were halved for want of it."""
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        facts: dict[str, Any] = {"seconds": self.seconds, "peak_memory_mb": round(peak / 1e6)}
        torch = sys.modules.get("torch")  # not imported for its own sake: reading frames needs none of it
        if torch is not None and torch.cuda.is_available():
            facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
        if splits := halved_batches()[self.halved :]:
            facts["halved_for_memory"] = splits
        return facts


def halved_batches() -> list[int]:
    """Sizes of the batches of this process that were halved for want of memory, if any ran."""
    return list(getattr(sys.modules.get("lib.generate.batching"), "oom_splits", ()))
