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
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8e9, 8e9))
    monkeypatch.setattr(machine, "list_gpus", lambda: ["GPU-1", "GPU-2"])
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
    asked, find_place, lines = [], machine.find_place, []
    monkeypatch.setattr(machine, "find_place", lambda *words: asked.append(find_place(*words)) or asked[-1])
    for smallest, changed in ((25e6, {}), (0, {}), (0, {"gpus": "all"})):
        monkeypatch.setattr(models, "SMALL", smallest)
        lines.append(machine.about_memory(run, preflight.Preflight(outline(dtype="auto", **changed), run.values, {})))
    assert [name for name, _ in asked] == ["CPU", "a GPU", "all 2 GPUs"] and asked[2][1] == 16e9
    need = [float(text.split("up to ")[1].split(" GB")[0]) for _, text in lines]
    assert need[1] == need[2] < need[0]


def test_what_is_said_of_memory(monkeypatch):
    lm = outline()
    weights = lm.model.num_parameters()

    def lines(free, **values):
        run = Run("demo", params.load_profile("demo").model_dump() | values)
        monkeypatch.setattr(machine, "find_place", lambda *words: ("CPU", free))
        return " ".join(machine.about_memory(run, preflight.Preflight(lm, run.values, {})))

    assert lines(8e9).startswith("ok 0.00096 billion")
    assert "too little for the weights alone" in lines(4 * weights)
    middle = 4.4 * weights + 8e6
    too_little = lines(middle)
    room = int(too_little.split("max_batch_tokens ")[1].split()[0])
    assert too_little.startswith("wrong")
    assert lines(middle, max_batch_tokens=room).startswith("ok"), "what it proposes does fit"


def test_a_model_that_does_not_fit_a_gpu_is_refused_unless_its_file_says_all(run, monkeypatch):
    def lines(of=run, **changed):
        return [f"{level}: {text}" for level, text in check.about_gpu(of, outline(dtype="float32", **changed))]

    weights = 4 * outline().model.num_parameters()
    for smallest, size, refused in ((25e6, 1e3, 0), (0, weights / 0.8, 0), (0, weights / 0.95, 1)):
        monkeypatch.setattr(models, "SMALL", smallest)
        monkeypatch.setattr(machine, "memory_by_gpu", lambda size=size: {"GPU-1": size})
        assert len(lines()) == refused and not lines(gpus="all")
    assert lines() == ["wrong: its weights (0.0038 GB) do not fit a GPU of 0.004 GB: write `gpus: all` in its file to "
                       "spread it over all GPUs"]  # fmt: skip
    assert "nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES" in lines(replace(run, gpus=0))[0]
    run.values["engine"] = "vllm"
    assert "no model on several GPUs (`gpus: all`): write `engine: transformers`" in lines(gpus="all")[0]


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
