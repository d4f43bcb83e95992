"""Where models run, and whether they fit there: small ones on the processor everywhere, others on one GPU or, if their
file says so, on all."""

from dataclasses import replace

import pytest
import torch
from small_project import write

from lib import params
from lib.generate import models, preflight
from workflow import check, machine, progress
from workflow.pipeline import Run


@pytest.fixture
def run(monkeypatch):
    """The demo's run on a machine with two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "memory_by_gpu", lambda: {"GPU-1": 80e9, "GPU-2": 80e9})
    return Run("demo", params.load_profile("demo").model_dump(), cores=8, gpus=2)


def outline(**changed):
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return preflight.load_outline("tiny-llama", spec, str(spec.place), whole=True)


def test_small_models_take_no_gpu_and_one_thread_and_one_that_is_spread_runs_alone(run, monkeypatch):
    placed = check.with_small(run, run.values["models"])
    assert {(job.gpus, job.threads) for job in placed.jobs if job.model} == {(0, 1)}
    monkeypatch.setattr(models, "SMALL", 900_000)  # between the two
    placed = check.with_small(run, run.values["models"])
    assert {(job.model, job.gpus) for job in placed.jobs if job.model} == {("tiny-llama", 1), ("tiny-qwen", 0)}
    spread = params.load_model_config("tiny-llama").model_copy(update={"gpus": "all"})
    monkeypatch.setitem(run.specs, "tiny-llama", spread)
    assert {(job.model, job.gpus) for job in run.jobs if job.model} == {("tiny-llama", 2), ("tiny-qwen", 1)}
    assert {job.threads for job in replace(run, gpus=4).jobs if job.model} == {2}, "cores are shared"


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


def test_what_is_said_of_memory(monkeypatch):
    def line(free, **values):
        run = Run("demo", params.load_profile("demo").model_dump() | values)
        monkeypatch.setattr(check, "find_memory", lambda *words: ("the CPU", free))
        ((level, text),) = check.about_memory(run, lm, thorough=True)
        assert not [*check.about_memory(run, lm, thorough=False)]
        return f"{level} {text}"

    lm = outline()
    weights = lm.model.num_parameters()
    assert line(8e9).startswith("ok 0.00096 billion")
    assert "too little for the weights alone" in line(4 * weights)
    middle = 4.4 * weights + 8e6
    too_little = line(middle)
    room = int(too_little.split("max_batch_tokens ")[1].split()[0])
    assert too_little.startswith("wrong")
    assert line(middle, max_batch_tokens=room).startswith("ok"), "what it proposes does fit"


def test_a_model_that_does_not_fit_a_gpu_is_refused_unless_its_file_says_all(run, monkeypatch):
    def lines(**changed):
        found = check.about_memory(run, outline(dtype="float32", **changed), thorough=False)
        return [text for level, text in found if level == "wrong"]

    weights = 4 * outline().model.num_parameters()
    for smallest, size, refused in ((25e6, 1e3, 0), (0, weights / 0.7, 0), (0, weights / 0.85, 1)):
        monkeypatch.setattr(models, "SMALL", smallest)
        monkeypatch.setattr(machine, "memory_by_gpu", lambda size=size: {"GPU-1": size})
        assert len(lines()) == refused and not lines(gpus="all")
    assert "too little for the weights alone: write `gpus: all` in its file" in lines()[0]
    ((_, line),) = check.about_place(replace(run, gpus=0), outline())
    assert "nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES" in line
    run.values["engine"] = "vllm"
    ((_, line),) = check.about_place(run, outline(gpus="all"))
    assert "no model on several GPUs (`gpus: all`): write `engine: transformers`" in line


@pytest.mark.parametrize("chosen, names", [
    (None, ["GPU-aaaa-1", "GPU-bbbb-2"]), (" 1 , 0 ", ["1", "0"]), ("", []), ("-1", []), ("MIG-dd,1", ["MIG-dd", "1"]),
])  # fmt: skip
def test_each_word_of_the_variable_is_handed_to_a_job_unread(tmp_path, monkeypatch, chosen, names):
    """And without it what nvidia-smi lists."""
    tool = tmp_path / "bin/nvidia-smi"
    write(tool, "#!/bin/sh\necho GPU-aaaa-1, 81559\necho GPU-bbbb-2, 81559\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert machine.list_gpus() == names


def test_a_home_at_the_root_is_no_place(monkeypatch):
    monkeypatch.setitem(progress.PLACES, "/", "~")
    assert progress.redact_paths("1 / 2\n") == "1 / 2\n"
