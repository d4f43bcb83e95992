"""A table of one's own is a builder in tables.py, a line in exhibits.py and a cell in 08: everything else follows."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import yaml

from lib.paths import ROOT, SHIPPED

BUILDER = """

def ranking(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    layout = Layout(frame, models, datasets, notes)
    return layout.by_pair([Line((heading(e),), {"estimator": e.name, "metric": "auroc"}) for e in layout.estimators])
"""
EXHIBIT = (
    '    Exhibit("tab_ranking", "tables.ranking", "Ranking", "AUROC of every estimator.", frame="result_estimation"),\n'
)
PRINTED = '    "ranking": ("result_estimation", "metric == \'auroc\' and estimator != \'p_true_insitu\'"),\n'
CELL = 'display(exhibits.build("tab_ranking", here), metadata={"paper": "tab_ranking"})'
FEWER = {"models": ["tiny-llama"], "datasets": ["demo-medium", "demo-hard"], "transfer_models": ["tiny-llama"]}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what 08 needs, with the table, executed and exported by the command that the notebook names."""
    folder = tmp_path_factory.mktemp("table")
    for name in ("lib", "workflow", "params", "notebooks", "artifacts/shipped"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("reference.csv", "paper.yaml"):
        shutil.copy2(ROOT / "artifacts" / name, folder / "artifacts")
    with open(folder / "lib/paper/tables.py", "a", encoding="utf-8") as file:
        file.write(BUILDER)
    exhibits = folder / "lib/paper/exhibits.py"
    text = exhibits.read_text()
    exhibits.write_text(text.replace('    Exhibit("numbers"', f'{EXHIBIT}    Exhibit("numbers"'))
    numbers = folder / "lib/analysis/printed_numbers.py"
    numbers.write_text(numbers.read_text().replace("PRINTED = {  #", f"PRINTED = {{\n{PRINTED}    #", 1))
    notebook = nbformat.read(folder / "notebooks/08_tables.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CELL, metadata={"tags": ["run"]}))
    nbformat.write(notebook, folder / "notebooks/08_tables.ipynb")
    played = (
        "notebooks/08_tables.ipynb",
        "out.ipynb",
        "--cwd",
        "notebooks",
        "-k",
        "python3",
        "-y",
        yaml.safe_dump(FEWER),
    )
    call(folder, "papermill", *played)
    call(folder, "nbconvert", "--to", "workflow.export.PaperExporter", "out.ipynb", "--output-dir", "figures")
    return folder


def call(folder, *command: str) -> None:
    env = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_is_exported_and_set_after_the_papers(project):
    assert "demo models" in (project / "figures/tab_ranking.tex").read_text()
    document = (project / "figures/results.tex").read_text()
    captions = re.findall(r"\\captionof\{\w+\}\[(.*?)\]", document)
    assert captions[0] == "Estimators" and "Ranking" in captions[-2:]
    assert r"\input{tab_ranking}" in document and "AUROC of every estimator." in document


def test_its_numbers_are_in_the_report(project):
    """Six estimators on two datasets, each number with a link to it."""
    report = (project / "figures/report.html").read_text()
    assert '<article id="tab_ranking">' in report and "12 numbers one by one" in report
    rows = re.findall(r'<tr id="(tab_ranking--[^"]*)"', report)
    links = re.findall(r'<a href="#(tab_ranking--[^"]*)"', report)
    assert len(set(rows)) == 12 and set(links) == set(rows)
