"""Jobs for Kubernetes: what is rendered, held against its schema, and runs by a kubectl that starts processes here."""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
import slurm_cluster
import yaml
from clone import spaced
from small_project import ROOT, Project
from test_runs import family, until, with_cell
from test_slurm_endings import WAITING

from lib.paths import UserError
from workflow import cluster, kubernetes, plugins

FILE = {"executor": "kubernetes", "jobs": 2, "kubernetes": {"image": "python:3.11", "claim": "project"},
        "default-resources": {"mem_mb": 500}, "seconds-between-status-checks": 1}  # fmt: skip
PROPERTIES = {"rule": "01_generate", "threads": 4, "resources": {"mem_mb": 64000, "gpu": 1, "runtime": 60}}


def own(**given: object) -> dict:
    return kubernetes.facts({"kubernetes": {"image": "python:3.11", "claim": "project", **given}}, "mine.yaml")


def test_a_job_asks_for_what_its_rule_asks_for():
    job = kubernetes.manifest(own(), "demo-1", "/script.sh", PROPERTIES, {"PYTHONPATH": "/x"})
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "64000M", "nvidia.com/gpu": "1"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu" and job["spec"]["activeDeadlineSeconds"] == 3600
    assert pod["containers"][0]["volumeMounts"] == [{"name": "project", "mountPath": str(ROOT)}]
    light = kubernetes.manifest(own(), "demo-1", "/s", {**PROPERTIES, "threads": 1, "resources": {}}, {})
    assert light["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert light["spec"]["template"]["spec"]["tolerations"] == [] and "activeDeadlineSeconds" not in light["spec"]
    assert light["metadata"]["name"] != job["metadata"]["name"] and len(job["metadata"]["name"]) <= 63


def test_a_job_is_of_the_schema_of_kubernetes():
    """Its published Python client knows every field and type of batch/v1."""
    client = pytest.importorskip("kubernetes.client", reason="the client of Kubernetes for Python is not installed")
    job = kubernetes.manifest(own(**{"node-selector": {"gpu": "a100"}}), "demo-1", "/s", PROPERTIES, {"A": "b"})
    api = client.ApiClient()
    read = api.deserialize(type("Reply", (), {"data": json.dumps(job)})(), "V1Job")
    assert api.sanitize_for_serialization(read) == without_empty(job)


def without_empty(value):
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("given, line", [
    (None, "mine.yaml: `kubernetes` with `image` and `claim` is missing"),
    ({"image": "x"}, "mine.yaml: kubernetes says no `claim`"),
    ({"image": "x", "claim": "y", "nmspace": "z"}, "kubernetes takes no 'nmspace': did you mean 'namespace'?"),
    ({"image": "x", "claim": "y", "folder": "/elsewhere"}, "mounts `folder: /elsewhere`, which does not hold this"),
])  # fmt: skip
def test_a_mistake_in_the_file_is_one_line(given, line):
    with pytest.raises(UserError) as caught:
        kubernetes.facts({"kubernetes": given}, "mine.yaml")
    assert line in str(caught.value)


def test_a_wait_without_rights_ends_with_the_words_of_kubectl(monkeypatch, capsys, tmp_path):
    """After some tries, for a cluster may be away for a while; and where the run looks for what a cluster said."""
    file, naps = tmp_path / "mine.yaml", []
    file.write_text(yaml.safe_dump(FILE))
    away, done = (1, "Unable to connect"), (0, '{"status": {"succeeded": 1}}')
    said = iter([away, done] + [(1, "error: You must be logged in")] * 99)
    monkeypatch.setattr(kubernetes, "ask", lambda own, *words: next(said))
    monkeypatch.setattr(kubernetes.time, "sleep", naps.append)
    assert kubernetes.main(["status", "demo-1", str(file), "job-1"]) == 0 and len(naps) == 1
    assert capsys.readouterr().out == "success\n"
    assert kubernetes.main(["status", "demo-1", str(file), "job-1"]) == 1 and len(naps) == kubernetes.TRIES
    log = tmp_path / "log"
    log.write_text(capsys.readouterr().err)
    assert cluster.ending(log) == "error: You must be logged in"


# ---- whole runs


@pytest.fixture
def kubectl(tmp_path) -> Path:
    """A folder with a kubectl, for PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy2(Path(__file__).with_name("fake_kubectl.py"), folder / "fake_kubectl.py")
    (folder / "kubectl").write_text(f"#!/bin/sh\nexec '{sys.executable}' '{folder}/fake_kubectl.py' \"$@\"\n")
    (folder / "kubectl").chmod(0o755)
    return folder


def words(project: Project, kubectl: Path, **values: object) -> tuple[list[str], dict[str, str]]:
    path = project.root / "mine.yaml"
    path.write_text(yaml.safe_dump(FILE | values))
    return ["demo", "--kubernetes", str(path)], slurm_cluster.ahead(kubectl)


def test_without_a_cluster_it_is_one_line(project, kubectl):
    given, env = words(project, kubectl, kubernetes={"image": "x", "claim": "other"})
    code, said = project.run(*given, **env)
    assert code == 2 and said.startswith("run_all.sh: kubectl finds no volume 'other' in 'default': Error from server")
    code, said = project.run(*given, PATH=f"{sys.prefix}/bin")
    assert code == 2 and "No such file or directory: 'kubectl'" in said and len(said.splitlines()) == 1


@pytest.mark.slow
def test_a_run_by_kubectl(project, kubectl, tmp_path):
    slurm_cluster.plugin("kubernetes", project.root)
    given, env = words(project, kubectl)
    code, said = project.shell(*given, VIRTUAL_ENV=spaced(tmp_path), **env)
    assert code == 0 and "demo: 3 made, 0 kept" in said, said
    assert "3 of 3 jobs to do on Kubernetes, at most 2 at once" in said and "shard 1/1: done" in said
    made = [json.loads(path.read_text())["metadata"]["labels"] for path in kubectl.glob("*.json")]
    assert sorted(labels["notebook"] for labels in made) == ["01_generate", "02_single_pass", "08_tables"]
    code, said = project.run(*given, **env)
    assert code == 0 and "demo: 0 made, 3 kept" in said


@pytest.mark.slow
def test_a_stopped_run_leaves_no_job(project, kubectl):
    slurm_cluster.plugin("kubernetes", project.root)
    with_cell(project, "01_generate", WAITING)
    given, env = words(project, kubectl)
    process = project.start(*given, **env)
    until(lambda: (project.root / "notebooks/begun").exists() or process.poll() is not None, 120)
    assert process.poll() is None, process.stdout.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130 and not list(kubectl.glob("*.json"))
    until(lambda: not family(project), 30)
    assert plugins.made("kubernetes")
