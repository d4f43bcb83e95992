"""docs/code-map.md leads from the paper to functions, tests and sections of notebooks that are there."""

import ast
import json
import re
import subprocess
import sys

from lib.paths import ROOT
from workflow.fingerprint import imported_names

sys.path.append(str(ROOT / "tests" / "blackbox"))

import goldens  # noqa: E402

MAP = ROOT / "docs" / "code-map.md"
LINK = re.compile(r"\[`(?P<name>\w+)`\]\(\.\./(?P<path>[\w/.]+)\)")
NOTEBOOK = re.compile(r"\[(?P<number>\w+)\]\(\.\./(?P<path>notebooks/[\w.]+)\): (?P<heading>[^|]+?) \|")


def test_functions_are_defined_in_the_files():
    links = list(LINK.finditer(MAP.read_text(encoding="utf-8")))
    assert len(links) > 80
    for link in links:
        text = (ROOT / link["path"]).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {link['name']}\b|^{link['name']}\b.* = ", text, flags=re.M), link[0]


def test_headings_are_those_of_the_notebooks():
    places = list(NOTEBOOK.finditer(MAP.read_text(encoding="utf-8")))
    assert len(places) > 30
    for place in places:
        cells = json.loads((ROOT / place["path"]).read_text(encoding="utf-8"))["cells"]
        text = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        headings = re.findall(r"^#+ *(.*?) *$", "\n".join(text), flags=re.M)
        assert place["heading"] in headings, place[0]


def test_the_numbers_of_the_followed_row_are_those_that_notebooks_show():
    """From 01 to 07, as tests/blackbox/goldens holds them, to three decimals."""
    shown = {name.split("_")[0]: re.findall(r"\d\.\d+", text) for name, text in goldens.read("notebooks").items()}
    rows = re.findall(r"^\| ([^|]*) \| ([\d., ]+) \| (\d\d): [^|]* \|$", MAP.read_text(encoding="utf-8"), flags=re.M)
    assert len(rows) == 17
    for what, numbers, notebook in rows:
        told, known = ({f"{float(x):.3f}" for x in some} for some in (numbers.split(", "), shown[notebook]))
        assert told <= known, what


# ---- the house: rooms, floors, and no import upward

FLOORS = ["lib", "tasks", "generate", "score", "calibrate", "analysis", "paper"]  # from the ground up


def room_of(module: str) -> str:
    """The room of a module below lib: `lib.score.metrics` is in score, `lib.params` on the ground floor."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FLOORS else "lib"


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "lib").rglob("*.py"))
}


def arrows() -> dict[str, set[str]]:
    """Which rooms each room imports from, itself aside."""
    found: dict[str, set[str]] = {room: set() for room in FLOORS}
    for module, text in MODULES.items():
        found[room_of(module)] |= {room_of(name) for name in imported_names("", ast.parse(text))} - {room_of(module)}
    return found


def test_imports_only_go_down():
    for room, below in arrows().items():
        assert all(FLOORS.index(other) < FLOORS.index(room) for other in below), (room, below)
    for module, text in MODULES.items():
        assert not re.search(r"^ *(from|import) (workflow|demo)\b", text, flags=re.M), f"{module} leaves the house"


def test_the_page_draws_what_is_there():
    text = MAP.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `lib/(\w*)` \|(.*)\|([^|]*)\|$", text, flags=re.M)
    drawn = {}
    for room, holds, below in rows:
        drawn[room or "lib"] = [set(re.findall(r"`(\w+)`", words)) for words in (holds, below)]
    assert list(drawn) == FLOORS
    for room, (holds, below) in drawn.items():
        there = {module.split(".")[-1] for module in MODULES if room_of(module) == room}
        assert holds == there - {"__init__"} - set(FLOORS), room
        assert below == arrows()[room], room


def test_what_needs_no_model_imports_no_torch():
    rooms = ("score", "calibrate", "analysis", "paper")
    names = [module for module in MODULES if room_of(module) in rooms]
    code = f"import sys, importlib\nfor name in {names}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
