"""What of a cluster needs none: profiles, words, what a node sees, what the run hears, what is asked."""

import re
import threading
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from small_project import ROOT, write
from test_fresh import complete, run_of

from lib.paths import UserError
from workflow import cluster, node, notebook, records, run
from workflow.cluster import Profile
from workflow.pipeline import Run
from workflow.rules import NOTEBOOKS

ROWS = {row.number: row for row in NOTEBOOKS}
RUN = Run("demo", {"models": ["tiny"], "datasets": ["easy"], "seed": 0}, cluster="slurm")
DEMO = run.params.load_profile("demo").model_dump(mode="json")


def load(folder, text) -> Profile:
    write(folder / "mine/config.yaml", text)
    return cluster.load_profile(str(folder / "mine"))


def of(**resources) -> Profile:
    empty = {"executor": "slurm", "set-resources": {}, "set-threads": {}}
    return Profile(Path("profiles/slurm"), {**empty, "default-resources": resources})


# ---- the profile


@pytest.mark.parametrize("name", ["slurm"])
def test_the_shipped_profiles_name_every_notebook(name):
    profile = cluster.load_profile(str(ROOT / "profiles" / name))
    for row in NOTEBOOKS:
        assert profile.gpus(row) == int(row.heavy), row.name
    together = {row.name for row in NOTEBOOKS if not row.heavy and row.number != "01b"}
    assert profile.values["groups"] == dict.fromkeys(together, "light"), "one submission of all light notebooks"


def test_a_notebook_asks_for_its_own_before_what_all_ask_for(tmp_path):
    text = "default-resources: [runtime=10, slurm_extra=--qos=low]\nset-resources: {01_generate: {runtime: 20}}\n"
    profile = load(tmp_path, f"executor: slurm\n{text}")
    assert profile.resources(ROWS["01"]) == {"runtime": 20, "slurm_extra": "--qos=low"} and profile.at_once == 100
    assert profile.resources(ROWS["02"])["runtime"] == "10"


@pytest.mark.parametrize("resources, count", [({"gpu": 2}, 2), ({"gres": "gpu:1"}, 1), ({"gres": "gpu"}, 1),
    ({"gres": "gpu:a100:4"}, 4), ({"gres": "gpu:a100"}, 1), ({"gres": "lscratch:20"}, 0), ({}, 0),
    ({"gpu_model": "a100"}, 1)])  # fmt: skip
def test_gpus_are_counted_as_gpu_and_as_gres(resources, count):
    assert of(**resources).gpus(ROWS["01"]) == count


def test_a_gpu_is_for_the_notebooks_that_ask_for_one():
    asked = {"01_generate": 1, "03_ptrue_insitu": 0, "08_tables": 1}
    found = {job.notebook.name: job.gpus for job in Run("demo", DEMO, gpus=1, gpus_by_notebook=asked).jobs}
    assert (found["01_generate"], found["03_ptrue_insitu"], found["08_tables"]) == (1, 0, 0)


@pytest.mark.parametrize("text, line", [
    ("[executor, 2]", "mine/config.yaml has no key `executor`"),
    ("executor: slum", "mine/config.yaml: executor 'slum' is not supported: did you mean 'slurm'?"),
    ("executor: slurm\nset-resources: {01_generat: {gpu: 1}}", "not a notebook: did you mean '01_generate'?"),
    ("executor: slurm\nset-threads: {all: 2}", "set-threads names 'all', not a notebook"),
    ("executor: slurm\nset-resources: {01_generate: 3}", "mine/config.yaml: 01_generate must be a mapping"),
    ("executor: slurm\ndefault-resources: runtime", "mine/config.yaml: default-resources must be a mapping"),
    ("executor: slurm\njobs: 1\njobs: 2", "the key 'jobs' again"),
])  # fmt: skip
def test_a_mistake_in_the_profile_is_one_line(tmp_path, text, line):
    with pytest.raises(UserError, match=re.escape(line)):
        load(tmp_path, text)


# ---- what a node sees, and what the run hears


def test_cores_are_counted_where_a_job_runs(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    monkeypatch.setenv("CALIBRATION_CORES", "3")
    assert node.with_local_cores(RUN).cores == 3
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    assert node.with_local_cores(RUN).cores == 6
    assert node.with_local_cores(Run("paper", RUN.values, cores=8)).cores == 8


@pytest.mark.parametrize("model, executor, fetched, offline", [
    ("tiny-llama", "", False, True), ("llama-3.2-3b", "slurm", True, True), ("llama-3.2-3b", "slurm", False, False),
    ("llama-3.2-3b", "", True, False),
])  # fmt: skip
def test_a_job_asks_the_hub_for_nothing_that_is_local_or_was_fetched(monkeypatch, model, executor, fetched, offline):
    monkeypatch.setattr(notebook.hub, "is_cached", lambda spec: fetched)
    job = Run("demo", DEMO | {"models": [model]}, cluster=executor).jobs[0]
    assert ("HF_HUB_OFFLINE" in notebook.fixed_environment(job)) == offline


def test_a_job_waits_until_it_sees_what_it_reads(inside, monkeypatch):
    monkeypatch.setattr(node, "POLL", 0.05)
    found = replace(run_of(), cluster="slurm")
    complete(found)
    first, second, _ = found.jobs
    records.mark_done(first)
    node.wait_for_inputs(second, 0)
    path = inside.root / first.outputs[0]
    whole = path.read_text()
    path.write_text("half")
    with pytest.raises(UserError, match="do all nodes share the project's folder"):
        node.wait_for_inputs(second, 0)
    threading.Timer(0.3, lambda: path.write_text(whole)).start()
    node.wait_for_inputs(second, 20)


def test_why_jobs_ended_is_told_in_the_words_of_the_cluster(tmp_path):
    for log, said in (
        ("SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Reason", "TIMEOUT (job 7)"),
        ("The error message was 'sbatch: error: invalid'.", "sbatch: error: invalid"),
        ("Error in rule", ""),
    ):
        (tmp_path / "log").write_text(f"first\n{log}\n{log}\n")
        assert cluster.failure_reason(tmp_path / "log") == said


# ---- what SLURM is asked


@pytest.fixture
def answers(monkeypatch):
    """What the programs of a SLURM say, by their names."""
    said = {"sinfo": (0, "work\ngpu"), "squeue": (0, ""), "scancel": (0, "")}
    asked = []
    monkeypatch.setattr(cluster, "run_program", lambda *command: asked.append(command) or said[command[0]])
    return Namespace(said=said, asked=asked)


def test_what_the_cluster_does_not_have_is_one_line(answers):
    cluster.check(of(slurm_partition="work,gpu"), RUN)
    with pytest.raises(UserError, match="slurm_partition 'gpus' of 01_generate: .* did you mean 'gpu'"):
        cluster.check(of(slurm_partition="gpus"), RUN)
    answers.said["sinfo"] = (1, "Unable to contact slurm controller")
    with pytest.raises(UserError, match="SLURM does not answer on this machine: Unable to contact"):
        cluster.check(of(), RUN)


def test_only_jobs_of_this_run_and_folder_are_cancelled(answers, monkeypatch):
    name = cluster.job_name_prefix(RUN)
    answers.said["squeue"] = (0, f"7 {name}_1234\n8 another\n9 {name}2_1234\n10 {name}_5")
    monkeypatch.setattr(cluster, "PATIENCE", 0)
    assert cluster.cancel(of(), RUN) == 2 and ("scancel", "7", "10") in answers.asked
