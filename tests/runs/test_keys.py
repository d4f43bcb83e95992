"""Every module that a job imports and every file of the project that it reads is in its key, or is
named here."""

import json
import re

import pytest
from clone import SMALL, copy_of_project, edit, played

from workflow.engine.job_key import SHOWING
from workflow.engine.notebook_table import NOTEBOOKS

HEAVY = {row.name for row in NOTEBOOKS if row.runs_model}
# beside the results of notebooks that run a model
SHOWN = ("artifacts/paper.yaml", "artifacts/reference.csv")


def places(key: list[str]) -> set[str]:
    """The files that the parts of a key stand for; a frame stands for its manifest, too."""
    found = {
        re.sub(r"^(model|dataset) (.*)", r"\1 params/\1s/\2.yaml", part).partition(" ")[2]
        for part in key
    }
    return found | {re.sub("parquet$", "json", path) for path in found}


@pytest.mark.parametrize("words", [
    ["demo"],
    pytest.param(["demo", "--models", "logged", "--datasets", "demo-logged"], marks=pytest.mark.slow),
], ids=" ".join)  # fmt: skip
def test_all_that_a_job_imports_and_reads_is_in_its_key(tmp_path, words):
    project = copy_of_project(tmp_path / "a project")
    edit(project / "params/demo.yaml", **SMALL)
    jobs = json.loads(played(project, "watch", *words).splitlines()[-1])
    assert len(jobs) == (8 if "logged" in words else len(NOTEBOOKS) - 2)
    unknown = {}
    for name, job in jobs.items():
        assert "lib/paths.py" in job["read"] and "lib/store.py" in job["read"], "it was watched"
        # frames are read by no Python
        written = {path for path in job["read"] if path.endswith(".parquet")}
        known = (
            places(job["key"]) | written | {re.sub("parquet$", "json", path) for path in written}
        )
        left_out = SHOWING + SHOWN if name.split("__")[0] in HEAVY else ()
        unknown[name] = {
            path for path in job["read"] if path not in known and not path.startswith(left_out)
        }
    assert set().union(*unknown.values()) <= {"tests/playing.py"}, unknown
