"""What an earlier version left is kept, or is refused with a reason: never mixed, never made again in silence.

earlier.tar.xz holds what that version wrote: a finished run with its calibrators, a run that was killed between two
shards, and the shipped signals of a run.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from clone import ENV, SMALL, copy_of_project, edit, refusal, run, tables

pytestmark = pytest.mark.slow
FILE, PAIR = Path(__file__).with_name("earlier.tar.xz"), "tiny-llama__demo-easy"
COSTLY = ("generations", "in_situ", "verification", "dropout", "dropout_answer", "ablation")  # what needs the model
PREDICT = """
import json, sys
from lib.calibrate.calibrator_files import load_calibrator
scores = [place / 9 for place in range(10)]
found = {path.split("/")[-1]: load_calibrator(path).predict(scores) for path in sys.argv[1:]}
print(json.dumps({name: list(map(float, values)) for name, values in found.items()}))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = copy_of_project(tmp_path_factory.mktemp("earlier") / "a project")
    for name in ("earlier", "half"):  # small, and with results that outlive a change of the code
        path = shutil.copy(folder / "params" / "demo.yaml", folder / "params" / f"{name}.yaml")
        edit(path, **SMALL, on_code_change="keep")
    with tarfile.open(FILE) as packed:
        packed.extractall(folder, filter="data")
    said = refusal(folder, "earlier")
    assert "was made by an earlier version: `.venv/bin/python -m workflow.carry_over earlier` brings it over" in said
    names = ["earlier", "half", "shipped/earlier"]
    subprocess.run([sys.executable, "-m", "workflow.carry_over", *names], cwd=folder, check=True)
    return folder


def costly(project, name):
    return {kind: (project / "artifacts" / name / kind / f"{PAIR}.parquet").read_bytes() for kind in COSTLY}


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
    frame = pd.read_parquet(project / "artifacts" / "half" / "generations" / f"{PAIR}.parquet")
    assert len(frame) == 24 and len(rows.merge(frame, on=["example_id", "text"])) == len(rows)


def test_shipped_signals_replay(project):
    run(project, "replay", "earlier")
    ours, theirs = tables(project, "replay-earlier"), tables(project, "earlier")
    same = [name for name in ours if name.startswith("tab_") and ours[name] == theirs[name]]
    assert len(same) >= 10, sorted(ours.keys() - set(same))


def test_kept_calibrators_predict_the_same_bits(project):
    """What the finished run's isotonic calibrators make of ten scores, loaded from their files."""
    folder = project / "artifacts" / "earlier"
    written = json.loads((folder / "predictions.json").read_text())
    command = [sys.executable, "-c", PREDICT, *map(str, sorted((folder / "calibrators").glob("*__isotonic.json")))]
    said = subprocess.check_output(command, cwd=project, env=ENV | {"PYTHONPATH": str(project)})
    assert len(written) > 5 and json.loads(said) == written
