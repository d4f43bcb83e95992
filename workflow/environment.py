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


class Refusal(Exception):
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


def mismatches(wanted: dict[str, str]) -> list[str]:
    """What the interpreter running this lacks; a build label (2.13.0+cpu) does not count."""
    lines = []
    for name, version in wanted.items():
        try:
            here = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name} {version} is missing")
            continue
        if here != version:
            lines.append(f"{name} is {here}, not {version}")
    return lines


def unwhole(sites: list[str]) -> list[str]:
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


def refusal(system: str, machine: str, libc: str = "", free: float = DISK) -> str | None:
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


def new_venv(venv: Path) -> None:
    """An empty virtual environment with pip, by the first usable Python, else by uv."""
    for python in ("python3", *(f"python{version}" for version in PYTHONS), "python"):
        path = shutil.which(python)
        if path and usable(path):
            return run([path, "-m", "venv", str(venv)], "making .venv")
    uv = shutil.which("uv")
    if not uv:
        raise Refusal("no Python 3.11, 3.12 or 3.13 with venv was found (Debian: apt install python3-venv), and no uv")
    return run([uv, "venv", "--quiet", "--seed", "--python", ">=3.11,<3.14", str(venv)], "uv venv")


def run(command: list[str], what: str) -> None:
    """A subprocess whose chatter goes to stderr; Refusal if it fails."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "PIP_USER")}
    if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
        raise Refusal(f"{what} failed, its reason is above; ./run_all.sh goes on from here once it is mended")


# ---- an environment of our own -----------------------------------------------------------------------------


def torch_options(env: dict, system: str, nvidia: bool, answers) -> list[str]:
    """pip's options for torch, one index alone: TORCH_INDEX, else PyTorch's CPU index on Linux without NVIDIA."""
    if env.get("TORCH_INDEX"):
        return ["--index-url", env["TORCH_INDEX"]]
    if system == "Linux" and not nvidia and answers(CPU_INDEX):
        return ["--index-url", CPU_INDEX]
    return []


def nvidia_here() -> bool:
    return bool(shutil.which("nvidia-smi")) or any(os.path.exists(place) for place in DRIVER)


def answers(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=5) as reply:
            return reply.status == 200
    except (OSError, ValueError):
        return False


def stamp(root: Path) -> dict[str, str]:
    """What `.venv` was made for: this folder, this lock. Equal means that nothing is left to install."""
    lock = (root / "requirements.lock").read_bytes() + pins(root)["torch"].encode()
    return {"folder": str(root), "lock": hashlib.sha256(lock).hexdigest()}


def install(root: Path, python: str) -> None:
    """torch by itself (without a hash, for each kind of machine has its build), then everything else with hashes, and
    with it what torch needs, then CUDA's libraries, which a torch for CUDA pins, then the project itself."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    version = pins(root)["torch"]
    torch = [*torch_options(dict(os.environ), platform.system(), nvidia_here(), answers), f"torch=={version}"]
    say(f"installing into .venv, once: torch {version} (the largest part) ...")
    run([*pip, "--no-deps", *torch], "pip install torch")
    say("installing into .venv, once: the other packages ...")
    run([*pip, "--no-deps", "--require-hashes", "-r", str(root / "requirements.lock")], "pip install")
    run([*pip, *torch], "pip install of CUDA's libraries")
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)], "pip install of the project")


def rehome(venv: Path, old: str, new: str) -> None:
    """Correct the scripts and settings of a copied `.venv`, which name the folder it was copied from."""
    scripts = [path for path in (venv / "bin").iterdir() if path.is_file() and not path.is_symlink()]
    for path in [venv / "pyvenv.cfg", *scripts, *venv.glob("lib/python*/site-packages/__editable__*")]:
        data = path.read_bytes()
        if old.encode() not in data or b"\0" in data:
            continue
        text = data.decode()
        plain = re.match(rf"#!({re.escape(old)}/\.venv/bin/python[\d.]*)\n", text)
        if plain:  # a path with a space cannot stand after #!
            text = f"#!/bin/sh\n'''exec' \"{plain[1]}\" \"$0\" \"$@\"\n' '''\n" + text[plain.end() :]
        path.write_text(text.replace(old + "/", new + "/"))


def read_mark(mark: Path) -> dict[str, str]:
    """What `.venv` was made for; empty where it bears no mark, and empty words where the mark is damaged."""
    if not mark.exists():
        return {}
    try:
        made = json.loads(mark.read_text())
        return {name: str(made[name]) for name in ("folder", "lock")}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"folder": "", "lock": ""}


def write_mark(mark: Path, made: dict[str, str]) -> None:
    """Whole or not at all."""
    scratch = mark.with_name(f".{mark.name}.{os.getpid()}")
    scratch.write_text(json.dumps(made))
    os.replace(scratch, mark)


def forget(sites: list[str], names: list[str]) -> None:
    """Have pip find that packages are not installed, so that it installs them."""
    for name in names:
        for dist in importlib.metadata.distributions(name=name, path=sites):
            shutil.rmtree(str(dist._path), ignore_errors=True)  # type: ignore[attr-defined]


def own(root: Path) -> str:
    """The interpreter of `.venv`, after making, mending or completing it as needed."""
    venv, mark = root / ".venv", root / ".venv" / MARK
    python = venv / "bin" / "python"
    made, wanted = read_mark(mark), stamp(root)
    if made == wanted and python.exists():
        sites = [str(path) for path in venv.glob("lib/python*/site-packages")]
        lacking = unwhole(sites)
        if not lacking:
            return str(python)
        say(f"{', '.join(lacking)}: not whole in .venv, installing again")
        forget(sites, lacking)
        made = {**made, "lock": ""}
    if venv.exists() and not mark.exists():
        if python.exists() and fits(str(python), test=True):
            return str(python)
        raise Refusal(".venv was not made by run_all.sh and lacks packages: move it away")
    libc = sysconfig.get_config_var("HOST_GNU_TYPE") or ""
    why = refusal(platform.system(), platform.machine(), libc, shutil.disk_usage(root).free)
    if why:
        raise Refusal(why)
    complete(root, venv, made, wanted)
    return str(python)


def replace(venv: Path) -> None:
    """A new `.venv` in the place of one that does not run, which is not deleted before there is another."""
    old = venv.with_name(".venv.old")
    shutil.rmtree(old, ignore_errors=True)
    if venv.exists():
        venv.rename(old)
    try:
        new_venv(venv)
    except BaseException:
        shutil.rmtree(venv, ignore_errors=True)
        if old.exists():
            old.rename(venv)
        raise
    shutil.rmtree(old, ignore_errors=True)


def complete(root: Path, venv: Path, made: dict[str, str], wanted: dict[str, str]) -> None:
    """Bring `.venv` from what it was made for to what is wanted. The mark tells a later start how far this came."""
    started = time.time()
    python, mark = venv / "bin" / "python", venv / MARK
    if made.get("folder", wanted["folder"]) not in ("", wanted["folder"]) and python.exists():
        rehome(venv, made["folder"], wanted["folder"])
        made = {**made, "folder": wanted["folder"]}
    if not usable(str(python)):
        replace(venv)
        made = {"folder": wanted["folder"], "lock": ""}
    write_mark(mark, made)
    if made != wanted:
        install(root, str(python))
        write_mark(mark, wanted)
        say(f".venv is ready after {time.time() - started:.0f} s")


def locked(root: Path) -> str:
    """`own` under a lock, so that two first starts do not install into one another."""
    import fcntl

    with open(root / ".venv.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./run_all.sh to finish .venv ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise Refusal(f"the file system of this folder has no locks (flock: {error.strerror})") from None
        return own(root)


# ---- the choice --------------------------------------------------------------------------------------------


def fits(python: str, test: bool, report: bool = False) -> bool:
    """Whether an interpreter has all direct pins; with `report`, say what the first difference is."""
    command = [python, "-I", str(Path(__file__)), "--pins", *(["test"] if test else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:  # the environment is gone, or has no Python
        if report:
            say(f"the active environment is not used: {python}: {error.strerror}")
        return False
    if done.returncode and report:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it does not start"]
        say(f"the active environment is not used: {lines[0]}")
    return done.returncode == 0


def choose(root: Path, env: dict, test: bool) -> str:
    """The interpreter to use: that of the active environment if the pins match, else our own."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = env.get(variable)
        if not active or Path(active).resolve() == (root / ".venv").resolve():
            continue
        python = str(Path(active) / "bin" / "python")
        if fits(python, test, report=not (root / ".venv").exists()):
            return python
    return locked(root)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--conda"]:
        print(conda_file(ROOT), end="")
        return 0
    if argv[:1] == ["--pins"]:
        wrong = mismatches(pins(ROOT, test="test" in argv))
        wrong = wrong or [f"{name} is not whole: install it again" for name in unwhole(sys.path)]
        print("\n".join(wrong))
        return bool(wrong)
    if ":" in str(ROOT):
        raise Refusal(f"a folder with ':' in its name cannot be on Python's path: {ROOT}")
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]  # a path, for bash
    print(choose(ROOT, dict(os.environ), test="test" in argv))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Refusal, OSError) as problem:
        say(f"run_all.sh: {problem}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
