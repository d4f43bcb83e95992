"""Parquet files with a manifest beside each, written whole or not at all, and shards from which long work resumes.

    artifacts/<run>/generations/<model>__<dataset>.parquet   the frame
    artifacts/<run>/generations/<model>__<dataset>.json      what it is: parameters, revisions, checksums, cost

Readers fall back on the shipped demo signals, so every notebook from 02 on works in a fresh clone.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib.project import ARTIFACTS, ROOT, SHIPPED, UserError, nearest

KEYS = ["model", "dataset", "split", "example_id"]  # what a row of every per-example frame is known by
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "scikit-learn")


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*facts: Any) -> str:
    """Checksum of JSON-able facts; equal facts, equal digest."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write under a temporary name, flush to disk, rename: a reader never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(scratch)
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write(frame: pd.DataFrame, path: Path, **facts: Any) -> Path:
    """The frame at `path` (.parquet) and its manifest beside it (.json).

    `facts` go into the manifest as they are (parameters, inputs, seconds...); a NaN among them raises ValueError,
    an absolute path of this machine too.
    """
    atomically(path, partial(frame.to_parquet, index=False, compression="zstd"))
    manifest = {"file": path.name, "sha256": sha256(path), "rows": len(frame), "columns": list(frame.columns),
                "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
                "python": platform.python_version(), **facts}  # fmt: skip
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    if str(ROOT) in text:
        raise ValueError(f"manifest of {path.name} holds a path of this machine")
    atomically(path.with_suffix(".json"), lambda scratch: scratch.write_text(text + "\n", encoding="utf-8"))
    return path


def manifest(path: Path) -> dict[str, Any]:
    """The manifest beside a parquet file."""
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def read(path: Path) -> pd.DataFrame:
    """The frame at `path`. Raises UserError where it is missing, or not the file that its manifest describes."""
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if not path.exists() or not path.with_suffix(".json").exists():
        raise UserError(f"{where} or its manifest is missing; ./run_all.sh makes it")
    if sha256(path) != manifest(path)["sha256"]:
        raise UserError(f"{where} is not the file its manifest describes (damaged or edited); remove it and run again")
    return pd.read_parquet(path)


def place(run: str, kind: str, name: str) -> Path:
    """Where a run keeps a frame."""
    return ARTIFACTS / run / kind / f"{name}.parquet"


def locate(run: str, kind: str, name: str) -> Path:
    """The run's own frame where it has one, else the shipped one. Raises UserError where neither exists."""
    for path in (place(run, kind, name), SHIPPED / kind / f"{name}.parquet"):
        if path.exists():
            return path
    there = {p.stem for folder in (ARTIFACTS / run / kind, SHIPPED / kind) for p in folder.glob("*.parquet")}
    raise UserError(f"run '{run}' has no {kind} '{name}', nor are they shipped; {nearest(name, there)}")


def pairs(models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    return [f"{model}__{dataset}" for model in models for dataset in datasets]


def gather(run: str, kind: str, models: Sequence[str], datasets: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames of all pairs as one, and a small table that says where each came from."""
    paths = [locate(run, kind, name) for name in pairs(models, datasets)]
    source = [{"pair": p.stem, "read from": str(p.parent.relative_to(ARTIFACTS)), "rows": manifest(p)["rows"],
               "sha256": manifest(p)["sha256"][:12]} for p in paths]  # fmt: skip
    return pd.concat([read(path) for path in paths], ignore_index=True), pd.DataFrame(source)


class Shards:
    """Resumable work on a list of items: whole shards are kept and never done again.

    The folder's name holds a key of everything that the result depends on, so shards of other parameters, and (where
    whoever runs a notebook names its `code`) of other code, are never mixed in. Shards are cut by index, never by what
    is already done, so a resumed run works on exactly the batches of an uninterrupted one.
    """

    code = ""  # names the code that is running, for every object made from now on: `Shards.code = ...`

    def __init__(self, run: str, job: str, rows: int, *facts: Any):
        key = digest(facts, self.code)[:16]
        self.folder = ARTIFACTS / run / "shards" / f"{job}-{key}"
        self.rows = rows

    def map(self, work: Callable[[list], pd.DataFrame], items: list, note: Callable[[str], None]) -> pd.DataFrame:
        """`work` over consecutive slices of `items`, one frame in the end; `note` gets a line per shard."""
        cuts = range(0, len(items), self.rows)
        frames = []
        for i, at in enumerate(cuts):
            path = self.folder / f"{i:05d}.parquet"
            if not path.exists():
                started = time.time()
                frame = work(items[at : at + self.rows])
                atomically(path, partial(frame.to_parquet, index=False))
                note(f"shard {i + 1}/{len(cuts)}: {len(frame)} rows in {time.time() - started:.1f} s")
            else:
                note(f"shard {i + 1}/{len(cuts)}: kept from before")
            frames.append(pd.read_parquet(path))
        return pd.concat(frames, ignore_index=True)

    def clear(self) -> None:
        """Forget the shards, once what they make is written."""
        for path in self.folder.glob("*"):
            path.unlink()
        if self.folder.exists():
            self.folder.rmdir()


def checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Checksums of input files, by name relative to the project."""
    return {str(p.relative_to(ROOT) if p.is_relative_to(ROOT) else p.name): sha256(p) for p in sorted(paths)}


class Meter:
    """Cost of a piece of work, for its manifest: seconds, and the process's (and the GPU's) peak memory in MB."""

    def __enter__(self) -> "Meter":
        self.started = time.time()
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
        return facts
