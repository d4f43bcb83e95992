"""The environment: one source of pins, a lock that installs everywhere, no packages put where they are not wanted."""

import errno
import fcntl
import importlib.metadata
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


def test_lock_has_every_pin_with_hashes_and_neither_cuda_nor_a_registry():
    pins = {canonicalize_name(name): version for name, version in environment.pins(ROOT).items() if name != "torch"}
    for name, version in pins.items():
        assert {str(entry.specifier) for entry in LOCKED if canonicalize_name(entry.name) == name} == {f"=={version}"}
    assert not [name for name in VERSIONS if re.match(r"torch$|nvidia|cuda|triton", name)]
    assert "setuptools" in VERSIONS  # the project itself is installed without isolation
    assert not re.search(r"https?://|file:|--index|--find-links|--extra", TEXT.replace("--all-extras", ""))
    assert not [entry for entry in ENTRIES if "--hash=sha256:" not in entry]


@pytest.mark.parametrize("python", ["3.11.7", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_lock_pins_each_package_once_per_machine(python, platform):
    machine = {"python_full_version": python, "python_version": python[:4], "sys_platform": platform}
    machine["platform_machine"] = "arm64" if platform == "darwin" else "x86_64"
    names = [canonicalize_name(r.name) for r in LOCKED if not r.marker or r.marker.evaluate(machine)]
    assert len(names) == len(set(names)) > 150


@pytest.mark.parametrize("machine, reason", [
    (("Darwin", "x86_64"), "Apple's"), (("Windows", "AMD64"), "WSL"), (("Linux", "i686"), "i686"),
    (("Linux", "x86_64", "x86_64-linux-musl"), "musl"), (("Linux", "x86_64", "x86_64-linux-gnu", 1e9), "1.0 GB free"),
])  # fmt: skip
def test_machines_that_cannot_serve(machine, reason):
    assert reason in environment.unsupported(*machine)


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
    for needed in map(Requirement, importlib.metadata.requires("torch")):
        cuda = re.match(r"nvidia|cuda|triton", needed.name)
        if not cuda and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            assert needed.specifier.contains(VERSIONS[canonicalize_name(needed.name)]), needed


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


def test_a_file_system_without_locks_is_no_other_run(installs, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOTSUP, "Operation not supported")))
    with pytest.raises(environment.SetupError, match="^the file system of this folder has no locks"):
        environment.locked(installs[0])
    assert not installs[1], "nothing was waited for"


@pytest.mark.parametrize("damage", [
    lambda venv: write(venv / "lib/python3.11/site-packages/one-1.0.dist-info/RECORD", "one/__init__.py,sha256=x,0"),
    lambda venv: write(venv.parent / "requirements.lock", "others"),
    lambda venv: (venv / "bin/python").unlink(),
    lambda venv: write(venv / environment.MARK, '{"folder": "/elsewhere", "lock": "x"}'),
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
    with pytest.raises(environment.SetupError, match="not created by run_all.sh"):
        environment.project_venv(root)
    (root / ".venv" / environment.MARK).touch()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(environment.SetupError, match="^no Python 3.11"):
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
    assert environment.first_mismatch("/usr/bin/false", test=True) == "it does not start"
