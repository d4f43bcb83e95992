"""vLLM in an environment of its own, for it pins another version of transformers than this project."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lib import params
from lib.paths import ROOT, UserError
from workflow import hub
from workflow.pipeline import Job, Run

VENV = ROOT / ".venv-vllm"
LOCK_STAMP = "lock.sha256"  # written last into a folder: the checksum of its lock
SAMPLING = ("01", "04b")  # notebooks that sample responses
DISK_BYTES = 25e9  # bytes: vLLM's packages and pip's downloads
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"]
Say = Callable[[str], None]


def lock_of(name: str) -> Path:
    return ROOT / f"requirements-{name}.lock"


def is_installed(folder: Path, name: str) -> bool:
    """Whether a folder is complete and matches the current lock and Python version."""
    mark = folder / LOCK_STAMP
    return mark.exists() and mark.read_text(encoding="utf-8") == lock_stamp(name)


def lock_stamp(name: str) -> str:
    return "{} {}.{}".format(hashlib.sha256(lock_of(name).read_bytes()).hexdigest(), *sys.version_info)


def install(folder: Path, name: str, commands: list[list[str]], remedy: str) -> None:
    """Install a folder from scratch. Raise UserError if that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    for command in commands:
        if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
            raise UserError(f"{folder.name} can't be installed, for the reason above{remedy}")
    (folder / LOCK_STAMP).write_text(lock_stamp(name), encoding="utf-8")


# ---- vLLM --------------------------------------------------------------------------------------------------


def uses_vllm(run: Run) -> bool:
    specs = [params.load_model_config(name) for name in run.values["models"]]
    return run.values.get("engine") == "vllm" and any(not spec.responses for spec in specs)


def install_vllm(run: Run, todo: list[Job], say: Say) -> None:
    """Install vLLM's environment, if necessary, before the first job that samples. Raise UserError if that fails."""
    if not uses_vllm(run) or os.environ.get("VLLM_PYTHON") or not any(job.notebook.number in SAMPLING for job in todo):
        return
    if reason := why_no_vllm(run):
        raise UserError(reason)
    if not is_installed(VENV, "vllm"):
        say(f"installing vLLM into {VENV.name}, once (some GB) ...")
        make = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        commands = [make, [str(VENV / "bin" / "python"), *PIP, "-r", str(lock_of("vllm"))]]
        install(VENV, "vllm", commands, "; fix it, or write `engine: transformers` in the profile")


def why_no_vllm(run: Run) -> str:
    """Return why vLLM cannot be installed on this machine; empty if it can."""
    if not run.gpus_by_notebook.get("01_generate", run.gpus):
        return (
            "`engine: vllm` needs a GPU with CUDA, and none is seen here: write `engine: transformers`, or set "
            "VLLM_PYTHON to a Python with vLLM's CPU build"
        )
    if not run.slurm and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        lacks = "`engine: vllm` compiles kernels, and no C compiler is found here"
        return f"{lacks}: install gcc and g++, or write `engine: transformers`"
    if is_installed(VENV, "vllm"):
        return ""
    return hub.lack_of_room("the installation of vLLM", DISK_BYTES, ROOT, "; write `engine: transformers`")
