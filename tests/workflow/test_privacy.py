"""With a token, a user's and a machine's name in the environment: none of them, nor a path of this
machine, stands in anything that a run writes; and what lies in the user's own start-up files is not
run.
"""

import json
import re
import shutil
import socket

import pytest
from small_project import write

pytestmark = pytest.mark.slow
TOKEN = "hf_thisIsNoRealTokenButLooksLikeOne"
NAMES = {"USER": "ada-lovelace-user", "LOGNAME": "ada-lovelace-user", "HOSTNAME": "babbage-machine"}


def test_nothing_private_is_written(project, tmp_path):
    """By a run on a model outside the project and questions named by their full path inside it."""
    home = tmp_path / "ada-lovelace-user"
    shutil.copytree(project.root / "weights/tiny", outside := home / "my models/tiny")
    project.replace("params/models/tiny.yaml", "weights/tiny", str(outside))
    project.replace(
        "params/datasets/easy.yaml", "questions.jsonl", str(project.root / "questions.jsonl")
    )
    project.replace(
        "notebooks/01_generate.ipynb", "cwd=os.getcwd(), environment=dict(os.environ)", "x=0"
    )
    where = "{os.getcwd()[:-10]}/lib and {sys.prefix}/bin, {os.environ['HOME']}"
    project.add_cells(
        "02_single_pass", f'import os, sys\n_ = os.write(2, f"said at {where}\\n".encode())'
    )
    startup = home / ".ipython/profile_default/startup/own.py"
    write(
        startup, f"open({str(project.root / 'artifacts' / 'ran')!r}, 'w').write('ran')\nran = 1\n"
    )
    code, text = project.run(HOME=str(home), HF_TOKEN=TOKEN, PYTHONSTARTUP=str(startup), **NAMES)
    assert code == 0, text
    assert not (project.root / "artifacts/ran").exists(), (
        "what lies in the user's own start-up files is not run"
    )
    files = [
        path
        for name in ("artifacts", "figures")
        for path in (project.root / name).rglob("*")
        if path.is_file()
    ]
    assert len(files) > 20
    private = [TOKEN, *NAMES.values(), str(project.root), str(home), "my models"]
    for path in files:
        told = f"{path.relative_to(project.root)}\n{path.read_text(errors='replace')}"
        assert not [word for word in private if word in told], path
    record = json.loads(project.read("artifacts/demo/jobs/01_generate__tiny__easy.json"))
    assert (
        "file .../tiny/model.safetensors" in record["parts"]
        and "file questions.jsonl" in record["parts"]
    )
    log = project.read("artifacts/demo/logs/02_single_pass.log")
    assert "said at ./lib and (environment)/bin" in log and socket.gethostname() not in log.split()
    assert not re.search(r"(?<![\w./)~-])/(home|root|tmp|Users)/", log)
