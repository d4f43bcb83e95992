"""Where models run, and whether they fit there: small ones on the processor everywhere, others on
one GPU or, if their file says so, on all."""

import re
from argparse import Namespace
from dataclasses import replace

import pytest
from small_project import write

from lib import params
from lib.generate import preflight
from lib.models import loading
from workflow import check, machine
from workflow.engine import notebook, progress
from workflow.engine.jobs_of_run import Run


@pytest.fixture
def run(monkeypatch):
    """The demo's run on a machine with two GPUs."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Run("demo", params.load_profile("demo").model_dump(), cores=8, gpus=2)


def outline(**changed):
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return preflight.load_outline("tiny-llama", spec, str(spec.place), whole=True)


def test_small_models_take_no_gpu_and_one_thread_and_one_that_is_spread_runs_alone(
    run, monkeypatch
):
    def places(run):
        return {(job.model, job.gpus, job.threads) for job in run.jobs if job.model}

    assert places(check.with_small(run, run.values["models"])) == {
        ("tiny-llama", 0, 1),
        ("tiny-qwen", 0, 1),
    }
    monkeypatch.setattr(loading, "SMALL", 900_000)  # between the two
    assert places(check.with_small(run, run.values["models"])) == {
        ("tiny-llama", 1, 4),
        ("tiny-qwen", 0, 1),
    }
    monkeypatch.setitem(
        run.specs, "tiny-llama", run.specs["tiny-llama"].model_copy(update={"gpus": "all"})
    )
    assert places(run) == {("tiny-llama", 2, 4), ("tiny-qwen", 1, 4)}
    assert places(replace(run, gpus=4)) == {("tiny-llama", 1, 2), ("tiny-qwen", 1, 2)}, (
        "cores are shared"
    )


def test_memory_is_asked_for_where_a_model_runs(run, monkeypatch):
    """In float32 of the processor; a larger one in bfloat16 of a GPU, or of all if its file says
    so. Only what does not fit a GPU is refused by a run, which is not `thorough`."""

    def report(large=False, free=8e9, thorough=True, **changed):
        second = free if "gpus" in changed else free / 2
        monkeypatch.setattr(loading, "SMALL", 0 if large else 25e6)
        monkeypatch.setattr(check.psutil, "virtual_memory", lambda: Namespace(available=free))
        monkeypatch.setattr(machine, "memory_by_gpu", lambda: {"GPU-1": free, "GPU-2": second})
        lines = check.about_memory(run, outline(**{"dtype": "float32"} | changed), thorough)
        return " ".join(f"{level} {text}" for level, text in lines)

    def need(**changed):
        return float(re.search(r"up to ([\d.]+) GB", report(dtype="auto", **changed))[1])

    assert report().startswith("ok 0.00096 billion")
    assert need(large=True) == need(large=True, gpus="all") < need()
    assert "the CPU has room for 0.001 GB" in report(free=1e6)
    assert "a GPU has room for 0.0009 GB" in report(large=True, free=1e6)
    assert "all GPUs has room for 0.0018 GB" in report(large=True, free=1e6, gpus="all")
    weights, alone = 4 * outline().model.num_parameters(), "too little for the weights alone"
    assert report(free=weights).endswith(alone) and report(free=weights, thorough=False) == ""
    assert report(large=True, free=weights / 0.7, thorough=False) == ""
    refused = report(large=True, free=weights / 0.85, thorough=False)
    assert refused.endswith(f"{alone}: write `gpus: all` in its file to spread it over all GPUs")
    assert report(large=True, free=weights / 0.85, gpus="all", thorough=False) == ""
    middle = 1.1 * weights + 8e6
    assert report(free=middle).startswith("wrong")
    proposal = re.search(r"max_batch_tokens (\d+) would fit", report(free=middle))
    run.values["max_batch_tokens"] = int(proposal[1])
    assert report(free=middle).startswith("ok"), "what it proposes does fit"


def test_gpus_that_cannot_be_handed_out_are_refused(run, monkeypatch):
    monkeypatch.setattr(loading, "SMALL", 0)
    ((_, line),) = check.about_place(replace(run, gpus=0), outline())
    assert "nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES" in line
    run.values["engine"] = "vllm"
    ((_, line),) = check.about_place(run, outline(gpus="all"))
    assert "no model on several GPUs (`gpus: all`): write `engine: transformers`" in line


@pytest.mark.parametrize(
    "chosen, names",
    [
        (None, ["GPU-aaaa-1", "GPU-bbbb-2"]),
        (" 1 , 0 ", ["1", "0"]),
        ("", []),
        ("-1", []),
        ("MIG-dd,1", ["MIG-dd", "1"]),
    ],
)
def test_each_word_of_the_variable_is_handed_to_a_job_unread(tmp_path, monkeypatch, chosen, names):
    """And without it what nvidia-smi lists."""
    tool = tmp_path / "bin/nvidia-smi"
    write(tool, "#!/bin/sh\necho GPU-aaaa-1, 81559\necho GPU-bbbb-2, 81559\n")
    tool.chmod(0o755)
    variables = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    variables["PATH"] = f"{tool.parent}:/usr/bin:/bin"
    monkeypatch.setattr(machine.os, "environ", variables)
    assert machine.list_gpus() == names


def test_a_kernel_gets_the_allocator_of_its_place_unless_the_user_sets_one(run, monkeypatch):
    allocator = {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "MALLOC_MMAP_THRESHOLD_": "33554432",
    }

    def items_of_jobs():
        both = run.jobs[0], run.jobs[-1]  # on a GPU and on the processor
        return [notebook.fixed_environment(job).items() & allocator.items() for job in both]

    for name in (*allocator, "MALLOC_TRIM_THRESHOLD_", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert items_of_jobs() == [{pair} for pair in allocator.items()]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    assert items_of_jobs() == [set(), set()]


def test_a_home_at_the_root_is_no_place(monkeypatch):
    monkeypatch.setitem(progress.PLACES, "/", "~")
    assert progress.redact_paths("1 / 2\n") == "1 / 2\n"
