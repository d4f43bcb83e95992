"""Executor plugins of Snakemake, each in a folder of its own (`.plugins-slurm`), made where `--slurm` or `--kubernetes`
asks for it, from a lock of its own.

They are no part of the environment: every start of Snakemake imports all plugins that it finds, and SLURM's asks a
cluster then, for nine seconds where none answers. So a run on this machine never sees them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lib.paths import ROOT, UserError

MARK = "lock.sha256"  # in the folder, written last: what it was made of


def folder(executor: str) -> Path:
    return ROOT / f".plugins-{executor}"


def lock(executor: str) -> Path:
    return ROOT / f"requirements-{executor}.lock"


def made(executor: str) -> bool:
    """Whether the folder is whole, and of the lock and the Python as they are now."""
    mark = folder(executor) / MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == stamp(executor)


def stamp(executor: str) -> str:
    version = "{}.{}".format(*sys.version_info)
    return f"{hashlib.sha256(lock(executor).read_bytes()).hexdigest()} {version}"


def prepare(executor: str, say: Callable[[str], None]) -> str:
    """The folder to put on PYTHONPATH; filled, where it is not. Raises UserError where it can't be."""
    place = folder(executor)
    if made(executor):
        return str(place)
    say(f"installing Snakemake's plugin for {executor} into {place.name}, once ...")
    shutil.rmtree(place, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    options = ["--no-deps", "--require-hashes", "--target", str(place), "-r", str(lock(executor))]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([*pip, *options], stdout=sys.stderr, stdin=subprocess.DEVNULL, env=environment)
    if done.returncode:
        raise UserError(f"Snakemake's plugin for {executor} can't be installed, the reason is above")
    (place / MARK).write_text(stamp(executor), encoding="utf-8")
    return str(place)
