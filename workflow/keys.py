"""The key of a job: everything that its outputs depend on, and nothing else.

It covers declared parameters, model and dataset files, checksums of inputs, and code without comments and docstrings.
File times and revisions do not count.
"""

import ast
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lib import params
from lib.parameter_types import SMALL
from lib.paths import ROOT, local_path, public_path
from workflow import hub
from workflow.fingerprint import (
    checksum,
    code_cells,
    digest,
    import_closure,
    named_files,
    normalize_source,
    semantic_checksum,
)
from workflow.pipeline import Job
from workflow.records import record_key

EXPORT = ("workflow/export.py",)
GGUF = ("gguf", "sha256")  # empty in the files of other models
# code that scores and presents: outputs of heavy notebooks do not depend on it, except for `decided_by`
SHOWING = ("lib/score/", "lib/calibrate/", "lib/analysis/", "lib/paper/")
INTROSPECTION = re.compile(r"__doc__|\bget(doc|source|comments)")
Parts = dict[str, object]


def key_parts(job: Job, current_paths: Mapping[str, str] = MappingProxyType({})) -> Parts:
    """Return everything that a job's outputs depend on, by name: 'parameter bins', 'model x', 'input ...', 'code ...'.
    Memory budgets do not count. `current_paths`: current paths of inputs that are yet to be restored."""
    values = job.parameters
    return {
        **{f"parameter {name}": value for name, value in values.items() if name not in params.BUDGETS},
        **{key: content for kind in params.LOADERS for key, content in spec_content(job, kind, values).items()},
        **{f"input {path}": semantic_checksum(current_paths.get(path, path)) for path in job.inputs},
        **code_digests(job),
    }


def spec_content(job: Job, kind: str, values: dict) -> Parts:
    """Return the contents of the model (or dataset) files that the parameters name. For a job that runs a model or
    reads responses, add the checksums of the local files that these name."""
    contents: Parts = {}
    for name in names_mentioned(values, kind):
        spec = params.LOADERS[kind](name)
        content = describe_content(spec)
        if job.notebook.per_pair:
            content.pop("label", None)  # used only in tables
            responses = (getattr(spec, "responses", None) or "").format(dataset=job.dataset)
            named = spec.source if content.get("source") else ""  # in `content` a folder elsewhere has no path
            own = named.values() if isinstance(named, dict) else [named]
            for place in filter(None, [*own, getattr(spec, "split_ids", None), responses]):
                files = local_files(place)
                contents |= {f"file {public_path(place)}{path.removeprefix(place)}": checksum(path) for path in files}
        contents[f"{kind} {name}"] = content
    return contents


def describe_content(spec: params.Model | params.Dataset) -> dict:
    """Return the content of a model or dataset file without the location of its data: the sha256 identifies a GGUF file
    and published questions, from the Hub or a local folder."""
    content = spec.model_dump(mode="json")
    places = ("source", "revision", "gguf") if content.get("gguf") else GGUF
    if files := content.pop("files", {}):
        content["files"] = {part: file["sha256"] for part, file in files.items()}
        if content["revision"] == params.REVISIONS.get(content["source"]):  # looked up on the Hub
            content["revision"] = None
    if content.get("dtype") == "float32" and 0 < count_stored_numbers(spec) < SMALL:
        content["dtype"] = "auto"  # in which a small model is loaded in float32, too
    return {name: value for name, value in content.items() if name not in (*places, "gpus")}


def count_stored_numbers(spec: params.Model) -> int:
    """Return how many numbers a model's local safetensors hold, by their headers."""
    count = 0
    for path in spec.place.glob("*.safetensors") if os.path.isdir(spec.place) else ():
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        count += sum(math.prod(tensor["shape"]) for tensor in header.values() if "shape" in tensor)
    return count


def code_digests(job: Job) -> Parts:
    """Return digests of the notebook's code cells and of every module that they or the export import."""
    cells = code_cells(job.notebook.path)
    named = job.notebook.decided_by + (EXPORT if job.notebook.reports else ())
    sources = [source_of(place) for place in named if not place.endswith(".jinja")]
    modules = import_closure([*cells, *sources], leave_out=SHOWING if job.notebook.runs_model else ())
    digests = digest_files(modules.union(named))
    digests[job.notebook.path] = digest(*(normalize_source(cell, cell=True) for cell in cells))
    return {f"code {path}": value for path, value in digests.items()}


def digest_files(places: Iterable[str]) -> dict[str, str]:
    """Return the digests of modules, of their functions (`module.py:function`) and of other text files. A module that
    reads docstrings or source counts to the letter, and so does what it imports."""
    sources = {place: source_of(place) for place in places}
    readers = {path: source for path, source in sources.items() if INTROSPECTION.search(source)}
    literal = set().union(readers, *(named_files(path, source) for path, source in readers.items()))
    return {path: digest(source if path in literal else normalize_source(source)) for path, source in sources.items()}


def source_of(place: str) -> str:
    """Return the source of a module, or of one of its functions (`module.py:function`)."""
    path, _, name = place.partition(":")
    if not name:
        return read_source(path)
    (function,) = [node for node in ast.parse(read_source(path)).body if getattr(node, "name", "") == name]
    return ast.unparse(function)


def read_source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def code_key(job: Job, content: Parts) -> str:
    """Return the key of the code that computes a job's rows; empty if rows survive code changes."""
    if not job.notebook.runs_model or tolerates_code_change(job):
        return ""
    return record_key({name: value for name, value in content.items() if name.startswith("code ")})[:16]


def kind_of(parameter: str) -> str:
    """Return the last word of a parameter in the singular: 'model' for `bin_models`."""
    return parameter.removesuffix("s").split("_")[-1]


def names_mentioned(values: dict, kind: str) -> list[str]:
    """Return the models (or datasets) that parameters name: model, models, bin_models, main_figure_model, ..."""
    names: list[str] = []
    for parameter, value in values.items():
        if kind_of(parameter) == kind:
            names += [value] if isinstance(value, str) else value or []
    return list(dict.fromkeys(filter(None, names)))


def local_files(source: str) -> list[str]:
    """Return the files of a local source (a file or a folder); none for a name on the Hub."""
    place = local_path(source)
    if os.path.isfile(place):  # pathlib raises for a name too long
        return [source]
    if not os.path.isdir(place):
        return []
    files = [path for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(f"{source}/{path.relative_to(place).as_posix()}" for path in files)


def is_local(job: Job) -> bool:
    """Whether model and dataset of a job are local files, so that the job does not need the Hub."""
    specs = [load(name) for kind, load in params.LOADERS.items() for name in names_mentioned(job.parameters, kind)]
    return not any(map(hub.is_on_hub, specs))


def tolerates_code_change(job: Job) -> bool:
    """Whether the outputs of a job survive a change of code."""
    return job.notebook.runs_model and job.run.values.get("on_code_change") == "keep"
