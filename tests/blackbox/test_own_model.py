"""A reader's own model, from its file to a row in every table, and a notebook played by hand."""

import shutil
import subprocess
import sys

import pytest
import transcript
from clone import ENV, counts, refusal, run, tables

pytestmark = pytest.mark.slow
MINE = "label: My-Model\nsource: demo/models/tiny-qwen\ntemperature: 0.6\nsystem_prompt: false\nthinking: true\n"
WITHOUT = {"tab_estimators.tex", "tab_bin_ablation.tex"}  # name none, or those of `bin_models`


@pytest.fixture(scope="module")
def project(alone, tmp_path_factory):
    """The small demo, already run, in a folder that may be changed."""
    folder = tmp_path_factory.mktemp("own") / "a project"
    shutil.copytree(alone[0], folder, symlinks=True)
    return folder


def test_from_a_file_to_a_row_in_every_table(project):
    (project / "params" / "models" / "mine.yaml").write_text(MINE)
    assert "ok     model mine: " in run(project, "check", "demo", "--models", "mine")
    made, kept = counts(run(project, "--models", "mine"))
    assert made > 0 and kept >= 4, "what the profile's own model left is kept"
    for name, text in tables(project).items():
        if name.startswith("tab_") and name not in WITHOUT:
            assert b"My-Model" in text, name


def test_a_wrong_key_is_refused_and_changes_nothing(project):
    (project / "params" / "models" / "mine.yaml").write_text(MINE.replace("temperature", "temprature"))
    before = transcript.listing(project)
    assert "'temprature'; did you mean 'temperature'?" in refusal(project, "demo", "--models", "mine")
    assert transcript.listing(project) == before


def test_a_notebook_by_hand(project):
    command = [sys.executable, "-m", "papermill", "-f", "params/demo.yaml", "-p", "bins", "20", "--cwd", "notebooks"]
    command += ["notebooks/02_single_pass.ipynb", "02.ipynb", "-k", "python3", "--no-progress-bar"]
    done = subprocess.run(command, cwd=project, env=ENV | {"PYTHONPATH": str(project)}, capture_output=True, text=True)
    assert done.returncode == 0 and (project / "02.ipynb").exists(), done.stderr
