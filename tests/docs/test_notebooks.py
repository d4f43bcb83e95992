"""The notebooks are for reading: what their cells may hold."""

import ast
import re

import nbformat
import pytest

from lib import params
from lib.paths import ROOT

OWN = {"run", "model", "dataset"}  # parameters that a profile does not hold: the runner gives them
DEFINING = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.While | ast.Global | ast.Try


@pytest.fixture(params=sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook, of_parameters):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        cell.source
        for cell in cells
        if ("parameters" in cell.metadata.get("tags", [])) == of_parameters
    ]


def test_stored_without_outputs_and_with_known_metadata_only(notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert (
        set(notebook.metadata) <= {"kernelspec", "language_info"}
        and notebook.metadata.kernelspec.name == "python3"
    )
    assert {name for cell in notebook.cells for name in cell.metadata} <= {"tags"}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def test_parameters_are_those_of_a_profile_with_the_demo_values(notebook):
    (cell,) = code(notebook, True)
    given = {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cell).body}
    demo = params.load_profile("demo").model_dump() | {name: given.get(name) for name in OWN}
    assert given == {name: demo[name] for name in given}


def test_cells_are_short_and_define_nothing(notebook):
    for cell in code(notebook, False):
        assert len(cell.splitlines()) <= 12, cell
        assert not any(isinstance(node, DEFINING) for node in ast.walk(ast.parse(cell))), cell
        assert not re.search(r"sys\.path|os\.chdir|__file__|import \*", cell), cell
