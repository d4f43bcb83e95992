"""What of a run is still valid.

An output is fresh when the key of its job is unchanged. The key holds contents only (parameters that the
notebook declares, model and dataset files, checksums of inputs, code without comments), never file times or
revisions: a clone, a copy or `touch` remakes nothing. What follows something that is made anew waits, and is left as it
is if that comes out the same. What is no longer fresh is moved, never deleted, to
artifacts/<run>/stale/<key>/ (the next under that key to <key>-2), and the newest comes back if the old key does.
"""

import ast
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType

from lib import params
from lib.paths import ROOT, UserError, public_path
from lib.validation import RENAMED
from workflow import hub, records
from workflow.carry_over import check_carried_over
from workflow.files import finish_move, move, prune, write_json
from workflow.fingerprint import checksum, code_cells, digest, import_closure, normalize_source, semantic_checksum
from workflow.pipeline import Job, Run
from workflow.records import differences, key, latest, own_key, read_record, whole, wish_of, with_manifests

NEW, ASKED = "not made yet", "asked for"
EXPORT = ("workflow/export.py", "workflow/marked.py")
GGUF = ("gguf", "sha256")  # empty in the files of other models
# scores, sets and judges what others made: what a heavy notebook writes does not hang on it, but for `decided_by`
SHOWING = ("lib/score/", "lib/calibrate/", "lib/analysis/", "lib/paper/")
Parts = dict[str, object]

# ---- keys --------------------------------------------------------------------------------------------------


def parts(job: Job, lying: Mapping[str, str] = MappingProxyType({})) -> Parts:
    """All that a job's outputs hang on, by name: 'parameter bins', 'model x', 'input ...', 'code ...'. Not budgets of
    memory, which manifests record. `lying`: where inputs lie that are still to be brought back."""
    values = job.parameters
    return {
        **{f"parameter {name}": value for name, value in values.items() if name not in params.BUDGETS},
        **{key: content for kind in params.LOADERS for key, content in specified(job, kind, values).items()},
        **{f"input {path}": semantic_checksum(lying.get(path, path)) for path in job.inputs},
        **code(job),
    }


def specified(job: Job, kind: str, values: dict) -> Parts:
    """The files of models (or datasets) that the parameters name, and where a model runs, or its responses are read,
    the files these name."""
    contents: Parts = {}
    for name in mentioned(values, kind):
        spec = params.LOADERS[kind](name)
        content = described(spec)
        if job.notebook.of_pair:
            content.pop("label", None)  # only tables print it
            responses = (getattr(spec, "responses", None) or "").format(dataset=job.dataset)
            own = places(spec.source) if content.get("source") else []
            for place in filter(None, [*own, getattr(spec, "split_ids", None), responses]):
                files = local_files(place)
                contents |= {f"file {public_path(place)}{path.removeprefix(place)}": checksum(path) for path in files}
        contents[f"{kind} {name}"] = content
    return contents


def places(source: str | dict[str, str]) -> list[str]:
    """The paths that a source names, or its name on the hub."""
    return list(source.values()) if isinstance(source, dict) else [source]


def described(spec: params.Model | params.Dataset) -> dict:
    """What a file says of a model or dataset, but for where the same bytes are had from: a GGUF file is known by its
    sha256, and so are published questions, from the hub or from a folder."""
    content = spec.model_dump(mode="json")
    places = ("source", "revision", "gguf") if content.get("gguf") else GGUF
    if files := content.pop("files", {}):
        content["files"] = {part: file["sha256"] for part, file in files.items()}
        if content["revision"] == params.REVISIONS.get(content["source"]):  # looked up, where the hub is what is read
            content["revision"] = None
    return {name: value for name, value in content.items() if name not in places}


def code(job: Job) -> Parts:
    """Digests of the notebook's code cells and of every module that they, or what exports their outputs, reach."""
    cells = code_cells(job.notebook.path)
    exporting = EXPORT if job.notebook.exports else ()
    decisive = job.notebook.decided_by
    sources = [*cells, *map(source_of, decisive), *(text(path) for path in exporting if path.endswith(".py"))]
    modules = import_closure(sources, leave_out=SHOWING if job.notebook.heavy else ())
    beside = (path.replace(".py", ".html.jinja") for path in modules)  # the template that a module fills in
    modules |= {path for path in beside if (ROOT / path).is_file()}
    digests = {path: digest(normalize_source(source_of(path))) for path in modules.union(exporting, decisive)}
    digests[job.notebook.path] = digest(*map(normalize_source, cells))
    return {f"code {path}": value for path, value in digests.items()}


def source_of(place: str) -> str:
    """The source of a module, or of one of its functions (`module.py:function`)."""
    path, _, name = place.partition(":")
    if not name:
        return text(path)
    (function,) = [node for node in ast.parse(text(path)).body if getattr(node, "name", "") == name]
    return ast.unparse(function)


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def resume_key(run: Run, content: Parts) -> str:
    """Names unfinished shards: where outputs survive a change of code, so do these."""
    if run.values.get("on_code_change") == "keep":
        content = {name: value for name, value in content.items() if not name.startswith("code ")}
    return key(content)[:16]


def earlier_resume_key(run: Run, content: Parts) -> str:
    """The same under the names that parameters had in the version before."""
    old = {f"parameter {new}": f"parameter {name}" for name, new in RENAMED.items()}
    return resume_key(run, {old.get(name, name): value for name, value in content.items()})


def code_key(job: Job, content: Parts) -> str:
    """Names the code that makes a job's rows, where rows of other code are not kept; else nothing."""
    if not job.notebook.heavy or keeps(job):
        return ""
    return key({name: value for name, value in content.items() if name.startswith("code ")})[:16]


def kind_of(parameter: str) -> str:
    """What a parameter names, by its last word in the singular: bin_models names models."""
    return parameter.removesuffix("s").split("_")[-1]


def mentioned(values: dict, kind: str) -> list[str]:
    """Names of models (or datasets) among the parameters: model, models, bin_models, main_figure_model, ..."""
    names: list[str] = []
    for parameter, value in values.items():
        if kind_of(parameter) == kind:
            names += [value] if isinstance(value, str) else value or []
    return list(dict.fromkeys(filter(None, names)))


def local_files(source: str) -> list[str]:
    """Every file of a local source, a file or a folder; none for a name on the hub."""
    place = ROOT / source
    if os.path.isfile(place):  # pathlib raises for a name too long
        return [source]
    if not os.path.isdir(place):
        return []
    files = [path for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(f"{source}/{path.relative_to(place).as_posix()}" for path in files)


def is_local(job: Job) -> bool:
    """Whether model and dataset of a job lie in local files, so that nothing need be asked of the hub."""
    specs = [load(name) for kind, load in params.LOADERS.items() for name in mentioned(job.parameters, kind)]
    return not any(map(hub.remote, specs))


# ---- verdicts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """`state`: fresh, kept (though code changed), restored (from stale), make, or waits: to be made if what it reads
    changes. `why`: a few words. `source`: whence it is restored, a folder with its slash."""

    job: Job
    state: str
    why: str = ""
    source: str = ""

    @property
    def open(self) -> bool:
        return self.state in ("make", "waits")


def outlook(run: Run, remake: Iterable[str] = ()) -> list[Verdict]:
    """Verdict on each job, upstream first; nothing is moved.

    `remake` holds numbers of notebooks whose outputs are to be made anew.
    """
    return judge_all(run, wished(run, remake))


def walk(run: Run, remake: Iterable[str] = ()) -> list[Verdict]:
    """The same, carried out: what is stale is moved away, and back what is valid again."""
    for job in run.jobs:
        finish_move(job)
    wishes = wished(run, remake)
    verdicts = judge_all(run, wishes)
    if wishes != records.wishes(run):
        write_json(ROOT / run.wishes, wishes)
    for verdict in verdicts:
        carry_out(verdict)
    return verdicts


def judge_all(run: Run, wishes: dict[str, str]) -> list[Verdict]:
    check_carried_over(run)
    verdicts: dict[Job, Verdict] = {}
    for job in run.jobs:
        anew = job.name in wishes and unfulfilled(job, parts(job), wishes)
        verdicts[job] = judge(job, [verdicts[up] for up in job.upstream], anew)
    return list(verdicts.values())


def wished(run: Run, remake: Iterable[str]) -> dict[str, str]:
    """Wishes that jobs be made anew: those of now, and those of a run that was stopped, until all of a notebook are
    fulfilled. A wish that is still open is not begun again."""
    unknown = set(remake) - {job.notebook.number for job in run.jobs}
    if unknown:
        raise UserError(f"run '{run.name}' does not run notebook {min(unknown)}: nothing to remake")
    known = records.wishes(run)
    mine = {job: parts(job) for job in run.jobs if job.name in known or job.notebook.number in remake}
    left = [job for job in mine if job.name in known and known[job.name] != (latest(job) or {}).get("wish")]
    going = {job.notebook.number for job in left}
    for job, content in mine.items():
        if job.notebook.number not in going:
            known.pop(job.name, None)
        if job.notebook.number in remake and not wish_of(job, content, known):
            known[job.name] = f"{own_key(content)}-{token_hex(4)}"
    return known


def unfulfilled(job: Job, content: Parts, wishes: dict[str, str]) -> bool:
    wish = wish_of(job, content, wishes)
    return bool(wish) and (latest(job) or {}).get("wish") != wish


def excused(job: Job, changed: Iterable[str]) -> bool:
    """Whether what has changed leaves a job as it is: code alone, where its outputs survive that."""
    return keeps(job) and all(name.startswith("code ") for name in changed)


def judge(job: Job, upstream: list[Verdict], remake: bool) -> Verdict:
    """One job's verdict, given those upstream; nothing is moved."""
    record = latest(job)
    waits = [verdict.job for verdict in upstream if verdict.open]
    if waits and not remake and record and undecided(job, record, parts(job)):
        return Verdict(job, "waits", f"follows {waits[0].notebook.name}")
    if remake or waits:
        return Verdict(job, "make", ASKED if remake else f"follows {waits[0].notebook.name}" if record else NEW)
    lying = {path: above.source + path for above in upstream if above.source for path in above.job.outputs}
    absent = [path for path in job.inputs if not (ROOT / lying.get(path, path)).is_file()]
    if absent:
        raise UserError(f"{job.notebook.name} needs {absent[0]}, which is not there")
    return compare(job, record, parts(job, lying))


def carry_out(verdict: Verdict) -> None:
    """Move what a verdict says is stale, and bring back what it says is valid again."""
    record, aside = ROOT / verdict.job.record, ROOT / verdict.job.aside
    if verdict.state == "waits" and not aside.exists():
        os.replace(record, aside)  # Snakemake would take it for done
    if verdict.state in ("fresh", "kept") and aside.exists():
        os.replace(aside, record)
    if verdict.state in ("make", "restored"):
        retire(verdict.job, latest(verdict.job), shards=verdict.why == ASKED)
    if verdict.source:
        restore(verdict.job, verdict.source)


def keeps(job: Job) -> bool:
    """Whether what a job left survives a change of code."""
    return job.notebook.heavy and job.run.values.get("on_code_change") == "keep"


def undecided(job: Job, record: dict, content: Parts) -> bool:
    """Whether nothing but inputs may have changed since a job left its record."""
    spared = ("input ", "code ") if keeps(job) else ("input ",)
    return whole(job, record) and all(name.startswith(spared) for name in differences(record, content))


def settle(job: Job) -> str:
    """Of a job that waited until its inputs were there: why nothing is to be done, or nothing where it is."""
    finish_move(job)  # where it was killed while it moved, and is tried again
    if not (ROOT / job.aside).exists():
        return ""
    verdict = judge(job, [], False)
    carry_out(verdict)
    return "" if verdict.open else "what it reads is as before" if verdict.state == "fresh" else verdict.why


def compare(job: Job, record: dict | None, content: Parts) -> Verdict:
    """The verdict on a job whose inputs are there: is what it left whole, and made from the same?"""
    if not record:
        why = NEW
    elif not whole(job, record):
        why = "its outputs are not as they were written"
    else:
        changed = differences(record, content)
        if not changed:
            return Verdict(job, "fresh")
        few = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        if excused(job, changed):
            return Verdict(job, "kept", few)
        why = f"changed: {few}"
    if source := restorable(job, key(content)):
        return Verdict(job, "restored", "made before from the same", source)
    return Verdict(job, "make", why)


# ---- moving ------------------------------------------------------------------------------------------------


def retire(job: Job, record: dict | None, shards: bool = False) -> None:
    """Move record and outputs to artifacts/<run>/stale/<key>/; and shards, if what is finished is to start anew: those
    of an unfinished job are gone on with."""
    paths = [*(record["outputs"] if record else with_manifests(job.outputs) + job.loose), job.record, job.aside]
    if shards and record:
        folder = ROOT / job.run.folder / "shards"
        for pattern in (f"{job.name}-*", f"{job.name}__*-*"):  # a notebook may do its work in several parts
            paths += [path.relative_to(ROOT).as_posix() for path in folder.glob(pattern)]
    paths = [path for path in paths if (ROOT / path).exists()]
    if not paths:
        return
    if job.notebook.exports:  # made anew from what comes in their place
        for name in ("results.pdf", "results.log", "report.html"):
            (ROOT / job.run.figures / name).unlink(missing_ok=True)
    name = record["key"] if record else f"unfinished-{job.name}"
    newest = max(set_aside(job, name), default=0)
    stale = f"{job.run.folder}/stale/{name}" + (f"-{newest + 1}" if newest else "")
    move(job, [(path, f"{stale}/{job.record if path == job.aside else path}") for path in paths])


def set_aside(job: Job, name: str) -> dict[int, Path]:
    """The folders in stale of one name (<key>, <key>-2, ...), by number: the newest has the largest."""
    folders = (ROOT / job.run.folder / "stale").glob(f"{name}*")
    found = ((re.fullmatch(r"(?:-([0-9]+))?", folder.name.removeprefix(name)), folder) for folder in folders)
    return {int(match[1] or 1): folder for match, folder in found if match}


def restorable(job: Job, wanted: str) -> str:
    """The folder in stale with the newest that was made under the very same key, and is still whole; empty if none."""
    for _, stale in sorted(set_aside(job, wanted).items(), reverse=True):
        record, below = read_record(stale / job.record, job), f"{stale.relative_to(ROOT).as_posix()}/"
        if record and record["key"] == wanted and whole(job, record, below):
            return below
    return ""


def restore(job: Job, source: str) -> None:
    """Bring back from a folder in stale what its record names, and nothing else that lies there."""
    record = read_record(ROOT / source / job.record, job)
    move(job, [(source + path, path) for path in (*record["outputs"], job.record)])
    prune(ROOT / source)
