"""A small demo through a real SLURM: slurmctld and two slurmd on this machine, the run's jobs as
theirs."""

import sys

import psutil
import pytest
import slurm_cluster
from clone import JOBS, SMALL, copy_of_project, counts, edit, run, start, tables, until

pytestmark = pytest.mark.slow

PATIENCE = 1500  # seconds
JOB = "03_ptrue_insitu__tiny-llama__demo-easy"


def test_tables_are_those_of_a_run_on_this_machine(slurm, alone, tmp_path):
    """Through two nodes, two jobs for the rows of a pair, and one that is killed there, after which
    the same command goes on: the same bytes."""
    project = copy_of_project(tmp_path / "on a cluster")
    venv = tmp_path / "an environment"
    venv.symlink_to(sys.prefix)
    edit(project / "params" / "demo.yaml", **SMALL)
    words = ("demo", "--slurm", slurm_cluster.options(project, 30, jobs_per_pair=2))
    env = slurm.environment | {"VIRTUAL_ENV": str(venv)}
    command = [f"{venv}/bin/python", "-m", "workflow.engine.job_process", "demo", JOB]
    process = start(project, *words, **env)

    def processes():
        running = psutil.process_iter(["cmdline"])
        return [candidate for candidate in running if candidate.info["cmdline"] == command]

    until(processes, PATIENCE, process)[0].kill()
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 1 and "jobs to do on SLURM" in output
    assert f"{JOB.replace('__', ' ')}: ended by the cluster: " in output.splitlines()[-1]
    assert "04_mc_dropout_grid tiny-llama demo-easy  started" in output, (
        "a failed job stops no other"
    )
    assert "05_calibration  started" not in output

    ran, up_to_date = counts(run(project, *words, **env))
    assert ran + up_to_date == JOBS
    assert up_to_date >= 3
    assert tables(alone[0]) == tables(project)
    nodes = set()
    for line in slurm.says("squeue", "--states=all", "-h", "-o", "%N|%Z").splitlines():
        node, folder = line.split("|")
        if folder == str(project):
            nodes.add(node)
    assert nodes - {""} == set(slurm_cluster.NODES), "both share the work"
    assert slurm.jobs() == []
    assert counts(run(project, *words, **slurm.environment)) == (0, JOBS)
