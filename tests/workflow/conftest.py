import pkgutil
import shutil
from importlib import import_module

import pytest
from small_project import Project, build

import workflow
from lib import parameter_schemas, params
from lib import paths as places
from lib.files import read_yaml
from workflow import check
from workflow.engine import notebook_table

MODULES = [
    import_module(module.name) for module in pkgutil.walk_packages(workflow.__path__, "workflow.")
]


@pytest.fixture
def project(tmp_path) -> Project:
    """The small project, in a folder with a space in its name."""
    return Project(build(tmp_path / "a project"))


@pytest.fixture
def inside(project, monkeypatch) -> Project:
    """The small project, with the modules of this process looking at it."""
    monkeypatch.setattr(params, "REVISIONS", {})
    monkeypatch.setattr(params, "UNWRITTEN", {})
    for module in (places, *(module for module in MODULES if hasattr(module, "ROOT"))):
        monkeypatch.setattr(module, "ROOT", project.root)
    monkeypatch.setattr(parameter_schemas, "MODELS", project.root / "artifacts" / ".models")
    rows = read_yaml(project.root / "workflow/engine/notebooks.yaml")
    monkeypatch.setattr(
        notebook_table,
        "NOTEBOOKS",
        tuple(notebook_table.Notebook(name, **row) for name, row in rows.items()),
    )
    monkeypatch.setattr(params, "PARAMS", project.root / "params")
    monkeypatch.setattr(check, "refuse_unusable", lambda run, names: None)
    monkeypatch.setattr(check, "with_small", lambda run, names: run)
    return project


@pytest.fixture
def copy(finished, tmp_path) -> Project:
    return Project(shutil.copytree(finished.root, tmp_path / "copy"))
