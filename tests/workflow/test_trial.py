"""`check --gpu`, on the processor and on a device that is none: what is right passes, and what is wrong is seen."""

import re
from contextlib import contextmanager
from dataclasses import replace

import accelerator
import numpy as np
import pytest
import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

from lib import params
from lib.generate import models
from lib.project import UserError
from workflow import cost, run, trial
from workflow.jobs import Run

FAST = cost.Device(False, "CPU", 8e9, 1e12, 1e18, 2)


@pytest.fixture
def small(monkeypatch):
    """Few rows, tokens and steps of tiny-llama in bfloat16."""
    torch.set_num_threads(1)
    spec = params.load_model("tiny-llama").model_copy(update={"dtype": "bfloat16"})
    monkeypatch.setattr(params, "load_model", lambda name: spec)
    monkeypatch.setattr(cost, "measure_device", lambda threads: FAST)
    for name, value in {"ROWS": 3, "NEW": 30, "STEPS": 2, "UNTIMED": 1, "ENCODED": (2, 32), "PIECE": 256}.items():
        monkeypatch.setattr(trial, name, value)
    return Run(
        "demo", params.load_profile("demo").model_dump() | {"max_batch_tokens": 800, "models": ["tiny-llama"]}, 2, 0
    )


@pytest.fixture
def quick(small, monkeypatch):
    """The same without what it takes."""
    monkeypatch.setattr(trial, "speed", lambda *_: iter(()))
    return small


@pytest.fixture
def loaded(monkeypatch):
    """Has a model changed after each loading."""
    load = models.load_language_model

    def changing(change):
        def changed(name, spec):
            lm = load(name, spec)
            with torch.no_grad():
                change(lm)
            return lm

        monkeypatch.setattr(models, "load_language_model", changed)

    return changing


def said(small):
    return [f"{level} {text}" for level, text in trial.everything(small, print)]


def numbers(pattern, line):
    return [float(number) for number in re.search(pattern, line).groups()]


def test_where_there_is_no_gpu_it_is_one_line(capsys):
    assert run.main(["check", "--gpu"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1
    assert "check --gpu tries a GPU, and PyTorch" in told.err and "sees none here" in told.err


def test_what_is_right_passes_and_what_it_takes_is_said(small):
    load, finite, padded, step, memory, hours, float32 = said(small)
    assert re.match(r"ok model tiny-llama: loaded in \d+ s: bfloat16, sdpa attention, ", load)
    assert finite.startswith("ok ") and "3 responses, their verdicts, and passes with dropout" in finite
    assert padded.startswith("ok ") and "a padded batch and each row alone" in padded
    assert float32.startswith("ok ") and "bfloat16 and float32" in float32
    for line, least in ((padded, 0), (float32, 1e-4)):  # what is read of a response hardly depends on its batch
        tokens, most, few, verdicts, far = numbers(
            r"of (\d+) tokens differ by (\S+) \(may by \S+\), 1 in 100 by (\S+); P\(True\) by (\S+) \(may by (\S+)\)",
            line)  # fmt: skip
        assert 30 < tokens <= 90 and least <= most <= few < 0.5 and 0 <= verdicts < far == trial.P_TRUE
    (took,) = numbers(r"note model tiny-llama: (\S+) ms a step of \d+ rows with \d+ tokens each$", step)
    (held,) = numbers(r"(\S+) GB at most, with \d+ rows of \d+ tokens; \S+ were reckoned", memory)
    low, high = numbers(r"about (\S+) to (\S+) hours for 1500 questions", hours)
    assert took > 0 and held > 0 and 0 < low <= high and "at this step" in hours


def test_the_hours_follow_from_the_step_that_was_measured(small, monkeypatch):
    monkeypatch.setattr(trial, "measured", lambda lm, size: FAST)
    monkeypatch.setattr(trial, "step_seconds", lambda lm, rows, held: 7.0)
    lm = models.load_language_model("tiny-llama", params.load_model("tiny-llama"))
    work = trial.check.work_of(small, lm)
    *_, (_, line) = trial.speed(lm, cost.Size.of(lm.model, 2), work)
    low, high = numbers(r"about (\S+) to (\S+) hours", line)
    steps = [min(factor * work.tokens, work.longest - work.prompt) for factor in (1.1, 1.5)]
    assert [low, high] == pytest.approx(
        [(1 + work.again) * work.rows / work.batch * 7.0 / 3600 * count for count in steps], rel=0.06
    )
    work = replace(work, served=True)
    *_, (_, line) = trial.speed(lm, cost.Size.of(lm.model, 2), work)
    assert "vLLM's drawing estimated" in line


@contextmanager
def blind():
    """Decoding that sees the last four tokens alone, as a kernel that goes wrong might."""

    def mask(*, q_length, kv_length, batch_size, **named):
        if q_length > 1:
            return sdpa_mask(q_length=q_length, kv_length=kv_length, batch_size=batch_size, **named)
        return (torch.arange(kv_length) >= kv_length - 4).expand(batch_size, 1, 1, -1)

    ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = mask
    try:
        yield
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]


def test_a_kernel_that_goes_wrong_is_seen(quick, monkeypatch):
    decoded = trial.decoded_logprobs

    def blindly(lm, frame):
        with blind():
            return decoded(lm, frame)

    monkeypatch.setattr(trial, "decoded_logprobs", blindly)
    (line,) = [line for line in said(quick) if "each row alone" in line]
    assert line.startswith("wrong ")


def test_half_precision_that_is_far_from_float32_is_seen(quick, loaded):
    def coarser(lm):
        if lm.model.dtype == torch.bfloat16:
            lm.model.get_input_embeddings().weight.mul_(1.3)

    loaded(coarser)
    wrong = [line for line in said(quick) if line.startswith("wrong")]
    assert len(wrong) == 1 and "bfloat16 and float32" in wrong[0]


def test_what_is_not_finite_is_seen(quick, loaded):
    loaded(lambda lm: lm.model.get_input_embeddings().weight.fill_(torch.nan))
    load, wrong = said(quick)
    assert wrong.startswith("wrong model tiny-llama: ") and "are not finite" in wrong


def test_nan_is_no_agreement():
    one, other = (trial.Reading(np.array(values), np.zeros(1)) for values in ([0.0, 1.0], [0.0, np.nan]))
    assert trial.agreement("x", one, one)[0] == "ok" and trial.agreement("x", one, other)[0] == "wrong"


def test_where_float32_has_no_room_that_is_said(quick, monkeypatch):
    monkeypatch.setattr(trial, "room", lambda: 1e6)
    assert said(quick)[-1].startswith("note model tiny-llama: not compared with float32, whose weights take 0 GB")


def test_where_memory_ends_with_the_runs_batches_that_is_said(small, monkeypatch):
    def ends(lm, rows, held):
        if held > 300:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 0.01

    monkeypatch.setattr(trial, "step_seconds", ends)
    lm = models.load_language_model("tiny-llama", params.load_model("tiny-llama"))
    _, (level, text), _ = trial.speed(lm, cost.Size.of(lm.model, 2), trial.check.work_of(small, lm))
    assert level == "note" and "such batches will be halved" in text


def test_an_error_of_the_device_is_one_line(quick, loaded):
    def fails(lm):
        raise RuntimeError("CUDA error: no kernel image is available\nCompile with `TORCH_USE_CUDA_DSA`")

    loaded(fails)
    assert said(quick) == ["wrong model tiny-llama: CUDA error: no kernel image is available"]


def test_a_model_that_cannot_be_had_does_not_end_the_others(quick, monkeypatch):
    def fetch(asked, names, say):
        if names == ["far"]:
            raise UserError("model 'far' is gated")

    monkeypatch.setattr(trial.hub, "fetch", fetch)
    monkeypatch.setattr(trial, "tried", lambda asked, name: iter([("ok", "fine")]))
    quick.values["models"] = ["far", "near"]
    assert said(quick) == ["wrong model far: model 'far' is gated", "ok model near: fine"]


@pytest.mark.parametrize(
    "levels, code, last",
    [
        (["ok", "note"], 0, "ready"),
        (["ok", "wrong"], 2, "1 thing(s) to mend"),
    ],
)
def test_a_run_on_a_gpu(small, monkeypatch, capsys, levels, code, last):
    """The card is taken as a job takes it, and let go afterwards."""
    taken = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")  # so that it is put back
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    monkeypatch.setattr(run.guard, "gpus", lambda: ["GPU-a", "GPU-b"])
    monkeypatch.setattr(run.guard, "take_gpu", lambda stack, names, say: taken.append(names) or "GPU-b")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(trial, "everything", lambda asked, say: ((level, "x") for level in levels))
    assert run.main(["check", "--gpu", "--only", "tiny-llama"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"demo on a GPU: {last}" and lines[1] == f"{levels[1]:5}  x"
    assert taken == [["GPU-a", "GPU-b"]] and run.os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    assert run.os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


def test_all_of_it_on_a_device(small, loaded, monkeypatch):
    """Tensors that claim to be on one: nothing is mixed with what lies on the processor."""
    loaded(lambda lm: accelerator.move(lm.model))
    with accelerator.pretended(monkeypatch):
        lines = said(small)
    assert [line.split()[0] for line in lines] == ["ok", "ok", "ok", "note", "note", "note", "ok"], lines
