"""Kubernetes, by `kubectl`: a job of a run as a Job of the cluster. Called by Snakemake's plugin for any cluster, as
`python -m workflow.kubernetes submit|status RUN FILE WORD`.

Snakemake's own plugin for Kubernetes shares no folder with its jobs and copies declared files to and fro; notebooks
leave more than a rule can declare. Here all jobs mount the volume that holds the project, at the project's folder.
"""

import json
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

from lib.paths import ROOT, UserError, nearest, read_yaml

KEYS = {"image": "", "claim": "", "folder": str(ROOT), "namespace": "default", "gpu": "nvidia.com/gpu",
        "node-selector": {}}  # fmt: skip
TRIES, PAUSE = 10, 30  # looks at a job that fail before the wait for it ends, and seconds between them
NAMED = ("PYTHONPATH", "DATA_FOLDER", "HF_HOME")  # of this process's surroundings, what jobs are told


def facts(values: dict, name: str) -> dict:
    """The mapping `kubernetes` of a profile file. Raises UserError for a key that there is not, or that is lacking."""
    given = values.get("kubernetes")
    if not isinstance(given, dict):
        raise UserError(f"{name}: `kubernetes` with `image` and `claim` is missing; see params/cluster/kubernetes.yaml")
    for key in given:
        if key not in KEYS:
            raise UserError(f"{name}: kubernetes takes no '{key}': {nearest(key, KEYS)}")
    lacking = [key for key in ("image", "claim") if not given.get(key)]
    if lacking:
        raise UserError(f"{name}: kubernetes says no `{lacking[0]}`")
    found = {**KEYS, **given}
    if not ROOT.is_relative_to(found["folder"]):
        raise UserError(f"{name}: kubernetes mounts `folder: {found['folder']}`, which does not hold this project")
    return found


def ask(own: dict, *words: str, given: str = "") -> tuple[int, str]:
    """Exit code and words of kubectl in the namespace; its complaint where it failed."""
    command = ["kubectl", "--namespace", own["namespace"], *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stderr if done.returncode else done.stdout).strip()


def last_line(said: str) -> str:
    return (said.splitlines() or ["kubectl failed"])[-1]


def check(own: dict) -> None:
    """UserError where jobs can't be made: no kubectl, no cluster, no such claim, no right to it."""
    code, said = ask(own, "get", "persistentvolumeclaim", own["claim"], "-o", "name")
    if code:
        raise UserError(f"kubectl finds no volume '{own['claim']}' in '{own['namespace']}': {last_line(said)}")
    code, said = ask(own, "auth", "can-i", "create", "jobs")
    if code:
        raise UserError(f"kubectl may not create jobs in '{own['namespace']}': {last_line(said)}")


def cancel(own: dict, run: str) -> int:
    """Delete the jobs of a run, and wait until they are gone; how many there were."""
    _, said = ask(own, "get", "jobs", "-l", f"run={run}", "-o", "name")
    jobs = re.findall(r"^job\S*/", said, flags=re.M)
    if jobs:
        ask(own, "delete", "jobs", "-l", f"run={run}", "--wait=true", "--timeout=50s")
    return len(jobs)


# ---- one job -----------------------------------------------------------------------------------------------


def manifest(own: dict, run: str, script: str, properties: dict, env: dict[str, str]) -> dict:
    """The Job (batch/v1) that carries out Snakemake's script of a job, with what its rule asks for as limits."""
    asked, gpus = properties["resources"], int(properties["resources"].get("gpu", 0))
    limits = {"cpu": str(properties["threads"])}
    if asked.get("mem_mb"):
        limits["memory"] = f"{asked['mem_mb']}M"
    if gpus:
        limits[own["gpu"]] = str(gpus)
    container = {
        "name": "job",
        "image": own["image"],
        "command": ["/bin/sh", script],
        "workingDir": str(ROOT),
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [{"name": "project", "mountPath": own["folder"]}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "project", "persistentVolumeClaim": {"claimName": own["claim"]}}],
        "nodeSelector": own["node-selector"],
        "tolerations": [{"key": own["gpu"], "operator": "Exists", "effect": "NoSchedule"}] if gpus else [],
    }
    labels = {"app": "calibrated-confidence", "run": run, "notebook": properties["rule"]}
    spec = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}
    if asked.get("runtime"):
        spec["activeDeadlineSeconds"] = 60 * int(asked["runtime"])
    name = f"{run.lower().replace('_', '-')}-{uuid.uuid4().hex[:10]}"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def submit(own: dict, run: str, script: str, env: dict[str, str]) -> str:
    """The name of the Job that was made. Raises UserError where it was not."""
    text = Path(script).read_text(encoding="utf-8")
    job = manifest(own, run, script, json.loads(re.search(r"^# properties = (.*)$", text, flags=re.M)[1]), env)
    code, said = ask(own, "create", "-f", "-", given=json.dumps(job))
    if code:
        raise UserError(f"The error message was '{last_line(said)}'")
    return job["metadata"]["name"]


def status(own: dict, name: str) -> str:
    """In the plugin's words. A cluster that does not answer now may later; UserError where it does not for long."""
    for last in [False] * (TRIES - 1) + [True]:
        code, said = ask(own, "get", "job", name, "-o", "json")
        if not code:
            break
        if "NotFound" in said:
            return "failed"
        if last:
            raise UserError(f"The error message was '{last_line(said)}'")
        time.sleep(PAUSE)
    now = json.loads(said).get("status", {})
    return "success" if now.get("succeeded") else "failed" if now.get("failed") else "running"


def main(argv: list[str]) -> int:
    from os import environ

    what, run, file, word = argv
    own = facts(read_yaml(Path(file)), Path(file).name)
    try:
        env = {name: environ[name] for name in NAMED if name in environ}
        print(submit(own, run, word, env) if what == "submit" else status(own, word))
        return 0
    except UserError as problem:
        print(problem, file=sys.stdout if what == "submit" else sys.stderr)  # where Snakemake logs it
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
