"""docs/code-map.md leads from the paper to functions, tests and sections of notebooks that are
there."""

import ast
import json
import re
import subprocess
import sys

import goldens

from lib.paths import ROOT
from workflow.engine.fingerprint import imported_names

TEXT = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")


def test_functions_are_defined_in_the_files():
    links = re.findall(r"\[`(\w+)`\]\(\.\./([\w/.]+)\)", TEXT)
    assert len(links) > 80
    for name, path in links:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", text, flags=re.M), name


def test_headings_are_those_of_the_notebooks():
    places = re.findall(r"\(\.\./(notebooks/[\w.]+)\): ([^|]+?) \|", TEXT)
    assert len(places) > 30
    for path, heading in places:
        cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
        text = "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
        assert re.search(rf"^#+ *{re.escape(heading)} *$", text, flags=re.M), heading


def test_the_numbers_of_the_followed_row_are_those_that_notebooks_show():
    """From 01 to 07, as tests/blackbox/goldens holds them, to three decimals."""
    shown = {
        name.split("_")[0]: re.findall(r"\d\.\d+", text)
        for name, text in goldens.read("notebooks").items()
    }
    rows = re.findall(r"^\| ([^|]*) \| ([\d., ]+) \| (\d\d): [^|]* \|$", TEXT, flags=re.M)
    assert len(rows) == 17
    for what, numbers, notebook in rows:
        told, known = (
            {f"{float(x):.3f}" for x in some} for some in (numbers.split(", "), shown[notebook])
        )
        assert told <= known, what


# ---- the layers, and no import upward


def layer_of(module: str) -> str:
    """The layer of a module: `lib.score.metrics` is in score, `lib.params` in lib."""
    return next((part for part in module.split(".")[1:2] if (ROOT / "lib" / part).is_dir()), "lib")


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in (ROOT / "lib").rglob("*.py")
}


def test_the_page_shows_what_is_there_and_imports_only_go_down():
    rows = re.findall(r"^\| `lib/(\w*)` \|(.*)\|([^|]*)\|$", TEXT, flags=re.M)
    layers = [name or "lib" for name, *_ in rows]
    for layer, (_, holds, below) in zip(layers, rows, strict=True):
        modules = {module: path for module, path in MODULES.items() if layer_of(module) == layer}
        assert {*re.findall(r"`(\w+)`", holds)} == {m.split(".")[-1] for m in modules} - {
            "__init__",
            *layers,
        }, layer
        trees = [ast.parse(path.read_bytes()) for path in modules.values()]
        used = {layer_of(name) for tree in trees for name in imported_names("", tree)} - {layer}
        assert used == {*re.findall(r"`(\w+)`", below)} <= {*layers[: layers.index(layer)]}, layer
        for path in modules.values():
            assert not re.search(
                r"(?m)^ *(from|import) (workflow|demo)\b", path.read_text("utf-8")
            ), path
    assert {*layers} == {*map(layer_of, MODULES)}


def test_what_needs_no_model_imports_no_torch():
    names = [
        module
        for module in MODULES
        if layer_of(module) in ("responses", "score", "calibrate", "analysis", "paper")
    ]
    code = f"import sys, importlib\nfor name in {names}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False\n"
