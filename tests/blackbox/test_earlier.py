"""What an earlier version left is kept, or is refused with a reason: never mixed, never made again in silence."""

import json
import re
import subprocess
import sys

import earlier
import pandas as pd
import pytest
from clone import copy_of_project, refusal, run, tables

pytestmark = pytest.mark.slow
COSTLY = ("generations", "in_situ", "verification", "dropout", "dropout_answer", "ablation")  # what needs the model


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = copy_of_project(tmp_path_factory.mktemp("earlier") / "a project")
    earlier.unpack(folder)
    said = refusal(folder, "earlier")
    assert "was made by an earlier version: `.venv/bin/python -m workflow.carry_over earlier` brings it over" in said
    names = ["earlier", "half", "shipped/earlier"]
    subprocess.run([sys.executable, "-m", "workflow.carry_over", *names], cwd=folder, check=True)
    return folder


def costly(project, name):
    return {kind: (project / "artifacts" / name / kind / f"{earlier.PAIR}.parquet").read_bytes() for kind in COSTLY}


def test_a_finished_run_is_kept(project):
    """Whatever the code is called now: no notebook that asks a model is played, and the tables are as they were. (The
    words about them in numbers.tex and results.tex may be others.)"""
    before, set_ = costly(project, "earlier"), tables(project, "earlier")
    said = run(project, "earlier")
    assert not re.search(r"0[134]b?_\w+ tiny-llama demo-easy +(started|shard)", said), said
    now = tables(project, "earlier")
    assert costly(project, "earlier") == before and now.keys() == set_.keys()
    assert [name for name in now if name.startswith("tab_") and now[name] != set_[name]] == []


def test_finished_shards_of_a_killed_run_are_kept(project):
    shards = sorted((project / "artifacts" / "half" / "shards").glob("01_*/[0-9]*.parquet"))
    rows = pd.concat(map(pd.read_parquet, shards))[["example_id", "text"]]
    said = run(project, "finding", "3", "half")  # no more than it needs
    made = [int(number) for number in re.findall(r"01_generate \S+ \S+ +shard (\d+)/\d+: \d+ rows", said)]
    assert 0 < len(shards) < min(made), f"shard {min(made)} was made again, and {len(shards)} were finished\n{said}"
    frame = pd.read_parquet(project / "artifacts" / "half" / "generations" / f"{earlier.PAIR}.parquet")
    assert len(frame) == 24 and len(rows.merge(frame, on=["example_id", "text"])) == len(rows)


def test_shipped_signals_replay(project):
    run(project, "replay", "earlier")
    ours, theirs = tables(project, "replay-earlier"), tables(project, "earlier")
    same = [name for name in ours if name.startswith("tab_") and ours[name] == theirs[name]]
    assert len(same) >= 10, sorted(ours.keys() - set(same))


def test_kept_calibrators_predict_the_same_bits(project):
    written = json.loads((project / "artifacts" / "earlier" / "predictions.json").read_text())
    assert len(written) > 5 and earlier.predictions(project) == written
