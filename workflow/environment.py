"""The Python that everything runs in: found, or made in `.venv`. Standard library, any Python from 3.8 on.

`python3 workflow/environment.py [VERB]` prints the path of an interpreter that has every package; what it
does meanwhile goes to stderr. An active conda or virtual environment is used if the direct pins match, and is
never installed into; else `.venv` in the project's folder is used, or made: torch first and by itself, then
requirements.lock with hashes, then the project. `--conda` prints environment.yml instead, `--pins` checks the
interpreter that runs this file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MARK = "made-by-run_all.json"  # in .venv: the stamp of what it was made for
DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")  # one is there where an NVIDIA driver is
DISK = 4e9  # bytes: packages and pip's downloads
USABLE = """import sys, venv, ensurepip
sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))"""


class SetupError(Exception):
    """A machine or folder that cannot serve: one line saying why and what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- pins --------------------------------------------------------------------------------------------------


def pins(root: Path, test: bool = True) -> dict[str, str]:
    """Directly required packages and their versions, from pyproject.toml (tomllib came with 3.11)."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    wanted = "dependencies|test" if test else "dependencies"
    blocks = re.findall(rf"^(?:{wanted}) = \[\n(.*?)^\]", text, flags=re.M | re.S)
    return dict(re.findall(r'"([\w.-]+)==([\w.]+)"', "".join(blocks)))


def installed_version(name: str) -> str:
    """The version of a package of the interpreter running this, but for the label of its build (2.13.0+cpu)."""
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def mismatches(wanted: dict[str, str]) -> list[str]:
    """What the interpreter running this lacks."""
    here = {name: installed_version(name) for name in wanted}
    return [
        f"{name} is {here[name]}, not {version}" if here[name] else f"{name} {version} is missing"
        for name, version in wanted.items()
        if here[name] != version
    ]


def damaged_packages(sites: list[str]) -> list[str]:
    """Installed packages that lack the file by which they are imported: someone deleted their folder."""
    names = set()
    for dist in importlib.metadata.distributions(path=sites):
        starts = re.findall(r"^(\w+/__init__\.py),", dist.read_text("RECORD") or "", flags=re.M)
        if not all(os.path.exists(str(dist.locate_file(start))) for start in starts):
            names.add(str(dist.metadata["Name"]))
    return sorted(names)


def conda_file(root: Path) -> str:
    """The text of environment.yml."""
    lines = "".join(f"      - {name}=={version}\n" for name, version in pins(root).items())
    return (
        "# Written by `python workflow/environment.py --conda > environment.yml` from pyproject.toml.\n"
        "#   conda env create -f environment.yml && conda activate calibrated-confidence && ./run_all.sh\n"
        "name: calibrated-confidence\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n  - pip\n"
        "  - pip:\n" + lines
    )


# ---- machine and interpreter -------------------------------------------------------------------------------


def unsupported(system: str, machine: str, libc: str = "", free: float = DISK) -> str | None:
    """Why this machine cannot serve, in one line, or None. PyTorch's builds decide."""
    if system == "Darwin" and machine != "arm64":
        return "PyTorch 2.13 has no build for Macs with Intel processors (or a Python running under Rosetta)"
    if system not in ("Linux", "Darwin"):
        return f"{system} is not supported; on Windows, run this inside WSL (Ubuntu, for example)"
    if machine not in ("x86_64", "aarch64", "arm64"):
        return f"PyTorch has no build for {machine} processors"
    if "musl" in libc:
        return "PyTorch has no build for musl (Alpine); use a glibc Linux such as Debian"
    if free < DISK:
        return f"{free / 1e9:.1f} GB free on this disk, but the packages need {DISK / 1e9:.0f} GB"
    return None


def usable(python: str) -> bool:
    """Whether this interpreter runs, is 3.11-3.13 of 64 bits, and can make virtual environments."""
    try:
        return subprocess.run([python, "-I", "-c", USABLE], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def venv_command(venv: Path) -> list[str]:
    """What makes an empty virtual environment with pip: the first usable Python, else uv."""
    for python in ("python3", *(f"python{version}" for version in PYTHONS), "python"):
        path = shutil.which(python)
        if path and usable(path):
            return [path, "-m", "venv", str(venv)]
    uv = shutil.which("uv")
    if not uv:
        raise SetupError(
            "no Python 3.11, 3.12 or 3.13 with venv was found (Debian: apt install python3-venv), and no uv"
        )
    return [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", ">=3.11,<3.14", str(venv)]


def run(command: list[str], what: str) -> None:
    """A subprocess whose chatter goes to stderr; SetupError if it fails."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "PIP_USER")}
    if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
        raise SetupError(f"{what} failed, its reason is above; ./run_all.sh goes on from here once it is mended")


# ---- an environment of our own -----------------------------------------------------------------------------


def torch_index() -> list[str]:
    """pip's options for torch, one index alone: TORCH_INDEX, else PyTorch's CPU index on Linux without NVIDIA."""
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
    """torch by itself (without a hash, for each kind of machine has its build), then everything else with hashes, and
    with it what torch needs, then CUDA's libraries, which a torch for CUDA pins, then the project itself."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    version = pins(root)["torch"]
    torch = [*torch_index(), f"torch=={version}"]
    say(f"installing into .venv, once: torch {version} (the largest part) ...")
    run([*pip, "--no-deps", *torch], "pip install torch")
    say("installing into .venv, once: the other packages ...")
    run([*pip, "--no-deps", "--require-hashes", "-r", str(root / "requirements.lock")], "pip install")
    run([*pip, *torch], "pip install of CUDA's libraries")
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)], "pip install of the project")


def make(root: Path, venv: Path, stamp: dict[str, str]) -> None:
    """Make `.venv` whole, in the place of any that serves no longer. It is marked first as one that this may replace,
    and last with what it was made for."""
    libc = sysconfig.get_config_var("HOST_GNU_TYPE") or ""
    why = unsupported(platform.system(), platform.machine(), libc, shutil.disk_usage(root).free)
    if why:
        raise SetupError(why)
    started, command = time.time(), venv_command(venv)
    if os.path.islink(venv):  # to another project's, which stays
        os.unlink(venv)
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    (venv / MARK).touch()
    run(command, "making .venv")
    install(root, str(venv / "bin" / "python"))
    (venv / MARK).write_text(json.dumps(stamp))
    say(f".venv is ready after {time.time() - started:.0f} s")


def project_venv(root: Path) -> str:
    """The interpreter of `.venv`, made where there is none, or one unfinished, damaged, moved, or of another lock."""
    venv, python = root / ".venv", str(root / ".venv" / "bin" / "python")
    lock = (root / "requirements.lock").read_bytes() + pins(root)["torch"].encode()
    stamp = {"folder": str(root), "lock": hashlib.sha256(lock).hexdigest()}
    if venv.exists() and not (venv / MARK).exists():
        if first_mismatch(python, test=True):
            raise SetupError(".venv was not made by run_all.sh and lacks packages: move it away")
        return python
    if venv.exists() and (venv / MARK).read_text(errors="replace") == json.dumps(stamp) and os.path.exists(python):
        damaged = damaged_packages([str(path) for path in venv.glob("lib/python*/site-packages")])
        if not damaged:
            return python
        say(f"{', '.join(damaged)}: not whole in .venv, making it again")
    make(root, venv, stamp)
    return python


def locked(root: Path) -> str:
    """`project_venv` under a lock, so that two first starts do not install into one another."""
    import fcntl

    with open(root / ".venv.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./run_all.sh to finish .venv ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise SetupError(f"the file system of this folder has no locks (flock: {error.strerror})") from None
        return project_venv(root)


# ---- the choice --------------------------------------------------------------------------------------------


def first_mismatch(python: str, test: bool) -> str:
    """Why an interpreter can't serve, or its first difference from the direct pins; empty where it has all of them."""
    command = [python, "-I", str(Path(__file__)), "--pins", *(["test"] if test else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:  # the environment is gone, or has no Python
        return f"{python}: {error.strerror}"
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it does not start"]
    return lines[0] if done.returncode else ""


def choose(root: Path, env: dict, test: bool) -> str:
    """The interpreter to use: that of the active environment if the pins match, else our own."""
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
    return locked(root)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--conda"]:
        print(conda_file(ROOT), end="")
        return 0
    if argv[:1] == ["--pins"]:
        damaged = [f"{name} is not whole: install it again" for name in damaged_packages(sys.path)]
        wrong = mismatches(pins(ROOT, test="test" in argv)) or damaged
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
