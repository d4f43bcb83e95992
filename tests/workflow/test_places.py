"""Where models run: small ones on the processor everywhere, others on one GPU or, if their file says so, on all."""

from dataclasses import replace

import pytest
import torch

from lib import params
from lib.generate import models, preflight
from workflow import check, gpus, memory, usable
from workflow.pipeline import Run


@pytest.fixture
def run(monkeypatch):
    """The demo's run on a machine with two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpus, "list_gpus", lambda: ["GPU-1", "GPU-2"])
    monkeypatch.setattr(gpus, "gpu_memory", lambda names: [80e9] * len(names))
    return Run("demo", params.load_profile("demo").model_dump(), cores=8, gpus=2)


def test_they_take_no_gpu_and_one_thread(run, monkeypatch):
    placed = usable.with_small(run, run.values["models"])
    assert {(job.gpus, job.threads) for job in placed.jobs if job.model} == {(0, 1)}
    monkeypatch.setattr(models, "SMALL", 900_000)  # between the two
    placed = usable.with_small(run, run.values["models"])
    assert {(job.model, job.gpus) for job in placed.jobs if job.model} == {("tiny-llama", 1), ("tiny-qwen", 0)}


def test_check_asks_for_memory_where_they_run(run, monkeypatch):
    """In float32 of the processor; a larger one in bfloat16 of a GPU, or of all if its file says so."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80e9, 80e9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    asked = []
    monkeypatch.setattr(memory, "check_memory", lambda *words: asked.append((words[1], words[-1])) or ("ok", ""))
    for smallest, changed in ((25e6, {}), (0, {}), (0, {"gpus": "all"})):
        monkeypatch.setattr(models, "SMALL", smallest)
        check.about_memory(run, preflight.Preflight(outline(dtype="auto", **changed), run.values, {}))
    assert [(size, place.name) for size, place in asked] == [(4, "CPU"), (2, "a GPU"), (2, "all 2 GPUs")]
    assert asked[2][1].memory == 160e9


# ---- models that are too large for one GPU


def outline(**changed):
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return preflight.load_outline("tiny-llama", spec, str(spec.place), whole=False)


def test_a_model_that_does_not_fit_a_gpu_is_refused_unless_its_file_says_all(run, monkeypatch):
    def lines(**changed):
        return [f"{level}: {text}" for level, text in usable.check_gpu(run, outline(dtype="float32", **changed))]

    weights = 4 * outline().model.num_parameters()
    for smallest, size, refused in ((25e6, 1e3, 0), (0, weights / 0.8, 0), (0, weights / 0.95, 1)):
        monkeypatch.setattr(models, "SMALL", smallest)
        monkeypatch.setattr(gpus, "gpu_memory", lambda names, size=size: [size] * len(names))
        assert len(lines()) == refused and not lines(gpus="all")
    assert lines() == ["wrong: its weights (0.0038 GB) do not fit a GPU of 0.004 GB: write `gpus: all` in its file to "
                       "spread it over all GPUs"]  # fmt: skip
    run.values["engine"] = "vllm"
    (line,) = lines(gpus="all")
    assert line == ("wrong: vLLM generates on one GPU, and its file says `gpus: all`: write `engine: transformers` in "
                    "the profile")  # fmt: skip


def test_a_model_that_is_spread_runs_alone(run):
    (job, *_) = replace(run, gpus=4, spread=("tiny-llama",)).jobs
    assert job.gpus == 4 and {other.gpus for other in run.jobs if other.model} == {1}
