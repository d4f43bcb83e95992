"""The environment: one source of pins, a lock that installs everywhere, no packages put where they are not wanted."""

import errno
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_project import ROOT, write

from workflow import environment, installer

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"]
TEXT = "\n".join((ROOT / name).read_text() for name in installer.LOCKS)
ENTRIES = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", TEXT, flags=re.M).lstrip("\n"))
LOCKED = [Requirement(entry.split("\\\n")[0].strip()) for entry in ENTRIES]
VERSIONS = {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in LOCKED}


def test_environment_yml_has_the_pins():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert parts["dependencies"][-1] == {"pip": DIRECT}


def test_lock_has_every_pin_with_hashes_and_neither_cuda_nor_a_registry():
    pins = {canonicalize_name(name): version for name, version in installer.pins(ROOT).items() if name != "torch"}
    for name, version in pins.items():
        assert {str(entry.specifier) for entry in LOCKED if canonicalize_name(entry.name) == name} == {f"=={version}"}
    assert not [name for name in VERSIONS if re.match(r"torch$|nvidia|cuda|triton", name)]
    assert "setuptools" in VERSIONS  # the project itself is installed without isolation
    assert not re.search(r"https?://|file:|--index|--find-links|--extra", "".join(ENTRIES))
    assert not [entry for entry in ENTRIES if "--hash=sha256:" not in entry]


def test_uv_is_told_nothing_in_this_folder():
    """It would hold for each installation started here, and for torch's build for CUDA, whose libraries it leaves out."""
    assert "uv" not in PROJECT["tool"] and not (ROOT / "uv.toml").exists()


@pytest.mark.parametrize("python", ["3.11.7", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_lock_pins_each_package_once_per_machine(python, platform):
    machine = {"python_full_version": python, "python_version": python[:4], "sys_platform": platform}
    machine["platform_machine"] = "arm64" if platform == "darwin" else "x86_64"
    names = [canonicalize_name(r.name) for r in LOCKED if not r.marker or r.marker.evaluate(machine)]
    assert len(names) == len(set(names)) > 150


@pytest.mark.parametrize("system, machine, libc, free, reason", [
    ("Darwin", "x86_64", "", 9e9, "Apple's"), ("Windows", "AMD64", "", 9e9, "WSL"), ("Linux", "i686", "", 9e9, "i686"),
    ("Linux", "x86_64", "x86_64-linux-musl", 9e9, "musl"), ("Linux", "x86_64", "x86_64-linux-gnu", 1e9, "1.0 GB free"),
])  # fmt: skip
def test_machines_that_cannot_serve(monkeypatch, system, machine, libc, free, reason):
    monkeypatch.setattr(installer.platform, "system", lambda: system)
    monkeypatch.setattr(installer.platform, "machine", lambda: machine)
    monkeypatch.setattr(installer.sysconfig, "get_config_var", lambda name: libc)
    monkeypatch.setattr(installer.shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    assert reason in installer.why_unsupported(ROOT)


def test_pages_agree_on_the_disk_and_on_how_long_the_tests_take():
    pages = {name: (ROOT / name).read_text() for name in ("README.md", "ARTIFACT-APPENDIX.md", "docs/reproduce.md")}
    disk = {found for text in pages.values() for found in re.findall(r"memory and (\d) GB of disk", text)}
    assert disk == {f"{installer.DISK / 1e9:.0f}"}
    minutes = [re.search(r"quick tests.*?(\d+ to \d+ minutes)", pages[name])[1] for name in list(pages)[1:]]
    assert len(set(minutes)) == 1
    assert all(
        (ROOT / path).exists()
        for path in re.findall(r"workflow/\w+\.py", (ROOT / "requirements-vllm.lock").read_text())
    )


@pytest.mark.parametrize("index, system, nvidia, reachable, found", [
    ("", "Linux", False, True, installer.CPU_INDEX), ("", "Linux", False, False, ""), ("", "Linux", True, True, ""),
    ("", "Darwin", False, True, ""), ("u", "Linux", True, True, "u"),
])  # fmt: skip
def test_where_torch_comes_from(monkeypatch, index, system, nvidia, reachable, found):
    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.setattr(installer.platform, "system", lambda: system)
    monkeypatch.setattr(installer, "has_nvidia", lambda: nvidia)
    monkeypatch.setattr(installer, "is_reachable", lambda place: reachable)
    assert installer.torch_index() == found


@pytest.fixture
def commands(monkeypatch):
    """The commands of an installation, none of which runs."""
    asked: list[list[str]] = []
    monkeypatch.setattr(installer, "run", lambda command, what, without="": asked.append(command))
    monkeypatch.setattr(installer, "read_pip_settings", lambda python: {})
    monkeypatch.setenv("TORCH_INDEX", "https://one.index")
    return asked


@pytest.mark.parametrize("uv, option", [("bin/uv", "--default-index"), ("", "--index-url")])
def test_what_torch_needs_comes_from_the_lock(commands, monkeypatch, uv, option):
    """But for CUDA's libraries, which are fetched when all else is there; and one index alone is asked for it."""
    monkeypatch.setattr(installer, "fetch_uv", lambda root, python: uv)
    installer.install(ROOT, "bin/python")
    alone, packages, rest, project = commands
    assert {command[0] for command in commands} == {uv or "bin/python"}
    assert "--no-deps" in alone and "--no-deps" not in rest
    assert alone[-3:] == rest[-3:] == [option, "https://one.index", f"torch=={installer.pins(ROOT)['torch']}"]
    assert {"--no-deps", "--require-hashes"} <= set(packages) and "--no-deps" in project
    for needed in map(Requirement, importlib.metadata.requires("torch")):
        cuda = re.match(r"nvidia|cuda|triton", needed.name)
        if not cuda and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            assert needed.specifier.contains(VERSIONS[canonicalize_name(needed.name)]), needed


def test_pip_installs_where_uv_fails(commands, monkeypatch, capsys):
    def run(command, what, without=""):
        commands.append(command)
        if command[0] == "bin/uv":
            raise installer.SetupError(f"{what} failed")

    monkeypatch.setattr(installer, "fetch_uv", lambda root, python: "bin/uv")
    monkeypatch.setattr(installer, "run", run)
    installer.install(ROOT, "bin/python")
    assert [command[0] for command in commands] == ["bin/uv", *["bin/python"] * 4]
    assert "the installation of torch failed; trying pip" in capsys.readouterr().err


def test_uv_is_told_what_pip_is_told(tmp_path, monkeypatch):
    """Files and variables, in pip's order; what is set for uv already stays."""
    write(tmp_path / "pip.conf", """[global]
        index-url = https://mirror/simple
        extra-index-url = https://one/simple
            https://two/simple
        find-links = /wheels /more
        cert = /etc/own.pem
        proxy = http://proxy:3128
        [install]
        index-url = https://inner/simple
        """)  # fmt: skip
    for name in [name for name in os.environ if name.lower().startswith(("pip_", "uv_", "http", "ssl_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "CONFIG_FILE": tmp_path / "pip.conf",
        "TRUSTED_HOST": "one two",
        "CERT": "/etc/other.pem",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
    monkeypatch.setenv("UV_INDEX", "https://mine/simple")
    told = installer.uv_environment(installer.read_pip_settings(sys.executable))
    assert "UV_INDEX" not in told
    assert told == told | {
        "UV_DEFAULT_INDEX": "https://inner/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "one two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/other.pem",
        "HTTPS_PROXY": "http://proxy:3128",
        "HTTP_PROXY": "http://proxy:3128",
    }


# ---- .venv -----------------------------------------------------------------------------------------------


@pytest.fixture
def installs(inside, monkeypatch):
    """The small project, and the environments that were made, by no pip or venv."""
    notes: list[str] = []

    def run(command, what):
        (inside.root / ".venv/bin").mkdir()
        (inside.root / ".venv/bin/python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setattr(environment, "install", lambda root, python: notes.append(python))
    return inside.root, notes


def test_a_file_system_without_locks_will_do(installs, monkeypatch, capsys):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    root, notes = installs
    assert environment.project_venv(root) == environment.project_venv(root) == f"{root}/.venv/bin/python"
    assert len(notes) == 1 and "has no locks: start no other" in capsys.readouterr().err


def test_a_finished_environment_is_used_where_nothing_can_be_written(installs, monkeypatch):
    """Another user's, or on a read-only disk."""
    root, notes = installs
    environment.project_venv(root)
    (root / ".venv.lock").unlink()

    def refuse(file, mode="r", **more):
        assert "w" not in mode and "a" not in mode, file
        return real(file, mode, **more)

    real = open
    monkeypatch.setattr("builtins.open", refuse)
    assert environment.project_venv(root) == f"{root}/.venv/bin/python" and len(notes) == 1
    assert not (root / ".venv.lock").exists()


def test_two_first_starts_install_once(installs, monkeypatch, capsys):
    """The one that waited finds what the other has finished."""
    root, notes = installs
    flock, environment_ = fcntl.flock, environment.project_venv

    def wait(lock, how):
        if how & fcntl.LOCK_NB:
            raise BlockingIOError
        monkeypatch.setattr(fcntl, "flock", flock)
        with monkeypatch.context() as patch:  # the other, which has the lock
            patch.setattr(environment, "install_lock", lambda root: nullcontext())
            environment_(root)

    monkeypatch.setattr(fcntl, "flock", wait)
    assert environment.project_venv(root) == f"{root}/.venv/bin/python" and len(notes) == 1
    assert "waiting for another ./run_all.sh" in capsys.readouterr().err


def test_an_environment_whose_torch_does_not_start_is_refused_in_one_line(inside):
    """As the one of `uv sync`: a CUDA build without CUDA's libraries."""
    venv = inside.root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    version = installer.pins(ROOT)["torch"]
    write(site / f"torch-{version}.dist-info/METADATA", f"Name: torch\nVersion: {version}\n")
    write(site / "torch/__init__.py", "raise OSError('libcudnn.so.9: cannot open shared object file')")
    assert environment.first_problem(str(venv / "bin/python"), test=True) == "", "no library to try"
    write(site / "torch/lib/libtorch_global_deps.so", "")
    with pytest.raises(installer.SetupError, match="^.venv was not created by run_all.sh .*libcudnn.so.9: [^\n]*$"):
        environment.choose(inside.root, {"VIRTUAL_ENV": str(venv)}, True)


@pytest.mark.parametrize("damage", [
    lambda venv: write(venv / "lib/python3.11/site-packages/one-1.0.dist-info/RECORD", "one/__init__.py,sha256=x,0"),
    lambda venv: write(venv.parent / "requirements.lock", "others"),
    lambda venv: (venv / "bin/python").unlink(),
    lambda venv: write(venv / environment.MADE_BY_US, '{"folder": "/elsewhere", "lock": "x"}'),
])  # fmt: skip
def test_what_is_damaged_moved_or_of_another_lock_is_made_again(installs, damage):
    root, notes = installs
    environment.project_venv(root)
    damage(root / ".venv")
    assert environment.project_venv(root) == environment.project_venv(root) == str(root / ".venv/bin/python")
    assert len(notes) == 2


def test_what_cannot_be_made_again_or_was_made_by_others_is_kept(installs, monkeypatch):
    root, notes = installs
    write(root / ".venv/precious", "2 GB")
    with pytest.raises(installer.SetupError, match="not created by run_all.sh"):
        environment.project_venv(root)
    (root / ".venv" / environment.MADE_BY_US).touch()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(installer.SetupError, match="^no Python 3.11"):
        environment.project_venv(root)
    assert (root / ".venv/precious").exists() and not notes


def test_active_environment_is_used_if_it_fits_and_never_installed_into(installs, tmp_path, capsys):
    root, notes = installs
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert environment.choose(root, {variable: sys.prefix}, False) == f"{sys.prefix}/bin/python"
    assert not notes
    own = str(root / ".venv/bin/python")
    assert environment.choose(root, {"CONDA_PREFIX": str(tmp_path)}, False) == own and notes == [own]
    said = f"the active environment is not used: {tmp_path}/bin/python: No such file or directory\n"
    assert capsys.readouterr().err.startswith(said)
    assert environment.first_problem("/usr/bin/false", test=True) == "it does not start"


# ---- the image, and the machines that test --------------------------------------------------------------


def test_the_environment_of_the_image_is_not_hidden_by_the_mounted_folder(tmp_path, monkeypatch):
    """And the line that makes it is one that the code understands."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    (venv,) = re.findall(r"^ENV VIRTUAL_ENV=(\S+)$", dockerfile, flags=re.M)
    settings = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    mounted = settings["workspaceMount"].partition("target=")[2].partition(",")[0]
    assert not venv.startswith(f"{mounted}/")
    (code,) = re.findall(r'python3 -c "(.*?)"', dockerfile, flags=re.S)
    made = []
    monkeypatch.setattr(environment, "run", lambda command, what: None)
    monkeypatch.setattr(environment, "install", lambda root, python: made.append(python))
    monkeypatch.chdir(ROOT)
    exec(code.replace(venv, str(tmp_path / "venv")))
    assert made == [str(tmp_path / "venv/bin/python")]


def test_each_debian_package_is_installed_by_itself(tmp_path):
    """A name that this distribution does not know loses no other package."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    asked = tmp_path / "asked"
    for name, line in {
        "run_all.sh": "",
        "bin/id": "echo 0",
        "bin/apt-get": f'echo "$*" >>\'{asked}\'\ncase "$*" in *chromium*) exit 100 ;; esac',
    }.items():
        write(tmp_path / name, f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "dirname", "env", "python3"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [".ci/run"], cwd=tmp_path, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = asked.read_text().splitlines()
    single = [line.split()[-1] for line in lines if "install" in line and "slurm" not in line]
    assert {"texlive-latex-base", "poppler-utils", "chromium"} <= set(single)
    assert all(line.count("texlive") <= 1 for line in lines) and "chromium was not installed" in done.stderr


def test_the_public_tests_keep_their_python_as_root():
    steps = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["everything"]["steps"]
    (line,) = [step["run"] for step in steps if "sudo" in step.get("run", "")]
    assert line.startswith('sudo env "PATH=$PATH" ')
