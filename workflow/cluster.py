"""A run on a cluster: Snakemake submits the same jobs, configured by one of its own profile folders (profiles/).

The run and its jobs share the project's folder and nothing else. node.py is the jobs' side, on their nodes.
"""

import getpass
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib.paths import ROOT, UserError, nearest, read_yaml
from workflow import extras
from workflow.locks import run_program
from workflow.pipeline import Run
from workflow.rules import NOTEBOOKS, Notebook

EXECUTORS = {"slurm": ("SLURM", "slurm")}  # name, lock of the plugin
PATIENCE = 60  # seconds to wait until canceled jobs have ended
BY_RULE = ("set-resources", "set-threads")


@dataclass(frozen=True)
class Profile:
    """A Snakemake profile: its folder and the content of its config.yaml."""

    folder: Path
    values: dict

    @property
    def executor(self) -> str:
        return self.values["executor"]

    @property
    def name(self) -> str:
        return EXECUTORS[self.executor][0]

    @property
    def at_once(self) -> int | str:
        return self.values.get("jobs", 100)

    def resources(self, row: Notebook) -> dict:
        """Return the resources that a notebook's jobs request."""
        return self.values["default-resources"] | self.values["set-resources"].get(row.name, {})

    def gpus(self, row: Notebook) -> int:
        """Return the GPUs that a notebook's jobs request, as `gpu: 2` or as `gres: gpu:TYPE:2`."""
        resources = self.resources(row)
        found = re.fullmatch(r"gpu(?::[^:,]*[^:,\d][^:,]*)?(?::(\d+))?", str(resources.get("gres", "")))
        counted = resources.get("gpu", int(found[1] or 1) if found else 0)
        return int(counted) or int("gpu_model" in resources)


def load_profile(folder: str) -> Profile:
    """Read a profile. Raise UserError if its executor is unknown or a rule is not a notebook."""
    name, rules = f"{Path(folder).name}/config.yaml", [row.name for row in NOTEBOOKS]
    values = read_yaml(Path(folder, "config.yaml"), name)
    if not isinstance(values, dict) or "executor" not in values:
        raise UserError(f"{name} has no key `executor`; see profiles/slurm/config.yaml for an example")
    if (executor := values["executor"]) not in EXECUTORS:
        raise UserError(f"{name}: executor '{executor}' is not supported: {nearest(executor, EXECUTORS)}")
    for key in ("default-resources", *BY_RULE):
        values[key] = read_mapping(values.get(key) or {}, f"{name}: {key}")
    for key in BY_RULE:
        if unknown := [rule for rule in values[key] if rule not in rules]:
            raise UserError(f"{name}: {key} names '{unknown[0]}', not a notebook: {nearest(unknown[0], rules)}")
    by_rule = {rule: read_mapping(asked or {}, f"{name}: {rule}") for rule, asked in values["set-resources"].items()}
    return Profile(Path(folder), values | {"set-resources": by_rule})


def read_mapping(content: object, where: str) -> dict:
    """Return keys and values that are given as a mapping or as Snakemake's list of `key=value`."""
    if isinstance(content, list) and all(isinstance(word, str) and "=" in word for word in content):
        return dict(word.split("=", 1) for word in content)
    if not isinstance(content, dict):
        raise UserError(f"{where} must be a mapping or a list of `key=value`")
    return content


def job_name_prefix(run: Run) -> str:
    """Return the prefix of this run's job names, unique to this project folder."""
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "-", run.name)[:30] + f"-{place}"


# ---- commands of the cluster -------------------------------------------------------------------------------


def check(profile: Profile, run: Run) -> None:
    """Raise UserError if the cluster cannot accept the jobs."""
    code, said = run_program("sinfo", "-h", "-o", "%R")
    if code:
        raise UserError(f"SLURM does not answer on this machine: {said.partition(chr(10))[0] or 'sinfo failed'}")
    for row in NOTEBOOKS:
        for name in str(profile.resources(row).get("slurm_partition", "")).replace(",", " ").split():
            if name not in said.split():
                hint = nearest(name, said.split())
                raise UserError(f"slurm_partition '{name}' of {row.name}: the cluster has none; {hint}")


def cancel(profile: Profile, run: Run) -> int:
    """Cancel all jobs of a run, wait until they have ended and return their number."""
    jobs = find_queued_jobs(run)
    if jobs:
        run_program("scancel", *jobs)
    end = time.monotonic() + PATIENCE
    while jobs and find_queued_jobs(run) and time.monotonic() < end:
        time.sleep(1)
    return len(jobs)


def find_queued_jobs(run: Run) -> list[str]:
    """Return the ids of this run's pending and running jobs on SLURM."""
    code, said = run_program("squeue", "-h", "-u", getpass.getuser(), "-o", "%A %j")
    rows = [line.split(maxsplit=1) for line in said.splitlines()] if not code else []
    return [row[0] for row in rows if row[-1].startswith(f"{job_name_prefix(run)}_")]


# ---- Snakemake's options -----------------------------------------------------------------------------------


def cancel_earlier_jobs(profile: Profile, run: Run, say: Callable[[str], None]) -> None:
    """Cancel the jobs of an earlier, killed run before the run checks what is up to date."""
    if count := cancel(profile, run):
        say(f"{count} job(s) of an earlier run, which was killed, are cancelled; their checkpoints are kept")
    shutil.rmtree(ROOT / ".snakemake" / "incomplete", ignore_errors=True)  # else Snakemake would wait for the jobs


def snakemake_options(profile: Profile, run: Run) -> list[str]:
    """Return Snakemake's options in addition to the profile's."""
    words = ["--profile", str(profile.folder), "--workflow-profile", "none", "--jobs", str(profile.at_once)]
    if profile.executor == "slurm":
        folder = ROOT / run.folder / "cluster"
        words += ["--slurm-logdir", str(folder), "--slurm-jobname-prefix", job_name_prefix(run)]
        if "slurm-status-command" not in profile.values and run_program("sacct", "-X", "-n")[0]:  # no accounting
            words += ["--slurm-status-command", "squeue"]
    return words


def snakemake_environment(profile: Profile, run: Run) -> dict[str, str]:
    """Return Snakemake's environment variables, without those that are valid on this machine only."""
    env = {name: value for name, value in os.environ.items() if name != "CALIBRATION_SCRATCH"}
    return env | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(extras.plugin_folder(EXECUTORS[profile.executor][1]))]),
        "PYTHONUTF8": "1",
        "CALIBRATION_PROFILE": str(profile.folder),
        "CALIBRATION_RUN": job_name_prefix(run),
    }


def failure_reason(log: Path) -> str:
    """Return the cluster's reason for failed or rejected jobs from Snakemake's log; empty if there is none."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = list(dict.fromkeys(re.findall(r"SLURM-job '(\w+)' failed, SLURM status is: '(\w+)'", text)))
    refused = re.findall(r"The error message was '(.*)'", text)  # of sbatch, and of job.py
    return ", ".join(f"{status} (job {number})" for number, status in found[-3:]) or (refused or [""])[-1]
