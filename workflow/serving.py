"""The environment that `engine: vllm` draws in: `.venv-vllm`, made where a profile asks for it, from a lock of its own.

vLLM pins other versions of transformers than this project does, so the two cannot share an environment.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from lib import params
from lib.paths import ROOT, UserError
from workflow.pipeline import Job, Run

VENV, LOCK = ROOT / ".venv-vllm", ROOT / "requirements-vllm.lock"
MARK = "lock.sha256"  # in the environment, written last: what it was made of
DRAWING = ("01", "04b")  # notebooks that draw
DISK = 25e9  # bytes: packages and pip's downloads
Say = Callable[[str], None]


def asked(run: Run) -> bool:
    """Whether a run has vLLM draw."""
    specs = [params.load_model_config(name) for name in run.values["models"]]
    return run.values.get("engine") == "vllm" and any(not spec.responses for spec in specs)


def prepare(run: Run, todo: list[Job], say: Say) -> None:
    """Have the environment there before the first job that draws. Raises UserError where it can't be."""
    if not asked(run) or os.environ.get("VLLM_PYTHON") or not any(job.notebook.number in DRAWING for job in todo):
        return
    if reason := refusal(run):
        raise UserError(reason)
    if not made():
        make(say)


def refusal(run: Run) -> str:
    """Why this machine can't have it; empty where it can."""
    if not run.gpus_of.get("01_generate", run.gpus):
        return ("`engine: vllm` needs a GPU with CUDA, and none is seen here: write `engine: transformers`, or name in "
                "VLLM_PYTHON a Python that has vLLM for processors")  # fmt: skip
    free = shutil.disk_usage(ROOT).free
    if not made() and free < DISK:
        needed = f"vLLM's packages need {DISK / 1e9:.0f}"
        return f"{free / 1e9:.0f} GB free on this disk, and {needed}: write `engine: transformers`"
    return ""


def made() -> bool:
    """Whether the environment is whole, and of the lock as it is now."""
    mark = VENV / MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == checksum()


def checksum() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def make(say: Say) -> None:
    say("installing vLLM into .venv-vllm, once (some GB) ...")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [*pip, "--no-deps", "--require-hashes", "-r", str(LOCK)],
    ):
        if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=environment).returncode:
            raise UserError(
                "vLLM can't be installed, the reason is above; mend it, or write `engine: transformers` in the profile"
            )
    (VENV / MARK).write_text(checksum(), encoding="utf-8")
