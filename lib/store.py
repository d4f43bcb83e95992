"""Parquet files with a manifest each, written atomically and verified when read.

    artifacts/<run>/generations/<model>__<dataset>.parquet   the frame
    artifacts/<run>/generations/<model>__<dataset>.json      its parameters, revisions, checksums and cost

A run reads its own frames. Two kinds of run fall back to shipped frames. A replay (`replay`, `replay-small`) uses those
of its profile. An interactive run (`lab`, `lab-<word>`) uses those of the demo, so notebooks work in a fresh clone. A
shipped frame is used only with the responses from which it was computed.
"""

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from lib import stored_columns
from lib.paths import ARTIFACTS, ROOT, SHIPPED, UserError, nearest, relative_path, sha256, write_atomically

KEYS = [column.name for column in stored_columns.KEY_COLUMNS]  # key of a row in every per-example frame
PAIR = KEYS[:2]  # a model and a dataset
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "scikit-learn")


def digest(*facts: Any) -> str:
    """Return the SHA-256 of JSON-serializable facts; equal facts have equal digests."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def write_frame(frame: pd.DataFrame, path: Path, **facts: Any) -> Path:
    """Write a frame (.parquet) and its manifest (.json).

    Columns of seconds differ between runs, so only their means are written, in the manifest.

    Parameters
    ----------
    path : from `frame_path`
    facts : entries of the manifest (parameters, inputs, ...)

    Raises
    ------
    UserError
        If the frame differs from its schema in `lib.stored_columns`.
    ValueError
        If the facts contain a NaN or an absolute path of this machine.
    """
    timed = [name for name in frame if name.endswith(stored_columns.SECONDS)]
    means = {name: float(f"{frame[name].mean():.3g}") for name in timed if frame[name].notna().any()}
    frame, facts = frame.drop(columns=timed), facts | ({"row_seconds": means} if means else {})
    table = stored_columns.to_table(path.parent.name, frame, relative_path(path))
    write_atomically(path, partial(pq.write_table, table, compression="zstd"))
    manifest = {
        "file": path.name,
        "sha256": sha256(path),
        "rows": len(frame),
        "columns": list(frame.columns),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        **facts,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    if re.search(rf"(?<![\w.-]){re.escape(str(ROOT))}(?![\w.-])", text):
        raise ValueError(f"manifest of {path.name} holds a path of this machine")
    write_atomically(path.with_suffix(".json"), lambda scratch: scratch.write_text(text + "\n", encoding="utf-8"))
    return path


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a parquet file. Raise UserError if it is not a manifest."""
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or not {"sha256", "rows"} <= facts.keys():
        where = relative_path(path.with_suffix(".json"))
        raise UserError(f"{where} is not a manifest (damaged or edited); {way_to_mend(path)}")
    return facts


def way_to_mend(path: Path) -> str:
    """Return the instruction to restore a damaged file: git, if it is part of the project."""
    if path.is_relative_to(SHIPPED.parent):
        return f"`git checkout -- {relative_path(path.parent)}` brings it back"
    return "remove it and run again"


def read_frame(path: Path) -> pd.DataFrame:
    """Read a frame, with the mean seconds per row as columns.

    Raises
    ------
    UserError
        If it is missing, differs from its manifest, or differs from its schema in `lib.stored_columns`.
    """
    where = relative_path(path)
    if not path.exists() or not path.with_suffix(".json").exists():
        raise UserError(f"{where} or its manifest is missing; ./run_all.sh makes it")
    facts = read_manifest(path)
    if sha256(path) != facts["sha256"] or pq.read_metadata(path).num_rows != facts["rows"]:
        raise UserError(f"{where} is not the file its manifest describes (damaged or edited); {way_to_mend(path)}")
    stored_columns.check_stored(path.parent.name, pq.read_schema(path), where)
    return pd.read_parquet(path).assign(**facts.get("row_seconds", {}))


def check_run_name(run: Any) -> str:
    """Return a run's name, its folder in artifacts/. Raise UserError for an invalid folder name."""
    if not isinstance(run, str) or run == "shipped" or not re.fullmatch(r"\w[\w.-]*", run):
        raise UserError(
            f"run {run!r} can't be a folder in artifacts/: a name needs letters, digits, '.', '-' and '_', "
            "and is not 'shipped'"
        )
    return run


def frame_path(run: str, kind: str, name: str) -> Path:
    """Return the path of a run's frame. Raise as `check_run_name`."""
    return ARTIFACTS / check_run_name(run) / kind / f"{name}.parquet"


def shipped_folder(run: str) -> Path:
    """Return the folder of a run's shipped frames (`replay-small` replays those of `small`)."""
    return SHIPPED.parent / run.removeprefix("replay-")


def borrowed_folder(run: str) -> Path | None:
    """Return the folder of shipped frames to which a run falls back; None for a run with models.

    The run `shipped` reads only these.
    """
    verb, _, profile = run.partition("-")
    if verb == "replay":
        return SHIPPED.parent / (profile or SHIPPED.name)
    return SHIPPED if verb == "lab" or run == "shipped" else None


def frame_paths(run: str, kind: str, name: str) -> list[Path]:
    """Return the possible paths of a frame, the run's own first. Raise as `check_run_name`."""
    own, other = [] if run == "shipped" else [frame_path(run, kind, name)], borrowed_folder(run)
    return own + ([other / kind / f"{name}.parquet"] if other else [])


def find_frame(run: str, kind: str, name: str) -> Path:
    """Return the path of the run's own frame, else of the shipped one. Raise UserError if neither exists."""
    paths = frame_paths(run, kind, name)
    if found := next(filter(Path.exists, paths), None):
        return found
    there = {other.stem for path in paths for other in path.parent.glob("*.parquet")}
    why = "nor are they shipped" if borrowed_folder(run) else "and what is shipped serves 'lab' and replays alone"
    raise UserError(f"run '{run}' has no {kind} '{name}', {why}; {nearest(name, there)}")


def pair_names(models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    return [f"{model}__{dataset}" for model in models for dataset in datasets]


def other_responses(path: Path, run: str, wanted: Iterable[str]) -> list[Path]:
    """Return the run's responses, among the `wanted` pairs, that are not the ones from which `path` was computed.

    The frame's manifest has the checksums of its inputs.
    """
    inputs = {Path(name).stem: checksum for name, checksum in read_manifest(path).get("inputs", {}).items()}
    responses = [find_frame(run, "generations", pair) for pair in sorted(inputs.keys() & set(wanted))]
    return [read for read in responses if not read_manifest(read)["sha256"].startswith(inputs[read.stem][:12])]


def check_made_from(path: Path, run: str, wanted: Iterable[str]) -> None:
    """Raise UserError if the frame at `path` was computed from other responses than the run's, for a pair in `wanted`.

    The message tells how to fix it.
    """
    for generations in other_responses(path, run, wanted):
        writer = (
            stored_columns.WRITERS.get(f"{path.parent.name}/{path.stem}") or stored_columns.WRITERS[path.parent.name]
        )
        back = f", or delete artifacts/{run}/*/{generations.stem}.*" if borrowed_folder(run) else ""
        raise UserError(
            f"{relative_path(path)} was made from other responses than {relative_path(generations)}: "
            f"run {writer} for run '{run}' first{back}"
        )


def read_pairs(run: str, kind: str, name: str, models: Sequence[str], datasets: Sequence[str]) -> pd.DataFrame:
    """Read a frame of several pairs. Raise UserError if it was computed from other responses than the run's."""
    path = find_frame(run, kind, name)
    check_made_from(path, run, pair_names(models, datasets))
    return read_frame(path)


def find_pairs(run: str, kind: str, names: Iterable[str]) -> list[str]:
    """Return the pairs with a frame of this kind, without shipped frames of other responses."""
    there = {name: next(filter(Path.exists, frame_paths(run, kind, name)), None) for name in names}
    return [
        name
        for name, path in there.items()
        if path and (path.is_relative_to(ARTIFACTS / run) or not other_responses(path, run, [name]))
    ]


def load_frames(
    run: str, kind: str, models: Sequence[str], datasets: Sequence[str], may_lack: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the frames of all model-dataset pairs into one.

    Parameters
    ----------
    kind : folder of the run: generations, verification, dropout, ...
    may_lack : whether to skip pairs without a frame

    Returns
    -------
    The rows of all pairs, and a table with the source of each frame.

    Raises
    ------
    UserError
        If a frame is missing, or was computed from other responses than the run's.
    """
    wanted = pair_names(models, datasets)
    paths = [find_frame(run, kind, name) for name in (find_pairs(run, kind, wanted) if may_lack else wanted)]
    for path in paths:
        check_made_from(path, run, [path.stem])
    source = pd.DataFrame(
        [
            (path.stem, str(path.parent.relative_to(ARTIFACTS)), facts["rows"], facts["sha256"][:12])
            for path, facts in zip(paths, map(read_manifest, paths), strict=True)
        ],
        columns=["pair", "read from", "rows", "sha256"],
    )
    frames = [read_frame(path) for path in paths] or [stored_columns.empty_frame(kind)]
    return pd.concat(frames, ignore_index=True), source


def file_checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Return the checksums of input files, by path relative to the project."""
    return {relative_path(path) if path.is_relative_to(ROOT) else path.name: sha256(path) for path in sorted(paths)}
