"""Parquet files with a manifest each, written atomically and verified when read.

    artifacts/<run>/generations/<model>__<dataset>.parquet   the frame
    artifacts/<run>/generations/<model>__<dataset>.json      its parameters, revisions, checksums and cost

A run reads its own frames. Two kinds of run fall back to shipped frames. A replay (`replay`,
`replay-small`) uses those of its profile. An interactive run (`lab`, `lab-<word>`) uses those of
the demo, so notebooks work in a fresh clone. A shipped frame is used only with the responses from
which it was computed.
"""

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from lib import stored_columns
from lib.errors import UserError, nearest
from lib.files import sha256, write_atomically, write_text
from lib.paths import ARTIFACTS, ROOT, SHIPPED, of_project, relative_path
from lib.run_names import RunName
from lib.stored_columns import KEYS

PAIR = KEYS[:2]  # a model and a dataset
SCORE_CELL = [*PAIR, "estimator"]  # the key of a raw score's number
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "scikit-learn")


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
        If the facts contain a NaN.
    """
    timed = [name for name in frame if name.endswith(stored_columns.SECONDS)]
    means = {
        name: float(f"{frame[name].mean():.3g}") for name in timed if frame[name].notna().any()
    }
    frame, facts = frame.drop(columns=timed), facts | ({"row_seconds": means} if means else {})
    table = stored_columns.to_table(path.parent.name, frame, relative_path(path))
    write_atomically(path, partial(pq.write_table, table, compression="zstd"))
    manifest = {
        "file": path.name,
        "sha256": sha256(path),
        "rows": len(frame),
        "columns": table.column_names,
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        **facts,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_text(path.with_suffix(".json"), text + "\n")
    return path


def calibration_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["split"] == "calibration"]


def evaluation_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["split"] == "evaluation"]


def damaged(path: Path) -> UserError:
    """Return the error for a file that is not as it was written, with the way to repair it."""
    shipped = path.is_relative_to(SHIPPED.parent)
    repair = (
        f"`git checkout -- {relative_path(path.parent)}` restores it"
        if shipped
        else "remove it and run again"
    )
    return UserError(f"{relative_path(path)} is missing, damaged or edited: {repair}")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a parquet file. Raise UserError if it is missing or no manifest."""
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or not {"sha256", "rows"} <= facts.keys():
        raise damaged(path.with_suffix(".json"))
    return facts


def read_frame(path: Path) -> pd.DataFrame:
    """Read a frame, with the mean seconds per row as columns.

    Raises
    ------
    UserError
        If it is missing, differs from its manifest, or has other columns than `lib.stored_columns`
        describes.
    """
    facts = read_manifest(path)
    if not path.exists() or sha256(path) != facts["sha256"]:
        raise damaged(path)
    frame = pd.read_parquet(path)
    stored_columns.check_columns(path.parent.name, list(frame), relative_path(path))
    return frame.assign(**facts.get("row_seconds", {}))


def run_folder(run: Any) -> Path:
    """Return the folder of a run. Raise UserError for a name that can't be a folder in artifacts/.

    Raise it, too, where `lib` is installed without the project.
    """
    if not isinstance(run, str) or run == "shipped" or not re.fullmatch(r"\w[\w.-]*", run):
        raise UserError(
            f"run {run!r} can't be a folder in artifacts/: write letters, digits, '.', '-' or '_'"
        )
    return of_project(ARTIFACTS) / run


def frame_path(run: str, kind: str, name: str) -> Path:
    """Return the path of a run's frame. Raise as `run_folder`."""
    return run_folder(run) / kind / f"{name}.parquet"


def search_path(run: str) -> list[Path]:
    """Return the folders of a run's frames: its own, then the shipped one to which it falls back.

    The run `shipped` has only the demo's shipped frames. Raise as `run_folder`.
    """
    if run == "shipped":
        return [of_project(SHIPPED)]
    own, shipped = run_folder(run), RunName.parse(run).shipped
    return [own, SHIPPED.parent / shipped] if shipped else [own]


def stored_frames(run: str, kind: str) -> dict[str, Path]:
    """Return the paths of all frames of a kind by name; the run's own hide shipped ones."""
    folders = reversed(search_path(run))
    return {path.stem: path for folder in folders for path in (folder / kind).glob("*.parquet")}


def find_frame(run: str, kind: str, name: str, pairs: Sequence[str] = ()) -> Path:
    """Return the path of the run's own frame, else of the shipped one.

    Raise UserError if neither exists; or if it was computed from other responses than the run's,
    for one of `pairs`.
    """
    there = stored_frames(run, kind)
    if name not in there:
        folders = ", ".join(map(relative_path, search_path(run)))
        raise UserError(f"run '{run}' has no {kind} '{name}' in {folders}; {nearest(name, there)}")
    for responses in other_responses(there[name], run, pairs):
        writer = stored_columns.WRITERS.get(f"{kind}/{name}") or stored_columns.WRITERS[kind]
        back = (
            f", or delete artifacts/{run}/*/{responses.stem}.*" if len(search_path(run)) > 1 else ""
        )
        where, read = relative_path(there[name]), relative_path(responses)
        raise UserError(
            f"{where} was made from other responses than {read}: run {writer} for run '{run}' first{back}"
        )
    return there[name]


def pair_names(models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    return [f"{model}__{dataset}" for model in models for dataset in datasets]


def other_responses(path: Path, run: str, wanted: Iterable[str]) -> list[Path]:
    """Return the run's responses, among the `wanted` pairs, that are not the ones from which `path`
    was computed.

    The frame's manifest has the checksums of its inputs.
    """
    inputs = {
        Path(name).stem: checksum
        for name, checksum in read_manifest(path).get("inputs", {}).items()
    }
    responses = [
        find_frame(run, "generations", pair) for pair in sorted(inputs.keys() & set(wanted))
    ]
    return [
        read
        for read in responses
        if not read_manifest(read)["sha256"].startswith(inputs[read.stem][:12])
    ]


def find_pairs(run: str, kind: str, names: Iterable[str]) -> list[str]:
    """Return the pairs with a frame of this kind that was made from the run's responses."""
    there = stored_frames(run, kind)
    return [
        name for name in names if name in there and not other_responses(there[name], run, [name])
    ]


def read_pairs(
    run: str, kind: str, name: str, models: Sequence[str], datasets: Sequence[str]
) -> pd.DataFrame:
    """Read a frame of several pairs. Raise UserError if it was computed from other responses than
    the run's."""
    return read_frame(find_frame(run, kind, name, pair_names(models, datasets)))


def read_manifests(
    run: str, kind: str, pairs: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pairs that have a frame of this kind, each with its manifest."""
    for pair in find_pairs(run, kind, pairs):
        yield pair, read_manifest(find_frame(run, kind, pair))


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
    names = pair_names(models, datasets)
    paths = [
        find_frame(run, kind, name, [name])
        for name in (find_pairs(run, kind, names) if may_lack else names)
    ]
    rows = pd.concat(
        [*map(read_frame, paths)] or [stored_columns.empty_frame(kind)], ignore_index=True
    )
    source = [
        (path.stem, str(path.parent.relative_to(ARTIFACTS)), facts["rows"], facts["sha256"][:12])
        for path, facts in zip(paths, map(read_manifest, paths), strict=True)
    ]
    return rows, pd.DataFrame(source, columns=["pair", "read from", "rows", "sha256"])


def file_checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Return the checksums of input files, by path relative to the project."""
    return {
        relative_path(path) if path.is_relative_to(ROOT) else path.name: sha256(path)
        for path in sorted(paths)
    }
