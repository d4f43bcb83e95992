"""Manage a run's jobs on Kubernetes with kubectl: `job.py check | submit SCRIPT | status NAME | cancel`.

config.yaml makes Snakemake call it. Snakemake's own Kubernetes plugin shares no folder with its jobs and copies only
declared files, and notebooks write more. Here all jobs mount the volume with the project.
"""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import yaml

GPU = "nvidia.com/gpu"  # the cluster's resource name of GPUs
ROOT = Path.cwd()  # the project's folder
TRIES, PAUSE = 10, 30  # status checks, and seconds between them: a cluster may not answer for a while
HOPELESS = ("forbidden", "unauthorized", "must be logged in", "not found")  # errors that a retry does not solve
PASSED_ON = ("PYTHONPATH", "DATA_FOLDER", "HF_HOME")  # environment variables that jobs inherit


class KubectlError(Exception):
    """An error of kubectl, in one line."""


def read_template() -> dict:
    return yaml.safe_load(Path(__file__).with_name("job.yaml").read_text(encoding="utf-8"))


def kubectl(*words: str, given: str = "") -> str:
    """Run kubectl in the jobs' namespace and return its output."""
    command = ["kubectl", "--namespace", read_template()["metadata"].get("namespace", "default"), *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KubectlError(str(error)) from None
    if done.returncode:
        raise KubectlError((done.stderr.strip().splitlines() or ["kubectl failed"])[-1])
    return done.stdout.strip()


def check() -> str:
    """Check that jobs can be created: the volume contains the project, its claim exists, and the user may do it."""
    pod = read_template()["spec"]["template"]["spec"]
    for mount in pod["containers"][0]["volumeMounts"]:
        if not ROOT.is_relative_to(mount.get("mountPath", ROOT)):
            raise KubectlError(f"job.yaml mounts the volume at {mount['mountPath']}, which lacks the project")
    for volume in pod["volumes"]:
        kubectl("get", "persistentvolumeclaim", volume["persistentVolumeClaim"]["claimName"], "-o", "name")
    return kubectl("auth", "can-i", "create", "jobs")


def manifest(script: str, properties: dict) -> dict:
    """Return the Job that runs Snakemake's script, with the resources of its rule as limits."""
    job, run, resources = read_template(), os.environ["CALIBRATION_RUN"], properties["resources"]
    labels = {"app": "calibrated-confidence", "run": run, "notebook": properties.get("rule") or properties["groupid"]}
    limits = {"cpu": str(properties["threads"])}
    if resources.get("mem_mb"):
        limits["memory"] = f"{resources['mem_mb']}M"
    if int(resources.get("gpu", 0)):
        limits[GPU] = str(resources["gpu"])
    if resources.get("runtime"):
        job["spec"]["activeDeadlineSeconds"] = 60 * int(resources["runtime"])
    name = f"{run.lower().replace('_', '-')}-{uuid.uuid4().hex[:10]}"
    job["metadata"] |= {"name": name, "labels": labels}
    job["spec"]["template"]["metadata"] = {"labels": labels}
    container = job["spec"]["template"]["spec"]["containers"][0]
    for mount in container["volumeMounts"]:
        mount.setdefault("mountPath", str(ROOT))
    env = [{"name": name, "value": os.environ[name]} for name in PASSED_ON if name in os.environ]
    container |= {"command": ["/bin/sh", script], "workingDir": str(ROOT), "env": env}
    container["resources"] = {"limits": limits, "requests": limits}
    return job


def submit(script: str) -> str:
    """Create a Job and return its name."""
    properties = re.search(r"^# properties = (.*)$", Path(script).read_text(encoding="utf-8"), flags=re.M)
    job = manifest(script, json.loads(properties[1]))
    kubectl("create", "-f", "-", given=json.dumps(job))
    return job["metadata"]["name"]


def status(name: str) -> str:
    """Return the job's status in the plugin's terms. Retry if the cluster does not answer, but not without access."""
    for left in reversed(range(TRIES)):
        try:
            now = json.loads(kubectl("get", "job", name, "-o", "json")).get("status", {})
            return "success" if now.get("succeeded") else "failed" if now.get("failed") else "running"
        except KubectlError as problem:
            if "NotFound" in str(problem):
                return "failed"
            if not left or any(word in str(problem).lower() for word in HOPELESS):
                raise
        time.sleep(PAUSE)
    raise AssertionError


def cancel() -> str:
    """Delete the jobs of a run, wait until they are gone and return their number."""
    label = f"run={os.environ['CALIBRATION_RUN']}"
    jobs = kubectl("get", "jobs", "-l", label, "-o", "name").split()
    if jobs:
        kubectl("delete", "jobs", "-l", label, "--wait=true", "--timeout=50s")
    return str(len(jobs))


if __name__ == "__main__":
    try:
        print({"check": check, "submit": submit, "status": status, "cancel": cancel}[sys.argv[1]](*sys.argv[2:]))
    except KubectlError as problem:
        print(f"The error message was '{problem}'", file=sys.stdout if sys.argv[1] == "submit" else sys.stderr)
        sys.exit(1)
