"""A notebook's code cells played in the process of a test."""

import ast

from lib.paths import ROOT
from workflow.fingerprint import declared_parameters, is_parameters, read_cells
from workflow.rules import NOTEBOOKS

QUICK = {"resamples": 100, "draws": 2, "run": "lab-edits"}


def play_cells(notebook, values):
    """The code cells of a notebook in this process, with values for parameters that it has; its names, and what it
    showed, which is drawn."""
    shown: list = []
    space = {"display": lambda thing, **_: shown.append(thing)}
    for cell in filter(lambda cell: cell["cell_type"] == "code", read_cells(notebook.path)):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), notebook.name, "exec"), space)
        if is_parameters(cell):
            space |= {key: value for key, value in values.items() if key in space or key in notebook.undeclared}
            space["In"] = ["", "".join(cell["source"])]  # as IPython keeps it
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), notebook.name, "eval"), space))
    for thing in shown:
        getattr(thing, "_repr_mimebundle_", getattr(thing, "_repr_html_", str))()
    return space, shown


def play(name, monkeypatch, tmp_path, **edits):
    """A notebook by hand, its parameters edited; frames are written below `tmp_path`."""
    monkeypatch.setattr("lib.store.frame_path", lambda run, kind, part: tmp_path / kind / f"{part}.parquet")
    monkeypatch.chdir(ROOT / "notebooks")
    (notebook,) = [row for row in NOTEBOOKS if row.number == name]
    assert edits.keys() <= {*declared_parameters(notebook.path), *notebook.undeclared}, "parameters of this notebook"
    return play_cells(notebook, QUICK | edits)
