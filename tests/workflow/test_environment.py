"""The environment: one source of pins, a lock that installs everywhere, no packages put where they
are not wanted."""

import ast
import fcntl
import importlib.metadata
import os
import re
import shutil
import sys
import time
from argparse import Namespace
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

from lib import params
from lib.errors import UserError
from workflow import environment, machine
from workflow.engine.jobs_of_run import Run

PINS = environment.read_pins(ROOT, True)
TEXT = "\n".join((ROOT / name).read_text() for name in environment.LOCKS)


def test_every_package_that_is_imported_is_pinned():
    """Not only brought along by another, which may drop it."""
    imported = set()
    for path in [*(ROOT / "lib").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.split(".")[0] for name in names}
    # vllm has an environment of its own
    others = imported - sys.stdlib_module_names - {"lib", "workflow", "vllm"}
    made_by = importlib.metadata.packages_distributions()
    packages = {canonicalize_name(made_by[name][0]) for name in others}
    assert packages <= {canonicalize_name(name) for name in environment.read_pins(ROOT, False)}


def test_the_locks_hold_every_pin_once_with_hashes_and_neither_cuda_nor_a_registry():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"]
    assert dict(pin.split("==") for pin in listed) == PINS
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", TEXT, flags=re.M).lstrip("\n"))
    locked = [Requirement(entry.split("\\\n")[0].strip()) for entry in entries]
    pairs = set()
    for requirement in locked:
        version = str(requirement.specifier).removeprefix("==")
        pairs.add((canonicalize_name(requirement.name), version))
    wanted = {canonicalize_name(name): version for name, version in PINS.items() if name != "torch"}
    assert {pair for pair in pairs if pair[0] in wanted} == set(wanted.items())
    versions = dict(pairs)
    assert "setuptools" in versions  # the project itself is installed without isolation
    assert not [name for name in versions if re.match(r"torch$|nvidia|cuda|triton", name)]
    assert not re.search(r"https?://|file:|--index|--find-links|--extra", "".join(entries))
    assert not [entry for entry in entries if "--hash=sha256:" not in entry]
    for python, machines in product(
        ("3.11.7", "3.12.1", "3.13.0", "3.14.2"), ("linux x86_64", "darwin arm64")
    ):
        markers = dict(zip(("sys_platform", "platform_machine"), machines.split(), strict=True))
        markers |= {"python_full_version": python, "python_version": python[:4]}
        names = [
            canonicalize_name(requirement.name)
            for requirement in locked
            if not requirement.marker or requirement.marker.evaluate(markers)
        ]
        assert len(names) == len(set(names)) > 150, "each package once per machine"
    for needed in map(Requirement, importlib.metadata.requires("torch")):
        cuda = re.match(r"nvidia|cuda|triton", needed.name)  # is fetched when all else is there
        if not cuda and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            assert needed.specifier.contains(versions[canonicalize_name(needed.name)]), needed


@pytest.mark.parametrize(
    "index, system, nvidia, reachable, expected",
    [
        ("", "Linux", False, True, environment.CPU_INDEX),
        ("", "Linux", False, False, ""),
        ("", "Linux", True, True, ""),
        ("", "Darwin", False, True, ""),
        ("u", "Linux", True, True, "u"),
    ],
)
def test_where_torch_comes_from(monkeypatch, index, system, nvidia, reachable, expected):
    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.setattr(environment.platform, "system", lambda: system)
    monkeypatch.setattr(environment, "DRIVER", ["/dev/null"] * nvidia)
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    urlopen = Mock(return_value=nullcontext(), side_effect=None if reachable else OSError)
    monkeypatch.setattr(environment.urllib.request, "urlopen", urlopen)
    assert environment.torch_index() == expected


PIP_CONF = """[global]
index-url = https://mirror/simple
extra-index-url = https://one/simple
    https://two
find-links = /wheels /more
proxy = http://proxy:1
[install]
index-url = https://inner/simple
"""


def test_uv_is_told_what_pip_is_told(tmp_path, monkeypatch):
    """Files and variables, in pip's order; what is set for uv already stays; no module of the
    user's folder is run."""
    write(tmp_path / "types.py", "raise SystemExit")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.conf").write_text(PIP_CONF)
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "uv_", "http", "ssl_")):
            monkeypatch.delenv(name)
    variables = {
        "PIP_CONFIG_FILE": f"{tmp_path}/pip.conf",
        "PIP_TRUSTED_HOST": "one two",
        "UV_INDEX": "https://mine/simple",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    uv_variables = environment.uv_environment(environment.read_pip_settings(sys.executable))
    assert "UV_INDEX" not in uv_variables
    assert uv_variables == uv_variables | {
        "UV_DEFAULT_INDEX": "https://inner/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "one two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "HTTPS_PROXY": "http://proxy:1",
        "HTTP_PROXY": "http://proxy:1",
    }


# ---- what is made


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with the project's pins and locks of these alone, and the commands that installed
    something there: by a pretended pip or uv, which fails at a package `fails`."""
    state = Namespace(root=tmp_path / "a project", commands=[])
    state.root.mkdir()
    shutil.copy(ROOT / "pyproject.toml", state.root)
    for lock in environment.LOCKS:
        pins = environment.read_pins(ROOT, lock == environment.LOCKS[1])
        lines = [f"{name}=={pins[name]}\n" for name in pins.keys() - {"torch"}]
        write(state.root / lock, "".join(lines))
    really = environment.run

    def run(command, quiet=False):
        if quiet or "venv" in command:  # uv is there, and so is a suitable Python
            return quiet or really([*command, "--without-pip"])
        state.commands.append(command)
        (python,) = [Path(word) for word in command if word.endswith("bin/python")]
        locks = [Path(word).read_text() for word in command if word.endswith(".lock")]
        pretend(
            python.parents[1],
            *re.findall(r"^([\w.-]+)==([\w.]+)", "\n".join([*command, *locks]), flags=re.M),
        )
        return "fails" not in f"{command[0]} {locks}"

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setenv("TORCH_INDEX", "https://one.index")
    return state


def pretend(venv, *packages):
    """These packages, which seem to be installed."""
    (site,) = venv.glob("lib/python3*/site-packages")
    for name, version in packages:
        write(
            site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA",
            f"Name: {name}\nVersion: {version}\n",
        )


@pytest.mark.parametrize("uv, test, no_index", [
    (["uv"], False, ["--no-index"]), (["uv"], True, []), ([], True, []), (["fails"], True, []),
])  # fmt: skip
def test_all_comes_from_the_lock_but_torch_which_comes_from_its_index(
    world, monkeypatch, uv, test, no_index
):
    """By uv none where pip asks none; and pip installs where uv fails."""
    settings = {"no-index": "1" if no_index else "0"}
    monkeypatch.setattr(environment, "read_pip_settings", lambda python: settings)
    monkeypatch.setattr(environment, "fetch_uv", lambda root, python: uv)
    python = environment.choose(world.root, {}, test)
    locked, torch = world.commands[-2:]
    assert {locked[0], torch[0]} == {"uv" if uv == ["uv"] else python}
    for command in (locked, torch):
        assert ("--no-index" in command) == bool(no_index)
    for word in ("--no-deps", "--require-hashes", f"{world.root}/requirements.lock"):
        assert word in locked
        assert word not in torch
    assert (f"{world.root}/requirements-test.lock" in locked) == test
    option = "--default-index" if uv == ["uv"] else "--index-url"
    assert torch[-3:] == [option, "https://one.index", f"torch=={PINS['torch']}"]


def test_two_first_starts_install_once_and_what_is_finished_is_used_where_nothing_can_be_written(
    world, monkeypatch
):
    """The start that waited finds what the other has finished."""
    run = environment.run
    python = f"{world.root}/.venv/bin/python"

    def run_slowly(*words, **more):
        time.sleep(0.05)
        return run(*words, **more)

    monkeypatch.setattr(environment, "run", run_slowly)
    with ThreadPoolExecutor(2) as pool:
        starts = [pool.submit(environment.choose, world.root, {}, False) for _ in range(2)]
    for start in starts:
        assert start.result() == python
    assert len(world.commands) == 2
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=AssertionError))
    assert environment.choose(world.root, {}, False) == python


def test_the_tests_have_an_environment_of_their_own_unless_one_has_what_they_need(
    world, monkeypatch
):
    """A file system without locks will do."""
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError))
    root = world.root
    for test, name in ((False, ".venv"), (True, ".venv-test"), (True, ".venv-test")):
        assert environment.choose(root, {}, test) == f"{root}/{name}/bin/python"
    assert len(world.commands) == 4
    shutil.rmtree(root / ".venv-test")
    (root / ".venv" / environment.MADE_BY_US).unlink()
    pretend(root / ".venv", *PINS.items())
    assert environment.choose(root, {}, True) == f"{root}/.venv/bin/python", "by uv sync, say"


def lose_a_file(venv):
    packages = next(venv.glob("lib/*/*"))
    write(packages / "one-1.0.dist-info/RECORD", "one/__init__.py,sha256=x,0")


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_file,
        lambda venv: write(venv.parent / "requirements.lock", "# another\n" + TEXT),
        lambda venv: (venv / "bin/python").unlink(),
        lambda venv: shutil.rmtree(next(venv.glob("lib/*/*/torch-*"))),
        lambda venv: write(venv / environment.MADE_BY_US, "/elsewhere x"),
    ],
)
def test_what_is_damaged_moved_unfinished_or_of_another_lock_is_made_again(world, damage):
    python = environment.choose(world.root, {}, False)
    damage(world.root / ".venv")
    assert {environment.choose(world.root, {}, False) for _ in range(2)} == {python}
    assert len(world.commands) == 4


def test_what_cannot_be_made_again_or_is_of_others_is_kept(world, monkeypatch, tmp_path):
    """And a link to the environment of another project is replaced."""
    root, other = world.root, tmp_path / "other"
    write(root / ".venv/precious", "2 GB")
    with pytest.raises(
        environment.SetupError, match="^.venv was not created by run_all.sh .*torch .* missing here"
    ):
        environment.choose(root, {}, False)
    (root / ".venv" / environment.MADE_BY_US).touch()
    for module, name, answer, line in (
        (
            environment.platform,
            "machine",
            "riscv64",
            "no build for .* riscv64, only for Linux x86_64, .* WSL",
        ),
        (environment.shutil, "which", None, "^no Python 3.11"),
    ):
        with monkeypatch.context() as patch, pytest.raises(environment.SetupError, match=line):
            patch.setattr(module, name, lambda *words, answer=answer: answer)
            environment.choose(root, {}, False)
    (root / ".venv").rename(other)
    (root / ".venv").symlink_to(other)
    assert (
        environment.choose(root, {}, False) == f"{root}/.venv/bin/python"
        and len(world.commands) == 2
    )
    assert (other / "precious").exists() and not (root / ".venv").is_symlink()


def test_active_environment_is_used_if_it_fits_and_never_installed_into(world, tmp_path, capfd):
    root, conda = world.root, tmp_path / "conda"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert environment.choose(root, {variable: sys.prefix}, True) == f"{sys.prefix}/bin/python"
    write(conda / "bin/python", "")
    (conda / "lib/python3.12/site-packages").mkdir(parents=True)
    pretend(conda, *(PINS | {"torch": "1.0"}).items())
    before = sorted(conda.rglob("*"))
    assert not world.commands
    assert (
        environment.choose(root, {"CONDA_PREFIX": str(conda)}, True)
        == f"{root}/.venv-test/bin/python"
    )
    assert sorted(conda.rglob("*")) == before
    assert (
        f"{conda} is not used: torch 2.13.0 is needed and is 1.0 here\n" in capfd.readouterr().err
    )


def test_the_image_makes_its_environment_by_a_line_that_the_code_understands(monkeypatch):
    dockerfile = (ROOT / "Dockerfile").read_text()
    environments = []

    def create(root, venv, locks, torch):
        environments.append((str(venv), locks))

    (code,) = re.findall(r'python3 -c "(.*?)"', dockerfile, flags=re.S)
    monkeypatch.setattr(environment, "create", create)
    monkeypatch.chdir(ROOT)
    exec(code)
    venv = re.search(r"^ENV VIRTUAL_ENV=(\S+)$", dockerfile, flags=re.M)[1]
    assert environments == [(venv, environment.LOCKS)]


# ---- vLLM, beside it


def test_vllm_is_installed_once_for_a_lock_where_a_job_samples_and_a_gpu_and_a_compiler_are_there(
    world, monkeypatch
):
    def install(number="01", gpus=1):
        run = Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"}, 2, gpus)
        machine.install_vllm(run, [Namespace(notebook=Namespace(number=number))])

    monkeypatch.setattr(machine, "ROOT", world.root)
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    install(gpus=0)
    monkeypatch.delenv("VLLM_PYTHON")
    (world.root / "requirements-vllm.lock").write_text("six==1.17.0 --hash=x\nvllm==1.0 --hash=y\n")
    with pytest.raises(
        UserError,
        match="needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_P",
    ):
        install(gpus=0)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="install a C compiler"):
        patch.setattr(machine.shutil, "which", lambda name: None)
        install()
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    install("08")
    assert not world.commands
    for number in ("01", "04b"):
        install(number)
    ((*_, lock),) = world.commands
    assert (
        lock == f"{world.root}/requirements-vllm.lock"
        and (world.root / ".venv-vllm/bin/python").exists()
    )
    with open(lock, "a") as file:
        file.write("fails==1")
    for _ in range(2):  # what failed is not taken for whole
        with pytest.raises(
            UserError, match="the installation failed for the reason above; .* or write `engine: t"
        ):
            install()
    assert len(world.commands) == 5, "by uv and by pip, twice"
