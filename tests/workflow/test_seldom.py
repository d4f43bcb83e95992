"""What seldom happens to a run, and what its user then sees: by the mutants that no other test told apart."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from small_project import ROOT

from lib import params
from lib.generate import preflight
from lib.paths import UserError
from workflow import (
    leftovers,
    notebook,
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
    assert records.is_valid(record) == fine


@pytest.mark.parametrize("cluster, stays", [("", False), ("slurm", True)])
def test_what_nobody_writes_any_more_goes_at_once_where_no_other_machine_writes(inside, cluster, stays):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = inside.root / f"artifacts/demo/jobs/.record.json.{ended.pid}"
    path.parent.mkdir(parents=True)
    path.write_text("")
    leftovers.clear(Run("demo", RUN.values, cluster=cluster))
    assert path.exists() == stays
