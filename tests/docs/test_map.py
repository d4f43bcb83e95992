"""docs/code-map.md leads from the paper to functions, tests and sections of notebooks that are there."""

import json
import re
import sys

from docs.tables import claims
from lib.paths import ROOT

sys.path.append(str(ROOT / "tests" / "blackbox"))

import goldens  # noqa: E402

MAP = ROOT / "docs" / "code-map.md"
LINK = re.compile(r"\[`(?P<name>\w+)`\]\(\.\./(?P<path>[\w/.]+)\)")
NOTEBOOK = re.compile(r"\[(?P<number>\w+)\]\(\.\./(?P<path>notebooks/[\w.]+)\): (?P<heading>[^|]+?) \|")


def test_every_claim_is_in_the_table():
    text = MAP.read_text(encoding="utf-8")
    assert claims.renewed(text) == text, "python docs/tables/claims.py renews it"


def is_defined(path: str, name: str) -> bool:
    text = (ROOT / path).read_text(encoding="utf-8")
    return bool(re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", text, flags=re.M))


def test_functions_are_defined_in_the_files():
    links = list(LINK.finditer(MAP.read_text(encoding="utf-8")))
    assert len(links) > 80
    assert [link["name"] for link in links if not is_defined(link["path"], link["name"])] == []


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
