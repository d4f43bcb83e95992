"""This machine: its programs and GPUs, the lock and the scratch folder of a run, and vLLM.

vLLM gets an environment of its own, for it pins another version of transformers than this project.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lib.errors import UserError
from lib.files import digest
from lib.paths import ROOT
from workflow import environment
from workflow.engine.jobs_of_run import Job, Run


def run_program(*command: str, **more: str) -> tuple[int, str]:
    """Run a program with extra environment variables and return its exit code and its output, or
    its error."""
    env = os.environ | more
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    output = done.stderr if done.returncode else done.stdout
    return done.returncode, output.strip()


def list_gpus() -> list[str]:
    """Return the words of CUDA_VISIBLE_DEVICES, one for a job each; without it, the UUIDs of all
    GPUs that nvidia-smi lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1")]
    _, output = run_program("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
    return re.findall(r"^GPU-\S+$", output, flags=re.M)  # no line of an error is of this form


# ---- the folders of a run


def may_write(run: Run) -> bool:
    """Whether this user may write the run's folder, or make it: not on a disk that is mounted to be
    read alone."""
    folder = ROOT / run.folder
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


@contextmanager
def run_lock(run: Run, patience: float = 2) -> Iterator[Path]:
    """Hold the run's lock and yield its scratch folder, which is empty and private. Raise UserError
    while another process holds the lock."""
    folder = ROOT / run.folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(patience)
    except Timeout:
        raise UserError(
            f"run '{run.name}' is running already: wait for its end, or stop it"
        ) from None
    with lock:
        # that of the run's last start, too
        name = f"run-{os.getuid()}-{digest(str(folder))[:8]}"
        scratch = short_tempdir() / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)  # it fails where somebody else has made one
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def remove_partial_files(run: Run) -> None:
    """Remove the files that a killed run was writing (lib.files.write_atomically). The caller has
    the run's lock."""
    for folder in (run.folder, run.figures):
        for path in list((ROOT / folder).rglob(".*.partial")):
            path.unlink()


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder of a job, which is removed at the end as far as possible."""
    with tempfile.TemporaryDirectory(
        prefix="job", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def short_tempdir() -> Path:
    """Return the folder for temporary files, with a path short enough for sockets below it (104
    bytes on macOS)."""
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 50 else "/tmp")


# ---- vLLM

VENV = ".venv-vllm"
LOCK = "requirements-vllm.lock"
SAMPLING = ("01", "04b")  # notebooks that sample responses
REMEDY = "write `engine: transformers` in the profile"


def uses_vllm(run: Run) -> bool:
    if run.values.get("engine") != "vllm":
        return False
    return any(not spec.responses for spec in run.specs.values())


def check_vllm(run: Run) -> None:
    """Raise UserError if vLLM cannot be used on this machine."""
    if os.environ.get("VLLM_PYTHON"):
        return
    if not run.gpus:
        raise UserError(
            f"`engine: vllm` needs a GPU with CUDA, and none is seen here: {REMEDY}, "
            "or set VLLM_PYTHON to a Python with vLLM's CPU build"
        )
    if not run.slurm and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise UserError(
            f"`engine: vllm` compiles kernels: install a C compiler (gcc and g++), or {REMEDY}"
        )


def install_vllm(run: Run, todo: list[Job]) -> None:
    """Install vLLM's environment, if necessary, before the first job that samples. Raise UserError
    if that fails."""
    samples = any(job.notebook.number in SAMPLING for job in todo)
    if os.environ.get("VLLM_PYTHON") or not samples or not uses_vllm(run):
        return
    check_vllm(run)
    lock = (ROOT / LOCK).read_text(encoding="utf-8")
    pins = dict(re.findall(r"^(vllm)==([\w.]+)", lock, flags=re.M))
    try:
        environment.make_once(ROOT, ROOT / VENV, [LOCK], pins)
    except environment.SetupError as problem:
        raise UserError(f"{problem}, or {REMEDY}") from None
