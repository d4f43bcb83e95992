"""`check`: what it says of machines and models, each guard seen to fire; it runs and keeps nothing."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import BloomConfig, GPT2Config, MambaConfig, Qwen3Config

from lib import params
from lib.generate import generation, models, preflight
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


def test_memory(outline, monkeypatch):
    weights = outline.model.num_parameters()

    def lines(free, **values):
        monkeypatch.setattr(check, "find_memory", lambda *words: ("the CPU", free))
        ((level, text),) = check.about_memory(run_of(**values), outline, thorough=True)
        assert not [*check.about_memory(run_of(**values), outline, thorough=False)]
        return f"{level} {text}"

    assert lines(8e9).startswith("ok 0.00096 billion")
    assert "too little for the weights alone" in lines(4 * weights)
    middle = 4.4 * weights + 8e6
    too_little = lines(middle)
    room = int(too_little.split("max_batch_tokens ")[1].split()[0])
    assert too_little.startswith("wrong")
    assert lines(middle, max_batch_tokens=room).startswith("ok"), "what it proposes does fit"


@pytest.mark.parametrize("config, numbers", [
    (Qwen3Config(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16), 2 * 2 * 2 * 16),
    (GPT2Config(n_embd=64, n_layer=2, n_head=4), 2 * 2 * 64),
    (MambaConfig(hidden_size=64, num_hidden_layers=2), 0),  # of states alone
])  # fmt: skip
def test_numbers_of_a_token_in_the_cache_by_hand(config, numbers):
    """A key and a value per layer and head."""
    assert check.cache_numbers_per_token(SimpleNamespace(config=config)) == numbers


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(check.machine, "list_gpus", lambda: ["0"])
    ((level, text),) = check.about_machine(run_of())
    assert level == "wrong" and "sees none" in text and "TORCH_INDEX" in text


# ---- prompts and templates


QUESTIONS = {"short": ["What is 1?"], "long": ["What is 1?", "What is " + "1 plus " * 50 + "1?", "What?"]}


def test_the_context(outline):
    """The longest prompt, rendered and counted; a response of the most tokens and the query after it."""

    def line() -> str:
        ((level, text),) = preflight.check_context(outline, run_of(max_new_tokens=256).values, QUESTIONS)
        return f"{level} {text}"

    rendered = generation.solving_prompt(outline, QUESTIONS["long"][1], "none"), prompts.QUERY
    prompt, query = (len(outline.tokenizer(text, add_special_tokens=False).input_ids) for text in rendered)
    room = prompt + query + 256
    what = f"the longest prompt (of long: {prompt} tokens), 256 new tokens and the query ({query})"
    for context, level, end in [
        (room, "ok", f"fit its context of {room}"),
        (room - 1, "wrong", f"do not fit its context of {room - 1}: write `max_new_tokens: 255` in its file"),
        (prompt, "wrong", f"do not fit its context of {prompt}: it can't be asked these questions"),
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
    monkeypatch.setattr(models, "SMALL", 0)
    check.refuse_unusable(replace(run_of(), gpus=1), ["tiny-llama"])


def test_what_is_yet_to_be_fetched_is_looked_at_after_it(inside, monkeypatch):
    """A GGUF file says what it holds once it is here; the other models are looked at before any fetching."""
    steps = []
    monkeypatch.setattr(run.hub, "is_elsewhere", lambda spec: True)

    def refuse(run, names):
        steps.append(("asked", names))
        if names:
            raise UserError("no")

    monkeypatch.setattr(run.hub, "fetch", lambda names: steps.append(("fetched", names)))
    monkeypatch.setattr(check, "refuse_unusable", refuse)
    assert run.main(["demo"]) == 2
    assert steps == [("asked", []), ("fetched", ["tiny"]), ("asked", ["tiny"])]


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
