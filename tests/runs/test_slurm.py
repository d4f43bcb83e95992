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
    """Through two nodes, with a job that is killed there, after which the same command goes on: the
    same bytes."""
    there, venv = copy_of_project(tmp_path / "on a cluster"), tmp_path / "an environment"
    venv.symlink_to(sys.prefix)
    edit(there / "params" / "demo.yaml", **SMALL)
    words, env = (
        ("demo", "--slurm", slurm_cluster.options(there, 30)),
        {**slurm.environment, "VIRTUAL_ENV": str(venv)},
    )
    process, command = (
        start(there, *words, **env),
        [f"{venv}/bin/python", "-m", "workflow.engine.jobs", "demo", JOB],
    )

    def processes():
        running = psutil.process_iter(["cmdline"])
        return [one for one in running if one.info["cmdline"] == command]

    until(processes, PATIENCE, process)[0].kill()
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 1 and "jobs to do on SLURM" in said
    assert f"{JOB.replace('__', ' ')}: ended by the cluster: " in said.splitlines()[-1]
    assert "04_mc_dropout_grid tiny-llama demo-easy  started" in said, "a failed job stops no other"
    assert "05_calibration  started" not in said

    made, kept = counts(run(there, *words, **env))
    assert made + kept == JOBS and kept >= 3
    assert tables(alone[0]) == tables(there)
    history = [
        line.split("|")
        for line in slurm.says("squeue", "--states=all", "-h", "-o", "%N|%Z").splitlines()
    ]
    nodes = {node for node, folder in history if folder == str(there)}
    assert nodes - {""} == set(slurm_cluster.NODES), "both share the work"
    assert slurm.jobs() == []
    assert counts(run(there, *words, **slurm.environment)) == (0, JOBS)
