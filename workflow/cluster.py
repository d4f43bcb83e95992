"""A run on a cluster: the same jobs, submitted by Snakemake as one of its own profile folders says (profiles/).

All that is common to run and jobs is the project's folder. What jobs see and say on their nodes is in node.py.
"""

import getpass
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib.paths import ROOT, UserError, nearest, read_yaml
from workflow import extras
from workflow.pipeline import NOTEBOOKS, Notebook, Run

EXECUTORS = {
    "slurm": ("SLURM", "slurm"),
    "cluster-generic": ("Kubernetes", "kubernetes"),
}  # names, and locks of plugins
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
PATIENCE = 60  # seconds that cancelled jobs may take to end
LISTS = ("default-resources", "set-resources", "set-threads")


@dataclass(frozen=True)
class Profile:
    """A profile folder of Snakemake, and the keys of its config.yaml."""

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
        """What a notebook's jobs ask for."""
        return self.values["default-resources"] | self.values["set-resources"].get(row.name, {})

    def gpus(self, row: Notebook) -> int:
        """GPUs that a notebook's jobs ask for, as `gpu: 2` or as `gres: gpu:TYPE:2`."""
        resources = self.resources(row)
        found = re.fullmatch(r"gpu(?::[^:,]*[^:,\d][^:,]*)?(?::(\d+))?", str(resources.get("gres", "")))
        counted = resources.get("gpu", int(found[1] or 1) if found else 0)
        return int(counted) or int("gpu_model" in resources)


def load_profile(folder: str) -> Profile:
    """Raises UserError for no profile of a known executor, or for rules that no notebook has."""
    path, name = Path(folder, "config.yaml"), f"{Path(folder).name}/config.yaml"
    values = read_yaml(path, name)
    if not isinstance(values, dict) or "executor" not in values:
        raise UserError(f"{name} names no `executor`; profiles/slurm/config.yaml is one that does")
    if values["executor"] not in EXECUTORS:
        raise UserError(
            f"{name}: no run uses executor '{values['executor']}': {nearest(values['executor'], EXECUTORS)}"
        )
    for key in LISTS:
        values[key] = read_mapping(values.get(key) or {}, f"{name}: {key}")
    rules = [row.name for row in NOTEBOOKS]
    for key in LISTS[1:]:
        for rule in values[key]:
            if rule not in rules:
                raise UserError(f"{name}: {key} names '{rule}', which is no notebook: {nearest(rule, rules)}")
    for rule, content in values["set-resources"].items():
        values["set-resources"][rule] = read_mapping(content or {}, f"{name}: {rule}")
    for asked in (values["default-resources"], *values["set-resources"].values()):
        if "gpus" in asked:
            raise UserError(f"{name}: `gpus` is sbatch's word; Snakemake's is `gpu: {asked['gpus']}`, or `gres: gpu:1`")
    return Profile(Path(folder), values)


def read_mapping(content: object, where: str) -> dict:
    """Keys and values, as a mapping or as Snakemake's list of `key=value`."""
    if isinstance(content, list) and all(isinstance(word, str) and "=" in word for word in content):
        return dict(word.split("=", 1) for word in content)
    if not isinstance(content, dict):
        raise UserError(f"{where} takes keys with values, or a list of `key=value`")
    return content


def tag(run: Run) -> str:
    """What this run's jobs are known by, and those of no other folder."""
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "-", run.name)[:30] + f"-{place}"


# ---- what the cluster is asked -----------------------------------------------------------------------------


def ask(*command: str, **more: str) -> tuple[int, str]:
    """Exit code and words of a program; words of its error where it failed."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = (done.stderr if done.returncode else done.stdout).splitlines()
    return done.returncode, "\n".join(line.strip() for line in lines if line.strip())


def ask_script(profile: Profile, run: Run, verb: str) -> tuple[int, str]:
    """The same of the profile's job.py."""
    code, said = ask(sys.executable, str(profile.folder / "job.py"), verb, CALIBRATION_RUN=tag(run))
    return code, re.sub(r"^The error message was '(.*)'$", r"\1", said.splitlines()[-1] if said else "")


def check(profile: Profile, run: Run) -> None:
    """Raises UserError where the cluster can't take the jobs."""
    if profile.executor != "slurm":
        code, said = ask_script(profile, run, "check")
        if code:
            raise UserError(f"{profile.name} takes no jobs: {said}")
        return
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        raise UserError(f"{', '.join(absent)} not found: start the run on a machine from which jobs are submitted")
    code, said = ask("sinfo", "-h", "-o", "%R")
    if code:
        raise UserError(f"SLURM does not answer: {said.splitlines()[0] if said else 'sinfo failed'}")
    for row in NOTEBOOKS:
        for name in re.split(r"[,\s]+", str(profile.resources(row).get("slurm_partition", ""))):
            if name and name not in said.split():
                hint = nearest(name, said.split())
                raise UserError(f"slurm_partition '{name}' of {row.name}: the cluster has none; {hint}")


def cancel(profile: Profile, run: Run) -> int:
    """Cancel all jobs of a run and wait until they have ended; how many there were."""
    if profile.executor != "slurm":
        code, said = ask_script(profile, run, "cancel")
        return 0 if code else int(said)
    jobs = queued(run)
    if jobs:
        ask("scancel", *jobs)
    end = time.monotonic() + PATIENCE
    while jobs and queued(run) and time.monotonic() < end:
        time.sleep(1)
    return len(jobs)


def queued(run: Run) -> list[str]:
    """Ids of this run's jobs on SLURM that wait or run."""
    code, said = ask("squeue", "-h", "-u", getpass.getuser(), "-o", "%A %j")
    rows = [line.split(maxsplit=1) for line in said.splitlines()] if not code else []
    return [row[0] for row in rows if row[-1].startswith(f"{tag(run)}_")]


# ---- what Snakemake is told --------------------------------------------------------------------------------


def clear(profile: Profile, run: Run, say: Callable[[str], None]) -> None:
    """End what an earlier run, which was killed, has left; before anyone looks at what is done."""
    if count := cancel(profile, run):
        say(f"{count} job(s) of an earlier run, which was killed, are cancelled; their saved pieces are kept")
    shutil.rmtree(ROOT / ".snakemake" / "incomplete", ignore_errors=True)  # by which Snakemake would wait for them


def options(profile: Profile, run: Run) -> list[str]:
    """Of Snakemake, beside what the profile says."""
    words = ["--profile", str(profile.folder), "--workflow-profile", "none", "--jobs", str(profile.at_once)]
    if profile.executor == "slurm":
        folder = ROOT / run.folder / "cluster"
        words += ["--slurm-logdir", str(folder), "--slurm-jobname-prefix", tag(run)]
        if "slurm-status-command" not in profile.values and ask("sacct", "-X", "-n")[0]:  # no accounting
            words += ["--slurm-status-command", "squeue"]
    return words


def environment(profile: Profile, run: Run) -> dict[str, str]:
    """Environment variables of Snakemake. What jobs are told of this machine is its settings for Python alone: no
    process to watch, no folder for scratch."""
    env = {name: value for name, value in os.environ.items() if name != "CALIBRATION_SCRATCH"}
    return env | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(extras.plugin_folder(EXECUTORS[profile.executor][1]))]),
        "PYTHONUTF8": "1",
        "CALIBRATION_PROFILE": str(profile.folder),
        "CALIBRATION_RUN": tag(run),
    }


def failure_reason(log: Path) -> str:
    """What the cluster says of jobs that failed, or could not be submitted, from Snakemake's log; empty if nothing."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = list(dict.fromkeys(re.findall(r"SLURM-job '(\w+)' failed, SLURM status is: '(\w+)'", text)))
    refused = re.findall(r"The error message was '(.*)'", text)  # of sbatch, and of job.py
    return ", ".join(f"{status} (job {number})" for number, status in found[-3:]) or (refused or [""])[-1]
