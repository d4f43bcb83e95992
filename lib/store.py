"""Parquet files with a manifest beside each, written whole or not at all, and checked when they are read.

    artifacts/<run>/generations/<model>__<dataset>.parquet   the frame
    artifacts/<run>/generations/<model>__<dataset>.json      what it is: parameters, revisions, checksums, cost

A run reads its own frames. Two kinds of run read what they lack from the shipped signals: a replay (`replay`,
`replay-small`) those of its profile, and the run of whoever works by hand (`lab`, `lab-<word>`) those of the demo, so
that every notebook works in a fresh clone. A shipped frame serves only beside the very responses that it was made from.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from lib import schemas
from lib.paths import ARTIFACTS, ROOT, SHIPPED, UserError, commit, nearest

KEYS = [column.name for column in schemas.KEY_COLUMNS]  # what a row of every per-example frame is known by
PAIR = KEYS[:2]  # a model and a dataset
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "scikit-learn")


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*facts: Any) -> str:
    """Checksum of JSON-able facts; equal facts, equal digest."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def write_atomically(path: Path, write: Callable[[Path], Any], name: Callable[[Path], str] | None = None) -> Path:
    """Write under a temporary name, flush to disk, rename: a reader never meets half a file. `name` tells that of the
    file from what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(scratch)
        path = path.with_name(name(scratch)) if name else path
        commit(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def write_frame(frame: pd.DataFrame, path: Path, **facts: Any) -> Path:
    """Write a frame (.parquet) and its manifest beside it (.json).

    Columns of seconds, which no two runs share, are not written: the manifest holds their means.

    Parameters
    ----------
    path : from `frame_path`
    facts : go into the manifest as they are (parameters, inputs, ...)

    Raises
    ------
    UserError
        Where the frame differs from its schema in `lib.schemas`.
    ValueError
        Where the facts hold a NaN, or an absolute path of this machine.
    """
    timed = [name for name in frame if name.endswith(schemas.SECONDS)]
    means = {name: float(f"{frame[name].mean():.3g}") for name in timed if frame[name].notna().any()}
    frame, facts = frame.drop(columns=timed), facts | ({"row_seconds": means} if means else {})
    table = schemas.to_table(path.parent.name, frame, relative_path(path))
    write_atomically(path, partial(pq.write_table, table, compression="zstd"))
    manifest = {"file": path.name, "sha256": sha256(path), "rows": len(frame), "columns": list(frame.columns),
                "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
                "python": platform.python_version(), **facts}  # fmt: skip
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    if re.search(rf"(?<![\w.-]){re.escape(str(ROOT))}(?![\w.-])", text):
        raise ValueError(f"manifest of {path.name} holds a path of this machine")
    write_atomically(path.with_suffix(".json"), lambda scratch: scratch.write_text(text + "\n", encoding="utf-8"))
    return path


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest beside a parquet file. Raises UserError where that is none."""
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or not {"sha256", "rows"} <= facts.keys():
        where = relative_path(path.with_suffix(".json"))
        raise UserError(f"{where} is not a manifest (damaged or edited); {way_to_mend(path)}")
    return facts


def way_to_mend(path: Path) -> str:
    """What mends a damaged file: git, where it is part of the project."""
    if path.is_relative_to(SHIPPED.parent):
        return f"`git checkout -- {relative_path(path.parent)}` brings it back"
    return "remove it and run again"


def relative_path(path: Path) -> str:
    """A path as messages name it: from the project's root, where it lies below."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def read_frame(path: Path) -> pd.DataFrame:
    """Read a frame, with the mean seconds of a row as a column.

    Raises
    ------
    UserError
        Where it is missing, not the file that its manifest describes, or not as `lib.schemas` describes it.
    """
    where = relative_path(path)
    if not path.exists() or not path.with_suffix(".json").exists():
        raise UserError(f"{where} or its manifest is missing; ./run_all.sh makes it")
    facts = read_manifest(path)
    if sha256(path) != facts["sha256"] or pq.read_metadata(path).num_rows != facts["rows"]:
        raise UserError(f"{where} is not the file its manifest describes (damaged or edited); {way_to_mend(path)}")
    schemas.check_stored(path.parent.name, pq.read_schema(path), where)
    return pd.read_parquet(path).assign(**facts.get("row_seconds", {}))


def check_run_name(run: Any) -> str:
    """The name of a run, which is its folder's in artifacts/. Raises UserError for what would lead elsewhere."""
    if not isinstance(run, str) or run == "shipped" or not re.fullmatch(r"\w[\w.-]*", run):
        raise UserError(f"run {run!r} can't be a folder in artifacts/: a name needs letters, digits, '.', '-' and '_', "
                        "and is not 'shipped'")  # fmt: skip
    return run


def frame_path(run: str, kind: str, name: str) -> Path:
    """Where a run keeps a frame. Raises UserError as `check_run_name` does."""
    return ARTIFACTS / check_run_name(run) / kind / f"{name}.parquet"


def shipped_folder(run: str) -> Path:
    """Where the signals of a run lie that are part of the project (`replay-small` replays those of `small`)."""
    return SHIPPED.parent / run.removeprefix("replay-")


def borrowed_folder(run: str) -> Path | None:
    """Where the shipped signals lie that serve a run for what it lacks; none serve the run of a model. The run
    `shipped_folder` has nothing else."""
    verb, _, profile = run.partition("-")
    if verb == "replay":
        return SHIPPED.parent / (profile or SHIPPED.name)
    return SHIPPED if verb == "lab" or run == "shipped" else None


def frame_paths(run: str, kind: str, name: str) -> list[Path]:
    """Where a frame may lie, the run's own place first. Raises UserError as `check_run_name` does."""
    own, other = [] if run == "shipped" else [frame_path(run, kind, name)], borrowed_folder(run)
    return own + ([other / kind / f"{name}.parquet"] if other else [])


def find_frame(run: str, kind: str, name: str) -> Path:
    """The run's own frame where it has one, else the shipped one that serves it. Raises UserError where none exists."""
    paths = frame_paths(run, kind, name)
    for path in paths:
        if path.exists():
            return path
    there = {other.stem for path in paths for other in path.parent.glob("*.parquet")}
    why = "nor are they shipped" if borrowed_folder(run) else "and what is shipped serves 'lab' and replays alone"
    raise UserError(f"run '{run}' has no {kind} '{name}', {why}; {nearest(name, there)}")


def pair_names(models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    return [f"{model}__{dataset}" for model in models for dataset in datasets]


def other_responses(path: Path, run: str, wanted: Iterable[str]) -> list[Path]:
    """The responses that the run reads, of those pairs among `wanted` of which the frame at `path` was made from
    others: the manifest holds their checksums."""
    inputs = {Path(name).stem: checksum for name, checksum in read_manifest(path).get("inputs", {}).items()}
    responses = [find_frame(run, "generations", pair) for pair in sorted(inputs.keys() & set(wanted))]
    return [read for read in responses if not read_manifest(read)["sha256"].startswith(inputs[read.stem][:12])]


def check_made_from(path: Path, run: str, wanted: Iterable[str]) -> None:
    """Raises UserError where the frame at `path` was made from other responses, of one of the pairs `wanted`, than
    those that the run reads, with the way back."""
    for generations in other_responses(path, run, wanted):
        writer = schemas.WRITERS.get(f"{path.parent.name}/{path.stem}") or schemas.WRITERS[path.parent.name]
        back = f", or delete artifacts/{run}/*/{generations.stem}.*" if borrowed_folder(run) else ""
        raise UserError(f"{relative_path(path)} was made from other responses than {relative_path(generations)}: "
                        f"run {writer} for run '{run}' first{back}")  # fmt: skip


def read_pairs(run: str, kind: str, name: str, models: Sequence[str], datasets: Sequence[str]) -> pd.DataFrame:
    """A frame over several pairs. Raises UserError where it was made from other responses than the run's."""
    path = find_frame(run, kind, name)
    check_made_from(path, run, pair_names(models, datasets))
    return read_frame(path)


def find_pairs(run: str, kind: str, names: Iterable[str]) -> list[str]:
    """Those pairs of which a frame of this kind is there; no shipped one that was made from other responses."""
    there = {name: next((path for path in frame_paths(run, kind, name) if path.exists()), None) for name in names}
    return [name for name, path in there.items()
            if path and (path.is_relative_to(ARTIFACTS / run) or not other_responses(path, run, [name]))]  # fmt: skip


def load_frames(run: str, kind: str, models: Sequence[str], datasets: Sequence[str], may_lack: bool = False
           ) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """Read the frames of all pairs of a model and a dataset as one.

    Parameters
    ----------
    kind : folder of the run: generations, verification, dropout, ...
    may_lack : whether pairs without a frame are left out

    Returns
    -------
    The rows of all pairs, and a small table of where each frame came from.

    Raises
    ------
    UserError
        Where a frame is missing, or was made from other responses than the run's.
    """
    wanted = pair_names(models, datasets)
    paths = [find_frame(run, kind, name) for name in (find_pairs(run, kind, wanted) if may_lack else wanted)]
    if not paths:
        return schemas.empty_frame(kind), pd.DataFrame(columns=["pair", "read from", "rows", "sha256"])
    if kind != "generations":
        for path in paths:
            check_made_from(path, run, [path.stem])
    source = [{"pair": p.stem, "read from": str(p.parent.relative_to(ARTIFACTS)), "rows": read_manifest(p)["rows"],
               "sha256": read_manifest(p)["sha256"][:12]} for p in paths]  # fmt: skip
    return pd.concat([read_frame(path) for path in paths], ignore_index=True), pd.DataFrame(source)


def file_checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Checksums of input files, by name relative to the project."""
    return {relative_path(path) if path.is_relative_to(ROOT) else path.name: sha256(path) for path in sorted(paths)}
