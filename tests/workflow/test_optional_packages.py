"""What is installed beside the environment: once, only where it is asked for, refused in one line where it can't be."""

import subprocess
from types import SimpleNamespace

import pytest

from lib import params
from lib.files import sha256
from lib.paths import UserError
from workflow import machine
from workflow.pipeline import Run

GENERATE, TABLES, AGAIN = (SimpleNamespace(notebook=SimpleNamespace(number=number)) for number in ("01", "08", "04b"))


def run(gpus=1, **values):
    return Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"} | values, 2, gpus)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A lock and an environment of their own, and the commands that would make it."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    (tmp_path / "lock").write_text("six==1.17.0")
    monkeypatch.setattr(machine, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(machine, "VENV", tmp_path / "venv")
    commands = []

    def done(command, **options):
        commands.append(command)
        (tmp_path / "venv").mkdir(exist_ok=True)
        return SimpleNamespace(returncode=int("fails" in (tmp_path / "lock").read_text() and "pip" in command))

    monkeypatch.setattr(subprocess, "run", done)
    return SimpleNamespace(folder=tmp_path, commands=commands)


def test_it_is_made_once_and_again_for_another_lock(place):
    for _ in range(2):
        machine.install_vllm(run(), [GENERATE])
    assert len(place.commands) == 2 and "--require-hashes" in place.commands[1]
    (place.folder / "lock").write_text("fails==1")
    with pytest.raises(UserError, match="the installation of vLLM failed .* or write `engine: t"):
        machine.install_vllm(run(), [TABLES, AGAIN])  # which asks again, by the same engine
    assert not (place.folder / "venv/lock.sha256").read_text().startswith(sha256(place.folder / "lock"))


def test_refusals(place, monkeypatch):
    with pytest.raises(UserError, match="needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_P"):
        machine.install_vllm(run(gpus=0), [GENERATE])
    with monkeypatch.context() as patch, pytest.raises(UserError, match="install a C compiler"):
        patch.setattr(machine.shutil, "which", lambda name: None)
        machine.install_vllm(run(), [GENERATE])
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    machine.install_vllm(run(gpus=0), [GENERATE])
    assert not place.commands
