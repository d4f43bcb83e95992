"""Long work in pieces: shards from which it resumes, and what it cost."""

import resource
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib.params import BUDGETS
from lib.project import ARTIFACTS
from lib.store import atomically, digest, proper, sha256

WRITTEN = "written"  # in a folder of shards whose rows are in their place, and which waits for the record of that


def telling(facts: Any) -> Any:
    """Facts about a piece of work without budgets of memory and without the card's name: precision and attention
    decide whether rows may stand side by side, not whether an H100 or an H200 made them."""
    if not isinstance(facts, dict):
        return facts
    kept = dict(facts)
    if "parameters" in kept:
        kept["parameters"] = {name: value for name, value in kept["parameters"].items() if name not in BUDGETS}
    if "loaded" in kept:
        kept["loaded"] = kept["loaded"] | {"device": "cpu" if kept["loaded"].get("device") == "cpu" else "GPU"}
    return kept


class Shards:
    """Resumable work on a list of items: whole shards are kept and never done again.

    A shard's name holds its checksum: a damaged one, or one of elsewhere, is set aside and computed again. The folder's
    name holds a key of everything that the result depends on, so shards of other parameters, and (where
    whoever runs a notebook names its `code`) of other code, are never mixed in. Shards are cut by index, never by what
    is already done, so a resumed run works on exactly the batches of an uninterrupted one. A file is named by its first
    item: where shards become larger or smaller on the way, it still holds what its name says.
    """

    code = ""  # names the code that is running, for every object made from now on: `Shards.code = ...`

    def __init__(self, run: str, job: str, rows: int, *facts: Any):
        key = digest([telling(fact) for fact in facts], self.code)[:16]
        self.folder = ARTIFACTS / proper(run) / "shards" / f"{job}-{key}"
        self.rows = rows

    def map(self, work: Callable[[list], pd.DataFrame], items: list, note: Callable[[str], None],
            kept: pd.DataFrame | None = None, key: Callable[[Any], Any] | None = None) -> pd.DataFrame:  # fmt: skip
        """`work`, a row per item, over consecutive slices of `items`: one frame in the end. `note` gets a line per
        shard. A list that has grown at its end keeps what was made of its beginning.

        Rows that were `kept` from elsewhere, by the `key` of their items in the index, are not made again.
        """
        if kept is None or key is None or not len(kept):
            return self._made(work, items, note)
        keys = [key(item) for item in items]
        lacking = [item for item, name in zip(items, keys, strict=True) if name not in kept.index]
        note(f"{len(items) - len(lacking)} of {len(items)} rows kept from a smaller run")
        rows = kept[kept.index.isin(keys)]
        if lacking:  # in shards of their own: which rows these are hangs on what was kept
            self.folder = self.folder.with_name(f"{self.folder.name}-{digest([str(name) for name in rows.index])[:8]}")
            made = self._made(work, lacking, note)
            made.index = pd.Index([key(item) for item in lacking])
            rows = pd.concat([rows, made])
        return rows.loc[keys].reset_index(drop=True)

    def _made(self, work: Callable[[list], pd.DataFrame], items: list, note: Callable[[str], None]) -> pd.DataFrame:
        cuts = range(0, len(items), self.rows)
        frames = []
        for i, at in enumerate(cuts):
            slice_, done = items[at : at + self.rows], self._kept(at, note)
            if done is not None and len(done) >= len(slice_):
                note(f"shard {i + 1}/{len(cuts)}: kept from before")
                frames.append(done.head(len(slice_)))
                continue
            lacking, started = slice_[0 if done is None else len(done) :], time.time()
            frames.append(self._keep(at, pd.concat([done, work(lacking)], ignore_index=True)))
            note(f"shard {i + 1}/{len(cuts)}: {len(lacking)} rows in {time.time() - started:.1f} s")
        return pd.concat(frames, ignore_index=True)

    def _name(self, at: int, path: Path) -> str:
        """What the shard that begins at this item is called, if it holds the bytes of a file."""
        return f"{at:05d}-{digest(self.folder.name, at, sha256(path))[:16]}.parquet"

    def _kept(self, at: int, note: Callable[[str], None]) -> pd.DataFrame | None:
        """The undamaged shard that begins at this item with the most rows, if there is one."""
        whole = []
        for path in sorted(self.folder.glob(f"{at:05d}-*.parquet")):
            if path.is_file() and path.name == self._name(at, path):
                whole.append(pd.read_parquet(path))
            else:
                path.replace(path.with_name(f"{path.name}.damaged"))
                note(f"shard from {at}: shards/{self.folder.name}/{path.name} is damaged: set aside, made again")
        return max(whole, key=len, default=None)

    def _keep(self, at: int, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame as it is read back, once it is a shard in the place of shorter ones."""
        shorter = list(self.folder.glob(f"{at:05d}-*.parquet"))
        path = self.folder / f"{at:05d}.parquet"
        path = atomically(path, partial(frame.to_parquet, index=False), partial(self._name, at))
        for other in shorter:
            if other != path:
                other.unlink()
        return pd.read_parquet(path)

    def clear(self) -> None:
        """Forget the shards, once what they make is written. Whoever runs a notebook (`code`) does so itself, when it
        has a record of that; here it is told which."""
        if self.code:
            if self.folder.exists():
                atomically(self.folder / WRITTEN, lambda path: path.write_text(self.code, encoding="utf-8"))
            return
        shutil.rmtree(self.folder, ignore_errors=True)


class Meter:
    """Cost of a piece of work, for its manifest: seconds, and the process's (and the GPU's) peak memory in MB."""

    def __enter__(self) -> "Meter":
        self.started = time.time()
        self.halved = len(getattr(sys.modules.get("lib.generate.room"), "HALVED", ()))
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = round(time.time() - self.started, 1)

    def facts(self) -> dict[str, Any]:
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, kilobytes elsewhere
        facts = {"seconds": self.seconds,
                 "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6)}  # fmt: skip
        torch = sys.modules.get("torch")  # not imported for its own sake: reading frames needs none of it
        if torch is not None and torch.cuda.is_available():
            facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
        room = sys.modules.get("lib.generate.room")
        if room is not None and room.HALVED[self.halved :]:
            facts["halved_for_memory"] = room.HALVED[self.halved :]
        return facts
