"""Which outputs of a run are valid, and where the others are kept.

Outputs are fresh if the key of their job (job_key.py) is unchanged, so a clone, a copy or `touch`
reruns nothing. A job downstream of a job that runs is assessed again when its turn comes: if its
inputs are unchanged, it keeps its outputs.

What a job replaces is linked into artifacts/<run>/stale/<key>/ before it is removed (edited files:
<key>-edited-<digest>/). If the key returns, it is linked back and removed there. The record is the
last file to be linked and the first to be removed, so a kill at any time leaves a result whole in
one place at least. `--force` changes the key, so that what it replaced never returns.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lib.errors import UserError
from lib.files import digest
from lib.paths import ROOT
from workflow.engine.fingerprint import checksum, read_json, write_json
from workflow.engine.job_key import (
    Parts,
    Record,
    is_intact,
    key_parts,
    read_record,
    tolerates_changes,
)
from workflow.engine.jobs_of_run import Job, Run

ABSENT = object()


class Freshness(NamedTuple):
    """What `assess` says of a job.

    `state`: fresh, kept (despite changed code) and restored (from stale) are valid; new, forced,
    changed and damaged are not; waits: it depends on what jobs upstream write. `why`: what changed,
    or which notebook is waited for. `source`: the folder to restore from.
    """

    job: Job
    state: str
    why: str = ""
    source: Path | None = None

    @property
    def needs_run(self) -> bool:
        return self.state not in ("fresh", "kept", "restored")


def assess_all(run: Run) -> list[Freshness]:
    """Return the freshness of each job, upstream first. No file changes."""
    assessments: dict[Job, Freshness] = {}
    for job in run.jobs:
        assessments[job] = assess(job, [assessments[above] for above in job.upstream])
    return list(assessments.values())


def assess(job: Job, upstream: Iterable[Freshness] = ()) -> Freshness:
    """Return the freshness of one job, given those upstream, of which some may be yet to run. No
    file changes."""
    upstream = list(upstream)
    current_paths = paths_in_stale(upstream)
    waits_for = [above.job.notebook.name for above in upstream if above.needs_run]
    if not waits_for:
        check_inputs(job, current_paths)
    content = key_parts(job, current_paths)
    record = read_record(ROOT / job.record, job)
    changed = list_changes(record, content, with_inputs=not waits_for)
    why = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    valid = record and is_intact(record) and (not changed or tolerates_changes(job, changed))
    earlier = ROOT / job.run.folder / "stale" / digest(content)

    if valid and waits_for:
        return Freshness(job, "waits", waits_for[0])
    if valid and changed:
        return Freshness(job, "kept", why)
    if valid:
        return Freshness(job, "fresh")
    if not waits_for and holds_result(earlier, job):
        return Freshness(job, "restored", source=earlier)
    if "forced" in changed:
        return Freshness(job, "forced")
    if changed:
        return Freshness(job, "changed", why)
    if record:
        return Freshness(job, "damaged")
    return Freshness(job, "new")


def check_inputs(job: Job, current_paths: Mapping[str, str]) -> None:
    """Raise UserError for an input that does not exist."""
    for path in job.inputs:
        if not (ROOT / current_paths.get(path, path)).exists():
            raise UserError(f"{job.notebook.name} needs {path}, which does not exist")


def paths_in_stale(upstream: Iterable[Freshness]) -> dict[str, str]:
    """Return where the outputs of these jobs are that are yet to be restored."""
    paths = {}
    for above in upstream:
        if above.source:
            for path in above.job.outputs:
                paths[path] = str(above.source / path)
    return paths


def list_changes(record: Record | None, content: Parts, with_inputs: bool) -> list[str]:
    """Return the names of the parts of a key that differ from those of the record, sorted. None is
    known without a record, nor of inputs that are yet to be made."""
    if record is None:
        return []
    changed = []
    for name in sorted(record.parts | content):
        is_known = with_inputs or not name.startswith("input ")
        if is_known and record.parts.get(name, ABSENT) != content.get(name, ABSENT):
            changed.append(name)
    return changed


def holds_result(folder: Path, job: Job) -> bool:
    """Whether a folder of stale holds all that a job has made."""
    record = read_record(folder / job.record, job)
    return record is not None and is_intact(record, folder)


def decide_at_start(job: Job) -> str:
    """Return why a job need not run, now that its inputs exist. Else set its old outputs aside and
    return ''."""
    assessment = assess(job)
    if assessment.needs_run:
        set_aside(job)
        return ""
    if assessment.source:
        restore(job, assessment.source)
        return "from an earlier run with the same inputs"
    return assessment.why or "its inputs are unchanged"


def force(run: Run, numbers: Iterable[str]) -> Run:
    """Return the run with one more forced rerun of the notebooks of these numbers. No file changes.

    A notebook whose forced rerun was stopped is left out: the same command goes on with it.
    """
    forced = read_json(ROOT / run.folder / "forced.json")
    if not isinstance(forced, dict):
        forced = {}
    for number in set(numbers):
        jobs = [job for job in run.jobs if job.notebook.number == number]
        if not jobs:
            raise UserError(f"run '{run.name}' does not run notebook {number}: nothing to rerun")
        if not any(was_stopped(job, forced) for job in jobs):
            for job in jobs:
                forced[job.name] = forced.get(job.name, 0) + 1
    return replace(run, forced=forced)


def was_stopped(job: Job, forced: Mapping[str, int]) -> bool:
    """Whether a forced rerun of a job has not come to its end."""
    if job.name not in forced:
        return False
    record = read_record(ROOT / job.record, job)
    return record is None or record.parts.get("forced") != forced[job.name]


def settle(run: Run, assessments: list[Freshness]) -> None:
    """Do what can be done before the first job: note what is forced, and restore outputs."""
    if run.forced:
        write_json(ROOT / run.folder / "forced.json", run.forced)
    for assessment in assessments:
        if assessment.source:
            restore(assessment.job, assessment.source)


# ---- stale/


def set_aside(job: Job) -> None:
    """Link a job's files into stale, then remove them. Shards remain, so no row is made twice."""
    record = read_record(ROOT / job.record, job)
    unfinished = [*job.outputs, *job.extra_outputs, job.executed]
    files = [*(record.outputs if record else unfinished), job.record]
    if (ROOT / job.record).exists():
        paths = [path for path in files if (ROOT / path).exists()]
        name = record.key if record else "unread"
        if not record or not is_intact(record, ROOT):
            name += f"-edited-{digest([checksum(path) for path in paths])[:8]}"
        link_files(paths, ROOT, ROOT / job.run.folder / "stale" / name)
    if job.notebook.exports:
        unfinished += [f"{job.run.figures}/results.pdf", f"{job.run.figures}/results.log"]
    for path in [job.record, *files, *unfinished]:
        (ROOT / path).unlink(missing_ok=True)


def restore(job: Job, source: Path) -> None:
    """Link the files that a record in stale names back, and no others. What stays there would
    change with an edit in place."""
    record = read_record(source / job.record, job)
    if record is None:
        raise UserError(f"what {job.title} had made is gone from stale/: start the run again")
    set_aside(job)
    link_files([*record.outputs, job.record], source, ROOT)
    shutil.rmtree(source, ignore_errors=True)


def link_files(paths: Iterable[str], source: Path, target: Path) -> None:
    """Give files of one folder the same names in another; on a file system without links, copy
    them."""
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).unlink(missing_ok=True)
        try:
            os.link(source / path, target / path)
        except OSError:
            shutil.copy2(source / path, target / path)
