"""A reader's own model is a file, and a table of one's own a function, a caption and a cell in 08,
as docs/extending.md has them: everything else follows."""

import re
import shutil

import nbformat
import pytest
from clone import ROOT, counts, edit, run, tables

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")  # its example is the table
FUNCTION = re.search(r"^def ranking\(.*?(?=\n\n)", PAGE, flags=re.M | re.S)[0]
CAPTION = re.search(r"^tab_ranking: .*?\n", PAGE, flags=re.M | re.S)[0]
CELL = re.search(r"^display\(.*?(?=  #)", PAGE, flags=re.M | re.S)[0]
MINE = """\
label: My-Model
source: demo/models/tiny-qwen
temperature: 0.6
system_prompt: false
thinking: true
"""
WITHOUT = {"tab_estimators.tex", "tab_bin_ablation.tex"}  # name no model, or those of `bin_models`


@pytest.mark.slow
def test_from_a_file_to_a_row_in_every_table_and_one_table_more(alone, tmp_path):
    """The small demo, already run, in a folder that may be changed."""
    project = shutil.copytree(alone[0], tmp_path / "a project", symlinks=True)
    (project / "params/models/mine.yaml").write_text(MINE)
    edit(project / "params/demo.yaml", transfer_models=[])  # all models
    with open(project / "lib/paper/tables.py", "a") as file:
        file.write(f"\n\n{FUNCTION}\n")
    captions = project / "lib/paper/captions.yaml"
    captions.write_text(
        captions.read_text().replace(
            "  fig_prompt_comparison:", f"  {CAPTION}  fig_prompt_comparison:"
        )
    )
    notebook = nbformat.read(project / "notebooks/08_tables.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CELL, metadata={"tags": ["run"]}))
    nbformat.write(notebook, project / "notebooks/08_tables.ipynb")
    assert "ok     model mine: " in run(project, "check", "demo", "--add-models", "mine")
    ran, up_to_date = counts(run(project, "--add-models", "mine"))
    assert ran > 0
    assert up_to_date >= 4, "what the profile's own model left is kept"

    texts = {name: text.decode() for name, text in tables(project).items()}
    for name, text in texts.items():
        if name.startswith("tab_") and name not in WITHOUT:
            assert "My" in text, name
    document = texts["results.tex"]
    titles = re.findall(r"\\captionof\{\w+\}\[(.*?)\]", document)
    assert titles[0] == "Estimators"
    assert titles.index("Ranking") == titles.index("Number of bins") + 1
    assert r"\input{tab_ranking}" in document
    assert "AUROC of every estimator." in document
    report = (project / "figures/demo/report.html").read_text()
    rows = set(re.findall(r'<tr id="(tab_ranking--[^"]*)"', report))
    links = set(re.findall(r'<a href="#(tab_ranking--[^"]*)"', report))
    assert len(rows) == 12
    assert links == rows
