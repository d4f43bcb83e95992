"""What is wrong with a file, or seldom happens to a run, as its user sees it: a short line on any terminal."""

import json
import shutil
from types import SimpleNamespace

import pytest

from lib import params
from lib.generate import preflight
from lib.paths import ROOT, UserError
from workflow import check, notebook, run
from workflow.pipeline import Run

RUN = Run("demo", {"models": ["tiny"], "datasets": ["easy"]})


def test_whatever_check_meets_is_a_line(inside, capsys, monkeypatch):
    def about(*given):
        yield "ok", "begun"
        raise ZeroDivisionError("nothing to\ndivide")

    monkeypatch.setattr(check, "about_dataset", about)
    assert run.main(["check"]) == 2
    assert "wrong  dataset easy: can't be looked at (ZeroDivisionError: nothing to)" in capsys.readouterr().out


def test_the_code_beside_a_tokenizer_does_not_run(tmp_path):
    folder = shutil.copytree(ROOT / "demo" / "models" / "tiny-llama", tmp_path / "model")
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Theirs: ...\n")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    told |= {"auto_map": {"AutoTokenizer": [None, "theirs.Theirs"]}, "tokenizer_class": "Theirs"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(UserError):
        preflight.load_outline("tiny-llama", params.load_model_config("tiny-llama"), str(folder), whole=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name, kind", [("ZeroDivisionError", notebook.Failure), ("UserError", UserError)])
def test_a_fault_of_the_program_ends_otherwise_than_one_of_the_user(inside, name, kind):
    error = SimpleNamespace(ename=name, evalue="no", exec_count=1, source="1 / 0")
    assert type(notebook.cell_failure(RUN.jobs[0], error)) is kind
