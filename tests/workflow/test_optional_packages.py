"""What is installed beside the environment: once, only where it is asked for, refused in one line where it can't be."""

from types import SimpleNamespace

import pytest

from lib import params
from lib.paths import UserError
from workflow import environment, machine
from workflow.pipeline import Run

GENERATE, TABLES, AGAIN = (SimpleNamespace(notebook=SimpleNamespace(number=number)) for number in ("01", "08", "04b"))


def run(gpus=1, **values):
    return Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"} | values, 2, gpus)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project of a lock alone, and the installations of what it names, by no pip or venv."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    (tmp_path / "requirements-vllm.lock").write_text("six==1.17.0 --hash=x\nvllm==1.0 --hash=y\n")
    (tmp_path / "requirements.lock").touch()
    made = []

    def install(root, venv, locks, torch):
        made.append((venv.name, locks, torch))
        (venv / "lib/python3.12/site-packages/vllm-1.0.dist-info").mkdir(parents=True)
        (venv / "lib/python3.12/site-packages/vllm-1.0.dist-info/METADATA").write_text("Name: vllm\nVersion: 1.0\n")
        (venv / "bin").mkdir()
        (venv / "bin/python").touch()
        return "fails" not in (root / locks[0]).read_text()

    monkeypatch.setattr(environment, "run", lambda command, quiet=False: True)
    monkeypatch.setattr(environment, "install", install)
    return SimpleNamespace(folder=tmp_path, made=made)


def test_it_is_made_once_and_again_for_another_lock(place):
    for _ in range(2):
        machine.install_vllm(run(), [GENERATE])
    assert place.made == [(".venv-vllm", ["requirements-vllm.lock"], "")]
    with (place.folder / "requirements-vllm.lock").open("a") as lock:
        lock.write("fails==1")
    for _ in range(2):
        with pytest.raises(UserError, match="the installation failed for the reason above; .* or write `engine: t"):
            machine.install_vllm(run(), [TABLES, AGAIN])  # which asks again, by the same engine
    assert len(place.made) == 3


def test_refusals(place, monkeypatch):
    with pytest.raises(UserError, match="needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_P"):
        machine.install_vllm(run(gpus=0), [GENERATE])
    with monkeypatch.context() as patch, pytest.raises(UserError, match="install a C compiler"):
        patch.setattr(machine.shutil, "which", lambda name: None)
        machine.install_vllm(run(), [GENERATE])
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    machine.install_vllm(run(gpus=0), [GENERATE])
    assert not place.made
