"""Freshness by content: nothing is remade for a touch, a copy or a comment, exactly what hangs on a
change is, and no finished result is lost, whatever happens."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_project import PAIR, write

from lib import params
from lib.errors import UserError
from lib.files import digest
from workflow.engine import fingerprint, freshness, job_key
from workflow.engine.fingerprint import import_closure
from workflow.engine.jobs_of_run import Job, Run

VALUES = {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "bins": 10, "title": ""}


def run_of(name="demo", **values) -> Run:
    return Run(name, {**VALUES, **values}, cores=2)


def walk(run: Run, remake=()) -> list[freshness.Freshness]:
    """The assessments of a start of the run, after it has moved what they say."""
    run = freshness.force(run, remake)
    assessments = freshness.assess_all(run)
    freshness.settle(run, assessments)
    return assessments


def make(assessments: list[freshness.Freshness]) -> Iterator[Job]:
    """Stand in for the execution of what is to be made, and tell which jobs ran."""
    for assessment in assessments:
        job = assessment.job
        if not assessment.needs_run or freshness.decide_at_start(job):
            continue
        parts = job_key.key_parts(job)
        for path in files_of(job):
            fingerprint.write_json(freshness.ROOT / path, content_of(job))
        outputs = [path for path in files_of(job) if not path.endswith(".ipynb")]
        job_key.write_record(job, parts, outputs)
        yield job


def files_of(job: Job) -> list[str]:
    files = list(job.outputs)
    for name in job.notebook.folders:
        files.append(f"{job.run.folder}/{name}/a.json")
    if job.notebook.exports:
        files.append(f"{job.run.figures}/tab_x.tex")
    return [*files, job.executed]


def content_of(job: Job) -> str:
    """What each file of a job holds."""
    run = job.run
    return f"{job.name} of {run.name}, seed {run.values['seed']}, {run.forced}"


def complete(run: Run) -> None:
    list(make(walk(run)))


def states(run: Run, remake=()) -> dict[str, str]:
    return {assessment.job.notebook.number: assessment.state for assessment in walk(run, remake)}


def numbers(run: Run) -> str:
    """Numbers of the notebooks that are to be made, some only if what they read changes."""
    return " ".join(
        assessment.job.notebook.number for assessment in walk(run) if assessment.needs_run
    )


def rows(job: Job) -> str:
    return job_key.key_of_rows(job, job_key.key_parts(job))


@pytest.fixture
def completed(inside):
    """The small project after a whole run."""
    complete(run_of())
    assert numbers(run_of()) == ""
    return inside


# file, its text before and after, and the notebooks that are made again
CHANGES = [
    ("lib/alpha.py", "# a comment", "# another comment\n\n# and one more", ""),
    ("lib/alpha.py", "seed):\n", 'seed):\n    """What it does."""\n', ""),
    ("lib/alpha.py", "str(seed)", "str(seed + 1)", "01 02 08 report"),
    # imported by alpha only
    ("lib/beta.py", '" ".join', '"-".join', "01 02 08 report"),
    # the template of a module
    ("lib/gamma.html.jinja", "<p>", "<b>", "02 08 report"),
    # imported by a script that a module names
    ("lib/delta.py", "", "more = 1", "02 08 report"),
    # 01 shows by it, and writes nothing of it
    ("lib/paper/show.py", "join", "upper", "02 08 report"),
    ("notebooks/08_tables.ipynb", "UERG", "UERGRg", "08 report"),
    # what exports imports it, and no notebook
    ("lib/paper/booktabs.py", "def escape", "def escaped", "08 report"),
    # the report alone is made anew
    ("workflow/output/report.html.jinja", "<main>", "<main lang>", "report"),
    ("artifacts/paper.yaml", "twice", "often", "report"),
    ("weights/tiny/model.safetensors", "weights", "weightz", "01 02 08 report"),
    ("questions.jsonl", "{}", "{} ", "01 02 08 report"),
    ("params/models/tiny.yaml", "source:", "temperature: 0.5\nsource:", "01 02 08 report"),
    # 01 prints no label
    ("params/models/tiny.yaml", "label: Tiny", "label: Tiniest", "02 08 report"),
]


@pytest.mark.parametrize("path, old, new, remade", CHANGES)
def test_a_change_remakes_what_hangs_on_it(completed, path, old, new, remade):
    completed.replace(path, old, new)
    assert numbers(run_of()) == remade
    complete(run_of())
    assert numbers(run_of()) == ""


def test_published_questions_and_a_gguf_file_are_known_by_their_sums(inside, monkeypatch):
    """Whether they come from the hub, which may name a revision, or from a folder."""
    questions = "params/datasets/easy.yaml"
    weights = "params/models/tiny.yaml"
    checksum = "a" * 64
    other_checksum = "b" * 64
    file = f"{{path: easy/all.jsonl, sha256: {checksum}}}"
    published = f"source: someone/easy\nfiles: {{all: {file}}}"
    inside.replace(questions, "source: {all: questions.jsonl}", published)
    model = f"label: T\nsource: someone/t\nrevision: abc\ngguf: t.gguf\nsha256: {checksum}\n"
    write(inside.root / weights, model)
    complete(run_of())
    params.REVISIONS.update({"someone/easy": "abc"})  # as a run does that asks the hub
    assert params.load_dataset_config("easy").revision == "abc" and numbers(run_of()) == ""
    params.REVISIONS.clear()
    monkeypatch.setenv("DATA_FOLDER", "/somewhere")
    inside.replace(weights, "source: someone/t\nrevision: abc", "source: weights/tiny")
    assert numbers(run_of()) == ""
    changed = (
        (questions, checksum, other_checksum),
        (questions, "files:", "revision: x\nfiles:"),
        (weights, checksum, other_checksum),
    )
    for path, old, new in changed:
        inside.replace(path, old, new)
        assert numbers(run_of()) == "01 02 08 report"
        complete(run_of())


# ---- whatever happens


class Killed(BaseException):
    pass


@contextmanager
def killed(monkeypatch, at: int):
    """The step on the disk of this number and all that follow are not done; what is being written
    is half there."""
    done, plain = 0, Path.write_text

    def step(real):
        def do(*words, **more):
            nonlocal done
            done += 1
            if done == at and real is plain:
                real(words[0], words[1][: len(words[1]) // 2])
            if done >= at:
                raise Killed
            return real(*words, **more)

        return do

    with suppress(Killed), monkeypatch.context() as patch:
        # what mkdir does, the next start does not see
        for name in ("link", "replace", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, step(getattr(os, name)))
        patch.setattr(Path, "write_text", step(plain))
        yield


JOBS, NEVER = 4, 10**9
DAMAGED = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path: path.write_text(path.read_text().replace("demo", "mine")),
    "another job's": lambda path: path.write_text(
        (freshness.ROOT / run_of().jobs[1].record).read_text()
    ),
    "deleted": lambda path: path.unlink(),
    "endless": lambda path: path.write_text("[" * 5000),
    "of no parts": lambda path: path.write_text('{"key": 1, "parts": [], "outputs": null}'),
}
SEEDS = st.integers(0, 2)
STEPS = st.one_of(st.just(NEVER), st.integers(1, 12), st.integers(1, 80))
EVENTS = st.one_of(
    st.tuples(SEEDS, st.integers(0, JOBS), STEPS, st.sampled_from(["", "", "01"])),  # of Life.start
    st.tuples(st.sampled_from(sorted(DAMAGED)), SEEDS, st.integers(0, 40)),  # of Life.damage
)


class Life:
    """A run that is started again and again, beside what must lie together somewhere: the files of
    each result that was finished and has not been damaged since, by their text; and those that were
    damaged, as they were then."""

    def __init__(self, root: Path, monkeypatch):
        self.root, self.monkeypatch = root, monkeypatch
        self.whole: dict[str, dict[str, str]] = {}
        self.damaged: list[dict[str, str]] = []

    def look(self, *paths: str, folder: str | Path = "") -> dict[str, str]:
        """The texts of those of these files that are there, or in a folder of stale."""
        places = {path: self.root / folder / path for path in paths}
        return {path: place.read_text() for path, place in places.items() if place.exists()}

    def start(self, seed: int, jobs: int = JOBS, at: int = NEVER, remake: str = "") -> list[Job]:
        """A start that makes so many jobs, or is killed at a step: of what was there it makes
        nothing again."""
        ran, assessments = [], []
        with killed(self.monkeypatch, at):
            assessments = walk(run_of(seed=seed), remake.split())
            for job in make(assessments[:jobs]):
                ran.append(job)
        assert self.whole.keys().isdisjoint(map(content_of, ran)), "made twice"
        if jobs == JOBS and at == NEVER:
            ran = [assessment.job for assessment in assessments]
            for job in ran:
                for path in files_of(job):
                    assert self.look(path) == {path: f'"{content_of(job)}"\n'}
        for job in ran:
            self.whole[content_of(job)] = self.look(job.record, *files_of(job))
        folders = ["", *self.root.glob("artifacts/demo/stale/*")]
        for files in [*self.whole.values(), *self.damaged]:
            assert any(self.look(*files, folder=folder) == files for folder in folders), "lost"
        return ran

    def damage(self, kind: str, seed: int, number: int) -> None:
        """After a finished run one of its files; an executed notebook may be saved by its reader,
        but not be gone."""
        files = []
        for job in self.start(seed):
            for path in (job.record, *files_of(job)):
                files.append((job, path))
        job, path = files[number % len(files)]
        if kind == "deleted" or not path.endswith(".ipynb"):
            DAMAGED[kind](self.root / path)
            del self.whole[content_of(job)]
            if kind != "deleted":
                self.damaged.append(self.look(path, job.record, *job.outputs))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=16)
@given(events=st.lists(EVENTS, min_size=3, max_size=9))
@example(events=[(0,), (1,), (1, 0, NEVER, "01")])
@example(events=[(0,), (1,), (0, JOBS, 9), (0, JOBS, 9), (1, JOBS, 30)])
@example(
    events=[("truncated", 0, 1), ("endless", 0, 1), ("of no parts", 0, 0), ("another job's", 0, 0)]
)
def test_whatever_happens_a_start_makes_what_is_missing_and_nothing_twice(
    inside, monkeypatch, events
):
    """Runs that are stopped or killed at any step on the disk, other parameters and back again,
    forced and damaged results: nothing is lost, those that are whole come back, and in the end each
    file is what its parameters say."""
    for name in ("artifacts/demo", "figures/demo"):
        shutil.rmtree(inside.root / name, ignore_errors=True)
    life = Life(inside.root, monkeypatch)
    for event in [*events, (0,), (1,), (2,)]:
        happen = life.damage if isinstance(event[0], str) else life.start
        happen(*event)


def test_a_record_that_may_not_be_read_is_not_taken_for_none(completed, monkeypatch):
    """What it records would be made again, which may take days."""
    denied = PermissionError(13, "Permission denied", "x.json")
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=denied))
    job = run_of().jobs[0]
    with pytest.raises(PermissionError):
        job_key.read_record(completed.root / job.record, job)


def test_a_record_of_files_that_are_not_the_run_s_counts_as_absent(completed):
    job = run_of().jobs[1]
    record = json.loads(completed.read(job.record))
    for foreign in ("artifacts/other/x", "lib/paths.py", "artifacts/demo/../../lib/paths.py"):
        forged = {"job": job.record, "outputs": record["outputs"] | {foreign: "0"}}
        signed = forged | {"digest": digest(forged)}
        write(completed.root / job.record, json.dumps(signed))
        assert job_key.read_record(completed.root / job.record, job) is None


def test_what_was_edited_where_it_lay_does_not_come_back(completed):
    """Nor a notebook that its reader saved: moved aside, that is no longer what the run
    executed."""
    record = json.loads(completed.read(run_of().jobs[0].record))
    stale = completed.root / f"artifacts/demo/stale/{record['key']}"
    (completed.root / "artifacts/demo/notebooks/02_single_pass.ipynb").write_text("{}")
    assert numbers(run_of()) == ""
    complete(run_of(seed=1))
    assert states(run_of()) == {"01": "restored", "02": "changed", "08": "waits", "report": "waits"}
    assert not stale.exists(), "nothing is left where it lay"
    (saved,) = completed.root.glob(
        "artifacts/demo/stale/*/artifacts/demo/notebooks/02_single_pass.ipynb"
    )
    assert saved.read_text() == "{}"
    freshness.decide_at_start(run_of(seed=1).jobs[0])
    (stale / f"artifacts/demo/generations/{PAIR}.parquet").write_text("damaged")
    assert numbers(run_of()) == "01 02 08 report"


def test_seconds_and_memory_say_nothing_that_matters(inside):
    def checksum(rows="rows", **facts) -> str:
        write(inside.root / "artifacts/x.parquet", rows)
        write(inside.root / "artifacts/x.json", json.dumps(facts))
        return fingerprint.semantic_checksum("artifacts/x.parquet")

    first = checksum(row_seconds=1.0, peak_memory_mb=5.0, code="0123")
    assert first == checksum(row_seconds=2.0, peak_memory_mb=6.0, seconds=5) == checksum()
    assert len({first, checksum("others"), checksum(device="another")}) == 3


def test_a_remake_makes_anew_without_the_saved_rows_and_goes_on_where_it_was_stopped(completed):
    """By a plain start as by the same command: what it has made is kept, and so are the rows of
    what it has not."""
    run, remake = run_of(models=["tiny", "other"]), ["01"]
    complete(run)
    before = rows(run.jobs[1])
    first, second, *others = walk(run, remake)
    assert (first.state, second.state) == ("forced", "forced")
    assert {assessment.state for assessment in others} == {"waits"}
    assert rows(second.job) != before
    list(make([first]))
    freshness.decide_at_start(second.job)
    for words in ([], remake, []):
        finished, again, *others = walk(run, words)
        assert (finished.state, again.state) == ("fresh", "new")
        assert {assessment.state for assessment in others} == {"waits"}
        assert rows(again.job) == rows(second.job)
    complete(run)
    assert numbers(run) == ""
    assert states(run, remake)["01"] == "forced", "and now it is asked for once more"


def test_code_changes_keep(completed):
    """Finished outputs of heavy notebooks, and the shards of those that have not finished."""
    keep = run_of(on_code_change="keep")
    before = rows(run_of().jobs[0])
    before_keeping = rows(keep.jobs[0])
    completed.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    assert rows(run_of().jobs[0]) != before
    assert rows(keep.jobs[0]) == before_keeping
    assert states(keep) == {"01": "kept", "02": "fresh", "08": "fresh", "report": "fresh"}
    assert walk(keep)[0].why == "code lib/alpha.py"
    completed.replace("lib/gamma.py", "len(text)", "len(text) + 1")
    assert numbers(keep) == "02 08 report", "of heavy notebooks only"


def test_replay_reads_shipped_signals_and_runs_no_model(inside):
    shipped = inside.root / f"artifacts/shipped/demo/generations/{PAIR}.parquet"
    run = run_of("replay")
    for text in ("signals", "others"):
        write(shipped, text)
        assert numbers(run) == "02 08 report"
        complete(run)
        assert numbers(run) == "" and shipped.read_text() == text
    with pytest.raises(UserError, match="does not run notebook 01"):
        walk(run, ["01"])


@pytest.mark.parametrize("line", ["a, b = 1, 2", "a = 1 + n", "import os", "binz = 10"])
def test_parameters_are_literals_that_a_profile_sets(inside, line):
    inside.replace("notebooks/02_single_pass.ipynb", "bins = 10", line)
    with pytest.raises(UserError, match="is not of the form name = literal|did you mean 'bins'"):
        run_of().jobs[1].parameters  # noqa: B018


def test_big_files_are_hashed_once(inside, monkeypatch):
    monkeypatch.setattr(fingerprint, "BIG", 1)
    path = inside.root / "weights/tiny/model.safetensors"
    os.utime(path, (time.time() - 100, time.time() - 100))
    first = fingerprint.checksum("weights/tiny/model.safetensors")
    (memory,) = (inside.root / "artifacts/.checksums").iterdir()
    memory.write_text(memory.read_text().replace(first, "remembered"))
    assert fingerprint.checksum("weights/tiny/model.safetensors") == "remembered"
    os.utime(path)
    assert fingerprint.checksum("weights/tiny/model.safetensors") == first


def test_imports_are_followed_in_functions_and_by_relative_names(inside):
    foreign = "%matplotlib inline\nimport json, library\nfrom lib import nothing"
    assert import_closure([foreign]) == {"lib/__init__.py"}
    relative = "def f():\n    from .gamma import count\n    from . import beta\n"
    (inside.root / "lib/alpha.py").write_text(relative)
    files = {f"lib/{name}.py" for name in ("alpha", "beta", "gamma", "delta")}
    assert import_closure(["import lib.alpha"]) >= files


def test_equal_contents_are_equal_bytes_whatever_their_order(tmp_path):
    fingerprint.write_json(tmp_path / "first.json", {"a": 1, "b": {"c": 2, "d": 3}})
    fingerprint.write_json(tmp_path / "second.json", {"b": {"d": 3, "c": 2}, "a": 1})
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
