"""How runs on a real SLURM end, with notebooks that only wait: stopped, killed, canceled, refused, and on a GPU."""

import json
import signal
import subprocess

import pytest
import slurm_cluster
from clone import until
from small_project import Project, family, with_cell

pytestmark = pytest.mark.slow

WAITING = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.1)"
SECOND = {
    "name": "03_ptrue_insitu",
    "heavy": True,
    "reads": ("01_generate",),
    "writes": ("verification/{model}__{dataset}.parquet",),
}
LISTED = "#!/bin/sh\necho 'GPU 0: One of none (UUID: GPU-none)'\n"


def submit(project: Project, slurm, **values: object) -> subprocess.Popen:
    return project.start("demo", "--profile", slurm_cluster.profile(project.root, **values), **slurm.environment)


def begin(project: Project, slurm) -> tuple[subprocess.Popen, str]:
    """A run whose first job has begun on a node, and that job."""
    begun = project.root / "notebooks/begun"
    begun.unlink(missing_ok=True)
    process = submit(project, slurm)
    until(lambda: begun.exists() or process.poll() is not None, 120)
    assert process.poll() is None, process.stdout.read()
    (job,) = slurm.jobs()
    return process, job


def ending(process: subprocess.Popen, code: int) -> str:
    """The last line of a run that ends with a code."""
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code and "Traceback" not in said, said
    return said.strip().splitlines()[-1]


def test_a_run_that_is_stopped_or_canceled_says_so_and_the_same_command_goes_on(project, slurm):
    with_cell(project, "01_generate", WAITING)
    process, _ = begin(project, slurm)
    process.send_signal(signal.SIGINT)
    assert ending(process, 130) == "run_all.sh: stopped; the same command goes on from here"
    assert slurm.jobs() == []
    until(lambda: not family(project), 30)

    process, job = begin(project, slurm)
    slurm.says("scancel", job)
    last = ending(process, 1)
    assert "01_generate tiny easy: ended by the cluster: CANCELLED" in last and f"(job {job})" in last
    assert "the same command goes on from here" in last

    (project.root / "notebooks/go").touch()
    said, _ = submit(project, slurm).communicate(timeout=300)
    assert "demo: 3 of 3 jobs ran, 0 up to date" in said, said


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
