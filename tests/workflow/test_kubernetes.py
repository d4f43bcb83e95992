"""Jobs for Kubernetes: what is rendered, held against its schema, and runs by a kubectl that starts processes here."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import slurm_cluster
import yaml
from clone import spaced
from small_project import ROOT, Project, write

from workflow import cluster

SHIPPED = ROOT / "profiles" / "kubernetes"
FILE = {"jobs": 2, "default-resources": {"mem_mb": 500}, "seconds-between-status-checks": 1}


def test_a_job_asks_for_what_its_rule_asks_for(monkeypatch):
    monkeypatch.setenv("CALIBRATION_RUN", "demo-1")
    spec = importlib.util.spec_from_file_location("job", SHIPPED / "job.py")
    spec.loader.exec_module(job := importlib.util.module_from_spec(spec))
    resources = {"mem_mb": 64000, "gpu": 1, "runtime": 60}
    heavy = job.manifest("/script.sh", {"rule": "01_generate", "threads": 4, "resources": resources})
    pod = heavy["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert not pod["automountServiceAccountToken"] and not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "64000M", "nvidia.com/gpu": "1"}
    assert heavy["spec"]["activeDeadlineSeconds"] == 3600
    light = job.manifest("/s", {"groupid": "light", "threads": 1, "resources": {}})
    assert light["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert light["metadata"]["labels"]["notebook"] == "light" and "activeDeadlineSeconds" not in light["spec"]


# ---- whole runs


@pytest.fixture
def kubectl(tmp_path) -> Path:
    """A folder with a kubectl, for PATH."""
    folder, fake = tmp_path / "bin", Path(__file__).with_name("fake_kubectl.py")
    write(folder / "kubectl", f"#!/bin/sh\nexec '{sys.executable}' '{fake}' '{folder}' \"$@\"\n")
    (folder / "kubectl").chmod(0o755)
    return folder


def words(project: Project, kubectl: Path, claim: str = "project") -> tuple[list[str], dict[str, str]]:
    folder = shutil.copytree(SHIPPED, project.root / "mine")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config = {key: value for key, value in config.items() if key not in cluster.BY_RULE} | FILE
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    project.replace("mine/job.yaml", "claimName: project", f"claimName: {claim}")
    return ["demo", "--profile", str(folder)], slurm_cluster.ahead(kubectl)


def test_without_a_cluster_it_is_one_line(project, kubectl):
    given, env = words(project, kubectl, claim="other")
    code, said = project.run(*given, **env)
    assert code == 2 and said.startswith("run_all.sh: Kubernetes does not accept jobs: Error from server (NotFound)")
    code, said = project.run(*given, PATH=f"{sys.prefix}/bin")
    assert code == 2 and "No such file or directory: 'kubectl'" in said and len(said.splitlines()) == 1


@pytest.mark.slow
def test_a_run_by_kubectl(project, kubectl, tmp_path):
    slurm_cluster.plugin("kubernetes", project.root)
    given, env = words(project, kubectl)
    code, said = project.shell(*given, VIRTUAL_ENV=spaced(tmp_path), **env)
    assert code == 0 and "demo: 3 of 3 jobs ran, 0 up to date" in said, said
    assert "3 of 3 jobs to do on Kubernetes, at most 2 at once" in said and "shard 1/1: done" in said
    assert len(list(kubectl.glob("*.json"))) == 2, "01, and all light notebooks together"
    code, said = project.run(*given, **env)
    assert code == 0 and "demo: 0 of 3 jobs ran, 3 up to date" in said
