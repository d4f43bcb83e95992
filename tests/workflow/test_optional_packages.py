"""vLLM is installed beside the environment: once, only where it is asked for, refused in one line where it can't be."""

import subprocess
from types import SimpleNamespace

import pytest

from lib import params
from lib.paths import UserError
from workflow import machine
from workflow.pipeline import Run


def install(gpus=1, number="01"):
    run = Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"}, 2, gpus)
    machine.install_vllm(run, [SimpleNamespace(notebook=SimpleNamespace(number=number))])


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock and an environment of their own; `commands`: those that would make it, which fail if the lock says so."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    lock, commands = tmp_path / "lock", []
    lock.write_text("six==1.17.0")
    monkeypatch.setattr(machine, "LOCK", lock)
    monkeypatch.setattr(machine, "VENV", tmp_path / "venv")

    def done(command, **options):
        commands.append(command)
        (tmp_path / "venv").mkdir(exist_ok=True)
        return SimpleNamespace(returncode=int("fails" in lock.read_text() and "pip" in command))

    monkeypatch.setattr(subprocess, "run", done)
    return SimpleNamespace(file=lock, commands=commands)


def test_it_is_made_once_and_again_for_another_lock(lock):
    for number in ("08", "01", "01"):
        install(number=number)
    assert len(lock.commands) == 2 and "--require-hashes" in lock.commands[1]
    lock.file.write_text("fails==1")
    for _ in range(2):  # what failed is not taken for whole
        with pytest.raises(UserError, match="the installation of vLLM failed .* or write `engine: t"):
            install(number="04b")  # which asks again, by the same engine


def test_refusals(lock, monkeypatch):
    with pytest.raises(UserError, match="needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_P"):
        install(gpus=0)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="install a C compiler"):
        patch.setattr(machine.shutil, "which", lambda name: None)
        install()
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    install(gpus=0)
    assert not lock.commands
