"""Parts of one job: the kernel's retry, its surroundings, GPUs, and what is said of failures."""

import os
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import papermill
import pytest
from small_project import ROOT, write

from lib import params, shards
from workflow import guard, notebook, run
from workflow.jobs import Run


def job_of(name="demo", gpus=0, cores=8, **values):
    return Run(name, {"models": ["tiny"], "datasets": ["easy"], "seed": 0, **values}, cores, gpus).jobs[0]


@pytest.fixture
def kernel(inside, monkeypatch):
    """papermill replaced by a list of what it should raise, try by try; the tries are counted."""
    script, tries = [], []

    def execute_notebook(*args, **kwargs):
        tries.append(kwargs)
        problem = script.pop(0)
        if problem:
            raise problem

    monkeypatch.setattr(papermill, "execute_notebook", execute_notebook)
    return script, tries


def test_a_kernel_that_never_started_gets_one_more_try(kernel, tmp_path):
    script, tries = kernel
    script[:] = [RuntimeError("Kernel died before replying to kernel_info"), None]
    notebook.execute(job_of(), tmp_path)
    assert len(tries) == 2
    assert tries[0]["parameters"] == {"run": "demo", "model": "tiny", "dataset": "easy", "seed": 0}
    assert tries[0]["kernel_name"] == "python3" and tries[0]["cwd"] == "notebooks"
    assert tries[0]["config"].KernelManager.ip.startswith(str(tmp_path))


def test_but_not_two(kernel, tmp_path):
    script, tries = kernel
    script[:] = [TimeoutError("Kernel didn't respond in 120 seconds")] * 3
    with pytest.raises(notebook.Failure, match="didn't respond"):
        notebook.execute(job_of(), tmp_path)
    assert len(tries) == 2


def test_and_none_once_a_cell_has_run(kernel, tmp_path, monkeypatch):
    script, tries = kernel
    script[:] = [RuntimeError("odd")] * 3
    monkeypatch.setattr(notebook, "started", lambda job: True)
    with pytest.raises(notebook.Failure, match="odd"):
        notebook.execute(job_of(), tmp_path)
    assert len(tries) == 1


def test_scratch_folders_have_short_paths(monkeypatch, tmp_path):
    monkeypatch.setattr(notebook.tempfile, "gettempdir", lambda: str(tmp_path / ("x" * 90)))
    folder = notebook.scratch_folder()
    assert len(str(folder / "k-5")) < 100
    folder.rmdir()


def test_offline_only_if_everything_is_local(inside, tmp_path):
    assert notebook.surroundings(job_of(), tmp_path)["HF_HUB_OFFLINE"] == "1"
    write(inside.root / "params/models/tiny.yaml", "label: Tiny\nsource: someone/tiny\n")
    assert "HF_HUB_OFFLINE" not in notebook.surroundings(job_of(), tmp_path)


def test_a_forked_kernel_only_where_its_libraries_were_imported_as_the_job_wants(inside, monkeypatch):
    from jupyter_client.provisioning import KernelProvisionerFactory

    chosen = SimpleNamespace(provisioners={}, default_provisioner_name="")
    monkeypatch.setattr(KernelProvisionerFactory, "instance", lambda: chosen)
    for name, value in notebook.constants(job_of("demo")).items():
        monkeypatch.setenv(name, value)
    notebook.use(None, job_of("demo"))  # by hand
    notebook.use(object(), job_of("paper"))  # with eight threads
    notebook.use(object(), job_of("demo", gpus=1))
    assert chosen.default_provisioner_name == ""
    notebook.use(object(), job_of("demo"))
    assert chosen.default_provisioner_name == "forked"


def test_no_fork_beside_threads():
    said = "import threading, time; from workflow import warm; print(warm.forkable()); "
    said += "threading.Thread(target=time.sleep, args=[9], daemon=True).start(); print(warm.forkable())"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(sys.platform == "linux"), "False"]


def test_threads():
    assert job_of("demo").threads == 1
    assert job_of("paper").threads == 8
    assert job_of("paper", gpus=4).threads == 2
    assert job_of("paper", models=["a", "b", "c", "d"]).threads == 2


def test_progress_lines(capsys):
    progress = notebook.Progress(job_of())
    for text in ("sha", "rd 1/2: x\nother\nshard", " 2/2: y\n", "rest"):
        progress.write(text)
    assert [line.split('"text": ')[1][:9] for line in capsys.readouterr().out.split("\n") if line] == [
        '"shard 1/',
        '"shard 2/',
    ]


MANY = """
import sys, types
from workflow import notebook
print(flush=True)
sys.stdin.buffer.raw.read(1)  # both at once
for number in range(3000):
    notebook.tell(types.SimpleNamespace(name="x"), "progress", text="y" * (number % 50))
"""


def test_events_of_jobs_at_once_stay_whole():
    """Two jobs write to one pipe, in a Python that does not buffer, and no event runs into another."""
    read, write_end = os.pipe()
    go_read, go = os.pipe()
    options = {"stdin": go_read, "stdout": write_end, "cwd": ROOT, "env": {**os.environ, "PYTHONUNBUFFERED": "1"}}
    jobs = [subprocess.Popen([sys.executable, "-c", MANY], **options) for _ in range(2)]
    os.close(write_end)
    with open(read) as pipe:
        assert [pipe.readline(), pipe.readline()] == ["\n", "\n"]  # both are ready
        os.write(go, b"\n\n")
        os.close(go)
        events = [run.parse(line) for line in pipe if line.strip()]
    assert [job.wait() for job in jobs] == [0, 0]
    assert len(events) == 6000 and all(event and event["job"] == "x" for event in events)


def test_a_damaged_event_is_chatter():
    assert run.parse('@@{"job": "x"}\n') == {"job": "x"}
    assert run.parse('@@{"job": "x"}@@{"job": "y"}\n') is None
    assert run.parse("Building DAG of jobs...\n") is None


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    """A pretended nvidia-smi that lists two GPUs, one of them cut in two."""
    tool = tmp_path / "bin/nvidia-smi"
    write(tool, "#!/bin/sh\nprintf 'GPU 0: X (UUID: a)\\n  MIG 1g (UUID: c)\\nGPU 1: X (UUID: b)\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(guard.tempfile, "gettempdir", lambda: str(tmp_path))


def test_gpus(nvidia, monkeypatch):
    assert guard.gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert guard.gpus() == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert guard.gpus() == []
    monkeypatch.setenv("PATH", "/nowhere")
    assert guard.gpus() == []


def test_each_job_takes_a_gpu_of_its_own(nvidia, monkeypatch):
    class Waiting(Exception):
        pass

    def sleep(seconds):
        raise Waiting

    monkeypatch.setattr(guard, "time", SimpleNamespace(sleep=sleep))
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        assert guard.take_gpu(first, guard.gpus()) == "0"
        assert guard.take_gpu(second, guard.gpus()) == "1"
        with pytest.raises(Waiting):
            guard.take_gpu(third, guard.gpus())
        first.close()
        assert guard.take_gpu(third, guard.gpus()) == "0"


def test_a_kernel_is_told_the_revisions_and_the_code_before_its_first_cell(inside, tmp_path, monkeypatch):
    """The start-up file as IPython runs it; nothing of it stays among the notebook's names."""
    monkeypatch.setattr(params, "REVISIONS", {"someone/tiny": "abc"})
    monkeypatch.setattr(shards.Shards, "code", "")
    notebook.start_up("0123", tmp_path)
    params.pin({})
    names: dict = {}
    exec((tmp_path / "ipython/profile_default/startup/run.py").read_text(), names)
    assert params.REVISIONS == {"someone/tiny": "abc"} and shards.Shards.code == "0123"
    assert set(names) == {"__builtins__"}
