"""What seldom happens to a run, and what its user then sees: by the mutants that no other test told apart."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from small_project import ROOT

from lib import params
from lib.generate import models, preflight
from lib.paths import UserError
from workflow import (
    check,
    cluster,
    cost,
    dry_run,
    files,
    leftovers,
    notebook,
    progress,
    records,
)
from workflow.pipeline import Run

RUN = Run("demo", {"models": ["tiny"], "datasets": ["easy"], "seed": 0})


def test_the_code_beside_a_tokenizer_does_not_run(tmp_path):
    folder = shutil.copytree(ROOT / "demo" / "models" / "tiny-llama", tmp_path / "model")
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Theirs: ...\n")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    told |= {"auto_map": {"AutoTokenizer": [None, "theirs.Theirs"]}, "tokenizer_class": "Theirs"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(UserError):
        preflight.load_outline("tiny-llama", params.load_model_config("tiny-llama"), str(folder), whole=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name, code", [("ZeroDivisionError", 1), ("UserError", 2)])
def test_a_fault_of_the_program_ends_otherwise_than_one_of_the_user(name, code):
    error = SimpleNamespace(ename=name, evalue="no", exec_count=1, source="1 / 0")
    assert notebook.cell_failure(RUN.jobs[0], error).code == code


@pytest.mark.parametrize("record, fine", [
    ({"key": records.key({"a": 1}), "parts": {"a": 1}, "outputs": {"x": "sum"}}, True),
    ({"key": records.key({"a": 1}), "parts": {"a": 2}, "outputs": {"x": "sum"}}, False),
    ({"key": records.key({"a": 1}), "parts": {"a": 1}, "outputs": {"x": None}}, False),
])  # fmt: skip
def test_a_record_is_its_own_witness(record, fine):
    assert records.in_order(record) == fine


@pytest.mark.parametrize("cluster, stays", [("", False), ("slurm", True)])
def test_what_nobody_writes_any_more_goes_at_once_where_no_other_machine_writes(inside, cluster, stays):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = inside.root / f"artifacts/demo/jobs/.record.json.{ended.pid}"
    path.parent.mkdir(parents=True)
    path.write_text("")
    leftovers.clear(Run("demo", RUN.values, cluster=cluster))
    assert path.exists() == stays


def test_empty_folders_go_however_deep_they_lie(tmp_path):
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/file").write_text("")
    files.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["d", "file"]


def test_the_answer_of_slurm_is_read():
    assert cluster.ask("sh", "-c", "echo ' one '; echo; echo two") == (0, "one\ntwo")
    assert cluster.ask("sh", "-c", "echo other; echo wrong >&2; exit 3") == (3, "wrong")
    assert cluster.ask("no such program")[0] == 1


@pytest.mark.parametrize("ends_after, waits", [(3, 2), (10**9, 60)])
def test_cancelled_jobs_have_a_minute_to_end(monkeypatch, ends_after, waits):
    asked, clock = [], []
    monkeypatch.setattr(cluster, "queued", lambda run: asked.append(run) or (["7"] if len(asked) <= ends_after else []))
    monkeypatch.setattr(cluster, "ask", lambda *words: (0, ""))
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: len(clock), sleep=clock.append))
    assert cluster.cancel(cluster.Profile(ROOT, {"executor": "slurm"}), RUN) == 1 and len(clock) == waits


def test_a_home_at_the_root_hides_no_path(monkeypatch):
    monkeypatch.setattr(progress, "PLACES", {"/": "~", "/home/me": "(home)"})
    assert progress.private("shard 3 / 7 of /home/me/y") == "shard 3 / 7 of (home)/y\n"


def test_hours_without_a_gpu_are_those_of_this_machine(monkeypatch):
    run = Run("demo", RUN.values)
    asked = []
    monkeypatch.setattr(cost, "measure_device", lambda threads: "this machine")
    monkeypatch.setattr(dry_run, "measured", lambda run, model, device: asked.append(device))
    assert set(dry_run.hours(run, run.jobs[:1]).values()) == {None} and asked == ["this machine"]


def test_a_prompt_has_whole_tokens(monkeypatch):
    monkeypatch.setattr(models, "encode", lambda lm, text: text)
    monkeypatch.setattr(preflight.Preflight, "render_prompt", lambda self, question="": "<s>" + question)
    monkeypatch.setattr(check, "written", lambda run, name: None)
    monkeypatch.setattr(cost.Work, "of", lambda values, spec, prompt, *rest: prompt)
    run = Run("demo", RUN.values | {"demonstration": "one"})
    lm = SimpleNamespace(name="tiny", spec=None)
    prompt = check.work_of(run, preflight.Preflight(lm, run.values, {"easy": ["ab", "c"]}))
    assert repr(prompt) == "4", "half a token more would make half a row of a batch"
