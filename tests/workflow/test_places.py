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
    places, need = [], []
    for smallest, changed in ((25e6, {}), (0, {}), (0, {"gpus": "all"})):
        monkeypatch.setattr(models, "SMALL", smallest)
        lm = outline(dtype="auto", **changed)
        ((_, text),) = check.about_memory(run, lm, thorough=True)
        need.append(float(text.split("up to ")[1].split(" GB")[0]))
        places.append(check.find_memory(run, lm))
    assert places[0][0] == "the CPU" and places[1:] == [("a GPU", 72e9), ("all GPUs", 144e9)]
    assert need[1] == need[2] < need[0]


# ---- models that are too large for one GPU


def outline(**changed):
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return preflight.load_outline("tiny-llama", spec, str(spec.place), whole=False)


def test_a_model_that_does_not_fit_a_gpu_is_refused_unless_its_file_says_all(run, monkeypatch):
    def lines(**changed):
        return [
            text
            for level, text in check.about_memory(run, outline(dtype="float32", **changed), thorough=False)
            if level == "wrong"
        ]

    weights = 4 * outline().model.num_parameters()
    for smallest, size, refused in ((25e6, 1e3, 0), (0, weights / 0.7, 0), (0, weights / 0.85, 1)):
        monkeypatch.setattr(models, "SMALL", smallest)
        monkeypatch.setattr(machine, "memory_by_gpu", lambda size=size: {"GPU-1": size})
        assert len(lines()) == refused and not lines(gpus="all")
    (line,) = lines()
    assert "a GPU has room for 0.004058 GB, too little for the weights alone: write `gpus: all` in its file" in line
    ((_, line),) = check.about_place(replace(run, gpus=0), outline())
    assert "nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES" in line
    run.values["engine"] = "vllm"
    assert [*check.about_place(run, outline(gpus="all"))] == [(
        "wrong", "vLLM loads no GGUF file here, and no model on several GPUs (`gpus: all`): write `engine: "
        "transformers` in the profile")]  # fmt: skip


def test_a_model_that_is_spread_runs_alone(run, monkeypatch):
    spread = params.load_model_config("tiny-llama").model_copy(update={"gpus": "all"})
    monkeypatch.setitem(run.specs, "tiny-llama", spread)
    assert {(job.model, job.gpus) for job in run.jobs if job.model} == {("tiny-llama", 2), ("tiny-qwen", 1)}
