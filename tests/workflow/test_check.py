"""`check`: what it says of machines and models, each guard seen to fire; it runs and keeps nothing."""

import json
import os
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import realmodels
import torch
from transformers import BloomConfig

from lib import params
from lib.generate import generation, preflight
from lib.paths import ROOT
from lib.tasks import prompts
from workflow import check, cost, run, usable
from workflow.cost import Device
from workflow.pipeline import Run

DEVICE = Device(cuda=False, name="CPU", memory=8e9, bandwidth=1e10, bytes=4, operations=1e11)


def spec_of(name="tiny-llama", **changed):
    return params.load_model_config(name).model_copy(update=changed)


def run_of(**values):
    return Run("demo", params.load_profile("demo").model_dump() | values, 2, 0)


def said(lines):
    return {f"{level} {text}" for level, text in lines}


def loaded(spec, folder=None):
    return preflight.load_outline("mine", spec, str(folder or ROOT / spec.source), whole=True)


def asked(lm, questions=(), **values):
    return preflight.Preflight(lm, run_of(**values).values, dict(questions))


def test_something_wrong_is_exit_code_two(inside, capsys, monkeypatch):
    monkeypatch.setattr(cost, "measure_device", lambda threads: DEVICE)
    assert run.main(["check"]) == 2  # the small project's model is a file of seven letters
    text = capsys.readouterr().out
    assert "wrong  model tiny: " in text and "problem(s) found" in text


def test_a_hub_that_does_not_answer_is_said_once_and_asked_no_more(monkeypatch, capsys):
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(check.hub, "is_reachable", lambda: False)
    check.reach_hub(Run("paper", params.load_profile("paper").model_dump(mode="json"), 2, 0), print)
    assert capsys.readouterr().out.startswith("note   hub: it does not answer; models and datasets must be in")
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["HF_DATASETS_OFFLINE"] == "1"


def test_memory():
    lm = loaded(spec_of())
    weights = lm.model.num_parameters()
    lines = said(check.about_cost(run_of(), asked(lm), DEVICE))
    assert any(line.startswith("ok 0.00096 billion") for line in lines) and any("hours" in line for line in lines)
    small = replace(DEVICE, memory=4 * weights)
    lines = said(check.about_cost(run_of(), asked(lm), small))
    assert any("too little for the weights alone" in line for line in lines)
    middle = replace(DEVICE, memory=4.4 * weights + 8e6)
    (line,) = [line for line in said(check.about_cost(run_of(), asked(lm), middle)) if line.startswith("wrong")]
    room = int(line.split("max_batch_tokens ")[1].split()[0])
    fits = said(check.about_cost(run_of(max_batch_tokens=room), asked(lm), middle))
    assert any(line.startswith("ok") for line in fits), "what it proposes does fit"


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(check.gpus, "available", lambda: ["0"])
    ((level, text),) = check.about_machine(run_of(), DEVICE)
    assert level == "wrong" and "sees none" in text and "TORCH_INDEX" in text
    monkeypatch.setattr(check.gpus, "available", list)
    ((level, text),) = check.about_machine(run_of(), DEVICE)
    assert level == "note" and "no GPU" in text


# ---- prompts and templates


QUESTIONS = {"short": ["What is 1?"], "long": ["What is 1?", "What is " + "1 plus " * 50 + "1?", "What?"]}


def test_the_context():
    """The longest prompt, rendered and counted; a response of the most tokens and the query after it."""
    lm = loaded(spec_of())
    prompt = len(lm_ids(lm, QUESTIONS["long"][1]))
    query = len(lm.tokenizer(prompts.QUERY, add_special_tokens=False).input_ids)
    text = f"the longest prompt (of long: {prompt} tokens), {{}} new tokens and the query ({query})"
    for context, new, said_so in [
        (1024, 256, "ok {} fit its context of 1024"),
        (prompt + query + 256, 256, f"ok {{}} fit its context of {prompt + query + 256}"),
        (
            prompt + query + 255,
            256,
            f"wrong {{}} do not fit its context of {prompt + query + 255}: write `max_new_tokens: 255` in its file",
        ),
        (prompt, 256, f"wrong {{}} do not fit its context of {prompt}: it can't be asked these questions"),
    ]:
        lm.model.config.max_position_embeddings = context
        assert said(asked(lm, QUESTIONS, max_new_tokens=new).check_context()) == {said_so.format(text.format(new))}
    own = replace(lm, spec=spec_of(max_new_tokens=10**6))
    (line,) = said(asked(own).check_context())
    assert line.startswith("wrong") and "(estimated: " in line and "1000000 new tokens" in line
    free = replace(lm, model=SimpleNamespace(config=BloomConfig()))  # distances instead of positions
    (line,) = said(asked(free, QUESTIONS).check_context())
    assert line.startswith("note its configuration names no context length")


def lm_ids(lm, question):
    return lm.tokenizer(generation.solving_prompt(lm, question, "none"), add_special_tokens=False).input_ids


@pytest.mark.slow
def test_the_papers_models_hold_their_longest_responses(shared):
    """Real configurations and tokenizers, with the settings of the paper's profile."""
    paper = Run("paper", params.load_profile("paper").model_dump(), 2, 0)
    assert len(realmodels.FOLDERS) == len(paper.values["models"]) == 5
    for name, folder in realmodels.FOLDERS.items():
        lm = preflight.load_outline(
            name, params.load_model_config(name), str(shared / "tokenizers" / folder), whole=False
        )
        (line,) = said(preflight.Preflight(lm, paper.values, QUESTIONS).check_context())
        assert line.startswith("ok ") and f"{lm.spec.max_new_tokens or 1024} new tokens" in line


# ---- before the first job


@pytest.fixture
def models_of(tmp_path, monkeypatch):
    """Copies of tiny-llama with something changed, by name, as the models that parameter files describe."""
    specs = {"good": spec_of()}

    def add(name, change=None, **changed):
        shutil.copytree(ROOT / "demo/models/tiny-llama", tmp_path / name)
        specs[name] = spec_of(source=str(tmp_path / name), **changed)
        if change:
            change(tmp_path / name)

    others = params.load_model_config
    monkeypatch.setattr(params, "load_model_config", lambda name: specs[name] if name in specs else others(name))
    return add


def without_template(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "chat_template"}))


def short(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 300}))


def without_spaced_b(folder):
    """No `A` but after a space, no `B` but bare: the tokens are there under other names."""
    path = folder / "tokenizer.json"
    text = json.loads(path.read_text())
    text["model"]["vocab"] = {
        {"A": "\u0100A", "\u0120B": "\u0120\u0100"}.get(token, token): index
        for token, index in text["model"]["vocab"].items()
    }
    text["model"]["merges"] = []
    path.write_text(json.dumps(text))


def test_what_a_model_lacks_is_known_before_the_first_job(models_of):
    """Template, options, context, dropout sites, weights: a line each, in about a second."""
    models_of("mute", without_template)
    models_of("short", short)
    models_of("choosy", without_spaced_b)
    models_of("empty", lambda folder: (folder / "model.safetensors").unlink())
    models_of("dated", lambda folder: (folder / "chat_template.jinja").write_text("{{ strftime_now('date_string') }}"))
    started = time.perf_counter()
    reasons = usable.find_unusable(run_of(), ["good", "mute", "short", "choosy", "empty", "dated"])
    assert time.perf_counter() - started < 6 * 3
    assert [reason.split("'")[1] for reason in reasons] == ["mute", "short", "choosy", "empty", "dated"]
    expected = ["no chat template", "do not fit its context of 300: write `max_new_tokens: ",
                "the options A/B have no spelling of the same form", "no *.safetensors",
                "set `date_string`"]  # fmt: skip
    for reason, words_said in zip(reasons, expected, strict=True):
        assert words_said in reason and "\n" not in reason
    assert usable.find_unusable(run_of(), ["good"]) == []


def test_a_large_model_without_a_gpu_is_refused_before_the_first_job(models_of, monkeypatch):
    """Unless the command line or the profile says that it is meant, or PyTorch sees a GPU after all."""
    assert usable.find_unusable(run_of(), ["good"]) == []
    monkeypatch.setattr(usable, "LARGE", 100_000)
    (reason,) = usable.find_unusable(run_of(), ["good"])
    assert "billion parameters, and PyTorch" in reason and "sees no GPU here: add --cpu (or `cpu: true`" in reason
    assert usable.find_unusable(run_of(cpu=True), ["good"]) == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert usable.find_unusable(run_of(), ["good"]) == []


def test_what_waits_for_its_conversion_is_looked_at_after_it(inside, monkeypatch):
    """A GGUF file says what it holds when it is converted; the other models are looked at before any fetching."""
    steps = []
    monkeypatch.setattr(run.weights, "needs_conversion", lambda spec: True)
    monkeypatch.setattr(run.weights, "fetch", lambda names, say: steps.append(("converted", names)))
    monkeypatch.setattr(usable, "find_unusable", lambda run, names: steps.append(("asked", names)) or names)
    assert run.main(["demo"]) == 2
    assert steps == [("asked", []), ("converted", ["tiny"]), ("asked", ["tiny"])]
    assert not (inside.root / "artifacts/demo/generations").exists()


def test_a_run_with_nothing_to_do_looks_at_no_model(inside, monkeypatch):
    asked = []
    monkeypatch.setattr(usable, "find_unusable", lambda run, names: asked.append(names) or ["no"])
    monkeypatch.setattr(run.fresh, "judge_all", lambda run, remake: [])
    assert run.main(["demo"]) == 0 and not asked
