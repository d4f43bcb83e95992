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
    for private in ("os.getcwd()", "dict(os.environ)"):
        project.replace("notebooks/01_generate.ipynb", private, "0")
    where = "{os.getcwd()[:-10]}/lib and {sys.prefix}/bin, {os.environ['HOME']}"
    cell = f'import os, sys\n_ = os.write(2, f"said at {where}\\n".encode())'
    project.add_cells("02_single_pass", cell)
    startup = home / ".ipython/profile_default/startup/own.py"
    ran = project.root / "artifacts" / "ran"
    write(startup, f"open({str(ran)!r}, 'w').write('ran')\nran = 1\n")
    env = NAMES | {"HOME": str(home), "HF_TOKEN": TOKEN, "PYTHONSTARTUP": str(startup)}
    code, text = project.run(**env)
    assert code == 0, text
    assert not ran.exists(), "what lies in the user's own start-up files is not run"
    files = []
    for folder in ("artifacts", "figures"):
        files += [path for path in (project.root / folder).rglob("*") if path.is_file()]
    assert len(files) > 20
    private = [TOKEN, *NAMES.values(), str(project.root), str(home), "my models"]
    for path in files:
        content = f"{path.relative_to(project.root)}\n{path.read_text(errors='replace')}"
        for word in private:
            assert word not in content, path
    record = json.loads(project.read("artifacts/demo/jobs/01_generate__tiny__easy.json"))
    assert "file .../tiny/model.safetensors" in record["parts"]
    assert "file questions.jsonl" in record["parts"]
    log = project.read("artifacts/demo/logs/02_single_pass.log")
    assert "said at ./lib and (environment)/bin" in log
    assert socket.gethostname() not in log.split()
    assert not re.search(r"(?<![\w./)~-])/(home|root|tmp|Users)/", log)
