"""With a token, a user's and a machine's name in the environment: none of them, nor a path of this machine, stands in
anything that a run writes; and what lies in the user's own start-up files is not run.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest
from small_project import ROOT, Project, build, write

pytestmark = pytest.mark.slow
TOKEN = "hf_thisIsNoRealTokenButLooksLikeOne"
NAMES = {"USER": "ada-lovelace-user", "LOGNAME": "ada-lovelace-user", "HOSTNAME": "babbage-machine"}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """After a run on a model outside the project and questions named by their full path inside it."""
    project = Project(build(tmp_path_factory.mktemp("privacy") / "a project"))
    home = tmp_path_factory.mktemp("home") / "ada-lovelace-user"
    outside = home / "my models" / "tiny"
    shutil.copytree(project.root / "weights/tiny", outside)
    project.replace("params/models/tiny.yaml", "weights/tiny", str(outside))
    project.replace("params/datasets/easy.yaml", "questions.jsonl", str(project.root / "questions.jsonl"))
    project.replace("notebooks/01_generate.ipynb", "'environment': dict(os.environ)", "'environment': {}")
    project.replace("notebooks/01_generate.ipynb", "'cwd': os.getcwd(), ", "")
    startup = home / "startup.py"
    startup.write_text(f"open({str(project.root / 'artifacts' / 'ran')!r}, 'w').write('ran')\nran = 1\n")
    write(home / ".ipython/profile_default/startup/own.py", startup.read_text())
    code, text = project.run(HOME=str(home), HF_TOKEN=TOKEN, PYTHONSTARTUP=str(startup), **NAMES)
    assert code == 0, text
    assert not (project.root / "artifacts/ran").exists(), "what lies in the user's own start-up files is not run"
    project.home = home
    return project


def test_nothing_private_is_written(project):
    paths = [path for folder in ("artifacts", "figures") for path in (project.root / folder).rglob("*")]
    texts = {path: path.read_text(errors="replace") if path.is_file() else "" for path in paths}
    assert len(texts) > 20
    private = [TOKEN, *NAMES.values(), str(project.root), str(project.home), "my models"]
    for path, text in texts.items():
        told = f"{path.relative_to(project.root)}\n{text}"
        assert not [word for word in private if word in told], path
    log = project.read("artifacts/demo/snakemake.log")
    assert not re.search(r"(?i)host:|user:", log) and socket.gethostname() not in log.split()
    assert not re.search(r"(?<![\w./)~-])/(home|root|tmp|Users)/", log)


def test_a_warning_of_pythons_own_files_tells_no_place(tmp_path):
    """Where the home is another one than that which Python lies in."""
    code = "import sys; from workflow import progress; print(progress.redact_paths(sys.base_prefix + '/lib/x.py:1127'))"
    env = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "(Python)/lib/x.py:1127"


def test_the_model_s_folder_is_known_by_its_files_and_told_by_its_name(project):
    record = json.loads(project.read("artifacts/demo/jobs/01_generate__tiny__easy.json"))
    assert record["parts"]["model tiny"]["source"] == ".../tiny"
    assert "file .../tiny/model.safetensors" in record["parts"] and "file questions.jsonl" in record["parts"]
    (project.home / "my models/tiny/model.safetensors").write_text("other weights")
    code, text = project.run(HOME=str(project.home))
    assert code == 0 and "01_generate: will run (changed: file .../tiny/model.safetensors)" in text
