"""`check`: what it says of machines and models, each guard seen to fire; it runs and keeps nothing."""

import json
import shutil

import pytest
import torch
from transformers import BloomConfig

from lib import params
from lib.generate import generation, preflight
from lib.paths import ROOT, UserError
from lib.tasks import prompts
from workflow import check, run
from workflow.pipeline import Run


def run_of(**values):
    return Run("demo", params.load_profile("demo").model_dump() | values, 2, 0)


@pytest.fixture
def outline():
    spec = params.load_model_config("tiny-llama")
    return preflight.load_outline("mine", spec, str(ROOT / spec.source), whole=True)


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(check.machine, "list_gpus", lambda: ["0"])
    ((level, text),) = check.about_machine(run_of())
    assert level == "wrong" and "sees none" in text and "TORCH_INDEX" in text


# ---- prompts and templates


QUESTIONS = {"short": ["What is 1?"], "long": ["What is 1?", "What is " + "1 plus " * 50 + "1?", "What?"]}


def test_the_context(outline):
    """The longest prompt, rendered and counted; a response of the most tokens and the query after it."""

    def line() -> str:
        ((level, text),) = preflight.Preflight(outline, run_of(max_new_tokens=256).values, QUESTIONS).check_context()
        return f"{level} {text}"

    rendered = generation.solving_prompt(outline, QUESTIONS["long"][1], "none"), prompts.QUERY
    prompt, query = (len(outline.tokenizer(text, add_special_tokens=False).input_ids) for text in rendered)
    room = prompt + query + 256
    what = f"the longest prompt (of long: {prompt} tokens), 256 new tokens and the query ({query})"
    for context, level, end in [
        (room, "ok", f"fit its context of {room}"),
        (room - 1, "wrong", f"do not fit its context of {room - 1}: write `max_new_tokens: 255` in its file"),
    ]:
        outline.model.config.max_position_embeddings = context
        assert line() == f"{level} {what} {end}"
    outline.model.config = BloomConfig()  # distances instead of positions
    assert line().startswith("note its configuration names no context length")


# ---- before the first job


def test_a_large_model_without_a_gpu_is_refused_before_the_first_job(monkeypatch):
    """Unless the command line or the profile says that it is meant, or PyTorch sees a GPU after all."""
    check.refuse_unusable(run_of(), ["tiny-llama"])
    monkeypatch.setattr(check, "LARGE", 100_000)
    with pytest.raises(UserError, match="billion parameters, and PyTorch.* sees no GPU here: add --cpu "):
        check.refuse_unusable(run_of(), ["tiny-llama"])
    check.refuse_unusable(run_of(cpu=True), ["tiny-llama"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check.refuse_unusable(run_of(), ["tiny-llama"])


# ---- what is wrong with a file


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
