"""Where models run, and whether they fit there: small ones on the processor everywhere, others on
one GPU or, if their file says so, on all."""

import os
import re
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace

import psutil
import pytest
from small_project import write

from lib import params
from lib.errors import UserError
from lib.generate import preflight
from lib.models import loading
from lib.paths import ROOT
from workflow import check, machine
from workflow.engine import jobs, notebook, progress
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
    shared = replace(run, gpus=4)
    assert places(shared) == {("tiny-llama", 1, 2), ("tiny-qwen", 1, 2)}, "cores are shared"
    alone = replace(run, gpus=1, cores=16)
    assert {threads for _, _, threads in places(alone)} == {4}, "beside a GPU few are enough"


def test_memory_is_asked_for_where_a_model_runs(run, monkeypatch):
    """In float32 of the processor; a larger one in bfloat16 of the smallest GPU, since each runs
    jobs, or of all together if its file says so. Only what does not fit a GPU is refused by a run,
    which is not `thorough`."""

    def report(large=False, free=8e9, thorough=True, **changed):
        second = free if "gpus" in changed else 2 * free
        monkeypatch.setattr(loading, "SMALL", 0 if large else 25e6)
        monkeypatch.setattr(check.psutil, "virtual_memory", lambda: Namespace(available=free))
        monkeypatch.setattr(loading, "memory_of_gpus", lambda: [second, free])
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
    lm = outline()
    longest = check.estimate_prompt(lm, run) + run.values["max_new_tokens"]
    with_a_token = check.SPARE * weights + check.bytes_per_token(lm, longest)
    assert report(free=with_a_token - 1).endswith(alone)
    assert report(free=with_a_token).endswith("max_batch_tokens 1 would fit")
    refused = report(large=True, free=weights / 0.85, thorough=False)
    remedies = (
        "write `gpus: all` in its file to spread it over all GPUs, "
        "or leave smaller GPUs out by CUDA_VISIBLE_DEVICES"
    )
    assert refused.endswith(f"{alone}: {remedies}")
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


def test_vllm_needs_room_for_its_weights_and_one_response(run, monkeypatch):
    """The network is not loaded beside it. What `check` proposes does fit."""
    weights = 2 * outline().model.num_parameters()  # in bfloat16

    def report(room, **changed):
        free = weights + check.VLLM_BYTES + room
        monkeypatch.setattr(loading, "SMALL", 0)
        monkeypatch.setattr(loading, "memory_of_gpus", lambda: [free / check.GPU_SHARE])
        run.values.update(engine="vllm", max_batch_tokens=1, max_new_tokens=500)
        lines = check.about_memory(run, outline(dtype="bfloat16", **changed), thorough=True)
        return " ".join(f"{level} {text}" for level, text in lines)

    lm = outline()
    prompt = check.estimate_prompt(lm, run)
    token = 2 * check.cache_numbers_per_token(lm.model)
    assert "vLLM" not in report((prompt + 500) * token)
    refused = report((prompt + 499) * token)
    assert "wrong vLLM has room for a response of 499 tokens, not of 500" in refused
    assert "write `max_new_tokens: 499` in its file" in refused
    assert "vLLM" not in report((prompt + 499) * token, max_new_tokens=499)
    assert "too little for vLLM's weights" in report(0)


@pytest.mark.parametrize(
    "words, holds_gpu",
    [("GPU-1", True), ("MIG-1", True), ("0", True), ("1,0", True), ("", False), ("-1", False)],
)
def test_a_model_of_a_job_whose_gpu_pytorch_does_not_see_is_refused(monkeypatch, words, holds_gpu):
    """Whether a run names the GPU by its UUID or SLURM by its place: else it would run on the
    processor for weeks. A small one runs there anyway."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
    spec = params.load_model_config("tiny-llama")
    assert loading.load_language_model("tiny-llama", spec).device.type == "cpu"
    monkeypatch.setattr(loading, "SMALL", 0)
    if not holds_gpu:
        assert loading.load_language_model("tiny-llama", spec).device.type == "cpu"
        return
    with pytest.raises(UserError, match="this job holds a GPU, but PyTorch .* sees none: "):
        loading.load_language_model("tiny-llama", spec)


def test_bfloat16_on_a_gpu_that_has_none_is_refused(run, monkeypatch):
    """As a T4, of compute capability 7.5. In another precision it may be used."""
    monkeypatch.setattr(loading, "SMALL", 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda number: ("an A100", "a T4")[number])
    capabilities = [(8, 0), (7, 5)]
    monkeypatch.setattr("torch.cuda.get_device_capability", capabilities.__getitem__)
    spec = params.load_model_config("tiny-llama").model_copy(update={"dtype": "auto"})
    refusal = "a T4 does not compute in bfloat16: write `dtype: float16` in its file"
    with pytest.raises(UserError, match=refusal):
        loading.outline_language_model("tiny-llama", spec)
    with pytest.raises(UserError, match=refusal):
        list(check.about_place(run, outline(dtype="bfloat16")))
    assert list(check.about_place(run, outline(dtype="float16"))) == []
    capabilities[1] = (8, 0)
    assert list(check.about_place(run, outline(dtype="bfloat16"))) == []


@pytest.mark.parametrize("gpus", [0, 1])
def test_libraries_of_models_are_preloaded_wherever_models_run(monkeypatch, tmp_path, gpus):
    """Where there is a GPU, too: that a model is small shows only later."""
    preloaded = []
    monkeypatch.setattr(
        jobs.forkserver, "ensure_running", lambda: preloaded.append(os.environ[notebook.VARIABLE])
    )
    demo = Run("demo", params.load_profile("demo").model_dump(), cores=2, gpus=gpus)
    jobs.start_fork_server(demo, list(demo.jobs), tmp_path)
    jobs.start_fork_server(demo, [job for job in demo.jobs if not job.model], tmp_path)
    with_models, without = preloaded
    assert "transformers" in with_models and "transformers" not in without


BEGETS = """
import os, time
from workflow.engine.notebook import kill_with_parent

parent = os.getpid()
if os.fork() == 0:
    kill_with_parent(parent)
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_job_ends_with_the_run_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", BEGETS], stdout=subprocess.PIPE, cwd=ROOT)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    child.wait(timeout=10)


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
    """And without it what nvidia-smi lists, which may not tell the memory of a GPU."""
    tool = tmp_path / "bin/nvidia-smi"
    script = "case $* in *memory*) exit 1 ;; esac; echo GPU-aaaa-1; echo GPU-bbbb-2"
    write(tool, f"#!/bin/sh\n{script}\n")
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


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_progress_is_overwritten_and_only_in_a_terminal(run, monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    job, *_ = run.jobs
    board = progress.Board([job])
    ends = []
    for event in ("start", "progress", "end"):
        board.show(job, event, text=f"it {event}s")
        ends.append(capsys.readouterr().out.removeprefix("\r\033[K")[-1])
    assert ends == ["\n", "s" if is_terminal else "\n", "\n"]


def test_a_full_disk_is_said_with_its_file_if_that_is_known():
    full = OSError(28, "No space left on device")
    assert progress.describe_system_error(full) == "No space left on device"
    of_file = OSError(28, "No space left on device", str(ROOT / "artifacts/x"))
    assert progress.describe_system_error(of_file) == "No space left on device (./artifacts/x)"


def test_a_run_makes_its_folder_though_a_clone_has_none_for_results(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    with machine.run_lock(Run("mine", {})):
        assert (tmp_path / "artifacts" / "mine" / ".lock").exists()
