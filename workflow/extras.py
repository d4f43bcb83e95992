"""Packages beside the environment, from locks of their own: what draws for `engine: vllm`, and Snakemake's plugins for
clusters.

vLLM pins other versions of transformers than this project does. And every start of Snakemake imports all plugins that
it finds; SLURM's asks a cluster then, for nine seconds where none answers. So a run on this machine never sees them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lib import params
from lib.paths import ROOT, UserError
from workflow.pipeline import Job, Run

VENV = ROOT / ".venv-vllm"
MARK = "lock.sha256"  # in a folder, written last: what it was made of
DRAWING = ("01", "04b")  # notebooks that draw
DISK = 25e9  # bytes: vLLM's packages and pip's downloads
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"]
Say = Callable[[str], None]


def lock_of(name: str) -> Path:
    return ROOT / f"requirements-{name}.lock"


def is_installed(folder: Path, name: str) -> bool:
    """Whether a folder is whole, and of its lock and the Python as they are now."""
    mark = folder / MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == stamp(name)


def stamp(name: str) -> str:
    return "{} {}.{}".format(hashlib.sha256(lock_of(name).read_bytes()).hexdigest(), *sys.version_info)


def install(folder: Path, name: str, commands: list[list[str]], remedy: str) -> None:
    """Fill a folder anew. Raises UserError where that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    for command in commands:
        if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
            raise UserError(f"{folder.name} can't be installed, the reason is above{remedy}")
    (folder / MARK).write_text(stamp(name), encoding="utf-8")


# ---- Snakemake's plugins -----------------------------------------------------------------------------------


def plugin_folder(name: str) -> Path:
    return ROOT / f".plugins-{name}"


def install_plugin(name: str, say: Say) -> None:
    """Have the plugin of a cluster there, whose folder goes on PYTHONPATH."""
    folder = plugin_folder(name)
    if not is_installed(folder, name):
        say(f"installing Snakemake's plugin for {name} into {folder.name}, once ...")
        install(folder, name, [[sys.executable, *PIP, "--target", str(folder), "-r", str(lock_of(name))]], "")


# ---- vLLM --------------------------------------------------------------------------------------------------


def uses_vllm(run: Run) -> bool:
    specs = [params.load_model_config(name) for name in run.values["models"]]
    return run.values.get("engine") == "vllm" and any(not spec.responses for spec in specs)


def install_vllm(run: Run, todo: list[Job], say: Say) -> None:
    """Have the environment there before the first job that draws. Raises UserError where it can't be."""
    if not uses_vllm(run) or os.environ.get("VLLM_PYTHON") or not any(job.notebook.number in DRAWING for job in todo):
        return
    if reason := why_no_vllm(run):
        raise UserError(reason)
    if not is_installed(VENV, "vllm"):
        say(f"installing vLLM into {VENV.name}, once (some GB) ...")
        make = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        commands = [make, [str(VENV / "bin" / "python"), *PIP, "-r", str(lock_of("vllm"))]]
        install(VENV, "vllm", commands, "; mend it, or write `engine: transformers` in the profile")


def why_no_vllm(run: Run) -> str:
    """Why this machine can't have it; empty where it can."""
    if not run.gpus_of.get("01_generate", run.gpus):
        return ("`engine: vllm` needs a GPU with CUDA, and none is seen here: write `engine: transformers`, or name in "
                "VLLM_PYTHON a Python that has vLLM for processors")  # fmt: skip
    if not run.cluster and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        lacks = "`engine: vllm` compiles kernels, and no C compiler is found here"
        return f"{lacks}: install gcc and g++, or write `engine: transformers`"
    free = shutil.disk_usage(ROOT).free
    if not is_installed(VENV, "vllm") and free < DISK:
        needed = f"vLLM's packages need {DISK / 1e9:.0f}"
        return f"{free / 1e9:.0f} GB free on this disk, and {needed}: write `engine: transformers`"
    return ""
