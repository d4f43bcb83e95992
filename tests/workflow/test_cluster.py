"""What of a cluster needs none: the profile file, the words, what a node sees, what the run hears, what is asked."""

import json
import threading
import time
from argparse import Namespace
from dataclasses import asdict

import pytest
from small_project import ROOT

from lib.paths import UserError
from workflow import cli, cluster, fresh, notebook, plugins, records, run, slurm, submission
from workflow.cluster import Profile
from workflow.pipeline import NOTEBOOKS, Run

GENERATE = next(row for row in NOTEBOOKS if row.number == "01")
RUN = Run("demo", {"models": ["tiny"], "datasets": ["easy"], "seed": 0}, cluster="slurm")


def write(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


# ---- the file


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_the_shipped_files_name_every_notebook_that_runs_a_model_and_explain_every_key(name):
    path = ROOT / "params" / "cluster" / f"{name}.yaml"
    profile = cluster.load(name, str(path))
    for row in NOTEBOOKS:
        assert profile.gpus(row) == int(row.heavy), row.name
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#")]
    keys = {line.split(":")[0].strip(): "#" in line for line in reversed(lines) if ":" in line}
    assert all(keys.values()), [key for key, explained in keys.items() if not explained]


def test_a_notebook_asks_for_its_own_before_what_all_ask_for(tmp_path):
    text = "default-resources: [runtime=10, slurm_extra=--qos=low]\nset-resources: {01_generate: {runtime: 20}}\n"
    profile = cluster.load("slurm", write(tmp_path, text + "set-threads: {01_generate: 4}\n"))
    assert profile.resources(GENERATE) == {"runtime": 20, "slurm_extra": "--qos=low"} and profile.threads(GENERATE) == 4
    other = next(row for row in NOTEBOOKS if row.number == "02")
    assert profile.resources(other)["runtime"] == "10" and profile.threads(other) == 1
    assert profile.options()[-2:] == ["--jobs", "100"]


@pytest.mark.parametrize("resources, count", [({"gpu": 2}, 2), ({"gres": "gpu:1"}, 1), ({"gres": "gpu"}, 1),
    ({"gres": "gpu:a100:4"}, 4), ({"gres": "gpu:a100"}, 1), ({"gres": "lscratch:20"}, 0), ({}, 0),
    ({"gpu_model": "a100"}, 1)])  # fmt: skip
def test_gpus_are_counted_as_gpu_and_as_gres(resources, count):
    assert Profile("slurm", "", {"set-resources": {GENERATE.name: resources}}).gpus(GENERATE) == count


@pytest.mark.parametrize("text, line", [
    ("[1, 2]", "mine.yaml holds no keys with values"),
    ("executor: kubernetes", "mine.yaml is of the executor 'kubernetes', and --slurm was asked for"),
    ("set-resources: {01_generat: {gpu: 1}}", "which is no notebook: did you mean '01_generate'?"),
    ("set-threads: {all: 2}", "set-threads names 'all', which is no notebook"),
    ("set-resources: {01_generate: 3}", "mine.yaml: 01_generate takes keys with values"),
    ("default-resources: runtime", "mine.yaml: default-resources takes keys with values"),
    ("default-resources: {gpus: 2}", "Snakemake's is `gpu: 2`, or `gres: gpu:1`"),
    ("jobs: 1\njobs: 2", "the key 'jobs' again"),
])  # fmt: skip
def test_a_mistake_in_the_file_is_one_line(tmp_path, text, line):
    with pytest.raises(UserError) as caught:
        cluster.load("slurm", write(tmp_path, text))
    assert line in str(caught.value)


@pytest.mark.parametrize("line, hint", [
    ("demo --dry-run", "with --slurm FILE or --kubernetes FILE"),
    ("demo --slurm", "argument --slurm: expected one argument"),
    ("demo --slum x", "unknown option '--slum': did you mean '--slurm'?"),
    ("demo --slurm params/cluster/slrm.yaml", "did you mean 'params/cluster/slurm.yaml'?"),
    ("replay --slurm params/cluster/slurm.yaml", "replay submits no jobs: it takes no --slurm"),
    ("check demo --slurm params/cluster/slurm.yaml", "check submits no jobs"),
    ("lab --slurm params/cluster/slurm.yaml", "lab takes no --slurm"),
    ("demo --slurm params/cluster/slurm.yaml --cores 2", "it takes no --cores"),
    ("demo --slurm params/cluster/slurm.yaml --kubernetes params/cluster/slurm.yaml", "one cluster at a time"),
])  # fmt: skip
def test_a_wrong_word_is_one_line(line, hint):
    with pytest.raises(cli.WordError) as caught:
        cli.check(line.split())
    assert hint in str(caught.value)


def test_the_file_is_seen_from_where_the_user_is_and_from_the_project(tmp_path, monkeypatch):
    mine = write(tmp_path, "jobs: 3")
    monkeypatch.setenv("CALLED_FROM", str(tmp_path))
    assert cli.check(["demo", "--slurm", "mine.yaml"]).slurm == mine
    found = cli.check(["demo", "--slurm", "params/cluster/slurm.yaml", "--dry-run"])
    assert found.slurm == str(ROOT / "params/cluster/slurm.yaml") and found.dry_run
    assert cluster.asked(found).name == "SLURM" and cluster.asked(cli.check(["demo"])) is None


# ---- what a node sees, and what the run hears


def test_cores_are_counted_where_a_job_runs(monkeypatch):
    here = Run("paper", RUN.values, cores=8)
    assert cluster.here(here) is here
    monkeypatch.setenv("CALIBRATION_CORES", "3")
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    there = Run("paper", RUN.values, cores=8, gpus=1, cluster="slurm")
    assert [cluster.here(there).jobs[0].threads, cluster.here(there).jobs[-1].threads] == [3, 1]
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    assert cluster.here(there).jobs[0].threads == 6 and cluster.here(there).jobs[0].on_gpu
    assert cluster.here(RUN).jobs[0].threads == 1, "the demo's results hang on no machine"


def test_a_gpu_for_one_notebook_is_expected_by_its_jobs_alone(tmp_path):
    file = write(tmp_path, "set-resources: {01_generate: {gpu: 1}}")
    found = run.plan(cli.check(["demo", "--slurm", file]))
    assert {job.notebook.number for job in found.jobs if job.on_gpu} == {"01"}
    assert {job.notebook.number for job in Run.of(json.loads(json.dumps(asdict(found)))).jobs if job.on_gpu} == {"01"}


def upstream(inside, text="words"):
    """A finished job of the small project, and one that reads what it left."""
    found = Run("demo", {**run.params.load_profile("demo").model_dump(), "models": ["tiny"]}, cluster="slurm")
    first, second = found.jobs[:2]
    for path in (*records.with_manifests(first.outputs), first.executed):
        (inside.root / path).parent.mkdir(parents=True, exist_ok=True)
        (inside.root / path).write_text(text)
    records.write_record(first, fresh.parts(first), first.outputs, 1)
    return first, second


def test_a_job_waits_until_it_sees_what_it_reads(inside, monkeypatch):
    monkeypatch.setattr(cluster, "ROOT", inside.root)
    monkeypatch.setattr(cluster, "POLL", 0.05)
    first, second = upstream(inside)
    cluster.await_inputs(second, 0)
    path = inside.root / first.outputs[0]
    path.write_text("half")
    with pytest.raises(UserError, match="is the project's folder shared by all nodes"):
        cluster.await_inputs(second, 0)
    threading.Timer(0.3, lambda: path.write_text("words")).start()
    began = time.monotonic()
    cluster.await_inputs(second, 20)
    assert 0.2 < time.monotonic() - began < 10


def test_what_jobs_say_elsewhere_is_heard_line_by_line(inside, monkeypatch):
    monkeypatch.setattr(cluster, "ROOT", inside.root)
    monkeypatch.setattr(cluster, "POLL", 0.05)
    found = Run("demo", {"models": ["tiny"], "datasets": ["easy"]}, cluster="slurm")
    job, heard = found.jobs[0], []
    (inside.root / job.events).parent.mkdir(parents=True)
    (inside.root / job.events).write_text("of an earlier run\n")
    monkeypatch.setenv("CALIBRATION_EVENTS", str(inside.root / job.events))
    with cluster.followed(found, heard.append) as told:
        told("Snakemake's own")
        notebook.tell(job, "start")
        with (inside.root / job.events).open("a") as file:
            file.write("@@half")
            file.flush()
            time.sleep(0.3)
            assert [json.loads(line[2:])["event"] for line in heard[1:]] == ["start"]
            file.write(" a line\n")
    assert heard[0] == "Snakemake's own" and heard[2:] == ["@@half a line"]
    heard.clear()
    monkeypatch.delenv("CALIBRATION_EVENTS")
    with cluster.followed(Run("demo", found.values), heard.append) as told:
        notebook.tell(job, "end", seconds=1)
        assert told == heard.append
    assert heard == [] and '"end"' not in (inside.root / job.events).read_text()


@pytest.mark.parametrize("log, said", [
    ("SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Reason", "TIMEOUT (job 7)"),
    ("The error message was 'sbatch: error: invalid'.", "sbatch: error: invalid"),
    ("Error in rule", ""),
])  # fmt: skip
def test_why_jobs_ended_is_told_in_the_words_of_the_cluster(tmp_path, log, said):
    (tmp_path / "log").write_text(f"first\n{log}\n{log}\n")
    assert cluster.ending(tmp_path / "log") == said


# ---- what SLURM is asked


@pytest.fixture
def answers(monkeypatch):
    """What the programs of a SLURM say, by their names; a cluster without accounting."""
    said = {"sinfo": (0, "work\ngpu"), "sacctmgr": (1, "no database"), "sacct": (1, "accounting storage is disabled"),
            "squeue": (0, ""), "scancel": (0, "")}  # fmt: skip
    asked = []

    def ask(*command):
        asked.append(command)
        return said[command[0]]

    monkeypatch.setattr(slurm, "ask", ask)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    return Namespace(said=said, asked=asked)


def of(**resources) -> Profile:
    return Profile("slurm", "", {"default-resources": resources})


def test_a_cluster_without_accounting_is_asked_by_squeue(answers):
    assert slurm.check(of(slurm_partition="work,gpu")) == ["--slurm-status-command", "squeue"]
    answers.said["sacct"] = (0, "")
    assert slurm.check(of()) == []
    assert slurm.check(Profile("slurm", "", {"slurm-status-command": "squeue"})) == []


def test_what_the_cluster_does_not_have_is_one_line(answers, monkeypatch):
    with pytest.raises(UserError, match="slurm_partition 'gpus' of 01_generate: .* did you mean 'gpu'"):
        slurm.check(of(slurm_partition="gpus"))
    answers.said["sacctmgr"] = (0, "physics")
    slurm.check(of(slurm_account="physics"))
    with pytest.raises(UserError, match="slurm_account 'chemistry' of .* there is: physics"):
        slurm.check(of(slurm_account="chemistry"))
    with pytest.raises(UserError, match="sacct answers nothing .accounting storage is disabled.: write"):
        slurm.check(Profile("slurm", "", {"slurm-status-command": "sacct"}))
    answers.said["sinfo"] = (1, "Unable to contact slurm controller")
    with pytest.raises(UserError, match="SLURM does not answer: Unable to contact"):
        slurm.check(of())
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None if name == "sbatch" else name)
    with pytest.raises(UserError, match="sbatch not found: --slurm is for a machine from which jobs are submitted"):
        slurm.check(of())


def test_only_jobs_of_this_run_and_folder_are_cancelled(answers, monkeypatch):
    name = cluster.tag(RUN)
    answers.said["squeue"] = (0, f"7 {name}_1234\n8 another\n9 {name}2_1234\n10 {name}_5")
    assert slurm.left(RUN) == ["7", "10"]
    monkeypatch.setattr(slurm, "PATIENCE", 0)
    assert slurm.cancel(RUN) == 2 and ("scancel", "7", "10") in answers.asked
    odd = cluster.tag(Run("a.b" * 20, {}))
    assert len(odd) <= 50 and odd.replace("-", "").isalnum()


# ---- what would be submitted


def test_a_line_for_each_job_with_its_hours(monkeypatch):
    values = run.params.load_profile("demo").model_dump(mode="json")
    found, said = Run("demo", values, gpus=1, cluster="slurm"), []
    todo = found.jobs[:1] + found.jobs[-1:]
    monkeypatch.setattr(fresh, "outlook", lambda run, remake: [fresh.Verdict(job, "make") for job in todo])
    monkeypatch.setattr(Run, "seconds", lambda self: {})
    assert submission.show(found, of(slurm_partition="gpu", runtime=60), [], said.append) == 0
    assert said[0].startswith("01_generate tiny-llama demo-easy  threads 1, partition gpu, runtime 60; ")
    assert said[0].endswith(" h") and "0.0 h" in said[1]
    assert "2 of" in said[2] and "(hours as on a GPU of 80 GB); nothing was" in said[2]
    monkeypatch.setattr(Run, "seconds", lambda self: {todo[0].name: 7200})
    said.clear()
    submission.show(found, of(), [], said.append)
    assert said[0].endswith("; 2.0 h"), "as it was timed"


def test_hours_of_notebooks_add_up_to_those_of_check():
    from workflow import cost

    work = cost.Work(rows=100, batch=10, budget=10_000, prompt=300, tokens=300, longest=1300, passes=1000)
    size, step = cost.Size(10**9, 16, 10**5), (0.01, 0.02)
    parts = cost.shares(size, work, step, submission.CARD)
    (low, high), dropout = cost.hours(size, work, step, submission.CARD)
    assert low == pytest.approx(sum(part[0] for part in parts.values())) and dropout == parts["04"][0]
    assert high == pytest.approx(sum(part[1] for part in parts.values())) and high > low


# ---- the plugin


def test_the_plugin_is_installed_once_and_never_into_the_environment(tmp_path, monkeypatch):
    commands, code = [], [0]
    monkeypatch.setattr(plugins, "ROOT", tmp_path)
    (tmp_path / "requirements-slurm.lock").write_text("six==1.17.0")

    def done(command, **options):
        commands.append(command)
        assert "PYTHONPATH" not in options["env"]
        (tmp_path / ".plugins-slurm").mkdir(exist_ok=True)
        return Namespace(returncode=code[0])

    monkeypatch.setattr(plugins.subprocess, "run", done)
    said = []
    places = [plugins.prepare("slurm", said.append) for _ in range(2)]
    assert places == [str(tmp_path / ".plugins-slurm")] * 2 and len(commands) == len(said) == 1
    assert commands[0][commands[0].index("--target") + 1] == places[0] and "--require-hashes" in commands[0]
    (tmp_path / "requirements-slurm.lock").write_text("six==1.16.0")
    code[0] = 1
    with pytest.raises(UserError, match="plugin for slurm can't be installed"):
        plugins.prepare("slurm", said.append)
    assert not plugins.made("slurm")


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_locks_are_hashed_and_hold_nothing_that_the_environment_has(name):
    text, own = (plugins.lock(name).read_text(), (ROOT / "requirements.lock").read_text())
    entries = [entry for entry in text.split("\n") if entry[:1].isalnum()]
    assert text.count("--hash=sha256:") >= len(entries) >= 1
    assert not [entry for entry in entries if f"\n{entry.split('==')[0]}==" in own]
    assert f"snakemake-executor-plugin-{cluster.PLUGINS[name]}==" in text and "http" not in text
