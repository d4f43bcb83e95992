"""Has jobs run, those that most hangs on first. Where models run, Snakemake says when; light jobs alone need none.

Beside it stands a process that has imported what the jobs import, and forks them (warm.py).
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
from workflow import cluster, fresh, guard, node, notebook
from workflow.cluster import Profile
from workflow.fingerprint import code_cells, third_party_imports
from workflow.pipeline import Job, Run

# Freshness, locks and incomplete files are our own business.
FLAGS = """--snakefile workflow/Snakefile --scheduler greedy --keep-going --rerun-triggers input --nolock
    --ignore-incomplete --keep-incomplete --drop-metadata --nocolor"""


def schedule(run: Run, jobs: list[Job], hear: Callable[[str], None], lock, profile: Profile | None = None,
             door: str = "") -> int:  # fmt: skip
    """Run the jobs to their end; the exit code. `hear` gets every line that they, or Snakemake, say; at the `door` the
    warm process forks them."""
    reset_future(run)
    os.environ.pop("SNAKEMAKE_PROFILE", None)  # of the user's other workflows
    if profile:
        return submit(run, profile, hear, lock)
    spoken = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    if light(jobs):
        names = sorted((job.name for job in jobs), key=run.urgency.__getitem__, reverse=True)
        above = {name: [job.name for job in run.job(name).upstream if job.name in names] for name in names}
        return attend(start_warm(run, jobs, {"jobs": above}, lock, **spoken), hear)
    options = f"--config run={run.name} parent={os.getpid()} --cores {run.cores} --resources gpu={run.gpus}"
    command = [sys.executable, "-m", "snakemake", *FLAGS.split(), *options.split()]
    return attend(start(command, surroundings() | {"CALIBRATION_WARM": door}, [lock], **spoken), hear)


def light(jobs: list[Job]) -> bool:
    """Whether no model runs: then the warm process does all there is."""
    return not any(job.notebook.heavy for job in jobs)


def surroundings() -> dict[str, str]:
    """Environment variables of what is started here."""
    env = {**os.environ, "CALIBRATION_RUN_PID": str(os.getpid()), "PYTHONPATH": str(ROOT)}
    env |= {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    # Snakemake, when killed, leaves some there
    env["TMPDIR"] = os.environ.get("CALIBRATION_SCRATCH") or tempfile.gettempdir()
    if not os.access(os.path.expanduser("~"), os.W_OK):  # Snakemake insists on a cache
        env["XDG_CACHE_HOME"] = str(ROOT / "artifacts" / ".cache")
    return env


def submit(run: Run, profile: Profile, hear: Callable[[str], None], lock) -> int:
    """The same on a cluster; none of its jobs outlives this."""
    config = ["--config", f"run={run.name}", f"parent={os.getpid()}"]
    command = [sys.executable, "-m", "snakemake", *FLAGS.split(), *config, *cluster.options(profile, run)]
    try:
        with node.follow_events(run, hear) as told:
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            process = start(command, cluster.environment(profile, run), [lock], **streams)
            return attend(process, told, patience=3, number=signal.SIGINT)
    finally:
        cluster.cancel(profile, run)


def start(command: list[str], env: dict[str, str], kept: list, **streams) -> subprocess.Popen:
    """A process in a session of its own: a Ctrl-C is for us alone, and we end the rest in good order."""
    inherited = [file.fileno() for file in kept]
    return subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, pass_fds=inherited,
                            **{"stdin": subprocess.DEVNULL, **streams})  # fmt: skip


def attend(process: subprocess.Popen, hear: Callable[[str], None], **manner) -> int:
    """Listen until all who can speak have ended; the exit code. `manner`: how it is stopped (guard.stop)."""
    try:
        for line in process.stdout:
            hear(line.decode("utf-8", errors="replace"))
        return process.wait()
    except BaseException:
        guard.stop(process, **manner)
        raise


def reset_future(run: Run) -> None:
    """Snakemake fails a job whose inputs bear a time to come, as a copy from another machine may."""
    for path in (ROOT / run.folder / "jobs").glob("*.json"):
        if path.stat().st_mtime > time.time():
            os.utime(path)


# ---- the warm process --------------------------------------------------------------------------------------


@contextmanager
def warm(run: Run, jobs: list[Job], lock) -> Iterator[str]:
    """The socket where jobs are forked; empty where the jobs here need none, or nothing can be forked."""
    if run.cluster or light(jobs) or sys.platform != "linux":
        yield ""
        return
    folder = guard.scratch_folder()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        door.listen(128)  # who asks before the imports are done, waits
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE}
        process = start_warm(run, jobs, {"jobs": {}, "door": door.fileno()}, lock, door, **silent)
    try:
        yield str(folder / "door")
    finally:
        guard.stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def start_warm(run: Run, jobs: list[Job], more: dict, *kept, **streams) -> subprocess.Popen:
    plan = {"run": run.name, "cores": run.cores, "imports": imports(run, jobs), **more}
    settings = notebook.constants(run.jobs[-1]) | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
    command = [sys.executable, "-m", "workflow.warm", json.dumps(plan)]
    return start(command, surroundings() | settings, kept, **streams)


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
