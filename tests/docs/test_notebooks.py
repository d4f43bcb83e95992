"""The notebooks are for reading: what their cells may hold."""

import ast
import re

import nbformat
import pytest

from lib import params
from lib.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OWN = {"run", "model", "dataset"}  # parameters that a profile does not hold: the runner gives them


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook) -> dict:
    (cell,) = [c for c in code(notebook) if "parameters" in c.metadata.get("tags", [])]
    return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cell.source).body}


def test_stored_without_outputs_and_with_known_metadata_only(notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"} and notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
    for cell in code(notebook):
        assert cell.outputs == [] and cell.execution_count is None


def test_parameters_are_those_of_a_profile_with_the_demo_values(notebook):
    demo = params.load_profile("demo")
    given = parameters(notebook)
    assert set(given) - OWN <= set(params.Profile.model_fields)
    assert {k: v for k, v in given.items() if k not in OWN} == {k: getattr(demo, k) for k in given if k not in OWN}


def test_cells_are_short_and_define_nothing(notebook):
    forbidden = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.Global, ast.Try)
    for cell in code(notebook):
        if "parameters" not in cell.metadata.get("tags", []):
            assert len(cell.source.splitlines()) <= 8, cell.source
            assert not any(isinstance(node, forbidden) for node in ast.walk(ast.parse(cell.source))), cell.source
            assert not re.search(r"sys\.path|os\.chdir|__file__|import \*", cell.source), cell.source


def test_links_lead_to_files(notebook):
    links = re.findall(r"\]\(([^)]+)\)", notebook.cells[0].source)
    assert links and all((ROOT / "notebooks" / link).resolve().is_file() for link in links)
