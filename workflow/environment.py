"""Find the project's Python environment, or create it.

It uses the standard library only, and runs on Python 3.8.

`python3 workflow/environment.py VERB` prints the path of an interpreter that has every package. An
active conda or virtual environment is used if the direct pins match; nothing is ever installed into
it. Otherwise `.venv` in the project's folder is used or created, for the tests `.venv-test`. Only
an installation writes or locks anything: a finished environment may be another user's, or on a
read-only disk.

uv installs the same lock as pip with the same hashes, in seconds instead of minutes. It does not
read pip's configuration, so its own variables are set from that.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Mapping, Sequence  # noqa: UP035  for Python 3.8

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-test.lock")
# in an environment: the project's folder and the checksum of the locks
MADE_BY_US = "made-by-run_all.json"
BUILDS = ("Linux x86_64", "Linux aarch64", "Darwin arm64")  # of PyTorch
PYTHONS = ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "python")
SUITABLE = "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))"
# at least one exists if an NVIDIA driver is installed
DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
UV_OF_PIP = {  # uv's variables that mean the same as an option of pip
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "constraint": ("UV_CONSTRAINT",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
}
PIP = (
    "-I",
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--no-input",
    "--no-user",
)


class SetupError(Exception):
    """An environment that cannot be created here: one line with the reason and the remedy."""


def read_pins(root: Path, test: bool) -> dict[str, str]:
    """Return the direct requirements and their versions from pyproject.toml (Python 3.8 has no
    tomllib)."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    extras = "run|test" if test else "run"
    blocks = re.findall(rf"^(?:{extras}) = \[\n(.*?)^\]", text, flags=re.M | re.S)
    return dict(re.findall(r'"([\w.-]+)==([\w.]+)"', "".join(blocks)))


# ---- which environment


def choose(root: Path, variables: Mapping[str, str], test: bool) -> str:
    """Return the interpreter of the first environment that fits: the active one, `.venv`, or
    `.venv-test` for tests.

    If none fits, the last is made anew, unless somebody else made it.
    """
    ours = root / (".venv-test" if test else ".venv")
    locks = LOCKS if test else LOCKS[:1]
    pins = read_pins(root, test)
    active = [variables.get("VIRTUAL_ENV"), variables.get("CONDA_PREFIX")]
    venvs = [Path(folder) for folder in active if folder]
    problem = ""
    for venv in [*venvs, root / ".venv", ours]:
        if not venv.exists():
            continue
        stamp = lock_stamp(root, locks) if venv.resolve() == ours.resolve() else ""
        problem = find_problem(venv, pins, stamp)
        if not problem:
            return str(venv / "bin" / "python")
        if not ours.exists():
            print(f"{venv} is not used: {problem}", file=sys.stderr)
    if ours.exists() and not (ours / MADE_BY_US).exists():
        raise SetupError(
            f"{ours.name} was not created by run_all.sh and cannot be used: "
            f"move it away ({problem})"
        )
    make_once(root, ours, locks, pins)
    return str(ours / "bin" / "python")


def find_problem(venv: Path, pins: Mapping[str, str], stamp: str = "") -> str:
    """Return the first reason against an environment, empty if none: one of ours that lacks this
    stamp, or a package that is missing, of another version (2.13.0+cpu is 2.13.0), or damaged,
    because someone deleted its folder."""
    mark = venv / MADE_BY_US
    if stamp and mark.exists() and mark.read_text(errors="replace") != stamp:
        return "it is unfinished, outdated or moved"
    sites = []
    if (venv / "bin" / "python").exists():
        sites = [str(site) for site in venv.glob("lib/python3*/site-packages")]
    for name, version in pins.items():
        packages = importlib.metadata.distributions(name=name, path=sites)
        versions = [package.version.split("+")[0] for package in packages]
        if version not in versions:
            installed = versions[0] if versions else "missing"
            return f"{name} {version} is needed and is {installed} here"
    for package in importlib.metadata.distributions(path=sites):
        record = package.read_text("RECORD") or ""
        for start in re.findall(r"^(\w+/__init__\.py),", record, flags=re.M):
            if not os.path.exists(str(package.locate_file(start))):
                return f"{package.metadata['Name']} is damaged: install it again"
    return ""


def lock_stamp(root: Path, locks: Sequence[str]) -> str:
    """Return what the mark of a finished environment of this folder and these locks contains."""
    content = b"".join((root / name).read_bytes() for name in locks)
    return f"{root} {hashlib.sha256(content).hexdigest()}"


# ---- making it


def make_once(root: Path, venv: Path, locks: Sequence[str], pins: Mapping[str, str]) -> None:
    """Create an environment of ours unless it is finished, for one start at a time."""
    with open(root / ".venv.lock", "w") as lock:
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if find_problem(venv, pins, lock_stamp(root, locks)):  # another start may have finished it
            create(root, venv, locks, pins.get("torch", ""))


def create(root: Path, venv: Path, locks: Sequence[str], torch: str) -> None:
    """Create an environment and replace an old one of ours. The empty mark lets a later start
    replace a part of one."""
    machine = f"{platform.system()} {platform.machine()}"
    if machine not in BUILDS:
        raise SetupError(
            f"PyTorch has no build for {machine}, only for "
            f"{', '.join(BUILDS)} (on Windows: inside WSL)"
        )
    command = venv_command(venv)
    if venv.is_symlink():  # the other project's stays
        venv.unlink()
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    (venv / MADE_BY_US).touch()
    if not (run(command) and install(root, venv, locks, torch)):
        raise SetupError(
            "the installation failed for the reason above; fix it and start ./run_all.sh again"
        )
    (site,) = venv.glob("lib/python3*/site-packages")
    # `import lib` works from any folder
    (site / "project.pth").write_text(f"{root}\n", encoding="utf-8")
    (venv / MADE_BY_US).write_text(lock_stamp(root, locks))
    print(f"{venv.name} is ready", file=sys.stderr)


def venv_command(venv: Path) -> list[str]:
    """Return the command that creates a virtual environment with pip: the first suitable Python,
    else uv."""
    for name in PYTHONS:
        python = shutil.which(name)
        if python:
            python = os.path.realpath(python)  # not in what is about to be removed
            if run([python, "-I", "-c", SUITABLE], quiet=True):
                return [python, "-I", "-m", "venv", str(venv)]
    uv = shutil.which("uv")
    if uv:
        command = [uv, "venv", "--quiet", "--seed", "--allow-existing"]
        return [*command, "--python", ">=3.11,<3.15", str(venv)]
    raise SetupError(
        "no Python 3.11 to 3.14 with venv was found (Debian: apt install python3-venv), and no uv"
    )


def install(root: Path, venv: Path, locks: Sequence[str], torch: str) -> bool:
    """Install what the locks pin, then this version of torch, if any, with uv or else pip. Return
    whether that worked.

    torch has no hash, because each kind of machine has its own build. The lock holds what it
    requires but for CUDA's libraries, which a build for CUDA pins: installed after the lock, torch
    brings these alone.
    """
    python = str(venv / "bin" / "python")
    settings = read_pip_settings(python)
    os.environ.update(uv_environment(settings))
    # no constraint of a user's, which has no hashes
    locked = ["--no-deps", "--require-hashes", "--constraint", os.devnull]
    for name in locks:
        locked += ["-r", str(root / name)]
    index = torch_index()

    def install_with(installer: list[str], index_option: str) -> bool:
        source = [index_option, index] if index else []
        if not run([*installer, *locked]):
            return False
        return not torch or run([*installer, *source, f"torch=={torch}"])

    for uv in fetch_uv(root, python):
        print(f"installing into {venv.name} with uv, once ...", file=sys.stderr)
        by_uv = [uv, "pip", "install", "--quiet", "--python", python]
        if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
            by_uv.append("--no-index")
        if install_with(by_uv, "--default-index"):
            return True
    print(f"installing into {venv.name} with pip, once, in minutes ...", file=sys.stderr)
    return install_with([python, *PIP], "--index-url")


def torch_index() -> str:
    """Return the index for torch: TORCH_INDEX, else PyTorch's CPU index on Linux without an NVIDIA
    driver."""
    index = os.environ.get("TORCH_INDEX", "")
    has_driver = shutil.which("nvidia-smi") or any(os.path.exists(place) for place in DRIVER)
    if index or has_driver or platform.system() != "Linux":
        return index
    with suppress(OSError, ValueError), urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=5):
        return CPU_INDEX
    return ""  # it does not answer


def run(command: list[str], quiet: bool = False) -> bool:
    """Run a command with its output on stderr, or none. Return whether it succeeds."""
    output = subprocess.DEVNULL if quiet else sys.stderr
    with suppress(OSError):  # it is no program here
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return done.returncode == 0
    return False


# ---- what pip is told, told to uv


def read_pip_settings(python: str) -> dict[str, str]:
    """Return pip's options from its files and variables. Later ones win: [global], then [install],
    then PIP_*."""
    command = [python, "-I", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    settings = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, flags=re.M):
            settings[name] = str(ast.literal_eval(value))
    return settings


def uv_environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables that tell uv what pip is told. What is set for uv already stays."""
    # all indexes are equal, as for pip; hashes tell what is meant
    values = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, variables in UV_OF_PIP.items():
        words = settings.get(option, "").split()
        if words:
            separator = "," if option == "find-links" else " "
            values.update(dict.fromkeys(variables, separator.join(words)))
    for name in list(values):
        if name in os.environ or name.lower() in os.environ:
            del values[name]
    return values


def fetch_uv(root: Path, python: str) -> list[str]:
    """Install the uv of the lock with pip. Return its path, or nothing if it cannot be had."""
    lock = (root / LOCKS[0]).read_text(encoding="utf-8")
    lines_of_uv = re.findall(r"^uv==(?:.*\\\n)*.*\n", lock, flags=re.M)
    uv = Path(python).with_name("uv")
    lock_of_uv = uv.with_name("uv.lock")
    lock_of_uv.write_text("".join(lines_of_uv), encoding="utf-8")
    locked = ["--no-deps", "--require-hashes", "-r", str(lock_of_uv)]
    fetched = run([python, *PIP, *locked], quiet=True)
    if fetched and run([str(uv), "--version"], quiet=True):
        return [str(uv)]
    return []


if __name__ == "__main__":
    try:
        if isinstance(sys.stdout, TextIOWrapper):  # for bash
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        print(choose(ROOT, os.environ, test=sys.argv[1:2] == ["test"]))
    except (SetupError, OSError) as problem:
        sys.exit(f"run_all.sh: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
