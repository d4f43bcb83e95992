"""Has Snakemake run jobs, those that most hangs on first. Beside it stands a process that has imported what the jobs
import, and forks them (preload.py).
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lib import params
from lib.paths import ROOT
from workflow import cluster, fresh, locks, node, notebook
from workflow.cluster import Profile
from workflow.fingerprint import code_cells, third_party_imports
from workflow.pipeline import Job, Run

# Freshness, locks and incomplete files are our own business.
FLAGS = """--snakefile workflow/Snakefile --scheduler greedy --keep-going --rerun-triggers input --nolock
    --ignore-incomplete --keep-incomplete --drop-metadata --nocolor"""
SPOKEN = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def schedule(
    run: Run, jobs: list[Job], hear: Callable[[str], None], profile: Profile | None = None, door: str = ""
) -> int:
    """Run the jobs to their end; the exit code. `hear` gets every line that they, or Snakemake, say; at the `door` the
    preloaded process forks them."""
    reset_future(run)
    os.environ.pop("SNAKEMAKE_PROFILE", None)  # of the user's other workflows
    if profile:
        return submit(run, profile, hear)
    options = f"--config run={run.name} parent={os.getpid()} --cores {run.cores} --resources gpu={run.gpus}"
    command = [sys.executable, "-m", "snakemake", *FLAGS.split(), *options.split()]
    return attend(start(command, surroundings() | {"CALIBRATION_PRELOADED": door}, **SPOKEN), hear)


def surroundings() -> dict[str, str]:
    """Environment variables of what is started here."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    # Snakemake, when killed, leaves some there
    env["TMPDIR"] = os.environ.get("CALIBRATION_SCRATCH") or tempfile.gettempdir()
    if not os.access(os.path.expanduser("~"), os.W_OK):  # Snakemake insists on a cache
        env["XDG_CACHE_HOME"] = str(ROOT / "artifacts" / ".cache")
    return env


def submit(run: Run, profile: Profile, hear: Callable[[str], None]) -> int:
    """The same on a cluster; none of its jobs outlives this."""
    config = ["--config", f"run={run.name}", f"parent={os.getpid()}"]
    command = [sys.executable, "-m", "snakemake", *FLAGS.split(), *config, *cluster.options(profile, run)]
    try:
        with node.follow_events(run, hear) as told:
            process = start(command, cluster.environment(profile, run), **SPOKEN)
            return attend(process, told, patience=3, number=signal.SIGINT)
    finally:
        cluster.cancel(profile, run)


def start(command: list[str], env: dict[str, str], **options) -> subprocess.Popen:
    """A process in a session of its own: a Ctrl-C is for us alone, and we end the rest in good order."""
    return subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, stdin=subprocess.DEVNULL, **options)


def attend(process: subprocess.Popen, hear: Callable[[str], None], **manner) -> int:
    """Listen until all who can speak have ended; the exit code. `manner`: how it is stopped (locks.stop)."""
    try:
        for line in process.stdout:
            hear(line.decode("utf-8", errors="replace"))
        return process.wait()
    except BaseException:
        locks.stop(process, **manner)
        raise


def reset_future(run: Run) -> None:
    """Snakemake fails a job whose inputs bear a time to come, as a copy from another machine may."""
    for path in (ROOT / run.folder / "jobs").glob("*.json"):
        if path.stat().st_mtime > time.time():
            os.utime(path)


# ---- the process that jobs are forked from ----------------------------------------------------------------------


@contextmanager
def preloaded(run: Run, jobs: list[Job]) -> Iterator[str]:
    """The socket where jobs are forked; empty where there are none here, or nothing can be forked."""
    if run.cluster or not jobs or sys.platform != "linux":
        yield ""
        return
    folder = locks.scratch_folder()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        door.listen(128)  # who asks before the imports are done, waits
        asked = json.dumps([door.fileno(), os.getpid(), imports(run, jobs)])
        env = surroundings() | notebook.constants(run.jobs[-1]) | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
        command, silent = [sys.executable, "-m", "workflow.preload", asked], subprocess.DEVNULL
        process = start(command, env, pass_fds=[door.fileno()], stdout=silent, stderr=silent)
    try:
        yield str(folder / "door")
    finally:
        locks.stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def imports(run: Run, jobs: list[Job]) -> list[str]:
    """Statements that import what the forked jobs use of others' modules, and the networks of their models."""
    jobs = [job for job in jobs if not job.on_gpu]
    statements = []
    for row in {job.notebook: None for job in jobs}:
        statements += third_party_imports(code_cells(row.path), row.path)
        if row.exports:
            statements += third_party_imports(fresh.text(path) for path in fresh.EXPORT if path.endswith(".py"))
    networks = [architecture(name) for name in {job.model: None for job in jobs if job.model}]
    return list(dict.fromkeys([*statements, *filter(None, networks)]))


def architecture(model: str) -> str:
    """The statement that imports the network of a model in a local folder; empty for another."""
    with suppress(OSError, ValueError, KeyError):
        config = params.load_model_config(model).place / "config.json"
        kind = json.loads(config.read_text(encoding="utf-8"))["model_type"]
        return f"import transformers.models.{kind}.modeling_{kind}"
    return ""
