"""Parquet files with a manifest each, written atomically and verified when read.

    artifacts/<run>/generations/<model>__<dataset>.parquet   the frame
    artifacts/<run>/generations/<model>__<dataset>.json      parameters, revisions, checksums, cost

A run reads its own frames. Two kinds of run fall back to shipped frames. A replay (`replay`,
`replay-small`) uses those of its profile. An interactive run (`lab`, `lab-<word>`) uses those of
the demo, so notebooks work in a fresh clone. A shipped frame is used only with the responses from
which it was computed.
"""

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from lib import stored_columns
from lib.errors import HelperEnds, UserError, nearest
from lib.files import sha256, write_atomically, write_text
from lib.paths import ARTIFACTS, ROOT, SHIPPED, of_project, relative_path
from lib.run_names import RunName
from lib.stored_columns import KEYS

PAIR = KEYS[:2]  # a model and a dataset
SCORE_CELL = [*PAIR, "estimator"]  # the key of a raw score's number
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "scikit-learn")


# set by the workflow: another process of the job writes its frames
HELPS = bool(os.environ.get("CALIBRATION_HELPS"))


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
    HelperEnds
        If another process of the job writes it.
    """
    if HELPS:
        raise HelperEnds
    seconds = frame.filter(regex=f"{stored_columns.SECONDS}$")
    means = seconds.mean().dropna()
    if len(means):
        rounded = means.map("{:.3g}".format)
        facts["row_seconds"] = rounded.astype(float).to_dict()
    frame = frame.drop(columns=seconds.columns)
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
    """Return the rows of the calibration split."""
    return frame[frame["split"] == "calibration"]


def evaluation_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the evaluation split."""
    return frame[frame["split"] == "evaluation"]


def damaged(path: Path) -> UserError:
    """Return the error for a file that is not as it was written, with the way to repair it."""
    repair = "remove it and run again"
    if path.is_relative_to(SHIPPED.parent):
        repair = f"`git checkout -- {relative_path(path.parent)}` restores it"
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


def read_frame(path: Path, without: Collection[str] = ()) -> pd.DataFrame:
    """Read a frame, with the mean seconds per row as columns.

    Parameters
    ----------
    path : from `frame_path`
    without : columns to leave out

    Raises
    ------
    UserError
        If it is missing, differs from its manifest, or has other columns than `lib.stored_columns`
        describes.
    """
    facts = read_manifest(path)
    if not path.exists() or sha256(path) != facts["sha256"]:
        raise damaged(path)
    names = pq.read_schema(path).names
    stored_columns.check_columns(path.parent.name, names, relative_path(path))
    frame = read_parquet(path, [name for name in names if name not in without])
    return frame.assign(**facts.get("row_seconds", {}))


def read_parquet(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Read these columns of a parquet file; a list of lists becomes an array (p, k).

    The arrays of a column are views of one: a list of small arrays would take several times the
    memory. Of equal words in a column there is one.
    """
    with pq.ParquetFile(path) as file:
        table = file.read(columns=list(names))
    arrays = {}
    plain = []
    for column in table.schema:
        if stored_columns.is_list_of_lists(column.type):
            arrays[column.name] = stored_columns.arrays_of(table[column.name])
        else:
            plain.append(column.name)
    frame = table.select(plain).to_pandas(strings_to_categorical=True)
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].astype("str")
    return frame.assign(**arrays)[list(names)]


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
    folders = [run_folder(run)]
    profile = RunName.parse(run).shipped
    if profile:
        folders.append(SHIPPED.parent / profile)
    return folders


def stored_frames(run: str, kind: str) -> dict[str, Path]:
    """Return the paths of all frames of a kind by name; the run's own hide shipped ones."""
    paths = {}
    for folder in reversed(search_path(run)):
        for path in (folder / kind).glob("*.parquet"):
            paths[path.stem] = path
    return paths


def find_frame(run: str, kind: str, name: str, pairs: Sequence[str] = ()) -> Path:
    """Return the path of the run's own frame, else of the shipped one.

    Raise UserError if neither exists; or if it was computed from other responses than the run's,
    for one of `pairs`.
    """
    paths = stored_frames(run, kind)
    folders = search_path(run)
    if name not in paths:
        where = ", ".join(map(relative_path, folders))
        suggestion = nearest(name, paths)
        raise UserError(f"run '{run}' has no {kind} '{name}' in {where}; {suggestion}")
    path = paths[name]
    differing = other_responses(path, run, pairs)
    if not differing:
        return path
    writer = stored_columns.WRITERS.get(f"{kind}/{name}", stored_columns.WRITERS[kind])
    remedy = f"run {writer} for run '{run}' first"
    if len(folders) > 1:
        remedy += f", or delete artifacts/{run}/*/{differing[0].stem}.*"
    responses = relative_path(differing[0])
    raise UserError(
        f"{relative_path(path)} was made from other responses than {responses}: {remedy}"
    )


def pair_names(models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    """Return the names of the frames of all pairs."""
    return [f"{model}__{dataset}" for model, dataset in product(models, datasets)]


def other_responses(path: Path, run: str, wanted: Iterable[str]) -> list[Path]:
    """Return the run's responses, among the `wanted` pairs, that are not the ones from which `path`
    was computed.

    The frame's manifest has the checksums of its inputs.
    """
    inputs = {}
    for name, checksum in read_manifest(path).get("inputs", {}).items():
        inputs[Path(name).stem] = checksum[:12]
    differing = []
    for pair in sorted(inputs.keys() & set(wanted)):
        responses = find_frame(run, "generations", pair)
        if not read_manifest(responses)["sha256"].startswith(inputs[pair]):
            differing.append(responses)
    return differing


def find_pairs(run: str, kind: str, names: Iterable[str]) -> list[str]:
    """Return the pairs with a frame of this kind that was made from the run's responses."""
    paths = stored_frames(run, kind)
    stored = [name for name in names if name in paths]
    return [name for name in stored if not other_responses(paths[name], run, [name])]


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
    run: str,
    kind: str,
    models: Sequence[str],
    datasets: Sequence[str],
    may_lack: bool = False,
    without: Collection[str] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the frames of all model-dataset pairs into one.

    Parameters
    ----------
    kind : folder of the run: generations, verification, dropout, ...
    may_lack : whether to skip pairs without a frame
    without : columns to leave out

    Returns
    -------
    The rows of all pairs, and a table with the source of each frame.

    Raises
    ------
    UserError
        If a frame is missing, or was computed from other responses than the run's.
    """
    names = pair_names(models, datasets)
    if may_lack:
        names = find_pairs(run, kind, names)
    paths = [find_frame(run, kind, name, [name]) for name in names]
    frames = [read_frame(path, without) for path in paths]
    rows = pd.concat(frames or [stored_columns.empty_frame(kind)], ignore_index=True)
    return rows, describe_frames(paths)


def list_sources(run: str, kind: str, pairs: Iterable[str]) -> pd.DataFrame:
    """Return a table with the source of each pair's frame. Raise UserError as `load_frames`."""
    return describe_frames([find_frame(run, kind, name, [name]) for name in pairs])


def describe_frames(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the pair, folder, number of rows and checksum of each frame."""
    sources = []
    for path in paths:
        facts = read_manifest(path)
        folder = str(path.parent.relative_to(ARTIFACTS))
        sources.append((path.stem, folder, facts["rows"], facts["sha256"][:12]))
    return pd.DataFrame(sources, columns=["pair", "read from", "rows", "sha256"])


def file_checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Return the checksums of input files, by path relative to the project."""
    checksums = {}
    for path in sorted(paths):
        name = relative_path(path) if path.is_relative_to(ROOT) else path.name
        checksums[name] = sha256(path)
    return checksums
