"""Which outputs of a run are valid, and where the others are kept.

Outputs are fresh if the key of their job (keys.py) is unchanged, so a clone, a copy or `touch` reruns nothing. A job
downstream of a job that runs is judged again when its turn comes: if its inputs are unchanged, it keeps its outputs.

What a job replaces is linked into artifacts/<run>/stale/<key>-<id of the result>/ before it is removed. If the key
returns, it is linked back and removed there. The record is the last file to be linked and the first to be removed, so a
kill at any time leaves a result whole in one place at least.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lib.paths import ROOT, UserError
from workflow.fingerprint import read_json, write_json
from workflow.keys import (
    changed_parts,
    is_intact,
    key_parts,
    read_record,
    record_key,
    tolerates_code_change,
    with_manifests,
)
from workflow.pipeline import Job, Run


@dataclass(frozen=True)
class Verdict:
    """`state`: fresh, kept (despite changed code) and restored (from stale) are valid; new, forced, changed and damaged
    are not; waits: it depends on what jobs upstream write. `why`: what changed, or which notebook is waited for.
    `source`: the folder to restore from."""

    job: Job
    state: str
    why: str = ""
    source: Path | None = None

    @property
    def needs_run(self) -> bool:
        return self.state not in ("fresh", "kept", "restored")


def judge_all(run: Run, rejected: set[str]) -> list[Verdict]:
    """Return the verdict on each job, upstream first. No file changes."""
    verdicts: dict[Job, Verdict] = {}
    for job in run.jobs:
        verdicts[job] = judge(job, rejected, [verdicts[above] for above in job.upstream])
    return list(verdicts.values())


def judge(job: Job, rejected: set[str], upstream: Iterable[Verdict] = ()) -> Verdict:
    """Return the verdict on one job, given those upstream, of which some may be yet to run. No file changes."""
    current_paths = {path: str(one.source / path) for one in upstream if one.source for path in one.job.outputs}
    waits_for = [one.job.notebook.name for one in upstream if one.needs_run]
    absent = [path for path in job.inputs if not (ROOT / current_paths.get(path, path)).is_file()]
    if absent and not waits_for:
        raise UserError(f"{job.notebook.name} needs {absent[0]}, which does not exist")
    record, content = read_record(ROOT / job.record, job), key_parts(job, current_paths)
    changed = changed_parts(record, content) if record else []
    if waits_for:  # nothing is known yet of the inputs
        changed = [name for name in changed if not name.startswith("input ")]
    state = state_of(job, record, changed, rejected)
    if waits_for and state in ("fresh", "kept"):
        return Verdict(job, "waits", waits_for[0])
    if state not in ("fresh", "kept") and not waits_for:
        for folder, earlier in stale_results(job, record_key(content)):
            if earlier["id"] not in rejected and is_intact(earlier, folder):
                return Verdict(job, "restored", source=folder)
    return Verdict(job, state, ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else ""))


def state_of(job: Job, record: dict | None, changed: list[str], rejected: set[str]) -> str:
    """Return the state of a job's outputs by its record and the parts of its key that changed."""
    if not record:
        return "new"
    if record["id"] in rejected:
        return "forced"
    if not is_intact(record):
        return "damaged"
    if changed and tolerates_code_change(job) and all(name.startswith("code ") for name in changed):
        return "kept"
    return "changed" if changed else "fresh"


def decide_at_start(job: Job) -> str:
    """Return why a job need not run, now that its inputs exist. Else set its old outputs aside and return ''."""
    verdict = judge(job, rejected_results(job.run))
    if verdict.needs_run:
        set_aside(job)
        return ""
    if verdict.source:
        restore(job, verdict.source)
        return "from an earlier run with the same inputs"
    return verdict.why or "its inputs are unchanged"


def settle(run: Run, verdicts: list[Verdict], rejected: set[str]) -> None:
    """Do what can be done before the first job: restore outputs, and note which were rejected."""
    if rejected != rejected_results(run):
        write_json(ROOT / run.folder / "forced.json", sorted(rejected))
    for verdict in verdicts:
        if verdict.source:
            restore(verdict.job, verdict.source)
        elif verdict.state == "forced":
            remove_shards(verdict.job)
        elif not verdict.needs_run:
            finish_restoring(verdict.job)


# ---- forced reruns ---------------------------------------------------------------------------------------------


def rejected_results(run: Run) -> set[str]:
    """Return the ids of the records of all results that `--force` has rejected. They are never valid again."""
    found = read_json(ROOT / run.folder / "forced.json")
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def reject(run: Run, numbers: set[str]) -> set[str]:
    """Return the rejected results, with those of the notebooks of these numbers. No file changes.

    A notebook whose forced rerun was stopped is left out: the same command goes on with it.
    """
    if unknown := numbers - {job.notebook.number for job in run.jobs}:
        raise UserError(f"run '{run.name}' does not run notebook {min(unknown)}: nothing to rerun")
    rejected, begun, more = rejected_results(run), set(), {}
    for job in (job for job in run.jobs if job.notebook.number in numbers):
        current = [record for record in [read_record(ROOT / job.record, job)] if record]
        earlier = [record for _, record in stale_results(job, record_key(key_parts(job)))]
        if any(record["id"] in rejected for record in current or earlier):
            begun.add(job.notebook.number)
        more[job] = {record["id"] for record in current + earlier}
    return rejected.union(*(ids for job, ids in more.items() if job.notebook.number not in begun))


def remove_shards(job: Job) -> None:
    """Remove the rows that a job saved for the result that was rejected."""
    for pattern in (f"{job.name}-*", f"{job.name}__*-*"):  # a notebook may have several row caches
        for folder in (ROOT / job.run.folder / "shards").glob(pattern):
            shutil.rmtree(folder)


# ---- stale/ ----------------------------------------------------------------------------------------------------


def stale_results(job: Job, key: str) -> Iterator[tuple[Path, dict]]:
    """Yield the folders in stale with a result of a job and key, and its record."""
    for folder in sorted((ROOT / job.run.folder / "stale").glob(f"{key}-*")):
        if (record := read_record(folder / job.record, job)) and record["key"] == key:
            yield folder, record


def stale_folder(job: Job, record: dict) -> Path:
    return ROOT / job.run.folder / "stale" / f"{record['key']}-{record['id']}"


def set_aside(job: Job) -> None:
    """Link a job's files into stale, then remove them. Shards remain, so no row is made twice."""
    record = read_record(ROOT / job.record, job)
    recorded = [*record["outputs"], job.record] if record else []
    for path in recorded:
        if (ROOT / path).exists():
            link_file(ROOT / path, stale_folder(job, record) / path)
    unfinished = [*with_manifests(job.outputs), *job.extra_outputs, job.executed]
    if job.notebook.exports:
        unfinished += [f"{job.run.figures}/results.{kind}" for kind in ("pdf", "log")]
    for path in dict.fromkeys([job.record, *recorded, *unfinished]):
        (ROOT / path).unlink(missing_ok=True)


def restore(job: Job, folder: Path) -> None:
    """Link the files that a record in stale names back, and no others."""
    record = read_record(folder / job.record, job)
    set_aside(job)
    for path in (*record["outputs"], job.record):
        link_file(folder / path, ROOT / path)
    finish_restoring(job)


def finish_restoring(job: Job) -> None:
    """Remove what stale has of a job's valid outputs: an edit in place would change both."""
    shutil.rmtree(stale_folder(job, read_record(ROOT / job.record, job)), ignore_errors=True)


def link_file(source: Path, target: Path) -> None:
    """Give a file another name; on a file system without links, copy it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
