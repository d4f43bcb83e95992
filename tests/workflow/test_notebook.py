"""Parts of one job: its kernel, its surroundings, GPUs, and what is said of failures."""

from types import SimpleNamespace

import pytest
from small_project import write

from lib.paths import UserError
from workflow import machine, notebook, progress
from workflow.pipeline import Run


def job_of(gpus=0, small=(), **values):
    return Run("demo", {"models": ["tiny"], "datasets": ["easy"], "seed": 0, **values}, 8, gpus, small=small).jobs[0]


def test_threads(inside):
    assert (job_of(small=("tiny",)).threads, job_of(small=("other",)).threads) == (1, 8)
    assert job_of(gpus=4).threads == job_of(datasets=["a", "b", "c", "d"]).threads == 2


LISTED = "GPU-aaaa-1, 81559\nGPU-bbbb-2, 81559\n"


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    """A pretended nvidia-smi that lists two GPUs."""
    tool = tmp_path / "bin/nvidia-smi"
    write(tool, f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "short_tempdir", lambda: tmp_path)


@pytest.mark.parametrize("chosen, names", [
    (None, ["GPU-aaaa-1", "GPU-bbbb-2"]), ("0,1", ["0", "1"]), (" 1 , 0 ", ["1", "0"]), ("", []), ("-1", []),
    ("GPU-bbbb", ["GPU-bbbb"]), ("MIG-dd,1", ["MIG-dd", "1"]),
])  # fmt: skip
def test_each_word_of_the_variable_is_handed_to_a_job_unread(nvidia, monkeypatch, chosen, names):
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert machine.list_gpus() == names


def test_a_gpus_memory_is_taken_in_segments_that_grow(inside, monkeypatch):
    """On a GPU, unless the user has said how; on a CPU freed memory is used again."""
    for name in ("PYTORCH_ALLOC_CONF", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    assert notebook.fixed_environment(job_of(gpus=1))["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert notebook.fixed_environment(job_of())["MALLOC_MMAP_THRESHOLD_"] == str(2**25)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    assert "PYTORCH_ALLOC_CONF" not in notebook.fixed_environment(job_of(gpus=1))


def test_a_home_at_the_root_is_no_place(monkeypatch):
    monkeypatch.setitem(progress.PLACES, "/", "~")
    assert progress.redact_paths("1 / 2\n") == "1 / 2\n"


@pytest.mark.parametrize("name, kind", [("ZeroDivisionError", notebook.Failure), ("UserError", UserError)])
def test_a_fault_of_the_program_ends_otherwise_than_one_of_the_user(inside, name, kind):
    error = SimpleNamespace(ename=name, evalue="no", exec_count=1, source="1 / 0")
    assert type(notebook.cell_failure(job_of(), error)) is kind
