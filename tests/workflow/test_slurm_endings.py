"""How runs on a real SLURM end, with notebooks that only wait: stopped, killed, canceled, refused, and on a GPU."""

import json
import signal
import subprocess

import pytest
import slurm_cluster
from small_project import Project, family, until, with_cell

pytestmark = pytest.mark.slow

WAITING = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.1)"
SECOND = {
    "name": "03_ptrue_insitu",
    "heavy": True,
    "reads": ("01_generate",),
    "writes": ("verification/{model}__{dataset}.parquet",),
}
LISTED = "#!/bin/sh\necho 'GPU 0: One of none (UUID: GPU-none)'\n"


@pytest.fixture
def waiting(project) -> Project:
    """The small project whose first notebook waits for a file."""
    with_cell(project, "01_generate", WAITING)
    return project


def submit(project: Project, slurm, **values: object) -> subprocess.Popen:
    return project.start("demo", "--profile", slurm_cluster.profile(project.root, **values), **slurm.environment)


def begin(project: Project, slurm, **values: object) -> subprocess.Popen:
    """A run whose first job has begun on a node."""
    process = submit(project, slurm, **values)
    until(lambda: (project.root / "notebooks/begun").exists() or process.poll() is not None, 120)
    assert process.poll() is None, process.stdout.read()
    return process


def finish(project: Project, slurm, before: str = "") -> str:
    """The same command again, to its end; job `before` is gone before anything may end."""
    process = submit(project, slurm)
    until(lambda: before not in slurm.jobs() or process.poll() is not None, 120)
    (project.root / "notebooks/go").touch()
    said, _ = process.communicate(timeout=300)
    assert "demo: 3 of 3 jobs ran, 0 up to date" in said, said
    return said


def test_a_run_that_is_stopped_leaves_no_job(waiting, slurm):
    process = begin(waiting, slurm)
    assert len(slurm.jobs()) == 1
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.strip().splitlines()[-1] == "run_all.sh: stopped; the same command goes on from here"
    assert slurm.jobs() == []
    until(lambda: not family(waiting), 30)


def test_jobs_that_the_cluster_cancels_are_named_and_the_same_command_goes_on(waiting, slurm):
    process = begin(waiting, slurm)
    (job,) = slurm.jobs()
    slurm.says("scancel", job)
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 1
    last = said.strip().splitlines()[-1]
    assert "01_generate tiny easy: ended by the cluster: CANCELLED" in last and f"(job {job})" in last
    assert "the same command goes on from here" in last and "Traceback" not in said
    finish(waiting, slurm)


def test_a_gpu_for_one_notebook_alone(project, slurm):
    """01 takes the GPU that SLURM gave it, counted from 0 on each node; 03, which runs a model too, takes none."""
    project.replace("workflow/pipeline.py", "{'name': '08_tables'", f"{SECOND}, {{'name': '08_tables'")
    generate = project.root / "notebooks/01_generate.ipynb"
    text = generate.read_text().replace("/ 'generations'", "/ 'verification'")
    generate.with_name("03_ptrue_insitu.ipynb").write_text(text)
    listing = slurm.folder / "bin" / "nvidia-smi"
    listing.write_text(LISTED)
    listing.chmod(0o755)
    try:
        said, _ = submit(project, slurm, **{"set-resources": {"01_generate": {"gpu": 1}}}).communicate(timeout=300)
    finally:
        listing.unlink()
    assert "demo: 4 of 4 jobs ran, 0 up to date" in said, said
    seen, other = (
        json.loads(project.read(f"artifacts/demo/{folder}/tiny__easy.json"))["environment"]
        for folder in ("generations", "verification")
    )
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-none" and seen["SLURM_GPUS_ON_NODE"] == "1"
    assert other.get("CUDA_VISIBLE_DEVICES", "") == "" and "SLURM_GPUS_ON_NODE" not in other
