"""The record of a finished job: everything that its outputs depend on, and their checksums.

The executed notebook is among them, because people read it; nothing else does, so they may save it. An invalid record
counts as absent, and so does one of another job, whose files this job must not move.
"""

import json
import secrets
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from lib.paths import ROOT, UserError
from workflow.files import read_json, write_json
from workflow.fingerprint import checksum, digest
from workflow.pipeline import Job


def record_key(content: dict) -> str:
    """Return the key of everything that a job's outputs depend on."""
    return digest(json.dumps(content, sort_keys=True, allow_nan=False))


def read_record(path: Path, job: Job) -> dict | None:
    """Return the record of a job; None if the job has not finished."""
    record = read_json(path)
    return record if is_valid(record) and is_record_of(record, job) else None


def is_valid(record: object) -> bool:
    """Whether this is a record that matches its own key."""
    if not isinstance(record, dict) or not all(isinstance(record.get(name), dict) for name in ("parts", "outputs")):
        return False
    texts = [record.get("id"), *record["outputs"].values()]
    return record.get("key") == record_key(record["parts"]) and all(isinstance(one, str) for one in texts)


def is_record_of(record: dict, job: Job) -> bool:
    """Whether a record belongs to this job and names only files of its run."""
    parts, folders = record["parts"], (f"{job.run.folder}/", f"{job.run.figures}/")
    pair = (parts.get("parameter model", job.model), parts.get("parameter dataset", job.dataset))
    inside = all(path.startswith(folders) and ".." not in PurePosixPath(path).parts for path in record["outputs"])
    return f"code {job.notebook.path}" in parts and pair == (job.model, job.dataset) and inside


def with_manifests(paths: Iterable[str]) -> list[str]:
    """Return the paths, each parquet file followed by its manifest."""
    files = []
    for path in paths:
        files.append(path)
        if path.endswith(".parquet"):
            files.append(path.removesuffix(".parquet") + ".json")
    return files


def write_record(job: Job, content: dict, outputs: Iterable[str], seconds: float) -> None:
    """Write the record of a finished job: its key, the content of the key, checksums of all outputs, and an id of this
    result."""
    sums = {path: checksum(path) for path in [*with_manifests(outputs), job.executed]}
    missing = [path for path, value in sums.items() if value is None]
    if missing:
        raise UserError(f"{job.notebook.path} ended without writing {missing[0]}")
    record = {"key": record_key(content), "parts": content, "outputs": sums, "seconds": round(seconds, 3)}
    write_json(ROOT / job.record, record | {"id": secrets.token_hex(8)})


def changed_parts(record: dict, content: dict) -> list[str]:
    """Return the names of the parts that changed."""
    old, new, nothing = record["parts"], json.loads(json.dumps(content)), object()
    return sorted(name for name in old | new if old.get(name, nothing) != new.get(name, nothing))


def is_intact(record: dict, stale: Path | None = None) -> bool:
    """Whether all files of a record, which may lie in a folder of stale, have their checksums. Outside of stale the
    executed notebook, which its reader may have saved, need only exist."""

    def is_same(path: str, value: str) -> bool:
        if path.endswith(".ipynb") and not stale:
            return (ROOT / path).is_file()
        return checksum(str((stale or ROOT) / path)) == value

    return all(is_same(path, value) for path, value in record["outputs"].items())
