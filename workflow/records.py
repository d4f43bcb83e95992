"""What a finished job leaves beside its outputs: the record of what they were made from, and of what they hold.

The executed notebook is among them, for people read it. A record that is not in order counts as absent, and so does
that of another job: what it names is not this job's to move.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from lib import params
from lib.paths import ROOT, UserError, sync
from workflow.files import read_json, write_json
from workflow.fingerprint import cells, checksum, digest
from workflow.marked import contents, marked
from workflow.pipeline import Job, Run


def key(content: dict) -> str:
    """Of what a job's outputs hang on."""
    return digest(json.dumps(content, sort_keys=True, allow_nan=False))


def read_record(path: Path, job: Job) -> dict | None:
    """What the job left when it finished; None if it did not finish."""
    record = read_json(path)
    return record if in_order(record) and belongs(record, job) else None


def in_order(record: object) -> bool:
    """Whether this is a record that says what it said when it was written."""
    if not isinstance(record, dict) or not all(isinstance(record.get(name), dict) for name in ("parts", "outputs")):
        return False
    return record.get("key") == key(record["parts"]) and all(isinstance(it, str) for it in record["outputs"].values())


def belongs(record: dict, job: Job) -> bool:
    """Whether a record is of this very job, and names nothing outside its run."""
    parts, folders = record["parts"], (f"{job.run.folder}/", f"{job.run.figures}/")
    pair = (parts.get("parameter model", job.model), parts.get("parameter dataset", job.dataset))
    inside = all(path.startswith(folders) and ".." not in PurePosixPath(path).parts for path in record["outputs"])
    return f"code {job.notebook.path}" in parts and pair == (job.model, job.dataset) and inside


def latest(job: Job) -> dict | None:
    """The record of a job, also while it is open whether that still holds."""
    return read_record(ROOT / (job.aside if (ROOT / job.aside).exists() else job.record), job)


def wishes(run: Run) -> dict[str, str]:
    """The jobs that are to be made anew, by name, and what names each such wish: its content and its occasion."""
    known = read_json(ROOT / run.wishes)
    return {name: wish for name, wish in known.items() if isinstance(wish, str)} if isinstance(known, dict) else {}


def own_key(content: dict) -> str:
    """Of what outputs hang on, but for the inputs, which may be made anew."""
    return key({name: value for name, value in content.items() if not name.startswith("input ")})[:16]


def wish_of(job: Job, content: dict, known: dict[str, str]) -> str:
    """The wish that this very job be made anew, with other parameters another one; empty if there is none."""
    wish = known.get(job.name, "")
    return wish if wish.startswith(own_key(content)) else ""


def with_manifests(paths: Iterable[str]) -> list[str]:
    """Each parquet file followed by its manifest."""
    files = []
    for path in paths:
        files.append(path)
        if path.endswith(".parquet"):
            files.append(path.removesuffix(".parquet") + ".json")
    return files


def write_record(job: Job, content: dict, outputs: Iterable[str], seconds: float) -> None:
    """The record of a finished job: its key, what the key was made of, and checksums of all that it left."""
    sums = {path: checksum(path) for path in [*with_manifests(outputs), job.executed]}
    missing = [path for path, value in sums.items() if value is None]
    if missing:
        raise UserError(f"{job.notebook.path} ended without having written {missing[0]}")
    for place in sorted({place for path in sums for place in (ROOT / path, (ROOT / path).parent)}):
        sync(place)
    record = {"key": key(content), "parts": content, "outputs": sums, "seconds": round(seconds, 3)}
    record["wish"] = wish_of(job, content, wishes(job.run))
    write_json(ROOT / job.record, record)


def forget_shards(job: Job, code: str) -> None:
    """Remove the shards of a job that has its record now: those that were made under its key, `code`, and written."""
    for mark in (ROOT / job.run.folder / "shards").glob("*/written"):
        if mark.read_text(encoding="utf-8") == code:
            gone = mark.parent.with_name(f".{mark.parent.name}.{os.getpid()}")  # leftovers.py knows this name
            os.replace(mark.parent, gone)
            shutil.rmtree(gone)


def differences(record: dict, content: dict) -> list[str]:
    """Names of the parts that changed. Budgets of memory are none, though old records have them."""
    old, new, nothing = record["parts"], json.loads(json.dumps(content)), object()
    named = (old | new).keys() - {f"parameter {name}" for name in params.BUDGETS}
    return sorted(name for name in named if old.get(name, nothing) != new.get(name, nothing))


def whole(job: Job, record: dict, below: str = "") -> bool:
    """Whether all that a record names is as it was written, and frames, manifests, exports and the executed notebook
    agree: a record that was written anew over an edited file would not tell. `below`: a folder that they were moved to,
    with its slash."""
    sums = record["outputs"]
    if any(checksum(below + path) != value for path, value in sums.items()):
        return False
    described = all(manifest_sum(below + path) in (None, sums[path]) for path in sums if path.endswith(".parquet"))
    return described and (not job.notebook.exports or exports_agree(job, below))


def manifest_sum(path: str) -> str | None:
    """What a frame's manifest says its checksum is; None where it says nothing."""
    facts = read_json((ROOT / path).with_suffix(".json"))
    return facts.get("sha256") if isinstance(facts, dict) else "unreadable"


def exports_agree(job: Job, below: str) -> bool:
    """Whether tables and figures are those that the executed notebook shows."""
    try:
        shown = [contents(target, data) for _, target, data in marked(cells(below + job.executed))]
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return False
    files = {name: content for some in shown for name, content in some.items()}
    folder = ROOT / below / job.run.figures
    return all((folder / name).is_file() and (folder / name).read_bytes() == content for name, content in files.items())
