"""Every module that a job imports and every file of the project that it reads is in its key, or is
named here."""

import json
import re

import pytest
from clone import SMALL, copy_of_project, edit, play_in

from workflow.engine.job_key import SHOWING
from workflow.engine.notebook_table import NOTEBOOKS

HEAVY = {row.name for row in NOTEBOOKS if row.runs_model}
# beside the results of notebooks that run a model
SHOWN = ("artifacts/paper.yaml", "artifacts/reference.csv")


def manifest(path: str) -> str:
    return re.sub("parquet$", "json", path)


def places(key: list[str]) -> set[str]:
    """The files that the parts of a key stand for; a frame stands for its manifest, too."""
    paths = set()
    for part in key:
        named = re.sub(r"^(model|dataset) (.*)", r"\1 params/\1s/\2.yaml", part)
        path = named.partition(" ")[2]
        paths |= {path, manifest(path)}
    return paths


LOGGED = ["demo", "--models", "logged", "--datasets", "demo-logged"]
RUNS = [["demo"], pytest.param(LOGGED, marks=pytest.mark.slow)]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_all_that_a_job_imports_and_reads_is_in_its_key(tmp_path, words):
    project = copy_of_project(tmp_path / "a project")
    edit(project / "params/demo.yaml", **SMALL)
    jobs = json.loads(play_in(project, "watch", *words).splitlines()[-1])
    of_demo = [row for row in NOTEBOOKS if not (row.module or row.of_table)]
    assert len(jobs) == (7 if "logged" in words else len(of_demo) - 1)  # without 01b
    for name, job in jobs.items():
        assert "lib/paths.py" in job["read"] and "lib/store.py" in job["read"], "it was watched"
        known = places(job["key"]) | {"tests/playing.py"}
        # frames are read by no Python
        for path in job["read"]:
            if path.endswith(".parquet"):
                known |= {path, manifest(path)}
        left_out = SHOWING + SHOWN if name.split("__")[0] in HEAVY else ()
        for path in job["read"]:
            assert path in known or path.startswith(left_out), f"{name} reads {path}"
