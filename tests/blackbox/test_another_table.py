"""A table of one's own is a function in tables.py, a caption and a cell in 08: everything else follows."""

import re
import subprocess
import sys

import nbformat
import pytest
from clone import ENV, ROOT, copy_of_project

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")  # its example is the table
FUNCTION, CAPTION, CELL = (
    re.search(begin, PAGE, flags=re.M | re.S)[0]
    for begin in (r"^def ranking\(.*?(?=\n\n)", r"^tab_ranking: .*?\n", r"^display\(.*?(?=  #)")
)
REPLAY = ["replay", "--models", "tiny-llama", "--datasets", "demo-medium", "demo-hard"]
pytestmark = pytest.mark.slow


def insert(path, text, before=""):
    found = path.read_text()
    path.write_text(found.replace(before, text + before, 1) if before else found + text)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """What is exported by a replay in a copy of the project with the table."""
    folder = copy_of_project(tmp_path_factory.mktemp("table") / "a project")
    insert(folder / "lib/paper/tables.py", f"\n\n{FUNCTION}\n")
    insert(folder / "lib/paper/captions.yaml", f"  {CAPTION}", before="  fig_prompt_comparison:")
    notebook = nbformat.read(folder / "notebooks/08_tables.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CELL, metadata={"tags": ["run"]}))
    nbformat.write(notebook, folder / "notebooks/08_tables.ipynb")
    command = [sys.executable, "-m", "workflow.run", *REPLAY]
    subprocess.run(command, cwd=folder, env=ENV | {"PYTHONPATH": str(folder)}, check=True)
    return folder / "figures" / "replay"


def test_it_is_exported_and_set_at_its_place(figures):
    assert "demo models" in (figures / "tab_ranking.tex").read_text()
    document = (figures / "results.tex").read_text()
    captions = re.findall(r"\\captionof\{\w+\}\[(.*?)\]", document)
    assert captions[0] == "Estimators" and captions.index("Ranking") == captions.index("Number of bins") + 1
    assert r"\input{tab_ranking}" in document and "AUROC of every estimator." in document


def test_its_numbers_are_in_the_report(figures):
    """Six estimators on two datasets, each number with a link to it."""
    report = (figures / "report.html").read_text()
    assert '<article id="tab_ranking">' in report and "12 numbers one by one" in report
    rows = re.findall(r'<tr id="(tab_ranking--[^"]*)"', report)
    assert len(set(rows)) == 12 and set(re.findall(r'<a href="#(tab_ranking--[^"]*)"', report)) == set(rows)
