"""The notebooks are for reading: what their cells may hold."""

import ast
import re

import nbformat
import pytest

from lib import params
from lib.paths import ROOT

OWN = {"run", "model", "dataset"}  # parameters that a profile does not hold: the runner gives them
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
DEFINING = (*DEFINITIONS, ast.While, ast.Global, ast.Try)


@pytest.fixture(params=sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook, of_parameters):
    sources = []
    for cell in notebook.cells:
        is_tagged = "parameters" in cell.metadata.get("tags", [])
        if cell.cell_type == "code" and is_tagged == of_parameters:
            sources.append(cell.source)
    return sources


def test_stored_without_outputs_and_with_known_metadata_only(notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
        assert not cell.get("outputs")
        assert not cell.get("execution_count")


def test_parameters_are_those_of_a_profile_with_the_demo_values(notebook):
    (cell,) = code(notebook, True)
    demo = params.load_profile("demo").model_dump()
    if "\ntable = " in cell:  # 10 judges a table of scores, and no profile's run
        demo = params.TableJudgment.of({}).model_dump() | {"table": "demo/scores.csv"}
    for line in ast.parse(cell).body:
        name = line.targets[0].id
        value = ast.literal_eval(line.value)
        assert name in OWN or value == demo[name], name


def test_cells_are_short_and_define_nothing(notebook):
    for cell in code(notebook, False):
        lines = [line for line in cell.splitlines() if not line.startswith(("import ", "from "))]
        assert len(lines) <= 12, cell
        for node in ast.walk(ast.parse(cell)):
            assert not isinstance(node, DEFINING), cell
        assert not re.search(r"sys\.path|os\.chdir|__file__|import \*", cell), cell
