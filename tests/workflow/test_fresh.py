"""Freshness by content: nothing is remade for a touch, a copy or a comment, and exactly what hangs on a change is."""

import json
import os
import shutil
import time

import pytest
from small_project import PAIR, write, write_notebook

from lib import params
from lib.paths import UserError
from workflow import files, fingerprint, fresh, leftovers, records
from workflow.fingerprint import import_closure, normalize_source
from workflow.pipeline import Run

VALUES = {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "bins": 10, "title": ""}


def run_of(name="demo", **values) -> Run:
    return Run(name, {**VALUES, **values}, cores=2)


def walk(run: Run, remake=()) -> list[fresh.Verdict]:
    """The verdicts of a start of the run, after it has moved what they say."""
    verdicts = fresh.judge_all(run, remake)
    fresh.move_all_outputs(run, verdicts)
    return verdicts


def finish(run: Run, verdicts) -> None:
    """Stand in for the execution of what is to be made."""
    for job in (verdict.job for verdict in verdicts if verdict.open):
        if fresh.decide_at_start(job):
            continue
        outputs = job.outputs or [f"{run.figures}/tab_x.tex"]
        found = fresh.key_parts(job)
        for path in [*records.with_manifests(outputs), job.executed]:
            (fresh.ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            text = records.record_key(found)
            if path.endswith(("json", "ipynb")):
                text = json.dumps({"cells": [], "made by": text})
            (fresh.ROOT / path).write_text(text)
        records.write_record(job, found, outputs, 1.0)


def complete(run: Run, remake=()) -> None:
    finish(run, walk(run, remake))


def states(run: Run, remake=()) -> dict[str, str]:
    leftovers.clear_leftovers(run)
    return {verdict.job.notebook.number: verdict.state for verdict in walk(run, remake)}


def numbers(run: Run, remake=()) -> str:
    """Numbers of the notebooks that are to be made, some only if what they read changes."""
    return " ".join(number for number, state in states(run, remake).items() if state in ("make", "waits"))


@pytest.fixture
def made(inside):
    """The small project after a whole run."""
    complete(run_of())
    assert numbers(run_of()) == ""
    return inside


def test_a_touch_remakes_nothing(made):
    for path in made.root.rglob("*"):
        os.utime(path)
    assert numbers(run_of()) == ""


@pytest.mark.parametrize(
    "path, old, new, remade",
    [
        ("lib/alpha.py", "# a comment", "# another comment\n\n# and one more", ""),
        ("notebooks/02_single_pass.ipynb", "# 02_single_pass", "# Another title", ""),
        ("notebooks/02_single_pass.ipynb", "from lib.gamma import count", "# c\\nfrom lib.gamma import count", ""),
        ("params/demo.yaml", "models:", "# a comment\nmodels:", ""),
        ("lib/alpha.py", "str(seed)", "str(seed + 1)", "01 02 08"),
        ("lib/beta.py", '" ".join', '"-".join', "01 02 08"),  # imported by alpha only
        ("lib/gamma.py", "len(text)", "len(text) + 1", "02 08"),
        ("lib/gamma.html.jinja", "<p>", "<b>", "02 08"),  # the template of a module
        ("lib/paper/show.py", 'letters"', 'signs"', "02 08"),  # 01 shows by it, and writes nothing of it
        ("notebooks/02_single_pass.ipynb", "' '.join", "'-'.join", "02 08"),
        ("notebooks/08_tables.ipynb", "UERG", "UERGRg", "08"),
        ("workflow/export.py", '"results"', '"all"', "08"),
        ("lib/paper/latex.py", "def escape", "def escaped", "08"),  # export.py imports it, and no notebook does
        ("workflow/report.html.jinja", "<main>", "<main lang>", ""),  # the report alone is made anew
        ("workflow/run.py", "import time", "import sys, time", ""),
        ("weights/tiny/model.safetensors", "weights", "weightz", "01 02 08"),
        ("questions.jsonl", "{}", "{} ", "01 02 08"),
        ("params/models/tiny.yaml", "source:", "temperature: 0.5\nsource:", "01 02 08"),
        ("params/models/other.yaml", "source:", "temperature: 0.5\nsource:", ""),
        ("params/models/tiny.yaml", "label: Tiny", "label: Tiniest", "02 08"),  # 01 prints no label
    ],
)
def test_a_change_remakes_what_hangs_on_it(made, path, old, new, remade):
    made.replace(path, old, new)
    assert numbers(run_of()) == remade
    complete(run_of())
    assert numbers(run_of()) == ""


QUESTIONS, WEIGHTS = "params/datasets/easy.yaml", "params/models/tiny.yaml"
PUBLISHED = {
    QUESTIONS: """
        label: Easy
        source: someone/easy
        calibration: 1
        evaluation: 1
        files: {all: {path: easy/all.jsonl, sha256: aaaa}}
    """,
    WEIGHTS: """
        label: Tiny
        source: someone/tiny
        revision: abc
        gguf: tiny.gguf
        sha256: aaaa
    """,
}


@pytest.fixture
def published(inside):
    """The small project after a whole run on published questions and a GGUF file."""
    for path, text in PUBLISHED.items():
        write(inside.root / path, text.replace("aaaa", "a" * 64))
    complete(run_of())
    return inside


@pytest.mark.parametrize(
    "path, old, new, remade",
    [
        (QUESTIONS, "easy/all", "easy/whole", ""),
        (QUESTIONS, "a" * 64, "b" * 64, "01 02 08"),
        (QUESTIONS, "files:", "revision: other\nfiles:", "01 02 08"),
        (WEIGHTS, "revision: abc", "revision: other", ""),
        (WEIGHTS, "source: someone/tiny", "source: weights/tiny", ""),
        (WEIGHTS, "tiny.gguf", "tiny-q4.gguf", ""),
        (WEIGHTS, "a" * 64, "b" * 64, "01 02 08"),
    ],
)
def test_published_questions_and_a_gguf_file_are_known_by_their_sums(published, path, old, new, remade):
    published.replace(path, old, new)
    assert numbers(run_of()) == remade


def test_questions_from_the_hub_and_from_a_folder_are_the_same(published, monkeypatch):
    params.REVISIONS.update({"someone/easy": "abc"})  # as a run does that asks the hub
    assert params.load_dataset_config("easy").revision == "abc" and numbers(run_of()) == ""
    params.REVISIONS.clear()
    monkeypatch.setenv("DATA_FOLDER", "/somewhere")
    assert numbers(run_of()) == ""


MALFORMED = ["", "{", "[]", "null", "7", '"x"', "[" * 5000, '{"key": 1, "parts": [], "outputs": null}', "\ufffd",
             '{"key": "x", "parts": {}, "outputs": {}}']  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_record_counts_as_absent(made, text):
    """And what took how long, and what files held, is remembered, and none of it needed."""
    for path in [made.root / "artifacts/demo/seconds.json", *(made.root / "artifacts/.checksums").glob("*")]:
        path.write_text(text)
    assert run_of().urgency["08_tables"] >= 0 and numbers(run_of()) == ""
    (made.root / f"artifacts/demo/jobs/01_generate__{PAIR}.json").write_text(text)
    assert numbers(run_of()) == "01 02 08"


def test_the_record_of_another_job_counts_as_absent_and_moves_nothing_of_it(made):
    run = run_of(models=["tiny", "other"])
    complete(run)
    first, second, third, _ = run.jobs
    theirs = (made.root / second.outputs[0]).read_text()
    shutil.copy(made.root / second.record, made.root / first.record)
    assert {verdict.job.name for verdict in walk(run) if verdict.state == "make"} >= {first.name}
    assert (made.root / second.outputs[0]).read_text() == theirs and (made.root / second.record).exists()
    complete(run)
    record = json.loads((made.root / third.record).read_text())
    for foreign in ("artifacts/other/x", "lib/paths.py", "artifacts/demo/../../lib/paths.py"):
        outputs = {**record["outputs"], foreign: "0"}
        (made.root / third.record).write_text(json.dumps({**record, "outputs": outputs}))
        assert records.read_record(made.root / third.record, third) is None


DAMAGES = {
    "truncated": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path, other: shutil.copyfile(other, path),
    "deleted": lambda path, other: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_remakes_exactly_what_hangs_on_it(made, damage):
    """Frames, manifests, records, executed notebooks, tables."""
    complete(run_of("other"))
    before, folders = made.root / "before", ("artifacts/demo", "figures/demo")
    for folder in folders:
        shutil.copytree(made.root / folder, before / folder)
    for whole in [path for path in before.rglob("*") if path.is_file()]:
        name = whole.relative_to(before).as_posix()
        DAMAGES[damage](made.root / name, made.root / name.replace("/demo/", "/other/"))
        first = {"generations": "01", "confidence": "02"}.get(name.split("/")[2], whole.name[:2])
        first = "08" if name.startswith("figures") else first
        assert numbers(run_of()) == {"01": "01 02 08", "02": "02 08", "08": "08"}[first], name
        for folder in folders:
            shutil.rmtree(made.root / folder)
            shutil.copytree(before / folder, made.root / folder)
    assert numbers(run_of()) == ""


def test_all_that_a_record_names_is_on_the_disk_before_it_is(made, monkeypatch):
    """And then the record, and its name: else a loss of power could leave it beside files cut short."""
    steps, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append(os.fstat(number).st_ino), sync(number)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append(str(paths[1])), replace(*paths)))
    job = run_of().jobs[0]
    records.write_record(job, fresh.key_parts(job), job.outputs, 1.0)
    record = made.root / job.record
    before = steps[: steps.index(str(record))]
    named = [made.root / path for path in json.loads(record.read_text())["outputs"]]
    assert len(named) == 3 and {path.stat().st_ino for path in [*named, record]} <= set(before)
    assert {path.parent.stat().st_ino for path in named} <= set(before)
    assert steps[len(before) + 1 :] == [record.parent.stat().st_ino]


def test_stale_outputs_are_moved_and_come_back(made):
    path = made.root / f"artifacts/demo/generations/{PAIR}.parquet"
    before = path.read_text()
    assert numbers(run_of(seed=1)) == "01 02 08"
    complete(run_of(seed=1))
    assert path.read_text() != before
    stale = made.root / f"artifacts/demo/stale/{before}/artifacts/demo/generations/{PAIR}.parquet"
    assert stale.read_text() == before
    assert len(list(made.root.glob("artifacts/demo/stale/*/figures/demo/tab_x.tex"))) == 1
    assert set(states(run_of()).values()) == {"restored"} and path.read_text() == before
    assert not (made.root / "artifacts/demo/stale" / before).exists(), "nothing is left where it lay"
    assert set(states(run_of()).values()) == {"fresh"}
    fresh.decide_at_start(run_of(seed=1).jobs[0])
    stale.write_text("damaged")
    assert numbers(run_of()) == "01 02 08"


def test_seconds_and_memory_say_nothing_that_matters(inside):
    def said(rows="rows", **facts) -> str:
        write(inside.root / "artifacts/x.parquet", rows)
        write(inside.root / "artifacts/x.json", json.dumps(facts))
        return fingerprint.semantic_checksum("artifacts/x.parquet")

    first = said(row_seconds=1.0, peak_memory_mb=5.0, code="0123")
    assert first == said(row_seconds=2.0, peak_memory_mb=6.0, seconds=5) == said()
    assert len({first, said("others"), said(device="another")}) == 3


def test_remake_makes_anew_and_keeps_the_old(made):
    """With the shards of all its row caches, and not those of a pair whose name begins alike."""
    pieces = [made.root / f"artifacts/demo/shards/01_generate__{PAIR}{more}-abc" for more in ("", "__tuning", "2")]
    for folder in pieces:
        folder.mkdir(parents=True)
    assert numbers(run_of(), remake=["02"]) == "02 08"
    finish(run_of(), [verdict for verdict in walk(run_of()) if verdict.job.notebook.number != "01"])
    assert pieces[0].exists()
    assert numbers(run_of(), remake=["01"]) == "01 02 08"
    assert [folder.exists() for folder in pieces] == [False, False, True]
    assert list(made.root.glob(f"artifacts/demo/stale/forced/2/artifacts/demo/shards/{pieces[0].name}"))


def test_a_remake_that_was_stopped_is_gone_on_with(made):
    """By a plain start as by the same command: what it has made is kept, and so are the pieces of what it has not."""
    run, remake = run_of(models=["tiny", "other"]), ["01"]
    complete(run)
    first, second, *_ = run.jobs
    old = {job: (made.root / job.record).read_text() for job in (first, second)}
    walked = walk(run, remake)
    assert [verdict.state for verdict in walked] == ["make", "make", "waits", "waits"]
    finish(run, walked[:1])
    piece = made.root / f"artifacts/demo/shards/{second.name}-abc/00000-0.parquet"
    write(piece, "rows")
    for words in ([], remake, []):
        assert [verdict.state for verdict in walk(run, words)] == ["fresh", "make", "waits", "waits"]
        assert piece.exists()
    complete(run)
    assert numbers(run) == ""
    assert all((made.root / run.forced / "1" / job.record).read_text() == text for job, text in old.items())
    assert states(run, remake)["01"] == "make", "and now it is asked for once more"
    complete(run)
    write(made.root / "params/models/third.yaml", "label: Third\nsource: weights/tiny\n")
    more = walk(run_of(models=["tiny", "other", "third"]), remake)
    assert [verdict.why for verdict in more[:3]] == ["asked for"] * 3, "one more model is nothing that was begun"


def test_code_changes_keep(made):
    """Finished outputs of heavy notebooks, and the shards of those that have not finished."""
    keep = {"on_code_change": "keep"}

    def shards(**values) -> str:
        job = run_of(**values).jobs[0]
        return fresh.resume_key(job.run, fresh.key_parts(job))

    before = shards(), shards(**keep)
    made.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    assert before[0] != shards() and before[1] == shards(**keep)
    first, *others = walk(run_of(**keep))
    assert (first.state, first.why) == ("kept", "code lib/alpha.py")
    assert {verdict.state for verdict in others} == {"fresh"}
    assert numbers(run_of(seed=1, **keep)) == "01 02 08"
    complete(run_of(**keep))
    made.replace("lib/gamma.py", "len(text)", "len(text) + 1")
    assert numbers(run_of(**keep)) == "02 08", "of heavy notebooks only"
    assert numbers(run_of(**keep), remake=["01"]) == "01 02 08"


def test_replay_reads_shipped_signals_and_runs_no_model(inside):
    shipped, run = inside.root / f"artifacts/shipped/demo/generations/{PAIR}.parquet", run_of("replay")
    with pytest.raises(UserError, match="needs artifacts/shipped/demo/generations/tiny__easy.parquet"):
        walk(run)
    for text in ("signals", "others"):
        write(shipped, text)
        assert numbers(run) == "02 08"
        complete(run)
        assert numbers(run) == "" and shipped.read_text() == text
    with pytest.raises(UserError, match="does not run notebook 01"):
        walk(run, ["01"])


@pytest.mark.parametrize("line", ["a, b = 1, 2", "a = b = 1", "a = 1 + n", "import os", "a.b = 1", "a: int", "a += 1"])
def test_parameters_are_literals(inside, line):
    write_notebook(inside.root / "notebooks/02_single_pass.ipynb", line)
    with pytest.raises(UserError, match="is not of the form name = literal"):
        run_of().jobs[1].parameters  # noqa: B018


def test_a_parameter_that_no_profile_sets_and_a_notebook_without_a_cell_for_them(inside):
    path = "notebooks/02_single_pass.ipynb"
    write_notebook(inside.root / path, "binz = 10")
    with pytest.raises(UserError, match="declares parameter 'binz', which no profile sets: did you mean 'bins'"):
        run_of().jobs[1].parameters  # noqa: B018
    inside.replace(path, '["parameters"]', "[]")
    with pytest.raises(UserError, match="exactly one cell tagged 'parameters', it has 0"):
        run_of().jobs[1].parameters  # noqa: B018


def test_big_files_are_hashed_once(inside, monkeypatch):
    monkeypatch.setattr(fingerprint, "BIG", 1)
    path = inside.root / "weights/tiny/model.safetensors"
    os.utime(path, (time.time() - 100, time.time() - 100))
    first = fingerprint.checksum("weights/tiny/model.safetensors")
    memory = list((inside.root / "artifacts/.checksums").iterdir())
    assert len(memory) == 1
    known = json.loads(memory[0].read_text())
    memory[0].write_text(json.dumps({**known, "sha256": "remembered"}))
    assert fingerprint.checksum("weights/tiny/model.safetensors") == "remembered"
    os.utime(path)
    assert fingerprint.checksum("weights/tiny/model.safetensors") == first
    path.write_text("weightz")
    assert fingerprint.checksum("weights/tiny/model.safetensors") != first


def test_stripped_source():
    same = "x = 1  # one\n\n# two\ny = f'{x}#' + '# three'\n", "x = 1\ny = f'{x}#'   + '# three'\n"
    assert normalize_source(same[0]) == normalize_source(same[1])
    assert normalize_source("x = '''a\n\nb'''") != normalize_source("x = '''a\nb'''")
    assert normalize_source("f'{x}'") != normalize_source("f'{x} '")
    assert normalize_source("if a:\n    b\nc") != normalize_source("if a:\n    b\n    c")
    assert normalize_source("%matplotlib inline\n(") == "%matplotlib inline\n("


def test_imports_are_followed(inside):
    assert import_closure(["import lib.alpha"]) == {"lib/__init__.py", "lib/alpha.py", "lib/beta.py"}
    assert import_closure(["%matplotlib inline\nfrom lib import gamma, nothing"]) == {"lib/__init__.py", "lib/gamma.py"}
    assert import_closure(["import json, library"]) == set()
    (inside.root / "lib/alpha.py").write_text("def f():\n    from .gamma import count\n    from . import beta\n")
    assert import_closure(["from lib.alpha import f"]) >= {"lib/beta.py", "lib/gamma.py"}


def test_only_empty_folders_are_removed(tmp_path):
    (tmp_path / "a" / "empty" / "one").mkdir(parents=True)
    write(tmp_path / "b" / "file", "")
    files.remove_empty_folders(tmp_path)
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["b", "file"]
    files.remove_empty_folders(tmp_path / "b")
    (tmp_path / "b" / "file").unlink()
    files.remove_empty_folders(tmp_path / "b")
    assert not any(tmp_path.iterdir())
