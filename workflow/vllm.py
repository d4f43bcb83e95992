"""vLLM in an environment of its own, for it pins another version of transformers than this project."""

import os
import platform
import shutil
import sys
from collections.abc import Callable

from lib import params
from lib.files import sha256
from lib.paths import ROOT, UserError
from workflow import environment
from workflow.pipeline import Job, Run

VENV, LOCK = ROOT / ".venv-vllm", ROOT / "requirements-vllm.lock"
SAMPLING = ("01", "04b")  # notebooks that sample responses
REMEDY = "write `engine: transformers` in the profile"


def is_used(run: Run) -> bool:
    specs = [params.load_model_config(name) for name in run.values["models"]]
    return run.values.get("engine") == "vllm" and any(not spec.responses for spec in specs)


def lock_stamp() -> str:
    """Return what an installation is made of: the lock and the version of Python. It is written last."""
    return f"{sha256(LOCK)} {platform.python_version()}"


def is_installed() -> bool:
    """Whether the environment is complete and matches the current lock and Python version."""
    stamp = VENV / "lock.sha256"
    return stamp.exists() and stamp.read_text(encoding="utf-8") == lock_stamp()


def why_unavailable(run: Run) -> str:
    """Return why vLLM cannot be used on this machine; empty if it can."""
    if os.environ.get("VLLM_PYTHON"):
        return ""
    if not run.gpus_by_notebook.get("01_generate", run.gpus):
        lacks = "`engine: vllm` needs a GPU with CUDA, and none is seen here"
        return f"{lacks}: {REMEDY}, or set VLLM_PYTHON to a Python with vLLM's CPU build"
    if not run.slurm and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        lacks = "`engine: vllm` compiles kernels, and no C compiler is found here"
        return f"{lacks}: install gcc and g++, or {REMEDY}"
    return ""


def install_for(run: Run, todo: list[Job], say: Callable[[str], None]) -> None:
    """Install vLLM's environment, if necessary, before the first job that samples. Raise UserError if that fails."""
    if not is_used(run) or not any(job.notebook.number in SAMPLING for job in todo):
        return
    if reason := why_unavailable(run):
        raise UserError(reason)
    if is_installed() or os.environ.get("VLLM_PYTHON"):
        return
    say(f"installing vLLM into {VENV.name}, once (some GB) ...")
    python = [str(VENV / "bin" / "python"), *environment.PIP, "--no-deps", "--require-hashes", "-r", str(LOCK)]
    try:
        environment.run([sys.executable, "-m", "venv", "--clear", str(VENV)], "a virtual environment for vLLM")
        environment.run(python, "the installation of vLLM")
    except environment.SetupError as problem:
        raise UserError(f"{problem}, or {REMEDY}") from None
    (VENV / "lock.sha256").write_text(lock_stamp(), encoding="utf-8")
