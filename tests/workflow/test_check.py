"""`check`: what it says of machines and models, each guard seen to fire; it runs and keeps
nothing."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from lib import params
from lib.errors import UserError
from lib.models import loading
from lib.paths import ROOT
from workflow import check, run
from workflow.engine.jobs_of_run import Run


def run_of(**values):
    return Run("demo", params.load_profile("demo").model_dump() | values, 2, 0)


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(check.machine, "list_gpus", lambda: ["0"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ((level, text),) = check.about_machine(run_of())
    assert level == "wrong" and "sees none" in text and "TORCH_INDEX" in text


def test_a_large_model_without_a_gpu_is_refused_before_the_first_job(monkeypatch):
    """Unless the command line or the profile says that it is meant, or PyTorch sees a GPU after
    all."""
    check.refuse_unusable(run_of(), ["tiny-llama"])
    monkeypatch.setattr(check, "LARGE", 100_000)
    with pytest.raises(
        UserError, match="billion parameters, and PyTorch.* sees no GPU here: add --cpu "
    ):
        check.refuse_unusable(run_of(), ["tiny-llama"])
    check.refuse_unusable(run_of(cpu=True), ["tiny-llama"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(loading, "SMALL", 0)
    check.refuse_unusable(replace(run_of(), gpus=1), ["tiny-llama"])


def test_whatever_check_meets_is_a_line(inside, capsys, monkeypatch):
    def about(*arguments):
        yield "ok", "begun"
        raise ZeroDivisionError("nothing to\ndivide")

    monkeypatch.setattr(check, "about_dataset", about)
    assert run.main(["check"]) == 2
    assert (
        "wrong  dataset easy: can't be looked at (ZeroDivisionError: nothing to)"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "name, classes",
    [
        ("tokenizer_config.json", {"AutoTokenizer": [None, "theirs.Theirs"]}),
        ("config.json", {"AutoConfig": "theirs.Theirs"}),
        ("config.json", {"AutoModelForCausalLM": "theirs.Theirs"}),
    ],
)
def test_the_code_beside_a_model_does_not_run(tmp_path, name, classes):
    folder = shutil.copytree(ROOT / "demo" / "models" / "tiny-llama", tmp_path / "model")
    (folder / "theirs.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Theirs: ...\n"
    )
    config = json.loads((folder / name).read_text()) | {"auto_map": classes}
    (folder / name).write_text(json.dumps(config))
    loading.load_language_model("tiny", params.Model(label="Tiny", source=str(folder)))
    assert not (tmp_path / "ran").exists()
