"""A notebook's code cells played in the process of a test."""

import ast
import json

import pytest

from lib.paths import ROOT, SHIPPED
from workflow.pipeline import NOTEBOOKS

SHIPPED_ONLY = pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy")
QUICK = {"resamples": 100, "draws": 2, "run": "lab-edits"}


def play(name, monkeypatch, tmp_path, **edits):
    """The code cells of a notebook in one process, its parameters edited; what cells show is drawn and kept."""
    monkeypatch.setattr("lib.store.frame_path", lambda run, kind, part: tmp_path / kind / f"{part}.parquet")
    monkeypatch.chdir(ROOT / "notebooks")
    (path,) = (ROOT / "notebooks").glob(f"{name}_*.ipynb")
    shown: list = []
    space = {"display": lambda thing, **_: shown.append(thing)}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), path.stem, "exec"), space)
        if "parameters" in cell["metadata"].get("tags", []):
            (takes,) = [row.takes for row in NOTEBOOKS if row.name == path.stem]
            assert edits.keys() <= {*space, *takes}, "parameters of this notebook"
            space |= {key: value for key, value in (QUICK | edits).items() if key in space or key in takes}
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path.stem, "eval"), space))
    for thing in shown:
        getattr(thing, "_repr_mimebundle_", getattr(thing, "_repr_html_", str))()
    return space, shown
