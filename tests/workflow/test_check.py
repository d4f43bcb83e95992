"""`check`: what it says of machines and models, each guard seen to fire; it runs and keeps nothing."""

import shutil
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lib import params
from lib.generate.models import LanguageModel
from lib.project import ROOT, UserError
from workflow import check, cost, run, words
from workflow.cost import Device
from workflow.jobs import Run

DEVICE = Device(cuda=False, name="CPU", memory=8e9, bandwidth=1e10, bytes=4, operations=1e11)


def spec_of(name="tiny-llama", **changed):
    return params.load_model(name).model_copy(update=changed)


def run_of(**values):
    return Run("demo", params.load_profile("demo").model_dump() | values, 2, 0)


def said(lines):
    return {f"{level} {text}" for level, text in lines}


def loaded(spec, folder=None):
    return check.parts("mine", spec, str(folder or ROOT / spec.source))


def test_the_demo_is_ready_and_nothing_is_written(capsys, tmp_path, monkeypatch):
    before = {path for path in (ROOT / "artifacts").rglob("*")}
    assert run.main(["check"]) == 0
    text = capsys.readouterr().out
    for words_said in ("ok     model tiny-llama: option tokens: 'A' 32", "one beginning-of-sequence token", "'####'",
                       "dropout sites: 4 Qwen3Attention", "300 calibration and 200 evaluation questions",
                       "demo: ready; nothing was run"):  # fmt: skip
        assert words_said in text
    assert {path for path in (ROOT / "artifacts").rglob("*")} == before


def test_something_wrong_is_exit_code_two(inside, capsys, monkeypatch):
    monkeypatch.setattr(cost, "measure_device", lambda threads: DEVICE)
    assert run.main(["check"]) == 2  # the small project's model is a file of seven letters
    text = capsys.readouterr().out
    assert "wrong  model tiny: " in text and "thing(s) to mend" in text


def test_words():
    assert words.check(["check", "paper", "--only", "tiny-llama"]).verb == "paper"
    assert words.check(["check"]).verb == "demo" and words.check(["check"]).check and not words.check([]).check
    for line, hint in ((["check", "replay"], "check takes a profile"), (["check", "papr"], "'paper'"),
                       (["check", "demo", "--remake", "01"], "not --remake")):  # fmt: skip
        with pytest.raises(words.WordError, match=hint):
            words.check(line)


def test_memory():
    lm, network, _ = loaded(spec_of())
    weights = sum(p.numel() for p in network.parameters())
    lines = said(check.about_cost(run_of(), lm, network, DEVICE))
    assert any(line.startswith("ok 0.00095 billion") for line in lines) and any("hours" in line for line in lines)
    small = replace(DEVICE, memory=4 * weights)
    lines = said(check.about_cost(run_of(), lm, network, small))
    assert any("too little for the weights alone" in line for line in lines)
    middle = replace(DEVICE, memory=4.4 * weights + 1e6)
    (line,) = [line for line in said(check.about_cost(run_of(), lm, network, middle)) if line.startswith("wrong")]
    room = int(line.split("batch_tokens ")[1].split()[0])
    fits = said(check.about_cost(run_of(batch_tokens=room, max_new_tokens=8), lm, network, middle))
    assert any(line.startswith("ok") for line in fits), "what it proposes does fit"


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(check.guard, "gpus", lambda: ["0"])
    ((level, text),) = check.about_machine(run_of(), DEVICE)
    assert level == "wrong" and "sees none" in text and "TORCH_INDEX" in text
    monkeypatch.setattr(check.guard, "gpus", list)
    ((level, text),) = check.about_machine(run_of(), DEVICE)
    assert level == "note" and "no GPU" in text


def test_the_disk(monkeypatch):
    far = spec_of(source="someone/large")
    monkeypatch.setattr(params, "load_model", lambda name: far)
    monkeypatch.setattr(check.hub, "missing", lambda spec: 31_000_000_000)
    for free, level in ((100e9, "ok"), (40e9, "wrong")):
        monkeypatch.setattr(check.hub, "room", lambda free=free: ("/cache", free))
        ((found, text),) = check.about_disk(run_of())
        assert found == level and "62.0 GB of weights" in text


# ---- prompts and templates


def templated(template, **changed):
    lm, _, _ = loaded(spec_of(**changed))
    lm.tokenizer.chat_template = template
    return check.about_prompt(run_of(), lm)


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def test_templates():
    with pytest.raises(UserError, match="no chat template"):
        list(templated(None))
    with pytest.raises(UserError, match="System role not supported; if it knows no system role, write `system_prompt"):
        list(templated("{{ raise_exception('System role not supported') }}", system_prompt=True))
    dated = "{% if date_string is not defined %}{% set date_string = strftime_now('%d') %}{% endif %}" + CHAT
    assert any("set `date_string`" in line for line in said(templated(dated)))
    assert not any("date_string" in line for line in said(templated(dated, date_string="1 May")))
    assert any("write `thinking: true`" in line for line in said(templated(CHAT + "<think>\n")))
    assert not any("wrong" in line for line in said(templated(CHAT + "<think>\n", thinking=True)))
    with pytest.raises(UserError, match="beginning-of-sequence token twice"):
        list(templated("{{ bos_token }}{{ bos_token }}" + CHAT))


def test_options_that_are_no_single_tokens(tmp_path):
    words_only = Tokenizer(models.WordLevel({"?": 0, "pen": 1, "pens": 2}, unk_token="?"))
    words_only.pre_tokenizer = pre_tokenizers.Whitespace()
    lm = LanguageModel("mine", spec_of(), None, PreTrainedTokenizerFast(tokenizer_object=words_only), [], {})
    lm.tokenizer.chat_template = CHAT
    with pytest.raises(UserError, match="option 'A' is no single token"):
        list(check.about_prompt(run_of(), lm))


def test_spellings_that_count():
    lines = said(check.about_options(run_of(), {"A": 3, "B": 4, " B": 9}))
    assert lines == {"ok option tokens: 'A' 3, 'B' 4, ' B' 9",
                     "note P(True) compares 'A' against 'B'; ' B' has no counterpart and does not count"}  # fmt: skip
    balanced = {"A": 3, "B": 4, " True": 5, " False": 6, "False": 7}
    assert "ok P(True) compares 'A' against 'B'" in said(check.about_options(run_of(), balanced))
    asked = said(check.about_options(run_of(options="True/False"), balanced))
    assert "note P(True) compares ' True' against ' False'; 'False' has no counterpart and does not count" in asked
    with pytest.raises(UserError, match="the option 'True' is no single token"):
        list(check.about_options(run_of(options="True/False"), {"A": 3, "B": 4}))


def test_decoding_settings_that_differ_are_noted():
    assert said(check.about_decoding(spec_of(temperature=1.0), {"temperature": 0.6, "top_k": 0})) == {
        "note its own generation_config says temperature 0.6 (here 1)"}  # fmt: skip
    assert not said(check.about_decoding(spec_of(temperature=0.6), {"temperature": 0.6}))


def test_a_network_without_dropout():
    assert said(check.about_network(torch.nn.Linear(2, 2))) == {
        "wrong a Linear has nowhere to drop anything out: c_BALD can't be had"}  # fmt: skip
    found = said(check.about_network(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9))))
    assert found == {"ok dropout sites: 4 Dropout, 1 GPT2Attention"} or any("Dropout" in line for line in found)


def test_sources(tmp_path):
    with pytest.raises(UserError, match="did you mean 'tiny-llama'"):
        check.local_copy(spec_of(source="demo/models/tiny-lama"))
    shutil.copytree(ROOT / "demo/models/tiny-llama", tmp_path / "m")
    (tmp_path / "m/model.safetensors").rename(tmp_path / "m/pytorch_model.bin")
    with pytest.raises(UserError, match="no \\*.safetensors, the only weights"):
        check.local_copy(spec_of(source=str(tmp_path / "m")))
    (tmp_path / "m/config.json").write_text('{"model_type": "nothing-known"}')
    with pytest.raises(UserError, match="can't be loaded"):
        loaded(spec_of(), tmp_path / "m")
