"""The environment: one source of pins, a lock that installs everywhere, no packages put where they are not wanted."""

import errno
import fcntl
import importlib.metadata
import os
import re
import shutil
import sys
import sysconfig
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_project import ROOT, write

from workflow import environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"]
TEXT = "\n".join((ROOT / name).read_text() for name in environment.LOCKS)
ENTRIES = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", TEXT, flags=re.M).lstrip("\n"))
LOCKED = [Requirement(entry.split("\\\n")[0].strip()) for entry in ENTRIES]
VERSIONS = {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in LOCKED}


def test_locks_and_environment_yml_have_every_pin_once_with_hashes_and_neither_cuda_nor_a_registry():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert parts["dependencies"][-1] == {"pip": DIRECT}
    pins = {canonicalize_name(name): version for name, version in environment.read_pins(ROOT, True).items()}
    for name in pins.keys() - {"torch"}:
        assert {str(one.specifier) for one in LOCKED if canonicalize_name(one.name) == name} == {f"=={pins[name]}"}
    assert not [name for name in VERSIONS if re.match(r"torch$|nvidia|cuda|triton", name)]
    assert "setuptools" in VERSIONS  # the project itself is installed without isolation
    assert not re.search(r"https?://|file:|--index|--find-links|--extra", "".join(ENTRIES))
    assert not [entry for entry in ENTRIES if "--hash=sha256:" not in entry]
    for python, (system, machine) in product(
        ("3.11.7", "3.12.1", "3.13.0"), (("linux", "x86_64"), ("darwin", "arm64"))
    ):
        here = {"python_full_version": python, "python_version": python[:4], "sys_platform": system}
        here["platform_machine"] = machine
        names = [canonicalize_name(one.name) for one in LOCKED if not one.marker or one.marker.evaluate(here)]
        assert len(names) == len(set(names)) > 150, "each package once per machine"


@pytest.mark.parametrize("index, system, nvidia, reachable, found", [
    ("", "Linux", False, True, environment.CPU_INDEX), ("", "Linux", False, False, ""), ("", "Linux", True, True, ""),
    ("", "Darwin", False, True, ""), ("u", "Linux", True, True, "u"),
])  # fmt: skip
def test_where_torch_comes_from(monkeypatch, index, system, nvidia, reachable, found):
    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.setattr(environment.platform, "system", lambda: system)
    monkeypatch.setattr(environment, "DRIVER", ("/dev/null" if nvidia else "/dev/nvidiactl-of-nobody",))
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    answer = nullcontext() if reachable else None
    asked = Mock(side_effect=[answer] if reachable else OSError)
    monkeypatch.setattr(environment.urllib.request, "urlopen", asked)
    assert environment.torch_index() == found


@pytest.mark.parametrize("uv, option, test, told, no_index", [
    (["uv"], "--default-index", False, "1", ["--no-index"]), (["uv"], "--default-index", True, "0", []),
    ([], "--index-url", True, "0", []), (["fails"], "--index-url", True, "0", []),
])  # fmt: skip
def test_what_torch_needs_comes_from_the_lock(monkeypatch, uv, option, test, told, no_index):
    """But for CUDA's libraries, which are fetched when all else is there; one index alone is asked for it, by uv none
    where pip asks none; and pip installs where uv fails."""
    commands: list[list[str]] = []

    def run(command, **_):
        commands.extend([command] if command[0] != "fails" else [])
        return command[0] != "fails"

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setattr(environment, "read_pip_settings", lambda python: {"no-index": told})
    monkeypatch.setattr(environment, "fetch_uv", lambda root, python: uv)
    monkeypatch.setenv("TORCH_INDEX", "https://one.index")
    assert environment.install(ROOT, Path("venv"), environment.LOCKS[: 1 + test], "2.13.0")
    locked, torch = commands
    assert {command[0] for command in commands} == {"uv" if "default" in option else "venv/bin/python"}
    assert all([word for word in command if word == "--no-index"] == no_index for command in commands)
    assert {"--no-deps", "--require-hashes", f"{ROOT}/requirements.lock"} <= set(locked) and "--no-deps" not in torch
    assert (f"{ROOT}/requirements-test.lock" in locked) == test
    assert torch[-3:] == [option, "https://one.index", "torch==2.13.0"]
    for needed in map(Requirement, importlib.metadata.requires("torch")):
        cuda = re.match(r"nvidia|cuda|triton", needed.name)
        if not cuda and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            assert needed.specifier.contains(VERSIONS[canonicalize_name(needed.name)]), needed


def test_uv_is_told_what_pip_is_told(tmp_path, monkeypatch):
    """Files and variables, in pip's order; what is set for uv already stays; no module of the user's folder is run."""
    write(tmp_path / "types.py", "raise SystemExit")
    monkeypatch.chdir(tmp_path)
    told = "[global]\nindex-url = https://mirror/simple\nextra-index-url = https://one/simple\n    https://two\n"
    told += "find-links = /wheels /more\nproxy = http://proxy:1\n[install]\nindex-url = https://inner/simple\n"
    (tmp_path / "pip.conf").write_text(told)
    for name in [name for name in os.environ if name.lower().startswith(("pip_", "uv_", "http", "ssl_"))]:
        monkeypatch.delenv(name)
    own = {"PIP_CONFIG_FILE": f"{tmp_path}/pip.conf", "PIP_TRUSTED_HOST": "one two", "UV_INDEX": "https://mine/simple"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    found = environment.uv_environment(environment.read_pip_settings(sys.executable))
    assert "UV_INDEX" not in found and found == found | {
        "UV_DEFAULT_INDEX": "https://inner/simple", "UV_FIND_LINKS": "/wheels,/more", "UV_INSECURE_HOST": "one two",
        "UV_INDEX_STRATEGY": "unsafe-best-match", "HTTPS_PROXY": "http://proxy:1", "HTTP_PROXY": "http://proxy:1",
    }  # fmt: skip


# ---- .venv -----------------------------------------------------------------------------------------------


@pytest.fixture
def installs(inside, monkeypatch):
    """The small project, and the environments that were made, by no pip or venv."""
    notes: list[str] = []

    def run(command, quiet=False):
        if quiet:
            return True
        venv = Path(command[-1])
        site = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        (venv / "bin").mkdir()
        (venv / "bin/python").symlink_to(sys.executable)
        (venv / site).mkdir(parents=True)
        return True

    def install(root, venv, locks, torch):
        notes.append(venv.name)
        pretend(venv, environment.read_pins(root, len(locks) == 2))
        return True

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setattr(environment, "install", install)
    return inside.root, notes


def pretend(venv, pins, **others):
    """These packages, which seem to be installed."""
    for name, version in (pins | others).items():
        (site,) = venv.glob("lib/python3*/site-packages")
        write(site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")


def test_a_machine_that_pytorch_has_no_build_for(installs, monkeypatch):
    monkeypatch.setattr(environment.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    with pytest.raises(environment.SetupError, match="no build for Darwin x86_64, only for Linux x86_64, .* WSL"):
        environment.choose(installs[0], {}, False)
    assert not (installs[0] / ".venv").exists()


@pytest.mark.parametrize("locked", [True, False])
def test_two_first_starts_install_once_and_a_finished_environment_is_used_where_nothing_can_be_written(
    installs, monkeypatch, locked
):
    """The start that waited finds what the other has finished; a file system without locks will do, too."""
    (root, notes), install = installs, environment.install
    monkeypatch.setattr(environment, "install", lambda *words: time.sleep(0.5) or install(*words))
    if not locked:
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    with ThreadPoolExecutor(1 + locked) as pool:
        starts = [pool.submit(environment.choose, root, {}, False) for _ in range(2)]
    assert [start.result() for start in starts] == [f"{root}/.venv/bin/python"] * 2 and len(notes) == 1
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=AssertionError))
    assert environment.choose(root, {}, False) == f"{root}/.venv/bin/python"


def test_the_tests_have_an_environment_of_their_own_unless_one_has_what_they_need(installs):
    root, notes = installs
    assert environment.choose(root, {}, False) == f"{root}/.venv/bin/python"
    assert environment.choose(root, {}, True) == environment.choose(root, {}, True) == f"{root}/.venv-test/bin/python"
    assert notes == [".venv", ".venv-test"]
    shutil.rmtree(root / ".venv-test")
    (root / ".venv" / environment.MADE_BY_US).unlink()
    pretend(root / ".venv", environment.read_pins(root, True))
    assert environment.choose(root, {}, True) == f"{root}/.venv/bin/python", "by `uv sync --extra test`, say"


@pytest.mark.parametrize("damage", [
    lambda venv: write(next(venv.glob("lib/*/*")) / "one-1.0.dist-info/RECORD", "one/__init__.py,sha256=x,0"),
    lambda venv: write(venv.parent / "requirements.lock", "others"),
    lambda venv: (venv / "bin/python").unlink(),
    lambda venv: shutil.rmtree(next(venv.glob("lib/*/*/torch-*"))),
    lambda venv: write(venv / environment.MADE_BY_US, "/elsewhere x"),
])  # fmt: skip
def test_what_is_damaged_moved_unfinished_or_of_another_lock_is_made_again(installs, damage):
    root, notes = installs
    environment.choose(root, {}, False)
    damage(root / ".venv")
    assert environment.choose(root, {}, False) == environment.choose(root, {}, False) == f"{root}/.venv/bin/python"
    assert len(notes) == 2


def test_what_cannot_be_made_again_or_is_of_others_is_kept(installs, monkeypatch, tmp_path):
    """And a link to the environment of another project is replaced."""
    root, notes = installs
    write(root / ".venv/precious", "2 GB")
    with pytest.raises(environment.SetupError, match="^.venv was not created by run_all.sh .*torch .* missing here"):
        environment.choose(root, {}, False)
    (root / ".venv" / environment.MADE_BY_US).touch()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        with pytest.raises(environment.SetupError, match="^no Python 3.11"):
            environment.choose(root, {}, False)
    assert (root / ".venv/precious").exists() and not notes
    (root / ".venv").rename(tmp_path / "other")
    (root / ".venv").symlink_to(tmp_path / "other")
    assert environment.choose(root, {}, False) == f"{root}/.venv/bin/python"
    assert (tmp_path / "other/precious").exists() and not (root / ".venv").is_symlink()


@pytest.mark.parametrize("test, own", [(False, ".venv"), (True, ".venv-test")])
def test_active_environment_is_used_if_it_fits_and_never_installed_into(installs, tmp_path, capsys, test, own):
    root, notes = installs
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert environment.choose(root, {variable: sys.prefix}, test) == f"{sys.prefix}/bin/python"
    assert not notes
    conda = tmp_path / "conda"
    write(conda / "bin/python", "")
    (conda / "lib/python3.12/site-packages").mkdir(parents=True)
    pretend(conda, environment.read_pins(root, test), torch="1.0")
    before = sorted(conda.rglob("*"))
    assert environment.choose(root, {"CONDA_PREFIX": str(conda)}, test) == f"{root}/{own}/bin/python"
    assert notes == [own] and sorted(conda.rglob("*")) == before
    assert f"{conda} is not used: torch 2.13.0 is needed and is 1.0 here\n" in capsys.readouterr().err


def test_the_image_makes_its_environment_by_a_line_that_the_code_understands(monkeypatch):
    dockerfile, made = (ROOT / "Dockerfile").read_text(), []
    (code,) = re.findall(r'python3 -c "(.*?)"', dockerfile, flags=re.S)
    monkeypatch.setattr(environment, "create", lambda root, venv, locks, torch: made.append((str(venv), locks)))
    monkeypatch.chdir(ROOT)
    exec(code)
    assert made == [(re.search(r"^ENV VIRTUAL_ENV=(\S+)$", dockerfile, flags=re.M)[1], environment.LOCKS)]
