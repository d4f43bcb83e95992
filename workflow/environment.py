"""Find the project's Python environment, or create it in `.venv`. Uses the standard library only (Python 3.8 or newer).

`python3 workflow/environment.py [VERB]` prints the path of an interpreter that has every package. An active conda or
virtual environment is used if the direct pins match; nothing is ever installed into it. Otherwise `.venv` in the
project's folder is used or created (installer.py). `--pins` checks the interpreter that runs this file instead. Only an
installation writes or locks anything: a finished `.venv` may be another user's, or on a read-only disk.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator  # noqa: UP035  for Python 3.8

sys.path[:0] = [] if __package__ else [str(Path(__file__).resolve().parent.parent)]

from workflow.installer import LOCKS, SetupError, install, pins, run, say, venv_command, why_unsupported  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MADE_BY_US = "made-by-run_all.json"  # in .venv: its folder and the checksum of its lock


# ---- the packages of the interpreter that runs this file


def find_problems(test: bool) -> list[str]:
    """Return the packages that are missing, of another version, or damaged here."""
    return mismatches(pins(ROOT, test)) or damaged_packages(sys.path) or torch_problems()


def mismatches(wanted: dict[str, str]) -> list[str]:
    """Return the packages that are missing or of another version here; build labels (2.13.0+cpu) are ignored."""
    found = []
    for name, version in wanted.items():
        try:
            here = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            here = "missing"
        if here != version:
            found.append(f"{name} {version} is needed and is {here} here")
    return found


def damaged_packages(sites: list[str]) -> list[str]:
    """Return a line for each installed package whose `__init__.py` is missing, because someone deleted its folder."""
    found = []
    for package in importlib.metadata.distributions(path=sites):
        starts = re.findall(r"^(\w+/__init__\.py),", package.read_text("RECORD") or "", flags=re.M)
        if not all(os.path.exists(str(package.locate_file(start))) for start in starts):
            found.append(f"{package.metadata['Name']} is damaged: install it again")
    return found


def torch_problems() -> list[str]:
    """Return why torch cannot be imported here, as a CUDA build without CUDA's libraries cannot.

    The import takes seconds. It is tried only if the library that loads all others does not load by itself.
    """
    spec = importlib.util.find_spec("torch")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    try:
        for library in glob.glob(f"{folder}/lib/libtorch_global_deps.*"):
            ctypes.CDLL(library)
    except OSError:
        try:
            importlib.import_module("torch")
        except (ImportError, OSError) as error:
            return [f"torch can't be imported: {str(error).splitlines()[0]}"]
    return []


# ---- the project's environment


def choose(root: Path, env: dict, test: bool) -> str:
    """Return the interpreter of the active environment if the pins match, else that of `.venv`."""
    for active in filter(None, map(env.get, ("VIRTUAL_ENV", "CONDA_PREFIX"))):
        if Path(active).resolve() == (root / ".venv").resolve():
            continue
        python = str(Path(active) / "bin" / "python")
        problem = first_problem(python, test)
        if not problem:
            return python
        if not (root / ".venv").exists():
            say(f"the active environment is not used: {problem}")
    return project_venv(root)


def first_problem(python: str, test: bool) -> str:
    """Return why an interpreter does not start, or the first problem of its packages; empty if none."""
    command = [python, "-I", str(Path(__file__)), "--pins", *(["test"] if test else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:  # the environment was deleted or has no Python
        return f"{python}: {error.strerror}"
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it does not start"]
    return lines[0] if done.returncode else ""


def project_venv(root: Path) -> str:
    """Return the interpreter of `.venv`. Create `.venv` if it is missing, unfinished, damaged, moved or outdated.

    Raise SetupError for one that somebody else made, if it is unfit.
    """
    venv = root / ".venv"
    if why_remake(root) is not None:
        with install_lock(root):
            problem = why_remake(root)  # another start may have finished it
            if problem is not None:
                say(f"{problem}; creating it again") if problem else None
                create(root, venv, lock_stamp(root))
    return str(venv / "bin" / "python")


def why_remake(root: Path) -> str | None:
    """Return why `.venv` is to be created again, empty if there is no finished one; None if it can be used."""
    venv, python = root / ".venv", str(root / ".venv" / "bin" / "python")
    if venv.exists() and not (venv / MADE_BY_US).exists():
        if problem := first_problem(python, test=True):
            raise SetupError(f".venv was not created by run_all.sh and cannot be used: move it away ({problem})")
        return None
    if not os.path.exists(python) or (venv / MADE_BY_US).read_text(errors="replace") != lock_stamp(root):
        return ""
    damaged = damaged_packages([str(path) for path in venv.glob("lib/python*/site-packages")])
    return f"in .venv, {damaged[0]}" if damaged else None


def lock_stamp(root: Path) -> str:
    """Return what the mark of a finished `.venv` of this folder and lock contains."""
    lock = b"".join((root / name).read_bytes() for name in LOCKS) + pins(root)["torch"].encode()
    return json.dumps({"folder": str(root), "lock": hashlib.sha256(lock).hexdigest()})


def create(root: Path, venv: Path, stamp: str) -> None:
    """Create a virtual environment and replace an old one. The empty mark lets a later start replace an unfinished
    one."""
    if reason := why_unsupported(root):
        raise SetupError(reason)
    command = venv_command(venv)
    if os.path.islink(venv):  # the environment of another project, which stays
        os.unlink(venv)
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    (venv / MADE_BY_US).touch()
    run(command, "making .venv")
    install(root, str(venv / "bin" / "python"))
    (venv / MADE_BY_US).write_text(stamp)
    say(".venv is ready")


@contextmanager
def install_lock(root: Path) -> Iterator[None]:
    """Keep two first starts from installing at the same time, if the file system has locks."""
    import fcntl

    with open(root / ".venv.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./run_all.sh to finish .venv ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            say("this file system has no locks: start no other ./run_all.sh here until .venv is ready")
        yield


def main(argv: list[str]) -> int:
    if argv[:1] == ["--pins"]:
        problems = find_problems(test="test" in argv)
        print("\n".join(problems))
        return bool(problems)
    if ":" in str(ROOT):
        raise SetupError(f"a folder with ':' in its name cannot be on Python's path: {ROOT}")
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]  # a path, for bash
    print(choose(ROOT, dict(os.environ), test="test" in argv))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SetupError, OSError) as problem:
        say(f"run_all.sh: {problem}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
