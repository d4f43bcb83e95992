"""A table of one's own is a builder in tables.py, a line in exhibits.py and a cell in 08: everything else follows."""

import re
import subprocess
import sys

import goldens
import nbformat
import pytest
import yaml
from clone import ENV, copy_of_project

BUILDER = """

def ranking(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    layout = Layout(frame, models, datasets, notes)
    return layout.by_pair([Line((heading(e),), {"estimator": e.name, "metric": "auroc"}) for e in layout.estimators])
"""
EXHIBIT = '    Exhibit("tab_ranking", "tables.ranking", "Ranking", "AUROC of each.", frame="result_estimation"),\n'
PRINTED = '    "ranking": ("result_estimation", "metric == \'auroc\' and estimator != \'p_true_insitu\'"),\n'
CELL = 'display(exhibits.build("tab_ranking", here), metadata={"paper": "tab_ranking"})'
FEWER = {"models": ["tiny-llama"], "datasets": ["demo-medium", "demo-hard"], "transfer_models": ["tiny-llama"]}
EXPORT = ["nbconvert", "--to", "workflow.export.PaperExporter", "--output-dir", "figures"]
pytestmark = pytest.mark.slow


def insert(path, text, before=""):
    found = path.read_text()
    path.write_text(found.replace(before, text + before, 1) if before else found + text)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """What is exported of a copy of the project with the table, by the command that the notebook names."""
    folder = copy_of_project(tmp_path_factory.mktemp("table") / "a project")
    insert(folder / "lib/paper/tables.py", BUILDER)
    insert(folder / "lib/paper/exhibits.py", EXHIBIT, before='    Exhibit("numbers"')
    insert(folder / "lib/analysis/printed_numbers.py", PRINTED, before='    "result_estimation":')
    notebook = nbformat.read(folder / "notebooks/08_tables.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CELL, metadata={"tags": ["run"]}))
    nbformat.write(notebook, folder / "notebooks/08_tables.ipynb")
    played = goldens.played(folder, "08_tables", "-y", yaml.safe_dump(FEWER))
    command = [sys.executable, "-m", *EXPORT, str(played)]
    subprocess.run(command, cwd=folder, env=ENV | {"PYTHONPATH": str(folder)}, check=True)
    return folder / "figures"


def test_it_is_exported_and_set_after_the_papers(figures):
    assert "demo models" in (figures / "tab_ranking.tex").read_text()
    document = (figures / "results.tex").read_text()
    captions = re.findall(r"\\captionof\{\w+\}\[(.*?)\]", document)
    assert captions[0] == "Estimators" and "Ranking" in captions[-2:]
    assert r"\input{tab_ranking}" in document and "AUROC of each." in document


def test_its_numbers_are_in_the_report(figures):
    """Six estimators on two datasets, each number with a link to it."""
    report = (figures / "report.html").read_text()
    assert '<article id="tab_ranking">' in report and "12 numbers one by one" in report
    rows = re.findall(r'<tr id="(tab_ranking--[^"]*)"', report)
    assert len(set(rows)) == 12 and set(re.findall(r'<a href="#(tab_ranking--[^"]*)"', report)) == set(rows)
