"""Freshness by content: nothing is remade for a touch, a copy or a comment, and exactly what hangs on a change is."""

import json
import os
import shutil
import time

import pytest
from small_project import PAIR, write, write_notebook

from lib import params
from lib.paths import UserError
from workflow import fingerprint, fresh, leftovers, records
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
        found = fresh.parts(job)
        for path in [*records.with_manifests(outputs), job.executed]:
            (fresh.ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            text = records.key(found)
            if path.endswith(("json", "ipynb")):
                frame = fingerprint.checksum(path.replace(".json", ".parquet"))
                text = json.dumps({"cells": [], "made by": text, "sha256": frame})
            (fresh.ROOT / path).write_text(text)
        records.write_record(job, found, outputs, 1.0)


def states(run: Run, remake=()) -> dict[str, str]:
    leftovers.clear(run)
    return {verdict.job.notebook.number: verdict.state for verdict in walk(run, remake)}


def numbers(run: Run, remake=()) -> str:
    """Numbers of the notebooks that are to be made, some only if what they read changes."""
    return " ".join(number for number, state in states(run, remake).items() if state in ("make", "waits"))


@pytest.fixture
def made(inside):
    """The small project after a whole run."""
    run = run_of()
    finish(run, walk(run))
    assert numbers(run) == ""
    return inside


def test_touch_comment_spacing_and_markdown_remake_nothing(made):
    for path in made.root.rglob("*"):
        os.utime(path)
    shutil.rmtree(made.root / ".snakemake", ignore_errors=True)
    made.replace("lib/alpha.py", "# a comment", "# another comment\n# and one more")
    made.replace("lib/gamma.py", "return", "\n    # why\n    return")
    made.replace("notebooks/02_single_pass.ipynb", "# 02_single_pass", "# Another title")
    made.replace("notebooks/02_single_pass.ipynb", "from lib.gamma import count", "# c\\nfrom lib.gamma import count")
    made.replace("params/demo.yaml", "models:", "# a comment\nmodels:")
    assert numbers(run_of()) == ""


@pytest.mark.parametrize(
    "path, old, new, remade",
    [
        ("lib/alpha.py", "str(seed)", "str(seed + 1)", "01 02 08"),
        ("lib/beta.py", '" ".join', '"-".join', "01 02 08"),  # imported by alpha only
        ("lib/gamma.py", "len(text)", "len(text) + 1", "02 08"),
        ("lib/gamma.html.jinja", "<p>", "<b>", "02 08"),  # the template of a module
        ("lib/paper/show.py", 'letters"', 'signs"', "02 08"),  # 01 shows by it, and writes nothing of it
        ("lib/paths.py", "UserError(ValueError)", "UserError(Exception)", "01 02 08"),
        ("notebooks/01_generate.ipynb", "shard 1/1", "shard 1/2", "01 02 08"),
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
        ("artifacts/demo/generations/tiny__easy.parquet", "a", "b", "01 02 08"),
        ("artifacts/demo/confidence/single_pass.json", "a", "b", "02 08"),
        ("figures/demo/tab_x.tex", "a", "b", "08"),
    ],
)
def test_a_change_remakes_what_hangs_on_it(made, path, old, new, remade):
    made.replace(path, old, new)
    assert numbers(run_of()) == remade
    finish(run_of(), walk(run_of()))
    assert numbers(run_of()) == ""


@pytest.mark.parametrize(
    "change, remade",
    [({"seed": 1}, "01 02 08"), ({"bins": 20}, "02 08"), ({"title": "x"}, "08"), ({"grader": "exact"}, "")],
)
def test_a_parameter_remakes_what_declares_it(made, change, remade):
    assert numbers(run_of(**change)) == remade


PUBLISHED = """
    label: Easy
    source: someone/easy
    calibration: 1
    evaluation: 1
    files: {all: {path: easy/all.jsonl, sha256: %s}}
"""


def test_questions_from_the_hub_and_from_a_folder_are_the_same(inside, monkeypatch):
    path = inside.root / "params/datasets/easy.yaml"
    write(path, PUBLISHED % ("a" * 64))
    finish(run_of(), walk(run_of()))
    params.REVISIONS.update({"someone/easy": "abc"})  # as a run does that asks the hub
    assert params.load_dataset_config("easy").revision == "abc" and numbers(run_of()) == ""
    params.REVISIONS.clear()
    monkeypatch.setenv("DATA_FOLDER", "/somewhere")
    assert numbers(run_of()) == ""
    inside.replace("params/datasets/easy.yaml", "easy/all", "easy/whole")
    assert numbers(run_of()) == "", "another name, the same bytes"
    write(path, PUBLISHED % ("b" * 64))
    assert numbers(run_of()) == "01 02 08"
    write(path, (PUBLISHED % ("a" * 64)).replace("files:", "revision: other\n    files:"))
    assert numbers(run_of()) == "01 02 08"


GGUF = """
    label: Tiny
    source: someone/tiny
    revision: abc
    gguf: tiny.gguf
    sha256: %s
"""


@pytest.mark.parametrize(
    "old, new, remade",
    [
        ("revision: abc", "revision: other", ""),
        ("source: someone/tiny", "source: weights/tiny", ""),
        ("tiny.gguf", "tiny-q4.gguf", ""),
        ("label: Tiny", "label: Tiniest", "02 08"),
        ("gguf:", "temperature: 0.5\ngguf:", "01 02 08"),
        ("a" * 64, "b" * 64, "01 02 08"),
    ],
)
def test_a_gguf_file_is_known_by_its_sum(inside, old, new, remade):
    write(inside.root / "params/models/tiny.yaml", GGUF % ("a" * 64))
    finish(run_of(), walk(run_of()))
    inside.replace("params/models/tiny.yaml", old, new)
    assert numbers(run_of()) == remade


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
    finish(run, walk(run))
    first, second, third, _ = run.jobs
    theirs = (made.root / second.outputs[0]).read_text()
    shutil.copy(made.root / second.record, made.root / first.record)
    assert {verdict.job.name for verdict in walk(run) if verdict.state == "make"} >= {first.name}
    assert (made.root / second.outputs[0]).read_text() == theirs and (made.root / second.record).exists()
    finish(run, walk(run))
    record = json.loads((made.root / third.record).read_text())
    for foreign in ("artifacts/other/x", "lib/paths.py", "artifacts/demo/../../lib/paths.py"):
        outputs = {**record["outputs"], foreign: "0"}
        (made.root / third.record).write_text(json.dumps({**record, "outputs": outputs}))
        assert records.read_record(made.root / third.record, third) is None


def flipped(path, other) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "flipped": flipped,
    "emptied": lambda path, other: path.write_bytes(b""),
    "another run's": lambda path, other: shutil.copyfile(other, path),
    "deleted": lambda path, other: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_remakes_exactly_what_hangs_on_it(made, damage):
    """Frames, manifests, records, executed notebooks, tables."""
    finish(run_of("other"), walk(run_of("other")))
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
    records.write_record(job, fresh.parts(job), job.outputs, 1.0)
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
    finish(run_of(seed=1), walk(run_of(seed=1)))
    assert path.read_text() != before
    stale = made.root / f"artifacts/demo/stale/{before}/artifacts/demo/generations/{PAIR}.parquet"
    assert stale.read_text() == before
    assert len(list(made.root.glob("artifacts/demo/stale/*/figures/demo/tab_x.tex"))) == 1
    assert set(states(run_of()).values()) == {"restored"} and path.read_text() == before
    assert not (made.root / "artifacts/demo/stale" / before).exists(), "nothing is left where it lay"
    assert set(states(run_of()).values()) == {"fresh"}


def again(job) -> None:
    """Stand in for an execution that writes what was there before."""
    for kind, name in (("generations", "*"), ("notebooks", f"{job.name}*")):
        for old in (fresh.ROOT / job.run.folder / "stale").rglob(f"{job.run.folder}/{kind}/{name}"):
            os.rename(old, fresh.ROOT / job.run.folder / kind / old.name)
    records.write_record(job, fresh.parts(job), job.outputs, 1.0)


def test_what_follows_the_same_result_is_left_as_it_is(made):
    before = {path: path.stat().st_mtime_ns for path in (made.root / "artifacts/demo/confidence").iterdir()}
    assert states(run_of(), remake=["01"]) == {"01": "make", "02": "waits", "08": "waits"}
    first, second, third = run_of().jobs
    again(first)
    assert fresh.decide_at_start(second) == fresh.decide_at_start(third) == "its inputs are unchanged"
    assert set(states(run_of()).values()) == {"fresh"}
    assert before == {path: path.stat().st_mtime_ns for path in (made.root / "artifacts/demo/confidence").iterdir()}


def test_seconds_and_memory_say_nothing_that_matters(inside, monkeypatch):
    import pandas as pd

    from lib import store

    monkeypatch.setattr(store, "ROOT", inside.root)
    path = inside.root / "artifacts/x.parquet"

    def said(cost, value=0.5, **facts) -> str:
        frame = pd.DataFrame({"in_situ_seconds": [cost], "z": [value]})
        store.write_frame(frame, path, peak_memory_mb=cost, **facts)
        return fingerprint.semantic_checksum("artifacts/x.parquet")

    first = said(1.0)
    assert said(2.0, seconds=5) == said(1.0, code="0123") == first != fingerprint.checksum("artifacts/x.parquet")
    assert len({first, said(1.0, value=0.6), said(1.0, loaded={"device": "another"})}) == 3


def test_a_damaged_stale_output_does_not_come_back(made):
    before = (made.root / f"artifacts/demo/generations/{PAIR}.parquet").read_text()
    fresh.decide_at_start(run_of(seed=1).jobs[0])
    (made.root / f"artifacts/demo/stale/{before}/artifacts/demo/generations/{PAIR}.parquet").write_text("x")
    assert numbers(run_of()) == "01 02 08"


def test_remake_makes_anew_and_keeps_the_old(made):
    shards = made.root / f"artifacts/demo/shards/01_generate__{PAIR}-abc"
    tuning = made.root / f"artifacts/demo/shards/01_generate__{PAIR}__tuning-abc"
    another = made.root / f"artifacts/demo/shards/01_generate__{PAIR}2-abc"
    for folder in (shards, tuning, another):
        folder.mkdir(parents=True)
    assert numbers(run_of(), remake=["02"]) == "02 08"
    finish(run_of(), [verdict for verdict in walk(run_of()) if verdict.job.notebook.number != "01"])
    assert shards.exists()
    assert numbers(run_of(), remake=["01"]) == "01 02 08"
    assert not shards.exists() and not tuning.exists() and another.exists()
    assert list(made.root.glob(f"artifacts/demo/stale/forced/2/artifacts/demo/shards/01_generate__{PAIR}-abc"))


def test_a_remake_that_was_stopped_is_gone_on_with(made):
    """By a plain start as by the same command: what it has made is kept, and so are the pieces of what it has not."""
    run, remake = run_of(models=["tiny", "other"]), ["01"]
    finish(run, walk(run))
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
    finish(run, walk(run))
    assert numbers(run) == ""
    assert all((made.root / run.forced / "1" / job.record).read_text() == text for job, text in old.items())
    assert states(run, remake)["01"] == "make", "and now it is asked for once more"
    finish(run, walk(run))
    write(made.root / "params/models/third.yaml", "label: Third\nsource: weights/tiny\n")
    more = walk(run_of(models=["tiny", "other", "third"]), remake)
    assert [verdict.why for verdict in more[:3]] == ["asked for"] * 3, "one more model is nothing that was begun"


def test_what_was_made_anew_comes_back_and_what_it_replaced_does_not(made):
    first = run_of().jobs[0]
    shards = made.root / f"artifacts/demo/shards/{first.name}-abc"
    write(shards / "00000-0.parquet", "rows")
    finish(run_of(), walk(run_of(), ["01"]))
    remade = (made.root / first.record).read_text()
    finish(run_of(seed=1), walk(run_of(seed=1)))
    assert states(run_of())["01"] == "restored" and (made.root / first.record).read_text() == remade
    assert len(list((made.root / "artifacts/demo/stale").rglob(shards.name))) == 1
    shutil.rmtree(made.root / first.run.folder / "generations")
    assert states(run_of())["01"] == "make", "what was to be made anew does not come back"


def test_remake_of_what_the_run_does_not_run(made):
    with pytest.raises(UserError, match="does not run notebook 01"):
        walk(run_of("replay"), ["01"])


def test_code_changes_keep(made):
    keep = {"on_code_change": "keep"}
    made.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    first, *others = walk(run_of(**keep))
    assert (first.state, first.why) == ("kept", "code lib/alpha.py")
    assert {verdict.state for verdict in others} == {"fresh"}
    assert numbers(run_of(seed=1, **keep)) == "01 02 08"
    finish(run_of(**keep), walk(run_of(**keep)))
    made.replace("lib/gamma.py", "len(text)", "len(text) + 1")
    assert numbers(run_of(**keep)) == "02 08", "of heavy notebooks only"
    assert numbers(run_of(**keep), remake=["01"]) == "01 02 08"


def test_shards_are_named_by_content(inside):
    first = run_of().jobs[0], run_of(on_code_change="keep").jobs[0]
    before = [fresh.resume_key(job.run, fresh.parts(job)) for job in first]
    inside.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    after = [fresh.resume_key(job.run, fresh.parts(job)) for job in first]
    assert before[0] != after[0] and before[1] == after[1]


def test_replay_reads_shipped_signals_and_runs_no_model(inside):
    shipped = inside.root / f"artifacts/shipped/demo/generations/{PAIR}.parquet"
    with pytest.raises(UserError, match="needs artifacts/shipped/demo/generations/tiny__easy.parquet"):
        walk(run_of("replay"))
    shipped.parent.mkdir(parents=True)
    shipped.write_text("signals")
    run = run_of("replay")
    assert numbers(run) == "02 08"
    finish(run, walk(run))
    assert numbers(run) == ""
    shipped.write_text("others")
    assert numbers(run) == "02 08"
    assert shipped.read_text() == "others"


def test_parameters_nobody_sets_and_notebooks_without_a_cell_for_them(inside):
    path = inside.root / "notebooks/02_single_pass.ipynb"
    write_notebook(path, "binz = 10")
    with pytest.raises(UserError, match="declares parameter 'binz', which no profile sets: did you mean 'bins'"):
        run_of().jobs[1].parameters  # noqa: B018
    content = json.loads(path.read_text())
    content["cells"] = [cell for cell in content["cells"] if "tags" not in cell["metadata"]]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="exactly one cell tagged 'parameters', it has 0"):
        run_of().jobs[1].parameters  # noqa: B018


@pytest.mark.parametrize("line", ["a, b = 1, 2", "a = b = 1", "a = 1 + n", "import os", "a.b = 1", "a: int", "a += 1"])
def test_parameters_are_literals(inside, line):
    write_notebook(inside.root / "notebooks/02_single_pass.ipynb", line)
    with pytest.raises(UserError, match="is not of the form name = literal"):
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
    from workflow.fingerprint import normalize_source

    same = "x = 1  # one\n\n# two\ny = f'{x}#' + '# three'\n", "x = 1\ny = f'{x}#'   + '# three'\n"
    assert normalize_source(same[0]) == normalize_source(same[1])
    assert normalize_source("x = '''a\n\nb'''") != normalize_source("x = '''a\nb'''")
    assert normalize_source("f'{x}'") != normalize_source("f'{x} '")
    assert normalize_source("if a:\n    b\nc") != normalize_source("if a:\n    b\n    c")
    assert normalize_source("%matplotlib inline\n(") == "%matplotlib inline\n("


def test_imports_are_followed(inside):
    from workflow.fingerprint import import_closure

    assert import_closure(["import lib.alpha"]) == {"lib/__init__.py", "lib/alpha.py", "lib/beta.py"}
    assert import_closure(["%matplotlib inline\nfrom lib import gamma, nothing"]) == {"lib/__init__.py", "lib/gamma.py"}
    assert import_closure(["import json, library"]) == set()
    (inside.root / "lib/alpha.py").write_text("def f():\n    from .gamma import count\n    from . import beta\n")
    assert import_closure(["from lib.alpha import f"]) >= {"lib/beta.py", "lib/gamma.py"}
