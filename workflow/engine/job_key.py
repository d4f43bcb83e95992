"""The key of a job: everything that its outputs depend on, and nothing else; and its record: the
key, and checksums of what it has made.

The key covers declared parameters, model and dataset files, checksums of inputs, code without
comments and docstrings, and how often `--force` asked for the job. File times and revisions do not
count. The executed notebook is among what a job has made, because people read it; nothing else
does, so they may save it.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lib import params
from lib.errors import UserError
from lib.files import digest
from lib.paths import ROOT
from workflow.engine import fingerprint, local_files
from workflow.engine.fingerprint import checksum, normalize_source
from workflow.engine.jobs_of_run import Job

# code that scores and presents: outputs of notebooks that run a model do not depend on it, except
# for `decided_by`
SHOWING = ("lib/score/", "lib/calibrate/", "lib/analysis/", "lib/paper/")
Parts = dict[str, object]


def key_parts(job: Job, current_paths: Mapping[str, str] | None = None) -> Parts:
    """Return everything that a job's outputs depend on, by name: 'parameter bins', 'model x',
    'input ...', 'code ...'. Memory budgets do not count. `current_paths`: current paths of inputs
    that are yet to be restored."""
    values = job.parameters
    parts: Parts = {}
    for name, value in values.items():
        if name not in params.BUDGETS:
            parts[f"parameter {name}"] = value
    for path in job.inputs:
        current_path = (current_paths or {}).get(path, path)
        parts[f"input {path}"] = fingerprint.semantic_checksum(current_path)
    specs = []
    for kind, name in params.names_mentioned(values):
        spec = params.LOADERS[kind](name)
        specs.append(spec)
        parts[f"{kind} {name}"] = describe_content(spec, with_label=not job.notebook.per_pair)
    if job.notebook.per_pair:
        for path, value in local_files.local_checksums(specs, job.dataset).items():
            parts[f"file {path}"] = value
    times_forced = job.run.forced.get(job.name)
    if times_forced:
        parts["forced"] = times_forced
    for path, value in code_digests(job).items():
        parts[f"code {path}"] = value
    return parts


def describe_content(spec: params.Model | params.Dataset, with_label: bool) -> dict[str, object]:
    """Return the content of a model or dataset file, with its label if the job shows it, but
    without the location of its data: the sha256 identifies a GGUF file and published questions,
    from the Hub or a local folder. What a server is sent counts by its answers."""
    unused = {"gpus", "request"}
    if not with_label:
        unused.add("label")
    if getattr(spec, "gguf", None):
        unused |= {"source", "revision", "gguf"}
    content = spec.model_dump(mode="json", exclude=unused)
    files = content.get("files")
    if files:
        content["files"] = {part: file["sha256"] for part, file in files.items()}
        if content["revision"] == params.REVISIONS.get(content["source"]):  # looked up on the Hub
            content["revision"] = None
    return content


def code_digests(job: Job) -> dict[str, str]:
    """Return the digests of the notebook's code cells, of what its rule names, and of the modules
    that they import."""
    notebook = job.notebook
    cells = fingerprint.code_cells(notebook.path)
    sources = [*cells, *(source_of(place) for place in notebook.decided_by if ".py" in place)]
    leave_out = SHOWING if notebook.runs_model else ()
    digests = {}
    for place in fingerprint.import_closure(sources, leave_out).union(notebook.decided_by):
        digests[place] = digest(normalize_source(source_of(place)))
    digests[notebook.path] = digest([normalize_source(cell, cell=True) for cell in cells])
    return digests


def source_of(place: str) -> str:
    """Return the source of a module, or of one of its functions (`module.py:function`)."""
    path, _, name = place.partition(":")
    source = read_source(path)
    if not name:
        return source
    for node in ast.parse(source).body:
        if getattr(node, "name", "") == name:
            return ast.unparse(node)
    raise LookupError(place)


def read_source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def key_of_rows(job: Job, content: Parts) -> str:
    """Return the key of what a job's rows depend on beside their facts (lib/row_cache.py): the
    files of a local model, `--force`, and the code unless rows survive its changes. It is empty if
    that is nothing."""
    counted: Parts = {}
    for name, value in content.items():
        if name == "forced" or name.startswith("code ") and not keeps_rows(job):
            counted[name] = value
    if job.model:
        counted |= local_files.checksums_of_weights(params.load_model_config(job.model))
    return digest(counted)[:16] if counted else ""


def keeps_rows(job: Job) -> bool:
    """Whether the outputs of a job survive a change of code alone."""
    return job.notebook.runs_model and job.run.values.get("on_code_change") == "keep"


def tolerates_changes(job: Job, changed: list[str]) -> bool:
    """Whether the outputs of a job survive the change of these parts of its key."""
    return keeps_rows(job) and all(name.startswith("code ") for name in changed)


# ---- records


class Record(NamedTuple):
    """What is kept of a finished job: its key and what that consists of, and the checksums of all
    that it has made, by path."""

    key: str
    parts: Parts
    outputs: dict[str, str]


def read_record(path: Path, job: Job) -> Record | None:
    """Return the record of a job; None if there is none, if it is damaged, or another job's, whose
    files must stay."""
    content = fingerprint.read_json(path)
    if not isinstance(content, dict):
        return None
    if content.pop("digest", "") != digest(content) or content["job"] != job.record:
        return None
    folders = (f"{job.run.folder}/", f"{job.run.figures}/")
    for output in content["outputs"]:
        if not output.startswith(folders) or ".." in Path(output).parts:
            return None
    return Record(content["key"], content["parts"], content["outputs"])


def write_record(job: Job, content: Parts, outputs: list[str]) -> None:
    """Write the record of a finished job: its key, the content of the key, and checksums of all
    outputs."""
    sums = {path: checksum(path) for path in [*outputs, job.executed]}
    for path, value in sums.items():
        if value is None:
            raise UserError(f"{job.notebook.path} ended without writing {path}")
    record = {"job": job.record, "key": digest(content), "parts": content, "outputs": sums}
    fingerprint.write_json(ROOT / job.record, record | {"digest": digest(record)})


def is_intact(record: Record, stale: Path | None = None) -> bool:
    """Whether all files of a record, which may lie in a folder of stale, have their checksums.
    Outside of stale the executed notebook, which its reader may have saved, need only exist."""
    folder = stale or ROOT
    for path, value in record.outputs.items():
        if path.endswith(".ipynb") and not stale:
            is_same = (folder / path).is_file()
        else:
            is_same = checksum(str(folder / path)) == value
        if not is_same:
            return False
    return True
