"""Find the project's Python environment, or create it in `.venv`. Uses the standard library only (Python 3.8 or newer).

`python3 workflow/environment.py [VERB]` prints the path of an interpreter that has every package. An active conda or
virtual environment is used if the direct pins match; nothing is ever installed into it. Otherwise `.venv` in the
project's folder is used or created. `--pins` checks the interpreter that runs this file instead. Only an installation
writes or locks anything: a finished `.venv` may be another user's, or on a read-only disk.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator  # noqa: UP035  for Python 3.8

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MARK = "made-by-run_all.json"  # in .venv: its folder and the checksum of its lock
DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")  # at least one exists if an NVIDIA driver is installed
BUILDS = (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))  # of PyTorch
DISK = 3e9  # bytes: packages and pip's downloads
USABLE = """import sys, venv, ensurepip
sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))"""


class SetupError(Exception):
    """An environment that cannot be created here: one line with the reason and the remedy."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def pins(root: Path, test: bool = True) -> dict[str, str]:
    """Return the direct dependencies and their versions from pyproject.toml (Python 3.8 has no tomllib)."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    wanted = "dependencies|test" if test else "dependencies"
    blocks = re.findall(rf"^(?:{wanted}) = \[\n(.*?)^\]", text, flags=re.M | re.S)
    return dict(re.findall(r'"([\w.-]+)==([\w.]+)"', "".join(blocks)))


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
    """Return the installed packages whose `__init__.py` is missing, because someone deleted their folder."""
    names = set()
    for dist in importlib.metadata.distributions(path=sites):
        starts = re.findall(r"^(\w+/__init__\.py),", dist.read_text("RECORD") or "", flags=re.M)
        if not all(map(os.path.exists, map(dist.locate_file, starts))):
            names.add(str(dist.metadata["Name"]))
    return sorted(names)


def torch_problems() -> list[str]:
    """Return why torch cannot be imported here, as a CUDA build without CUDA's libraries cannot. The whole import takes
    seconds, so it is tried only if the library that loads all others does not load by itself."""
    spec = importlib.util.find_spec("torch")
    libraries = glob.glob(f"{os.path.dirname(spec.origin)}/lib/libtorch_global_deps.*") if spec and spec.origin else []
    try:
        for library in libraries:
            ctypes.CDLL(library)
    except OSError:
        try:
            importlib.import_module("torch")
        except (ImportError, OSError) as error:
            return [f"torch can't be imported: {str(error).splitlines()[0]}"]
    return []


# ---- machine and interpreter -------------------------------------------------------------------------------


def unsupported(system: str, machine: str, libc: str = "", free: float = DISK) -> str | None:
    """Return why the packages cannot be installed on this machine, in one line, or None."""
    if libc.endswith("musl") or (system, machine) not in BUILDS:
        known = "Linux with glibc (x86_64, aarch64; on Windows inside WSL) and for Macs with Apple's processors"
        return f"PyTorch has no build for {' '.join(filter(None, (system, machine, libc)))}, only for {known}"
    if free < DISK:
        return f"{free / 1e9:.1f} GB free on this disk, but the packages need {DISK / 1e9:.0f} GB"
    return None


def usable(python: str) -> bool:
    """Whether this interpreter is a 64-bit Python 3.11-3.13 that can create virtual environments."""
    try:
        return subprocess.run([python, "-I", "-c", USABLE], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def venv_command(venv: Path) -> list[str]:
    """Return the command that creates a virtual environment with pip: the first usable Python, else uv."""
    for python in ("python3", *(f"python{version}" for version in PYTHONS), "python"):
        path = shutil.which(python)
        if path and usable(path):
            return [path, "-m", "venv", str(venv)]
    uv = shutil.which("uv")
    if not uv:
        raise SetupError("no Python 3.11 to 3.13 with venv was found (Debian: apt install python3-venv), and no uv")
    return [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", ">=3.11,<3.14", str(venv)]


def run(command: list[str], what: str) -> None:
    """Run a command with its output on stderr. Raise SetupError if it fails."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "PIP_USER")}
    if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
        raise SetupError(f"{what} failed for the reason above; fix it and start ./run_all.sh again")


# ---- the project's environment -----------------------------------------------------------------------------


def torch_index() -> list[str]:
    """Return pip's index option for torch: TORCH_INDEX, else PyTorch's CPU index on Linux without an NVIDIA driver."""
    index = os.environ.get("TORCH_INDEX")
    if not index and platform.system() == "Linux" and not has_nvidia() and is_reachable(CPU_INDEX):
        index = CPU_INDEX
    return ["--index-url", index] if index else []


def has_nvidia() -> bool:
    return bool(shutil.which("nvidia-smi")) or any(os.path.exists(place) for place in DRIVER)


def is_reachable(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=5) as reply:
            return reply.status == 200
    except (OSError, ValueError):
        return False


def install(root: Path, python: str) -> None:
    """Install torch, the locked packages, CUDA's libraries and the project, in this order.

    torch has no hash, because each kind of machine has its own build. A CUDA build of it pins CUDA's libraries.
    """
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    version = pins(root)["torch"]
    torch = [*torch_index(), f"torch=={version}"]
    say(f"installing into .venv, once: torch {version} (the largest part) ...")
    run([*pip, "--no-deps", *torch], "pip install torch")
    say("installing into .venv, once: the other packages ...")
    run([*pip, "--no-deps", "--require-hashes", "-r", str(root / "requirements.lock")], "pip install")
    run([*pip, *torch], "pip install of CUDA's libraries")
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)], "pip install of the project")


def make(root: Path, venv: Path, stamp: str) -> None:
    """Create `.venv` and replace an old one. The empty mark allows a later start to replace an unfinished `.venv`."""
    libc = sysconfig.get_config_var("HOST_GNU_TYPE") or ""
    why = unsupported(platform.system(), platform.machine(), libc, shutil.disk_usage(root).free)
    if why:
        raise SetupError(why)
    command = venv_command(venv)
    if os.path.islink(venv):  # the environment of another project, which stays
        os.unlink(venv)
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    (venv / MARK).touch()
    run(command, "making .venv")
    install(root, str(venv / "bin" / "python"))
    (venv / MARK).write_text(stamp)
    say(".venv is ready")


def lock_stamp(root: Path) -> str:
    """Return what the mark of a finished `.venv` of this folder and lock contains."""
    lock = (root / "requirements.lock").read_bytes() + pins(root)["torch"].encode()
    return json.dumps({"folder": str(root), "lock": hashlib.sha256(lock).hexdigest()})


def venv_problem(root: Path) -> str | None:
    """Return why `.venv` cannot be used as it is: missing, incomplete, damaged, moved, outdated, or made by others and
    unfit. None if it can."""
    venv, python = root / ".venv", str(root / ".venv" / "bin" / "python")
    if venv.exists() and not (venv / MARK).exists():
        return first_mismatch(python, test=True) or None
    if not os.path.exists(python) or (venv / MARK).read_text(errors="replace") != lock_stamp(root):
        return ""
    damaged = damaged_packages([str(path) for path in venv.glob("lib/python*/site-packages")])
    return f"damaged in .venv: {', '.join(damaged)}" if damaged else None


def project_venv(root: Path) -> str:
    """Return the interpreter of `.venv`. Create `.venv` if it cannot be used."""
    venv = root / ".venv"
    if venv_problem(root) is not None:
        with install_lock(root):
            problem = venv_problem(root)  # another start may have finished it
            if problem and not (venv / MARK).exists():
                raise SetupError(f".venv was not created by run_all.sh and cannot be used: move it away ({problem})")
            if problem:
                say(f"{problem}; creating it again")
            if problem is not None:
                make(root, venv, lock_stamp(root))
    return str(venv / "bin" / "python")


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


def first_mismatch(python: str, test: bool) -> str:
    """Return why an interpreter does not start, or its first difference from the direct pins; empty if none."""
    command = [python, "-I", str(Path(__file__)), "--pins", *(["test"] if test else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:  # the environment was deleted or has no Python
        return f"{python}: {error.strerror}"
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it does not start"]
    return lines[0] if done.returncode else ""


def choose(root: Path, env: dict, test: bool) -> str:
    """Return the interpreter of the active environment if the pins match, else that of `.venv`."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = env.get(variable)
        if not active or Path(active).resolve() == (root / ".venv").resolve():
            continue
        python = str(Path(active) / "bin" / "python")
        mismatch = first_mismatch(python, test)
        if not mismatch:
            return python
        if not (root / ".venv").exists():
            say(f"the active environment is not used: {mismatch}")
    return project_venv(root)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--pins"]:
        damaged = [f"{name} is damaged: install it again" for name in damaged_packages(sys.path)]
        wrong = mismatches(pins(ROOT, test="test" in argv)) or damaged or torch_problems()
        print("\n".join(wrong))
        return bool(wrong)
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
