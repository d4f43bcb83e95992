"""Install torch, the locked packages and the project into a new virtual environment, with uv or else pip.

It uses the standard library only (Python 3.8 or newer). uv installs the same lock with the same hashes, in seconds
instead of minutes. It does not read pip's configuration, so its own variables are set from that.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")  # at least one exists if an NVIDIA driver is installed
PYTHONS = ("python3", "python3.11", "python3.12", "python3.13", "python")
SUITABLE = """import sys, venv, ensurepip
sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))"""
BUILDS = (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))  # of PyTorch
DISK = 3e9  # bytes: packages and downloads
LOCKS = ("requirements.lock", "requirements-test.lock")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
OF_PIP = {  # uv's variables by pip's options
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "constraint": ("UV_CONSTRAINT",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
}


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


# ---- machine and interpreter


def why_unsupported(root: Path) -> str:
    """Return why the packages cannot be installed on this machine, in one line; empty if they can."""
    libc = sysconfig.get_config_var("HOST_GNU_TYPE") or ""
    system, machine, free = platform.system(), platform.machine(), shutil.disk_usage(root).free
    if libc.endswith("musl") or (system, machine) not in BUILDS:
        known = "Linux with glibc (x86_64, aarch64; on Windows inside WSL) and for Macs with Apple's processors"
        return f"PyTorch has no build for {' '.join(filter(None, (system, machine, libc)))}, only for {known}"
    if free < DISK:
        return f"{free / 1e9:.1f} GB free on this disk, but the packages need {DISK / 1e9:.0f} GB"
    return ""


def venv_command(venv: Path) -> list[str]:
    """Return the command that creates a virtual environment with pip: the first suitable Python, else uv."""
    for path in filter(None, map(shutil.which, PYTHONS)):
        if path.startswith(f"{venv}/"):  # activated, and about to be removed: the Python that it was made of
            path = os.path.realpath(path)
        if succeeds([path, "-I", "-c", SUITABLE]):
            return [path, "-m", "venv", str(venv)]
    if uv := shutil.which("uv"):
        return [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", ">=3.11,<3.14", str(venv)]
    raise SetupError("no Python 3.11 to 3.13 with venv was found (Debian: apt install python3-venv), and no uv")


def succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# ---- what pip is told, told to uv


def read_pip_settings(python: str) -> dict[str, str]:
    """Return pip's options from its files and variables. Later ones win: [global], then [install], then PIP_*."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True)
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", done.stdout, flags=re.M)
    order = ("global", "install", ":env:")
    return {name: str(ast.literal_eval(value)) for _, name, value in sorted(found, key=lambda one: order.index(one[0]))}


def uv_environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables that tell uv what pip is told. What is set for uv already stays."""
    told = {}
    for option, variables in OF_PIP.items():
        separator = "," if option == "find-links" else " "
        if words := settings.get(option, "").split():
            told.update(dict.fromkeys(variables, separator.join(words)))
    told["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # all indexes are equal, as for pip; hashes tell what is meant
    return {name: value for name, value in told.items() if name not in os.environ and name.lower() not in os.environ}


def fetch_uv(root: Path, python: str) -> str:
    """Install the uv of the lock with pip. Return its path, or an empty string if it cannot be had."""
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    lines = re.findall(r"^uv==(?:.*\\\n)*.*\n", lock, flags=re.M)
    only_uv = Path(python).parent / "uv.lock"
    only_uv.write_text("".join(lines), encoding="utf-8")
    uv = str(Path(python).with_name("uv"))
    found = (
        lines
        and succeeds([python, *PIP, "--no-deps", "--require-hashes", "-r", str(only_uv)])
        and succeeds([uv, "--version"])
    )
    return uv if found else ""


# ---- installation


def torch_index() -> str:
    """Return the index for torch: TORCH_INDEX, else PyTorch's CPU index on Linux without an NVIDIA driver."""
    index = os.environ.get("TORCH_INDEX", "")
    needs_cpu_build = not index and platform.system() == "Linux" and not has_nvidia()
    return CPU_INDEX if needs_cpu_build and is_reachable(CPU_INDEX) else index


def has_nvidia() -> bool:
    return bool(shutil.which("nvidia-smi")) or any(os.path.exists(place) for place in DRIVER)


def is_reachable(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=5) as reply:
            return reply.status == 200
    except (OSError, ValueError):
        return False


def install(root: Path, python: str) -> None:
    """Install torch, the locked packages, CUDA's libraries and the project, in this order, with uv or else pip.

    torch has no hash, because each kind of machine has its own build. A CUDA build of it pins CUDA's libraries.
    """
    settings = read_pip_settings(python)
    os.environ.update(uv_environment(settings))
    if uv := fetch_uv(root, python):
        say("installing into .venv with uv, once ...")
        try:
            return install_with(root, [uv, "pip", "install", "--quiet", "--python", python], "--default-index")
        except SetupError as problem:
            say(f"{problem}; trying pip")
    say("installing into .venv with pip, once, in minutes ...")
    install_with(root, [python, *PIP], "--index-url")


def install_with(root: Path, installer: list[str], index_option: str) -> None:
    """Run the four steps of `install` with one installer. Raise SetupError for the first that fails."""
    index = torch_index()
    torch = [*([index_option, index] if index else []), f"torch=={pins(root)['torch']}"]
    run([*installer, "--no-deps", *torch], "the installation of torch")
    locks = [word for name in LOCKS for word in ("-r", str(root / name))]
    locked = ["--no-deps", "--require-hashes", *locks]
    run([*installer, *locked], "the installation of the locked packages", without="UV_CONSTRAINT")  # all are pinned
    run([*installer, *torch], "the installation of CUDA's libraries")
    run([*installer, "--no-deps", "--no-build-isolation", "--editable", str(root)], "the installation of the project")


def run(command: list[str], what: str, without: str = "") -> None:
    """Run a command with its output on stderr, `without` a variable. Raise SetupError if it fails."""
    unset = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", without)
    env = {name: value for name, value in os.environ.items() if name not in unset}
    if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=env).returncode:
        raise SetupError(f"{what} failed for the reason above; fix it and start ./run_all.sh again")
