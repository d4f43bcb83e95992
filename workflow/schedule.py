"""Run the jobs with Snakemake, longest chains first. A second process, with the imports of the jobs done, forks them
(preload.py).
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lib.paths import ROOT
from workflow import cluster, locks, node, notebook, records
from workflow.cluster import Profile
from workflow.pipeline import Job, Run

# The workflow itself handles freshness, locks and incomplete files.
FLAGS = """--snakefile workflow/Snakefile --scheduler greedy --keep-going --rerun-triggers input --nolock
    --ignore-incomplete --keep-incomplete --drop-metadata --nocolor"""
# What the notebooks import, without and with a model. A job imports what is missing here by itself, only later.
LIGHT = """pandas pyarrow.parquet yaml jinja2 nbformat nbconvert.exporters tokenizers.decoders seaborn matplotlib.figure
    matplotlib.style scipy.stats scipy.optimize scipy.interpolate sklearn.isotonic sklearn.linear_model
    sklearn.preprocessing huggingface_hub.file_download"""
HEAVY = """torch.utils.flop_counter transformers.masking_utils transformers.generation.utils
    transformers.models.auto.modeling_auto transformers.models.auto.tokenization_auto
    transformers.models.llama.modeling_llama transformers.models.qwen3.modeling_qwen3"""
SPOKEN = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def schedule(run: Run, jobs: list[Job], hear: Callable[[str], None], profile: Profile | None, door: str) -> int:
    """Run the jobs and return the exit code. `hear` gets every line that they or Snakemake print; `door` is the socket
    of the preloaded process."""
    shutil.rmtree(ROOT / run.done, ignore_errors=True)
    for job in set(run.jobs) - set(jobs):
        records.mark_done(job)
    os.environ.pop("SNAKEMAKE_PROFILE", None)  # the user may set it for other workflows
    config = ["--config", f"run={run.name}", f"parent={os.getpid()}"]
    command = [sys.executable, "-m", "snakemake", *FLAGS.split(), *config]
    if not profile:
        command += ["--cores", str(run.cores), "--resources", f"gpu={run.gpus}"]
        return stream_output(
            start_process(command, child_environment() | {"CALIBRATION_PRELOADED": door}, **SPOKEN), hear
        )
    try:
        with node.follow_events(run, hear) as told:
            command += cluster.snakemake_options(profile, run)
            process = start_process(command, cluster.snakemake_environment(profile, run), **SPOKEN)
            return stream_output(process, told, patience=3, number=signal.SIGINT)
    finally:
        cluster.cancel(profile, run)  # no job may outlive the run


def child_environment() -> dict[str, str]:
    """Return the environment variables of Snakemake and the preloaded process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    # a killed Snakemake leaves temporary files
    env["TMPDIR"] = os.environ.get("CALIBRATION_SCRATCH") or tempfile.gettempdir()
    if not os.access(os.path.expanduser("~"), os.W_OK):  # Snakemake needs a cache folder
        env["XDG_CACHE_HOME"] = str(ROOT / "artifacts" / ".cache")
    return env


def start_process(command: list[str], env: dict[str, str], **options) -> subprocess.Popen:
    """Start a process in its own session: Ctrl-C reaches only the run, which then stops the others."""
    return subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, stdin=subprocess.DEVNULL, **options)


def stream_output(process: subprocess.Popen, hear: Callable[[str], None], **manner) -> int:
    """Read the output of a process to its end and return the exit code. `manner`: options of locks.stop_processes."""
    try:
        for line in process.stdout:
            hear(line.decode("utf-8", errors="replace"))
        return process.wait()
    except BaseException:
        locks.stop_processes(process, **manner)
        raise


# ---- the process that jobs are forked from ----------------------------------------------------------------------


@contextmanager
def preloaded(run: Run, jobs: list[Job]) -> Iterator[str]:
    """Yield the socket of a preloaded process; empty if no job runs here or the system cannot fork."""
    if run.cluster or not jobs or sys.platform != "linux":
        yield ""
        return
    folder = locks.scratch_folder()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        door.listen(128)  # clients wait until the imports are done
        words = json.dumps([door.fileno(), os.getpid(), modules_to_import(jobs)])
        env = (
            child_environment()
            | notebook.fixed_environment(run.jobs[-1])
            | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
        )
        command, silent = [sys.executable, "-m", "workflow.preload", words], subprocess.DEVNULL
        process = start_process(command, env, pass_fds=[door.fileno()], stdout=silent, stderr=silent)
    try:
        yield str(folder / "door")
    finally:
        locks.stop_processes(process)
        shutil.rmtree(folder, ignore_errors=True)


def modules_to_import(jobs: list[Job]) -> list[str]:
    """Return the modules of the libraries of the forked jobs."""
    heavy = any(job.model and not job.gpus for job in jobs)
    return [*LIGHT.split(), *(HEAVY.split() if heavy else ())]
