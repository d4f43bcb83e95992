"""A reader's own model, from its file to a row in every table, and a notebook played by hand."""

import shutil

import pytest
from clone import counts, edit, run, tables

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
    edit(project / "params" / "demo.yaml", transfer_models=[])  # all models
    assert "ok     model mine: " in run(project, "check", "demo", "--add-models", "mine")
    made, kept = counts(run(project, "--add-models", "mine"))
    assert made > 0 and kept >= 4, "what the profile's own model left is kept"
    for name, text in tables(project).items():
        if name.startswith("tab_") and name not in WITHOUT:
            assert b"My" in text, name  # the tables of transfer shorten My-Model
