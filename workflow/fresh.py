"""Which outputs of a run are still valid.

An output is fresh if the key of its job (keys.py) is unchanged, so a clone, a copy or `touch` reruns nothing. A job
downstream of a job that runs decides afterwards: if its inputs are unchanged, it keeps its outputs. Stale outputs are
moved, never deleted, to artifacts/<run>/stale/<key>/ (the next ones with that key to <key>-2). If a key returns, its
intact outputs are restored.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from lib.paths import ROOT, UserError
from workflow.files import finish_move, move_files, remove_empty_folders
from workflow.keys import key_parts, tolerates_code_change
from workflow.pipeline import Job, Run
from workflow.records import changed_parts, is_intact, read_record, record_key, with_manifests

NEW, ASKED = "not made yet", "asked for"


@dataclass(frozen=True)
class Verdict:
    """`state`: fresh, kept (despite changed code), restored (from stale), make (will run), or waits (will run if its
    inputs change). `why`: the reason. `source`: the folder to restore from, with a final slash."""

    job: Job
    state: str
    why: str = ""
    source: str = ""

    @property
    def open(self) -> bool:
        return self.state in ("make", "waits")


def finish_moves(run: Run) -> None:
    """Finish the moves that a kill interrupted."""
    for one in (run, *run.jobs):
        finish_move(one)


def judge_all(run: Run, remake: Iterable[str] = ()) -> list[Verdict]:
    """Return the verdict on each job, upstream first; no file moves. `remake`: numbers of notebooks to rerun."""
    anew, verdicts = find_forced_jobs(run, set(remake)), {}
    for job in run.jobs:
        verdicts[job] = judge(job, [verdicts[up] for up in job.upstream], job in anew)
    return list(verdicts.values())


def move_all_outputs(run: Run, verdicts: list[Verdict]) -> None:
    """Move the outputs of forced jobs away and restore valid ones. Each job does the rest."""
    set_aside_forced(run, [verdict.job for verdict in verdicts if verdict.why == ASKED])
    for verdict in verdicts:
        if verdict.source:
            move_outputs(verdict)


def decide_at_start(job: Job) -> str:
    """Return why a job need not run, now that its inputs exist; else move its old outputs away and return ''."""
    verdict = judge(job)
    move_outputs(verdict)
    return "" if verdict.open else "its inputs are unchanged" if verdict.state == "fresh" else verdict.why


def move_outputs(verdict: Verdict) -> None:
    if verdict.open or verdict.source:
        archive_outputs(verdict.job)
    if verdict.source:
        restore_outputs(verdict.job, verdict.source)


def judge(job: Job, upstream: Iterable[Verdict] = (), anew: bool = False) -> Verdict:
    """Return the verdict on one job, given those upstream. It is fresh if its outputs are intact and its key is
    unchanged. No file moves."""
    if anew:
        return Verdict(job, "make", ASKED)
    lying = {path: above.source + path for above in upstream if above.source for path in above.job.outputs}
    waits = [above.job.notebook.name for above in upstream if above.open]
    absent = [path for path in job.inputs if not (ROOT / lying.get(path, path)).is_file()]
    if absent and not waits:
        raise UserError(f"{job.notebook.name} needs {absent[0]}, which does not exist")
    record, content = read_record(ROOT / job.record, job), key_parts(job, lying)
    changed = changed_parts(record, content) if record else []
    changed = [name for name in changed if not (waits and name.startswith("input "))]
    few = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    if not record:
        why = NEW
    elif not is_intact(record):
        why = "its outputs were edited or damaged"
    elif changed and not (tolerates_code_change(job) and all(name.startswith("code ") for name in changed)):
        why = f"changed: {few}"
    elif waits:
        return Verdict(job, "waits", f"follows {waits[0]}")
    else:
        return Verdict(job, "kept" if changed else "fresh", few)
    if not waits and (source := find_restorable(job, record_key(content))):
        return Verdict(job, "restored", "from an earlier run with the same inputs", source)
    return Verdict(job, "make", why)


# ---- forced reruns -------------------------------------------------------------------------------------------


def find_forced_jobs(run: Run, numbers: set[str]) -> set[Job]:
    """Return the jobs of these notebooks, except those whose forced rerun was stopped and can resume."""
    if unknown := numbers - {job.notebook.number for job in run.jobs}:
        raise UserError(f"run '{run.name}' does not run notebook {min(unknown)}: nothing to rerun")
    last = ROOT / run.forced / str(count_forced_reruns(run))
    waiting = [job for job in run.jobs if (last / job.record).exists() and not read_record(ROOT / job.record, job)]
    begun = {job.notebook.number for job in waiting}
    return {job for job in run.jobs if job.notebook.number in numbers - begun}


def count_forced_reruns(run: Run) -> int:
    """Return the number of forced reruns so far; the folder of that number has the outputs that it replaced."""
    return max((int(path.name) for path in (ROOT / run.forced).glob("[0-9]*")), default=0)


def set_aside_forced(run: Run, jobs: list[Job]) -> None:
    """Move the outputs and shards of jobs, and their earlier outputs with the same key, away in one step, to a folder
    that is never restored from."""
    paths = []
    for job in jobs:
        stale = (ROOT / run.folder / "stale").glob(f"{record_key(key_parts(job))}*")
        paths += [folder.relative_to(ROOT).as_posix() for folder in stale]
        if record := read_record(ROOT / job.record, job):
            paths += files_of_job(job, record)
            for pattern in (f"{job.name}-*", f"{job.name}__*-*"):  # a notebook may have several row caches
                shards = (ROOT / run.folder / "shards").glob(pattern)
                paths += [path.relative_to(ROOT).as_posix() for path in shards]
    if paths:
        place = f"{run.forced}/{count_forced_reruns(run) + 1}"
        move_files(run, [(path, f"{place}/{path}") for path in paths])


# ---- moving ------------------------------------------------------------------------------------------------


def files_of_job(job: Job, record: dict | None) -> list[str]:
    """Return the existing record and outputs of a job."""
    paths = [*(record["outputs"] if record else with_manifests(job.outputs) + job.loose), job.record]
    return [path for path in paths if (ROOT / path).exists()]


def archive_outputs(job: Job) -> None:
    """Move record and outputs to artifacts/<run>/stale/<key>/. Shards remain, so no row is made twice."""
    record = read_record(ROOT / job.record, job)
    for name in ("results.pdf", "results.log", "report.html") if job.notebook.exports else ():
        (ROOT / job.run.figures / name).unlink(missing_ok=True)  # derived from these outputs
    if paths := files_of_job(job, record):
        first = f"{job.run.folder}/stale/{record['key'] if record else f'unfinished-{job.name}'}"
        names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
        stale = next(name for name in names if not (ROOT / name).exists())
        move_files(job, [(path, f"{stale}/{path}") for path in paths])


def find_restorable(job: Job, wanted: str) -> str:
    """Return an intact folder in stale with the same key; empty if there is none."""
    for stale in sorted((ROOT / job.run.folder / "stale").glob(f"{wanted}*"), reverse=True):
        record, below = read_record(stale / job.record, job), f"{stale.relative_to(ROOT).as_posix()}/"
        if record and record["key"] == wanted and is_intact(record, below):
            return below
    return ""


def restore_outputs(job: Job, source: str) -> None:
    """Restore from a folder in stale the files that its record names, and no others."""
    record = read_record(ROOT / source / job.record, job)
    move_files(job, [(source + path, path) for path in (*record["outputs"], job.record)])
    remove_empty_folders(ROOT / source)
