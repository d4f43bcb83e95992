"""Freshness by content: nothing is remade for a touch, a copy or a comment, exactly what hangs on a change is, and no
finished result is lost, whatever happens."""

import json
import os
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_project import PAIR, write, write_notebook

from lib import params
from lib.paths import UserError
from workflow import fingerprint, fresh, keys
from workflow.fingerprint import import_closure
from workflow.pipeline import Run

VALUES = {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "bins": 10, "title": ""}
NUMBERS = ["01", "02", "08", "report"]


def run_of(name="demo", **values) -> Run:
    return Run(name, {**VALUES, **values}, cores=2)


def walk(run: Run, remake=()) -> list[fresh.Verdict]:
    """The verdicts of a start of the run, after it has moved what they say."""
    run = fresh.force(run, remake)
    verdicts = fresh.judge_all(run)
    fresh.settle(run, verdicts)
    return verdicts


def finish(run: Run, verdicts, ran=None) -> None:
    """Stand in for the execution of what is to be made: what a job leaves hangs on the run's seed alone. `ran`: a list
    for the numbers of the notebooks that ran."""
    for job in (verdict.job for verdict in verdicts if verdict.needs_run):
        if fresh.decide_at_start(job):
            continue
        found = keys.key_parts(job)
        for path in files_of_job(job):
            (fresh.ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh.ROOT / path).write_text(text_of(run, path))
        keys.write_record(job, found, [path for path in files_of_job(job) if not path.endswith(".ipynb")])
        if ran is not None:
            ran.append(job.notebook.number)


def files_of_job(job) -> list[str]:
    found = job.outputs + [f"{job.run.folder}/{name}/a.json" for name in job.notebook.folders]
    found += [f"{job.run.figures}/tab_x.tex"] if job.notebook.exports else []
    return [*found, job.executed]


def files_of(run: Run) -> list[str]:
    return [path for job in run.jobs for path in files_of_job(job)]


def text_of(run: Run, path: str) -> str:
    text = f"{path} of {run.name} with seed {run.values['seed']}"
    return json.dumps({"cells": [], "made by": text}) if path.endswith(("json", "ipynb")) else text


def complete(run: Run, remake=()) -> None:
    finish(run, walk(run, remake))


def states(run: Run, remake=()) -> dict[str, str]:
    return {verdict.job.notebook.number: verdict.state for verdict in walk(run, remake)}


def numbers(run: Run, remake=()) -> str:
    """Numbers of the notebooks that are to be made, some only if what they read changes."""
    made = ("fresh", "kept", "restored")
    return " ".join(number for number, state in states(run, remake).items() if state not in made)


@pytest.fixture
def made(inside):
    """The small project after a whole run."""
    complete(run_of())
    assert numbers(run_of()) == ""
    return inside


@pytest.mark.parametrize("path, old, new, remade", [
    ("lib/alpha.py", "# a comment", "# another comment\n\n# and one more", ""),
    ("lib/alpha.py", "seed):\n", 'seed):\n    """What it does."""\n', ""),
    ("lib/alpha.py", "str(seed)", "str(seed + 1)", "01 02 08 report"),
    ("lib/beta.py", '" ".join', '"-".join', "01 02 08 report"),  # imported by alpha only
    ("lib/gamma.html.jinja", "<p>", "<b>", "02 08 report"),  # the template of a module
    ("lib/delta.py", "", "more = 1", "02 08 report"),  # imported by a script that a module names
    ("lib/paper/show.py", "join", "upper", "02 08 report"),  # 01 shows by it, and writes nothing of it
    ("notebooks/08_tables.ipynb", "UERG", "UERGRg", "08 report"),
    ("lib/paper/booktabs.py", "def escape", "def escaped", "08 report"),  # export.py imports it, and no notebook
    ("workflow/report.html.jinja", "<main>", "<main lang>", "report"),  # the report alone is made anew
    ("artifacts/paper.yaml", "twice", "often", "report"),
    ("weights/tiny/model.safetensors", "weights", "weightz", "01 02 08 report"),
    ("questions.jsonl", "{}", "{} ", "01 02 08 report"),
    ("params/models/tiny.yaml", "source:", "temperature: 0.5\nsource:", "01 02 08 report"),
    ("params/models/tiny.yaml", "label: Tiny", "label: Tiniest", "02 08 report"),  # 01 prints no label
])  # fmt: skip
def test_a_change_remakes_what_hangs_on_it(made, path, old, new, remade):
    made.replace(path, old, new)
    assert numbers(run_of()) == remade
    complete(run_of())
    assert numbers(run_of()) == ""


def test_published_questions_and_a_gguf_file_are_known_by_their_sums(inside, monkeypatch):
    """Whether they come from the hub, which may name a revision, or from a folder."""
    questions, weights, one, other = "params/datasets/easy.yaml", "params/models/tiny.yaml", "a" * 64, "b" * 64
    published = f"source: someone/easy\nfiles: {{all: {{path: easy/all.jsonl, sha256: {one}}}}}"
    inside.replace(questions, "source: {all: questions.jsonl}", published)
    write(inside.root / weights, f"label: T\nsource: someone/t\nrevision: abc\ngguf: t.gguf\nsha256: {one}\n")
    complete(run_of())
    params.REVISIONS.update({"someone/easy": "abc"})  # as a run does that asks the hub
    assert params.load_dataset_config("easy").revision == "abc" and numbers(run_of()) == ""
    params.REVISIONS.clear()
    monkeypatch.setenv("DATA_FOLDER", "/somewhere")
    inside.replace(weights, "source: someone/t\nrevision: abc", "source: weights/tiny")
    assert numbers(run_of()) == ""
    for path, old, new in (
        (questions, one, other),
        (questions, "files:", "revision: x\nfiles:"),
        (weights, one, other),
    ):
        inside.replace(path, old, new)
        assert numbers(run_of()) == "01 02 08 report"
        complete(run_of())


# ---- whatever happens


class Killed(BaseException):
    pass


@contextmanager
def killed(monkeypatch, at: int):
    """The step on the disk of this number and all that follow are not done; what is being written is half there."""
    done = 0

    def step(real, half=None):
        def do(*words, **more):
            nonlocal done
            done += 1
            if done == at and half:
                half(*words, **more)
            if done >= at:
                raise Killed
            return real(*words, **more)

        return do

    plain = Path.write_text
    with monkeypatch.context() as patch:
        for name in ("link", "replace", "rename", "unlink", "rmdir"):  # what mkdir does, the next start does not see
            patch.setattr(os, name, step(getattr(os, name)))
        half = lambda path, text, **more: plain(path, text[: len(text) // 2], **more)  # noqa: E731
        patch.setattr(Path, "write_text", step(plain, half))
        with suppress(Killed):
            yield


DAMAGED = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path: path.write_text(path.read_text().replace("demo", "mine")),
    "deleted": lambda path: path.unlink(),
    "endless": lambda path: path.write_text("[" * 5000),
    "of no parts": lambda path: path.write_text('{"key": 1, "parts": [], "outputs": null}'),
}
EVENTS = st.one_of(
    st.tuples(st.just("turn"), st.integers(0, 2)),
    st.tuples(st.just("start"), st.integers(0, 3)),  # after so many jobs
    st.tuples(st.just("kill"), st.integers(1, 80)),  # at this step on the disk
    st.tuples(st.just("force"), st.one_of(st.none(), st.integers(1, 12))),  # and perhaps killed then
    st.tuples(st.sampled_from(sorted(DAMAGED)), st.integers(0, 40)),
)


class Life:
    """A run that is started again and again, beside what must be there: by number and seed, what was finished and has
    been neither damaged nor rejected since. `unsure`: what a kill may have left finished or rejected."""

    def __init__(self, root: Path, monkeypatch):
        self.root, self.monkeypatch, self.run = root, monkeypatch, run_of()
        self.there: set[tuple[str, int]] = set()
        self.unsure: set[tuple[str, int]] = set()

    def names(self, notebooks) -> set[tuple[str, int]]:
        return {(number, self.run.values["seed"]) for number in notebooks}

    def turn(self, seed: int) -> None:
        self.run = run_of(seed=seed)

    def start(self, jobs: int = 9, at: int = 10**9) -> None:
        """A start that makes so many jobs, or is killed at a step: of what was there it makes nothing again."""
        ran: list[str] = []
        with killed(self.monkeypatch, at):
            finish(self.run, walk(self.run)[:jobs], ran)
        assert self.names(ran).isdisjoint(self.there), "made twice"
        self.there |= self.names(ran)
        missing = [number for number in NUMBERS if not self.names([number]) <= self.there]
        if at < 10**9:  # the one that was being made may be finished
            self.unsure |= self.names(missing[:1])
        elif jobs > len(NUMBERS):
            assert self.names(missing) <= self.unsure, "not made"
            self.there |= self.names(missing)
            for path in files_of(self.run):
                assert (self.root / path).read_text() == text_of(self.run, path)
        self.unsure -= self.there

    def force(self, at: int | None) -> None:
        """After a finished run a start with `--force 01`, which may be killed before or after it is written down."""
        self.start()
        with killed(self.monkeypatch, at or 10**9):
            assert states(self.run, ["01"])["01"] == "forced"
        rejected = {("01", seed) for seed in range(3)} & self.there
        self.there -= rejected
        self.unsure |= rejected if at else set()

    def damage(self, kind: str, number: int) -> None:
        """After a finished run one of its files; an executed notebook may be saved by its reader, but not be gone."""
        self.start()
        files = [(job, path) for job in self.run.jobs for path in (job.record, *files_of_job(job))]
        job, path = files[number % len(files)]
        if kind == "deleted" or not path.endswith(".ipynb"):
            DAMAGED[kind](self.root / path)
            self.there -= self.names([job.notebook.number])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(events=st.lists(EVENTS, min_size=3, max_size=9))
@example(events=[("start", 9), ("turn", 1), ("force", None)])
@example(
    events=[("start", 9), ("turn", 1), ("start", 9), ("turn", 0), ("kill", 9), ("kill", 9), ("turn", 1), ("kill", 30)]
)
def test_whatever_happens_a_start_makes_what_is_missing_and_nothing_twice(inside, monkeypatch, events):
    """Runs that are stopped or killed at any step on the disk, other parameters and back again, forced and damaged
    results: those that are whole come back, and in the end each file is what its parameters say."""
    for name in ("artifacts/demo", "figures/demo"):
        shutil.rmtree(inside.root / name, ignore_errors=True)
    life = Life(inside.root, monkeypatch)
    for event, number in events:
        if event in DAMAGED:
            life.damage(event, number)
        elif event == "kill":
            life.start(at=number)
        else:
            getattr(life, event)(number)
    for seed in range(3):
        life.turn(seed)
        life.start()


def test_a_record_that_may_not_be_read_is_not_taken_for_none(made, monkeypatch):
    """What it records would be made again, which may take days."""
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied", "x.json")))
    with pytest.raises(PermissionError):
        keys.read_record(made.root / run_of().jobs[0].record, run_of().jobs[0])


def test_the_record_of_another_job_or_of_other_files_counts_as_absent_and_moves_nothing(made):
    run = run_of(models=["tiny", "other"])
    complete(run)
    first, second, third, *_ = run.jobs
    shutil.copy(made.root / second.record, made.root / first.record)
    theirs = (made.root / second.outputs[0]).stat()
    complete(run)
    assert (made.root / second.outputs[0]).stat() == theirs
    record = json.loads((made.root / third.record).read_text())
    for foreign in ("artifacts/other/x", "lib/paths.py", "artifacts/demo/../../lib/paths.py"):
        forged = {**record, "outputs": {**record["outputs"], foreign: "0"}}
        forged["digest"] = keys.digest({name: value for name, value in forged.items() if name != "digest"})
        (made.root / third.record).write_text(json.dumps(forged))
        assert keys.read_record(made.root / third.record, third) is None


def test_what_was_edited_where_it_lay_does_not_come_back(made):
    """Nor a notebook that its reader saved: moved aside, that is no longer what the run executed."""
    record = json.loads((made.root / run_of().jobs[0].record).read_text())
    stale = made.root / f"artifacts/demo/stale/{record['key']}"
    (made.root / "artifacts/demo/notebooks/02_single_pass.ipynb").write_text("{}")
    assert numbers(run_of()) == ""
    complete(run_of(seed=1))
    assert states(run_of()) == {"01": "restored", "02": "changed", "08": "waits", "report": "waits"}
    assert not stale.exists(), "nothing is left where it lay"
    (saved,) = made.root.glob("artifacts/demo/stale/*/artifacts/demo/notebooks/02_single_pass.ipynb")
    assert saved.read_text() == "{}"
    fresh.decide_at_start(run_of(seed=1).jobs[0])
    (stale / f"artifacts/demo/generations/{PAIR}.parquet").write_text("damaged")
    assert numbers(run_of()) == "01 02 08 report"


def test_nothing_that_was_edited_or_has_no_readable_record_is_lost(made):
    """Edited twice under one key, and then of a record that is none: all three are still somewhere in stale/."""
    job, at = run_of().jobs[0], made.root / f"artifacts/demo/generations/{PAIR}.parquet"
    for text in ("one", "two", "three"):
        at.write_text(text)
        if text == "three":
            (made.root / job.record).write_text("{}")
        complete(run_of())
    kept = made.root.glob(f"artifacts/demo/stale/*/artifacts/demo/generations/{PAIR}.parquet")
    assert {"one", "two", "three"} <= {path.read_text(errors="replace") for path in kept}


def test_seconds_and_memory_say_nothing_that_matters(inside):
    def said(rows="rows", **facts) -> str:
        write(inside.root / "artifacts/x.parquet", rows)
        write(inside.root / "artifacts/x.json", json.dumps(facts))
        return fingerprint.semantic_checksum("artifacts/x.parquet")

    first = said(row_seconds=1.0, peak_memory_mb=5.0, code="0123")
    assert first == said(row_seconds=2.0, peak_memory_mb=6.0, seconds=5) == said()
    assert len({first, said("others"), said(device="another")}) == 3


def test_a_remake_makes_anew_without_the_saved_rows_and_goes_on_where_it_was_stopped(made):
    """By a plain start as by the same command: what it has made is kept, and so are the rows of what it has not."""
    run, remake = run_of(models=["tiny", "other"]), ["01"]

    def rows(verdict) -> str:
        return keys.key_of_rows(verdict.job, keys.key_parts(verdict.job))

    complete(run)
    before = rows(walk(run)[1])
    first, second, *others = walk(run, remake)
    assert [first.state, second.state, *{one.state for one in others}] == ["forced", "forced", "waits"]
    assert rows(second) != before
    finish(run, [first])
    fresh.decide_at_start(second.job)
    for words in ([], remake, []):
        one, again, *others = walk(run, words)
        assert [one.state, again.state, *{one.state for one in others}] == ["fresh", "new", "waits"]
        assert rows(again) == rows(second)
    complete(run)
    assert numbers(run) == "" and states(run, remake)["01"] == "forced", "and now it is asked for once more"


def test_code_changes_keep(made):
    """Finished outputs of heavy notebooks, and the shards of those that have not finished."""
    keep = {"on_code_change": "keep"}

    def shards(**values) -> str:
        job = run_of(**values).jobs[0]
        return keys.key_of_rows(job, keys.key_parts(job))

    before = shards(), shards(**keep)
    made.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    assert before[0] != shards() and before[1] == shards(**keep) == ""
    first, *others = walk(run_of(**keep))
    assert (first.state, first.why) == ("kept", "code lib/alpha.py")
    assert {verdict.state for verdict in others} == {"fresh"}
    made.replace("lib/gamma.py", "len(text)", "len(text) + 1")
    assert numbers(run_of(**keep)) == "02 08 report", "of heavy notebooks only"


def test_replay_reads_shipped_signals_and_runs_no_model(inside):
    shipped, run = inside.root / f"artifacts/shipped/demo/generations/{PAIR}.parquet", run_of("replay")
    for text in ("signals", "others"):
        write(shipped, text)
        assert numbers(run) == "02 08 report"
        complete(run)
        assert numbers(run) == "" and shipped.read_text() == text
    with pytest.raises(UserError, match="does not run notebook 01"):
        walk(run, ["01"])


@pytest.mark.parametrize("line", ["a, b = 1, 2", "a = 1 + n", "import os", "binz = 10"])
def test_parameters_are_literals_that_a_profile_sets(inside, line):
    write_notebook(inside.root / "notebooks/02_single_pass.ipynb", line)
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
    assert import_closure(["%matplotlib inline\nimport json, library\nfrom lib import nothing"]) == {"lib/__init__.py"}
    (inside.root / "lib/alpha.py").write_text("def f():\n    from .gamma import count\n    from . import beta\n")
    assert import_closure(["import lib.alpha"]) >= {"lib/alpha.py", "lib/beta.py", "lib/gamma.py", "lib/delta.py"}
