"""What is installed beside the environment: once, only where it is asked for, refused in one line where it can't be."""

import subprocess
from types import SimpleNamespace

import pytest

from lib import params
from lib.paths import UserError
from workflow import vllm
from workflow.pipeline import Run

GENERATE, TABLES, AGAIN = (SimpleNamespace(notebook=SimpleNamespace(number=number)) for number in ("01", "08", "04b"))


def run(gpus=1, **values):
    return Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"} | values, 2, gpus)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A lock and an environment of their own, and the commands that would make it."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    (tmp_path / "lock").write_text("six==1.17.0")
    monkeypatch.setattr(vllm, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(vllm, "VENV", tmp_path / "venv")
    commands = []

    def done(command, **options):
        commands.append(command)
        (tmp_path / "venv").mkdir(exist_ok=True)
        return SimpleNamespace(returncode=int("fails" in (tmp_path / "lock").read_text() and "pip" in command))

    monkeypatch.setattr(subprocess, "run", done)
    return SimpleNamespace(folder=tmp_path, commands=commands)


def test_it_is_made_once_and_again_for_another_lock(place):
    said = []
    for _ in range(2):
        vllm.install_for(run(), [GENERATE], said.append)
    assert len(said) == 1 and len(place.commands) == 2 and "--require-hashes" in place.commands[1]
    (place.folder / "lock").write_text("fails==1")
    with pytest.raises(
        UserError, match="the installation of vLLM failed for the reason above; fix it .* or write `engine: t"
    ):
        vllm.install_for(run(), [TABLES, AGAIN], said.append)  # which asks again, by the same engine
    assert len(said) == 2 and not vllm.is_installed()


def test_refusals(place, monkeypatch):
    def refuses(words: str, gpus: int = 1) -> None:
        with pytest.raises(UserError, match=words):
            vllm.install_for(run(gpus), [GENERATE], print)

    refuses("needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_PYTHON", gpus=0)
    monkeypatch.setattr(vllm.shutil, "which", lambda name: None)
    refuses("no C compiler is found here")
    monkeypatch.setattr(vllm.shutil, "which", lambda name: name)
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    vllm.install_for(run(gpus=0), [GENERATE], print)
    assert not place.commands
