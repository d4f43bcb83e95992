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
    values, where = job.parameters, current_paths or {}
    parts = {
        f"parameter {name}": value for name, value in values.items() if name not in params.BUDGETS
    }
    parts |= {
        f"input {path}": fingerprint.semantic_checksum(where.get(path, path)) for path in job.inputs
    }
    specs = {
        f"{kind} {name}": params.LOADERS[kind](name)
        for kind, name in params.names_mentioned(values)
    }
    for named, spec in specs.items():
        parts[named] = describe_content(spec, with_label=not job.notebook.per_pair)
    if job.notebook.per_pair:
        sums = local_files.local_checksums(specs.values(), job.dataset)
        parts |= {f"file {path}": value for path, value in sums.items()}
    if times := job.run.forced.get(job.name):
        parts["forced"] = times
    return parts | {f"code {path}": value for path, value in code_digests(job).items()}


def describe_content(spec: params.Model | params.Dataset, with_label: bool) -> dict:
    """Return the content of a model or dataset file, with its label if the job shows it, but
    without the location of its data: the sha256 identifies a GGUF file and published questions,
    from the Hub or a local folder."""
    unused = {"gpus"} if with_label else {"gpus", "label"}
    if getattr(spec, "gguf", None):
        unused |= {"source", "revision", "gguf"}
    content = spec.model_dump(mode="json", exclude=unused)
    if files := content.get("files"):
        content["files"] = {part: file["sha256"] for part, file in files.items()}
        if content["revision"] == params.REVISIONS.get(content["source"]):  # looked up on the Hub
            content["revision"] = None
    return content


def code_digests(job: Job) -> dict[str, str]:
    """Return the digests of the notebook's code cells, of what its rule names, and of the modules
    that they import."""
    cells, named = fingerprint.code_cells(job.notebook.path), job.notebook.decided_by
    sources = [source_of(place) for place in named if ".py" in place]
    modules = fingerprint.import_closure(
        [*cells, *sources], leave_out=SHOWING if job.notebook.runs_model else ()
    )
    digests = {place: digest(normalize_source(source_of(place))) for place in modules.union(named)}
    return digests | {
        job.notebook.path: digest([normalize_source(cell, cell=True) for cell in cells])
    }


def source_of(place: str) -> str:
    """Return the source of a module, or of one of its functions (`module.py:function`)."""
    path, _, name = place.partition(":")
    if not name:
        return read_source(path)
    (function,) = [
        node for node in ast.parse(read_source(path)).body if getattr(node, "name", "") == name
    ]
    return ast.unparse(function)


def read_source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def key_of_rows(job: Job, content: Parts) -> str:
    """Return the key of what a job's rows depend on beside their facts (lib/row_cache.py): the
    files of a local model, `--force`, and the code unless rows survive its changes. It is empty if
    that is nothing."""
    counted: Parts = {}
    for name, value in content.items():
        if name.startswith(("code ", "forced")) and not tolerates_changes(job, [name]):
            counted[name] = value
    if job.model:
        counted |= local_files.checksums_of_weights(params.load_model_config(job.model))
    return digest(counted)[:16] if counted else ""


def tolerates_changes(job: Job, changed: list[str]) -> bool:
    """Whether the outputs of a job survive the change of these parts of its key, which is of code
    alone."""
    keeps = job.notebook.runs_model and job.run.values.get("on_code_change") == "keep"
    return keeps and all(name.startswith("code ") for name in changed)


# ---- records


def read_record(path: Path, job: Job) -> dict | None:
    """Return the record of a job; None if there is none, if it is damaged, or another job's, whose
    files must stay."""
    record = fingerprint.read_json(path)
    if (
        not isinstance(record, dict)
        or record.pop("digest", "") != digest(record)
        or record["job"] != job.record
    ):
        return None
    folders = (f"{job.run.folder}/", f"{job.run.figures}/")
    inside = all(
        path.startswith(folders) and ".." not in Path(path).parts for path in record["outputs"]
    )
    return record if inside else None


def write_record(job: Job, content: Parts, outputs: list[str]) -> None:
    """Write the record of a finished job: its key, the content of the key, and checksums of all
    outputs."""
    sums = {path: checksum(path) for path in [*outputs, job.executed]}
    missing = [path for path, value in sums.items() if value is None]
    if missing:
        raise UserError(f"{job.notebook.path} ended without writing {missing[0]}")
    record = {"job": job.record, "key": digest(content), "parts": content, "outputs": sums}
    fingerprint.write_json(ROOT / job.record, record | {"digest": digest(record)})


def is_intact(record: dict, stale: Path | None = None) -> bool:
    """Whether all files of a record, which may lie in a folder of stale, have their checksums.
    Outside of stale the executed notebook, which its reader may have saved, need only exist."""

    def is_same(path: str, value: str) -> bool:
        if path.endswith(".ipynb") and not stale:
            return (ROOT / path).is_file()
        return checksum(str((stale or ROOT) / path)) == value

    return all(is_same(path, value) for path, value in record["outputs"].items())
