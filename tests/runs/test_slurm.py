"""A small demo through a real SLURM: slurmctld and two slurmd on this machine, the run's jobs as theirs."""

from pathlib import Path

import psutil
import pytest
import slurm_cluster
from clone import JOBS, SMALL, copy_of_project, counts, edit, run, spaced, start, tables, wait_for

from workflow.rules import NOTEBOOKS

pytestmark = pytest.mark.slow

PATIENCE = 1500  # seconds


def notebook_of(folder: Path, job: str) -> list[psutil.Process]:
    """The processes that execute a job's notebook in a project, whose notebooks/ papermill goes to meanwhile."""
    words = ["-m", "workflow.notebook", "demo", job]
    found = [one for one in psutil.process_iter(["cmdline", "cwd"]) if (one.info["cmdline"] or [])[1:5] == words]
    return [one for one in found if Path(one.info["cwd"] or "/").is_relative_to(folder)]


def test_tables_are_those_of_a_run_on_this_machine(slurm, alone, tmp_path):
    """Through two nodes, with a job that is killed on its node and all jobs canceled once: the same bytes."""
    here, told = alone
    assert counts(told) == (JOBS, 0)
    there = copy_of_project(tmp_path / "on a cluster")
    edit(there / "params" / "demo.yaml", **SMALL)
    file = slurm_cluster.profile(there, **{"restart-times": 2})
    process = start(there, "demo", "--profile", file, VIRTUAL_ENV=spaced(tmp_path), **slurm.environment)
    job, *_ = wait_for(process, lambda: notebook_of(there, "01_generate__tiny-llama__demo-easy"), PATIENCE)
    job.kill()
    wait_for(process, lambda: notebook_of(there, "04_mc_dropout_grid__tiny-llama__demo-easy"), PATIENCE)
    cancelled = slurm.jobs()
    slurm.says("scancel", *cancelled)
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, said
    assert "on SLURM, at most 4 at once" in said
    assert said.count("01_generate tiny-llama demo-easy  ") >= 2
    assert counts(said) == (JOBS, 0)
    assert tables(here) == tables(there)

    history = [line.split("|") for line in slurm.says("squeue", "--states=all", "-h", "-o", "%T|%N|%Z").splitlines()]
    states, nodes, _ = zip(*(job for job in history if Path(job[2]).is_relative_to(there)), strict=True)
    assert set(nodes) - {""} == set(slurm_cluster.NODES), "both share the work"
    light = sum(not row.of_pair for row in NOTEBOOKS)
    assert states.count("COMPLETED") <= JOBS - light + 3, "light notebooks go together: 02, 09 and the rest"
    assert states.count("FAILED") == 1 and states.count("CANCELLED") == len(cancelled) >= 1
    assert slurm.jobs() == []
    assert counts(run(there, "demo", "--profile", file, **slurm.environment)) == (0, JOBS)
