"""The Pythons that the project takes, named alike everywhere, and what GitHub runs on each."""

import re
import subprocess
import sys

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from small_project import ROOT

from workflow import environment

BOUNDS = re.search(r'^requires-python = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]
TAKEN = [f"3.{minor}" for minor in range(30) if f"3.{minor}.5" in SpecifierSet(BOUNDS)]
# the first majors that run on Node 24
NODE_24 = {"checkout": 7, "setup-python": 7, "upload-pages-artifact": 5, "deploy-pages": 5}


@pytest.mark.parametrize("python", [f"3.{minor}" for minor in range(8, 17)])
def test_a_python_is_taken_if_the_package_may_be_installed_in_it(python):
    major, minor = map(int, python.split("."))
    pretended = f"import sys; sys.version_info = ({major}, {minor}, 5); {environment.SUITABLE}"
    suitable = subprocess.run([sys.executable, "-I", "-c", pretended]).returncode == 0
    assert suitable == (python in TAKEN)
    assert (f"python{python}" in environment.PYTHONS) == (python in TAKEN)


def test_every_place_names_the_same_pythons(monkeypatch, tmp_path):
    first, last = TAKEN[0], TAKEN[-1]
    started = re.search(r"^for name in (.*); do$", (ROOT / "run_all.sh").read_text(), re.M)[1]
    assert {*started.split()} == {*environment.PYTHONS} and len(TAKEN) == 4
    for page in ("README.md", "ARTIFACT-APPENDIX.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"Python {first} to {last}" in text, page
    head = (ROOT / "requirements.lock").read_text().partition("\n")[0]
    assert f"for Python {first}-{last} on" in head
    programs = {"uv": "uv"}
    monkeypatch.setattr(environment.shutil, "which", programs.get)
    assert BOUNDS in environment.venv_command(tmp_path)
    programs.clear()
    refused = f"no Python {first} to {last} with venv was found"
    with pytest.raises(environment.SetupError, match=refused):
        environment.venv_command(tmp_path)


# ---- GitHub's own: nothing here can run them, so their files are read


@pytest.fixture
def workflows() -> dict[str, dict]:
    folder = ROOT / ".github" / "workflows"
    return {path.name: yaml.safe_load(path.read_text()) for path in folder.glob("*.yml")}


def test_the_tests_run_on_every_python(workflows):
    assert workflows["tests.yml"]["jobs"]["quick"]["strategy"]["matrix"]["python"] == TAKEN


def test_actions_are_of_a_version_whose_runtime_is_there(workflows):
    """Runners have Node 24 alone since September 2026."""
    used = []
    for file in workflows.values():
        for job in file["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    used.append(step["uses"].removeprefix("actions/").split("@v"))
    assert len(used) == 8
    assert {name for name, _ in used} == set(NODE_24)
    for name, version in used:
        assert int(version) >= NODE_24[name], name
