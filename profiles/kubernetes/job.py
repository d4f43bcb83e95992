"""A run's jobs on Kubernetes, by kubectl: `job.py check | submit SCRIPT | status NAME | cancel`.

Snakemake calls it as config.yaml says. Its own plugin for Kubernetes shares no folder with its jobs and copies declared
files to and fro; notebooks leave more than a rule can declare. Here all jobs mount the volume that holds the project.
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

GPU = "nvidia.com/gpu"  # how the cluster calls its GPUs
ROOT = Path.cwd()  # the project's folder
TRIES, PAUSE = 10, 30  # looks at a job that may fail, and seconds between them: a cluster may be away for a while
HOPELESS = ("forbidden", "unauthorized", "must be logged in", "not found")  # what no other try mends
PASSED_ON = ("PYTHONPATH", "DATA_FOLDER", "HF_HOME")  # of this process's environment


class KubectlError(Exception):
    """What kubectl complained of, in one line."""


def read_template() -> dict:
    return yaml.safe_load(Path(__file__).with_name("job.yaml").read_text(encoding="utf-8"))


def kubectl(*words: str, given: str = "") -> str:
    """What kubectl says in the jobs' namespace."""
    command = ["kubectl", "--namespace", read_template()["metadata"].get("namespace", "default"), *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KubectlError(str(error)) from None
    if done.returncode:
        raise KubectlError((done.stderr.strip().splitlines() or ["kubectl failed"])[-1])
    return done.stdout.strip()


def check() -> str:
    """Whether jobs can be made: the volume holds the project, its claim is there, and this user may."""
    pod = read_template()["spec"]["template"]["spec"]
    for mount in pod["containers"][0]["volumeMounts"]:
        if not ROOT.is_relative_to(mount.get("mountPath", ROOT)):
            raise KubectlError(f"job.yaml mounts the volume at {mount['mountPath']}, which does not hold this project")
    for volume in pod["volumes"]:
        kubectl("get", "persistentvolumeclaim", volume["persistentVolumeClaim"]["claimName"], "-o", "name")
    return kubectl("auth", "can-i", "create", "jobs")


def manifest(script: str, properties: dict) -> dict:
    """The Job that carries out Snakemake's script of a job, with what its rule asks for as limits."""
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
    """The name of the Job that was made."""
    properties = re.search(r"^# properties = (.*)$", Path(script).read_text(encoding="utf-8"), flags=re.M)
    job = manifest(script, json.loads(properties[1]))
    kubectl("create", "-f", "-", given=json.dumps(job))
    return job["metadata"]["name"]


def status(name: str) -> str:
    """In the plugin's words. A cluster that does not answer now may later; rights that are lacking are said at once."""
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
    """Delete the jobs of a run, and wait until they are gone; how many there were."""
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
