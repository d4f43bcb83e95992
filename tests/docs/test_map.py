"""docs/code-map.md leads from the paper to functions, tests and sections of notebooks that are
there."""

import ast
import json
import re
import subprocess
import sys

import goldens
import pytest

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
        notebook = json.loads((ROOT / path).read_text(encoding="utf-8"))
        lines = []
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                lines += "".join(cell["source"]).splitlines()
        headings = [line.lstrip("#").strip() for line in lines if line.startswith("#")]
        assert heading in headings


def test_the_numbers_of_the_followed_row_are_those_that_notebooks_show():
    """From 01 to 07, as tests/blackbox/goldens holds them, to three decimals."""
    numbers_by_notebook = {}
    for name, text in goldens.read("notebooks").items():
        numbers = re.findall(r"\d\.\d+", text)
        numbers_by_notebook[name.split("_")[0]] = {f"{float(number):.3f}" for number in numbers}
    rows = re.findall(r"^\| ([^|]*) \| ([\d., ]+) \| (\d\d): [^|]* \|$", TEXT, flags=re.M)
    assert len(rows) == 17
    for what, numbers, notebook in rows:
        stated = {f"{float(number):.3f}" for number in numbers.split(", ")}
        assert stated <= numbers_by_notebook[notebook], what


# ---- the layers, and no import upward


def layer_of(module: str) -> str:
    """The layer of a module: `lib.score.metrics` is in score, `lib.params` in lib."""
    _, *parts = module.split(".")
    if parts and (ROOT / "lib" / parts[0]).is_dir():
        return parts[0]
    return "lib"


MODULES = {}
for module_path in (ROOT / "lib").rglob("*.py"):
    MODULES[".".join(module_path.relative_to(ROOT).with_suffix("").parts)] = module_path


ROWS = re.findall(r"^\| `lib/(\w*)` \|(.*)\|([^|]*)\|$", TEXT, flags=re.M)
LAYERS = [name or "lib" for name, *_ in ROWS]


def modules_of(layer):
    return {module: path for module, path in MODULES.items() if layer_of(module) == layer}


def layers_used_by(layer):
    """The other layers from which the modules of a layer import."""
    used = set()
    for path in modules_of(layer).values():
        used |= {layer_of(name) for name in imported_names("", ast.parse(path.read_bytes()))}
    return used - {layer}


def test_every_layer_has_a_row():
    assert set(LAYERS) == {layer_of(module) for module in MODULES}


@pytest.mark.parametrize("layer, row", [*zip(LAYERS, ROWS, strict=True)], ids=LAYERS)
def test_the_page_shows_what_is_there_and_imports_only_go_down(layer, row):
    _, holds, below = row
    names = {module.split(".")[-1] for module in modules_of(layer)}
    assert set(re.findall(r"`(\w+)`", holds)) == names - {"__init__", *LAYERS}
    stated = set(re.findall(r"`(\w+)`", below))
    lower = LAYERS[: LAYERS.index(layer)]
    assert layers_used_by(layer) == stated
    assert stated <= set(lower)


@pytest.mark.parametrize("path", MODULES.values(), ids=MODULES)
def test_no_module_imports_what_runs_it(path):
    text = path.read_text("utf-8")
    assert not re.search(r"(?m)^ *(from|import) (workflow|demo)\b", text)


def test_what_needs_no_model_imports_no_torch():
    lines = ["import sys, importlib"]
    for layer in ("responses", "score", "calibrate", "analysis", "paper"):
        lines += [f"importlib.import_module({module!r})" for module in modules_of(layer)]
    lines.append("print('torch' in sys.modules)")
    command = [sys.executable, "-c", "\n".join(lines)]
    assert subprocess.check_output(command, cwd=ROOT, text=True) == "False\n"
