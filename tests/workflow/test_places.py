"""Where models run: small ones on the processor everywhere, others on one GPU or, if their file says so, on all."""

from dataclasses import replace

import pytest
import torch

from lib import params
from lib.generate import models, preflight
from workflow import check, machine
from workflow.pipeline import Run


@pytest.fixture
def run(monkeypatch):
    """The demo's run on a machine with two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "list_gpus", lambda: ["GPU-1", "GPU-2"])
    monkeypatch.setattr(machine, "memory_by_gpu", lambda: {"GPU-1": 80e9, "GPU-2": 80e9})
    return Run("demo", params.load_profile("demo").model_dump(), cores=8, gpus=2)


def test_they_take_no_gpu_and_one_thread(run, monkeypatch):
    placed = check.with_small(run, run.values["models"])
    assert {(job.gpus, job.threads) for job in placed.jobs if job.model} == {(0, 1)}
    monkeypatch.setattr(models, "SMALL", 900_000)  # between the two
    placed = check.with_small(run, run.values["models"])
    assert {(job.model, job.gpus) for job in placed.jobs if job.model} == {("tiny-llama", 1), ("tiny-qwen", 0)}


def test_check_asks_for_memory_where_they_run(run, monkeypatch):
    """In float32 of the processor; a larger one in bfloat16 of a GPU, or of all if its file says so."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    asked, find_place = [], machine.find_place
    monkeypatch.setattr(machine, "find_place", lambda *words: asked.append(find_place(*words)) or asked[-1])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8e9, 8e9))
    lines = []
    for smallest, changed in ((25e6, {}), (0, {}), (0, {"gpus": "all"})):
        monkeypatch.setattr(models, "SMALL", smallest)
        lm = outline(dtype="auto", **changed)
        lines.append(machine.about_memory(run, lm, preflight.estimate_prompt(lm, run.values)))
    assert [name for name, _ in asked] == ["CPU", "a GPU", "all 2 GPUs"] and asked[2][1] == 16e9
    need = [float(text.split("up to ")[1].split(" GB")[0]) for _, text in lines]
    assert need[1] == need[2] < need[0]


# ---- models that are too large for one GPU


def outline(**changed):
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return preflight.load_outline("tiny-llama", spec, str(spec.place), whole=False)


def test_a_model_that_does_not_fit_a_gpu_is_refused_unless_its_file_says_all(run, monkeypatch):
    def lines(**changed):
        return [f"{level}: {text}" for level, text in check.about_gpu(run, outline(dtype="float32", **changed))]

    weights = 4 * outline().model.num_parameters()
    for smallest, size, refused in ((25e6, 1e3, 0), (0, weights / 0.8, 0), (0, weights / 0.95, 1)):
        monkeypatch.setattr(models, "SMALL", smallest)
        monkeypatch.setattr(machine, "memory_by_gpu", lambda size=size: {"GPU-1": size})
        assert len(lines()) == refused and not lines(gpus="all")
    assert lines() == ["wrong: its weights (0.0038 GB) do not fit a GPU of 0.004 GB: write `gpus: all` in its file to "
                       "spread it over all GPUs"]  # fmt: skip
    line, *_ = check.about_gpu(replace(run, gpus=0), outline())
    assert "nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES" in line[1]
    run.values["engine"] = "vllm"
    (line,) = lines(gpus="all")
    assert line == ("wrong: vLLM loads no GGUF file here, and no model on several GPUs (`gpus: all`): write `engine: "
                    "transformers` in the profile")  # fmt: skip


def test_a_model_that_is_spread_runs_alone(run, monkeypatch):
    spread = params.load_model_config("tiny-llama").model_copy(update={"gpus": "all"})
    monkeypatch.setitem(run.specs, "tiny-llama", spread)
    assert {(job.model, job.gpus) for job in run.jobs if job.model} == {("tiny-llama", 2), ("tiny-qwen", 1)}
