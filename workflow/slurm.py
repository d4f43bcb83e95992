"""SLURM, as far as a run asks it itself: whether it takes these jobs, and that none is left behind."""

import getpass
import re
import shutil
import subprocess
import time

from lib.paths import UserError, nearest
from workflow.cluster import Profile, tag
from workflow.pipeline import NOTEBOOKS, Run

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
PATIENCE = 60  # seconds that cancelled jobs may take to end


def ask(*command: str) -> tuple[int, str]:
    """Exit code and words of a program of SLURM; words of its error where it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = [line for line in (done.stdout if not done.returncode else done.stderr).splitlines() if line.strip()]
    return done.returncode, "\n".join(line.strip() for line in lines)


def check(profile: Profile) -> list[str]:
    """Options that the profile leaves open and the cluster decides. Raises UserError where the cluster can't take the
    jobs: no SLURM here, a partition or an account that it does not have, a `sacct` that answers nothing."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        raise UserError(f"{', '.join(absent)} not found: --slurm is for a machine from which jobs are submitted")
    code, said = ask("sinfo", "-h", "-o", "%R")
    if code:
        raise UserError(f"SLURM does not answer: {said.splitlines()[0] if said else 'sinfo failed'}")
    known("slurm_partition", profile, said.split())
    code, said = ask("sacctmgr", "-n", "-P", "list", "associations", f"user={getpass.getuser()}", "format=account")
    if not code and said.split():
        known("slurm_account", profile, said.split())
    return status_command(profile)


def known(key: str, profile: Profile, there: list[str]) -> None:
    """UserError for a value of a resource that the cluster does not have."""
    for row in NOTEBOOKS:
        for name in re.split(r"[,\s]+", str(profile.resources(row).get(key, ""))):
            if name and name not in there:
                raise UserError(f"{key} '{name}' of {row.name}: the cluster has none; {nearest(name, there)}")


def status_command(profile: Profile) -> list[str]:
    """How Snakemake learns what became of jobs: by `sacct` where accounting answers, else by `squeue`."""
    code, said = ask("sacct", "-X", "-n")
    asked = profile.values.get("slurm-status-command")
    if asked == "sacct" and code:
        why = said.splitlines()[0] if said else "it failed"
        raise UserError(f"sacct answers nothing ({why}): write `slurm-status-command: squeue` in the profile file")
    return [] if asked or not code else ["--slurm-status-command", "squeue"]


# ---- jobs of a run -----------------------------------------------------------------------------------------


def left(run: Run) -> list[str]:
    """Ids of this run's jobs that wait or run."""
    code, said = ask("squeue", "-h", "-u", getpass.getuser(), "-o", "%A %j")
    rows = [line.split(maxsplit=1) for line in said.splitlines()] if not code else []
    return [row[0] for row in rows if row[-1].startswith(f"{tag(run)}_")]


def cancel(run: Run) -> int:
    """Cancel this run's jobs and wait until they have ended; how many there were."""
    jobs = left(run)
    if jobs:
        ask("scancel", *jobs)
    end = time.monotonic() + PATIENCE
    while jobs and left(run) and time.monotonic() < end:
        time.sleep(1)
    return len(jobs)
