"""The environment: one source of pins, a lock that installs everywhere, no packages put where they are not wanted."""

import errno
import fcntl
import importlib.metadata
import json
import re
import sys
import tomllib
from unittest.mock import Mock

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_project import ROOT, write

from workflow import environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"]
TEXT = (ROOT / "requirements.lock").read_text()
ENTRIES = re.split(r"\n(?=[A-Za-z0-9])", TEXT)[1:]
LOCKED = [Requirement(entry.split("\\\n")[0].strip()) for entry in ENTRIES]
VERSIONS = {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in LOCKED}


def test_environment_yml_has_the_pins():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert parts["dependencies"][-1] == {"pip": DIRECT}


def test_lock_has_every_pin_and_no_cuda():
    pins = {canonicalize_name(name): version for name, version in environment.pins(ROOT).items() if name != "torch"}
    for name, version in pins.items():
        assert {str(entry.specifier) for entry in LOCKED if canonicalize_name(entry.name) == name} == {f"=={version}"}
    assert not [name for name in VERSIONS if re.match(r"torch$|nvidia|cuda|triton", name)]
    assert "setuptools" in VERSIONS  # the project itself is installed without isolation


def test_lock_is_hashed_and_names_no_registry():
    assert not re.search(r"https?://|file:|--index|--find-links|--extra", TEXT.replace("--all-extras", ""))
    assert not [entry for entry in ENTRIES if "--hash=sha256:" not in entry]


@pytest.mark.parametrize("python", ["3.11.7", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_lock_pins_each_package_once_per_machine(python, platform):
    machine = {"python_full_version": python, "python_version": python[:4], "sys_platform": platform,
               "platform_machine": "arm64" if platform == "darwin" else "x86_64", "implementation_name": "cpython",
               "platform_python_implementation": "CPython",
               "os_name": "nt" if platform == "win32" else "posix"}  # fmt: skip
    names = [canonicalize_name(r.name) for r in LOCKED if not r.marker or r.marker.evaluate(machine)]
    assert len(names) == len(set(names)) > 150


@pytest.mark.parametrize("machine, reason", [
    (("Darwin", "x86_64"), "Intel"), (("Windows", "AMD64"), "WSL"), (("MSYS_NT-10.0", "x86_64"), "WSL"),
    (("Linux", "i686"), "i686"), (("Linux", "x86_64", "x86_64-linux-musl"), "musl"),
    (("Linux", "x86_64", "x86_64-linux-gnu", 1e9), "1.0 GB free"),
])  # fmt: skip
def test_machines_that_cannot_serve(machine, reason):
    text = environment.unsupported(*machine)
    assert reason in text and "\n" not in text


@pytest.mark.parametrize("index, system, nvidia, reachable, found", [
    ("", "Linux", False, True, environment.CPU_INDEX), ("", "Linux", False, False, ""), ("", "Linux", True, True, ""),
    ("", "Darwin", False, True, ""), ("u", "Linux", True, True, "u"),
])  # fmt: skip
def test_where_torch_comes_from(monkeypatch, index, system, nvidia, reachable, found):
    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.setattr(environment.platform, "system", lambda: system)
    monkeypatch.setattr(environment, "has_nvidia", lambda: nvidia)
    monkeypatch.setattr(environment, "is_reachable", lambda place: reachable)
    assert environment.torch_index() == (["--index-url", found] if found else [])


def test_what_torch_needs_comes_from_the_lock(monkeypatch):
    """But for CUDA's libraries, which are fetched when all else is there; and one index alone is asked for it."""
    commands = []
    monkeypatch.setattr(environment, "run", lambda command, what: commands.append(command[4:]))
    monkeypatch.setenv("TORCH_INDEX", "https://one.index")
    environment.install(ROOT, "python")
    alone, packages, rest, project = commands
    assert "--no-deps" in alone and "--no-deps" not in rest
    assert alone[-3:] == rest[-3:] == ["--index-url", "https://one.index", f"torch=={environment.pins(ROOT)['torch']}"]
    assert {"--no-deps", "--require-hashes"} <= set(packages) and "--no-deps" in project
    assert not any("extra" in word for command in commands for word in command)
    for needed in map(Requirement, importlib.metadata.requires("torch")):
        cuda = re.match(r"nvidia|cuda|triton", needed.name)
        if not cuda and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            assert needed.specifier.contains(VERSIONS[canonicalize_name(needed.name)]), needed


# ---- .venv -----------------------------------------------------------------------------------------------


@pytest.fixture
def installs(inside, monkeypatch):
    """The small project with pip and venv replaced by notes of what they were asked."""
    notes = []

    def run(command, what):
        notes.append("new")
        (inside.root / ".venv/bin").mkdir()
        (inside.root / ".venv/bin/python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setattr(environment, "install", lambda root, python: notes.append("install"))
    monkeypatch.setattr(environment, "say", notes.append)
    return inside.root, notes


def made(notes):
    return [note for note in notes if note in ("new", "install")]


def test_a_file_system_without_locks_is_no_other_run(installs, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOTSUP, "Operation not supported")))
    with pytest.raises(environment.SetupError, match="^the file system of this folder has no locks"):
        environment.locked(installs[0])
    assert not installs[1], "nothing was waited for"


def delete_package(venv):
    package = venv / "lib/python3.11/site-packages/one-1.0.dist-info"
    write(package / "METADATA", "Name: one\nVersion: 1.0\n")
    write(package / "RECORD", "one/__init__.py,sha256=x,0\n")


@pytest.mark.parametrize("damage", [
    delete_package,
    lambda venv: write(venv.parent / "requirements.lock", "others"),
    lambda venv: (venv / "bin/python").unlink(),
    lambda venv: write(venv / "made-by-run_all.json", "{"),
    lambda venv: write(venv / "made-by-run_all.json", json.dumps({"folder": "/elsewhere", "lock": "x"})),
])  # fmt: skip
def test_what_is_damaged_moved_or_of_another_lock_is_made_again(installs, damage):
    root, notes = installs
    environment.project_venv(root)
    damage(root / ".venv")
    assert environment.project_venv(root) == environment.project_venv(root) == str(root / ".venv/bin/python")
    assert made(notes) == ["new", "install"] * 2


def test_a_damaged_venv_is_kept_where_no_other_can_be_made(installs, monkeypatch):
    root, notes = installs
    environment.project_venv(root)
    (root / ".venv/bin/python").unlink()
    (root / ".venv/precious").write_text("2 GB")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(environment.SetupError, match="^no Python 3.11"):
        environment.project_venv(root)
    assert (root / ".venv/precious").exists()


def test_a_foreign_venv_is_left_alone(installs):
    root, notes = installs
    (root / ".venv").mkdir()
    (root / ".venv/mine.txt").write_text("precious")
    with pytest.raises(environment.SetupError, match="not created by run_all.sh"):
        environment.project_venv(root)
    assert (root / ".venv/mine.txt").exists() and not made(notes)


def test_active_environment_is_used_if_it_fits_and_never_installed_into(installs, monkeypatch):
    root, notes = installs
    monkeypatch.setattr(environment, "first_mismatch", lambda python, test: "" if "good" in python else "old")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert environment.choose(root, {variable: "/good"}, False) == "/good/bin/python"
    assert not made(notes)
    assert environment.choose(root, {"VIRTUAL_ENV": "/bad"}, False) == str(root / ".venv/bin/python")
    assert made(notes) == ["new", "install"]


def test_an_environment_that_is_gone_or_has_no_python_is_not_used(installs, tmp_path):
    """As one of R alone, or one that was deleted."""
    root, notes = installs
    for folder in (tmp_path / "gone", tmp_path):
        assert environment.choose(root, {"CONDA_PREFIX": str(folder)}, False) == str(root / ".venv/bin/python")
    assert notes[0] == f"the active environment is not used: {tmp_path}/gone/bin/python: No such file or directory"


def test_the_first_mismatch_is_said(inside):
    assert environment.first_mismatch(sys.executable, test=True) == ""
    assert environment.first_mismatch("/usr/bin/false", test=True) == "it does not start"
