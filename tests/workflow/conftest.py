import pkgutil
from importlib import import_module

import pytest
from small_project import ROWS, Project, build

import workflow
from lib import configs, params
from lib import paths as places
from workflow import pipeline, usable

MODULES = [import_module(f"workflow.{module.name}") for module in pkgutil.iter_modules(workflow.__path__)]


@pytest.fixture
def project(tmp_path) -> Project:
    """The small project, in a folder with a space in its name."""
    return Project(build(tmp_path / "a project"))


@pytest.fixture
def inside(project, monkeypatch) -> Project:
    """The small project, with the modules of this process looking at it."""
    monkeypatch.setattr(params, "REVISIONS", {})
    for module in (places, configs, *(module for module in MODULES if hasattr(module, "ROOT"))):
        monkeypatch.setattr(module, "ROOT", project.root)
    monkeypatch.setattr(configs, "MODELS", project.root / "artifacts" / ".models")
    monkeypatch.setattr(pipeline, "NOTEBOOKS", tuple(pipeline.Notebook(**row) for row in ROWS))
    monkeypatch.setattr(params, "PARAMS", project.root / "params")
    monkeypatch.setattr(usable, "find_unusable", lambda run, names: [])
    return project
