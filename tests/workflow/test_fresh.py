"""Freshness by content: nothing is remade for a touch, a copy or a comment, and exactly what hangs on a change is."""

import json
import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_project import PAIR, write, write_notebook

from lib import params
from lib.paths import UserError
from workflow import fingerprint, fresh, keys
from workflow.fingerprint import import_closure
from workflow.pipeline import Run

VALUES = {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "bins": 10, "title": ""}


def run_of(name="demo", **values) -> Run:
    return Run(name, {**VALUES, **values}, cores=2)


def walk(run: Run, remake=()) -> list[fresh.Verdict]:
    """The verdicts of a start of the run, after it has moved what they say."""
    run = fresh.force(run, remake)
    verdicts = fresh.judge_all(run)
    fresh.settle(run, verdicts)
    return verdicts


def finish(run: Run, verdicts) -> None:
    """Stand in for the execution of what is to be made."""
    for job in (verdict.job for verdict in verdicts if verdict.needs_run):
        if fresh.decide_at_start(job):
            continue
        outputs = job.outputs + [f"{run.folder}/{name}/a.json" for name in job.notebook.folders]
        outputs += [f"{run.figures}/tab_x.tex"] if job.notebook.exports else []
        found = keys.key_parts(job)
        for path in [*outputs, job.executed]:
            (fresh.ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            text = fingerprint.digest(found)
            if path.endswith(("json", "ipynb")):
                text = json.dumps({"cells": [], "made by": text})
            (fresh.ROOT / path).write_text(text)
        keys.write_record(job, found, outputs)


def left(root: Path) -> dict[str, dict]:
    """The records of the run's jobs, by notebook."""
    records_ = {job.notebook.name: root / job.record for job in run_of().jobs}
    return {name: json.loads(path.read_text()) for name, path in records_.items() if path.exists()}


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


@pytest.mark.parametrize(
    "path, old, new, remade",
    [
        ("lib/alpha.py", "# a comment", "# another comment\n\n# and one more", ""),
        ("lib/alpha.py", "str(seed)", "str(seed + 1)", "01 02 08 report"),
        ("lib/beta.py", '" ".join', '"-".join', "01 02 08 report"),  # imported by alpha only
        ("lib/gamma.py", "len(text)", "len(text) + 1", "02 08 report"),
        ("lib/gamma.html.jinja", "<p>", "<b>", "02 08 report"),  # the template of a module
        ("lib/delta.py", "", "more = 1", "02 08 report"),  # and what that imports
        ("lib/paper/show.py", "join", "upper", "02 08 report"),  # 01 shows by it, and writes nothing of it
        ("notebooks/02_single_pass.ipynb", "' '.join", "'-'.join", "02 08 report"),
        ("notebooks/08_tables.ipynb", "UERG", "UERGRg", "08 report"),
        ("workflow/export.py", '"results.tex"', '"all.tex"', "08 report"),
        ("lib/paper/booktabs.py", "def escape", "def escaped", "08 report"),  # export.py imports it, and no notebook
        ("workflow/report.html.jinja", "<main>", "<main lang>", "report"),  # the report alone is made anew
        ("lib/paper/report_contents.py", "0.834", "0.835", "report"),
        ("artifacts/paper.yaml", "twice", "often", "report"),
        ("weights/tiny/model.safetensors", "weights", "weightz", "01 02 08 report"),
        ("questions.jsonl", "{}", "{} ", "01 02 08 report"),
        ("params/models/tiny.yaml", "source:", "temperature: 0.5\nsource:", "01 02 08 report"),
        ("params/models/tiny.yaml", "label: Tiny", "label: Tiniest", "02 08 report"),  # 01 prints no label
    ],
)
def test_a_change_remakes_what_hangs_on_it(made, path, old, new, remade):
    made.replace(path, old, new)
    assert numbers(run_of()) == remade
    complete(run_of())
    assert numbers(run_of()) == ""


QUESTIONS, WEIGHTS = "params/datasets/easy.yaml", "params/models/tiny.yaml"
ONE, OTHER = "a" * 64, "b" * 64
PUBLISHED = f"source: someone/easy\nfiles: {{all: {{path: easy/all.jsonl, sha256: {ONE}}}}}"
GGUF = f"label: Tiny\nsource: someone/tiny\nrevision: abc\ngguf: tiny.gguf\nsha256: {ONE}\n"


@pytest.mark.parametrize("path, old, new, remade", [
    (QUESTIONS, ONE, OTHER, "01 02 08 report"), (QUESTIONS, "files:", "revision: other\nfiles:", "01 02 08 report"),
    (WEIGHTS, ONE, OTHER, "01 02 08 report"), (WEIGHTS, "revision: abc", "revision: other", ""),
    (WEIGHTS, "source: someone/tiny", "source: weights/tiny", ""),
])  # fmt: skip
def test_published_questions_and_a_gguf_file_are_known_by_their_sums(inside, monkeypatch, path, old, new, remade):
    """Whether they come from the hub, which may name a revision, or from a folder."""
    inside.replace(QUESTIONS, "source: {all: questions.jsonl}", PUBLISHED)
    write(inside.root / WEIGHTS, GGUF)
    complete(run_of())
    params.REVISIONS.update({"someone/easy": "abc"})  # as a run does that asks the hub
    assert params.load_dataset_config("easy").revision == "abc" and numbers(run_of()) == ""
    params.REVISIONS.clear()
    monkeypatch.setenv("DATA_FOLDER", "/somewhere")
    assert numbers(run_of()) == ""
    inside.replace(path, old, new)
    assert numbers(run_of()) == remade


def test_a_record_that_may_not_be_read_is_not_taken_for_none(made, monkeypatch):
    """What it records would be made again, which may take days."""
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied", "x.json")))
    with pytest.raises(PermissionError):
        keys.read_record(made.root / run_of().jobs[0].record, run_of().jobs[0])


def test_the_record_of_another_job_counts_as_absent_and_moves_nothing_of_it(made):
    run = run_of(models=["tiny", "other"])
    complete(run)
    first, second, third, *_ = run.jobs
    shutil.copy(made.root / second.record, made.root / first.record)
    theirs = (made.root / second.outputs[0]).stat()
    complete(run)
    assert (made.root / second.outputs[0]).stat() == theirs
    record = json.loads((made.root / third.record).read_text())
    for foreign in ("artifacts/other/x", "lib/paths.py", "artifacts/demo/../../lib/paths.py"):
        changes = [{"outputs": {**record["outputs"], foreign: "0"}}, {"outputs": {third.outputs[0]: None}}]
        for change in [*changes, {"parts": record["parts"] | {"parameter seed": 3}}, {"digest": None}]:
            (made.root / third.record).write_text(json.dumps(record | change))
            assert keys.read_record(made.root / third.record, third) is None


FIRST = {
    "generations": "01",
    "confidence": "02",
    "kept": "02",
    "ta": "08",
    "re": "report",
}  # else a file's name begins with it
DAMAGED = {
    "truncated": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path, other: path.write_bytes(other.read_bytes()),
    "deleted": lambda path, other: path.unlink(),
    "null": lambda path, other: path.write_text("null"),
    "endless": lambda path, other: path.write_text("[" * 5000),
    "of no parts": lambda path, other: path.write_text('{"key": 1, "parts": [], "outputs": null}'),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_to_any_file_remakes_exactly_what_hangs_on_it(made, damage):
    """Frames, manifests, records, tables; of an executed notebook, which its reader may save, only that it is there."""
    complete(run_of("other"))
    folders = made.root / "artifacts/demo", made.root / "figures/demo"
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        name = path.relative_to(made.root).as_posix()
        DAMAGED[damage](path, made.root / name.replace("/demo/", "/other/"))
        first = FIRST.get(path.parent.name) or FIRST.get(path.name[:2], path.name[:2])
        saved = path.suffix == ".ipynb" and damage != "deleted"
        assert numbers(run_of()) == ("" if saved else "01 02 08 report"["01 02 08 report".index(first) :]), name
        complete(run_of())


def test_what_comes_back_from_stale(made):
    """As test_crash_points.py asserts, too; but not what was damaged there, nor a notebook that its reader saved: moved
    aside, that is no longer what the run executed."""
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


def test_seconds_and_memory_say_nothing_that_matters(inside):
    def said(rows="rows", **facts) -> str:
        write(inside.root / "artifacts/x.parquet", rows)
        write(inside.root / "artifacts/x.json", json.dumps(facts))
        return fingerprint.semantic_checksum("artifacts/x.parquet")

    first = said(row_seconds=1.0, peak_memory_mb=5.0, code="0123")
    assert first == said(row_seconds=2.0, peak_memory_mb=6.0, seconds=5) == said()
    assert len({first, said("others"), said(device="another")}) == 3


def test_remake_makes_anew_and_keeps_the_old(made):
    """Without the rows that were saved for it."""

    def shards(verdicts) -> str:
        return keys.key_of_rows(verdicts[0].job, keys.key_parts(verdicts[0].job))

    rows = shards(walk(run_of()))
    assert numbers(run_of(), remake=["02"]) == "02 08 report" and shards(walk(run_of())) == rows
    assert numbers(run_of(), remake=["01"]) == "01 02 08 report" and shards(walk(run_of())) != rows
    assert shards(walk(run_of(on_code_change="keep"))), "also where they outlive a change of code"
    before = left(made.root)
    complete(run_of())
    (old,) = made.root.glob(f"artifacts/demo/stale/*/artifacts/demo/jobs/01_generate__{PAIR}.json")
    assert json.loads(old.read_text()) == before["01_generate"] != left(made.root)["01_generate"]


def test_a_remake_restores_nothing_and_what_it_made_comes_back(made):
    """Though an intact result of the same inputs lies in stale; also where a run with another seed was stopped."""
    complete(run_of(seed=1))
    first, *_ = walk(run_of(), ["01"])
    assert first.state == "forced" and fresh.decide_at_start(first.job) == ""
    assert states(run_of())["01"] == "new", "nor does what it has replaced"
    complete(run_of())
    fresh.decide_at_start(walk(run_of(seed=1))[0].job)
    assert states(run_of())["01"] == "restored"


def test_a_remake_that_was_stopped_is_gone_on_with(made):
    """By a plain start as by the same command: what it has made is kept, and so are the pieces of what it has not."""
    run, remake = run_of(models=["tiny", "other"]), ["01"]
    complete(run)
    walked = walk(run, remake)
    assert [verdict.state for verdict in walked] == ["forced", "forced", "waits", "waits", "waits"]
    finish(run, walked[:1])
    second = walked[1].job
    fresh.decide_at_start(second)
    for words in ([], remake, []):
        first, again, *others = walk(run, words)
        assert [first.state, again.state, *{verdict.state for verdict in others}] == ["fresh", "new", "waits"]
        assert keys.key_parts(again.job) == keys.key_parts(second), "with its rows"
    complete(run)
    assert numbers(run) == ""
    assert states(run, remake)["01"] == "forced", "and now it is asked for once more"


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


LITERAL, UNKNOWN = "is not of the form name = literal", "parameter 'binz', which no profile sets: did you mean 'bins'"


@pytest.mark.parametrize("line, tag, said", [
    ("a, b = 1, 2", "parameters", LITERAL), ("a = 1 + n", "parameters", LITERAL), ("a.b = 1", "parameters", LITERAL),
    ("import os", "parameters", LITERAL), ("binz = 10", "parameters", UNKNOWN),
    ("bins = 10", "another", "exactly one cell tagged 'parameters', it has 0"),
])  # fmt: skip
def test_parameters_are_literals_that_a_profile_sets(inside, line, tag, said):
    write_notebook(inside.root / "notebooks/02_single_pass.ipynb", line)
    inside.replace("notebooks/02_single_pass.ipynb", '["parameters"]', f'["{tag}"]')
    with pytest.raises(UserError, match=said):
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


def test_imports_are_followed(inside):
    assert import_closure(["%matplotlib inline\nimport json, library\nfrom lib import nothing"]) == {"lib/__init__.py"}
    (inside.root / "lib/alpha.py").write_text("def f():\n    from .gamma import count\n    from . import beta\n")
    assert import_closure(["import lib.alpha"]) >= {"lib/alpha.py", "lib/beta.py", "lib/gamma.py", "lib/delta.py"}
