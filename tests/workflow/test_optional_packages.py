"""vLLM is installed beside the environment: once, only where it is asked for, refused in one line where it can't be."""

from types import SimpleNamespace

import pytest

from lib import params
from lib.paths import UserError
from workflow import environment, machine
from workflow.pipeline import Run


def install(gpus=1, number="01"):
    run = Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"}, 2, gpus)
    machine.install_vllm(run, [SimpleNamespace(notebook=SimpleNamespace(number=number))])


@pytest.fixture
def made(tmp_path, monkeypatch):
    """In a project of a lock alone, the installations of what it names, by no pip or venv."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    (tmp_path / "requirements-vllm.lock").write_text("six==1.17.0 --hash=x\nvllm==1.0 --hash=y\n")
    (tmp_path / "requirements.lock").touch()
    made = []

    def done(root, venv, locks, torch):
        made.append((venv.name, locks, torch))
        (package := venv / "lib/python3.12/site-packages/vllm-1.0.dist-info").mkdir(parents=True)
        (package / "METADATA").write_text("Name: vllm\nVersion: 1.0\n")
        (venv / "bin").mkdir()
        (venv / "bin/python").touch()
        return "fails" not in (root / locks[0]).read_text()

    monkeypatch.setattr(environment, "run", lambda command, quiet=False: True)
    monkeypatch.setattr(environment, "install", done)
    return made


def test_it_is_made_once_and_again_for_another_lock(made, tmp_path):
    for number in ("08", "01", "01"):
        install(number=number)
    assert made == [(".venv-vllm", ["requirements-vllm.lock"], "")]
    with (tmp_path / "requirements-vllm.lock").open("a") as lock:
        lock.write("fails==1")
    for _ in range(2):  # what failed is not taken for whole
        with pytest.raises(UserError, match="the installation failed for the reason above; .* or write `engine: t"):
            install(number="04b")  # which asks again, by the same engine
    assert len(made) == 3


def test_refusals(made, monkeypatch):
    with pytest.raises(UserError, match="needs a GPU with CUDA.*`engine: transformers` in the profile, or set VLLM_P"):
        install(gpus=0)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="install a C compiler"):
        patch.setattr(machine.shutil, "which", lambda name: None)
        install()
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    install(gpus=0)
    assert not made
