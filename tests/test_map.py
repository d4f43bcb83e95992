"""docs/code-map.md leads from the paper to lines of code that are there. `python tests/test_map.py` renews the lines."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "code-map.md"
LINK = re.compile(r"\[`(?P<name>\w+)`\]\(\.\./(?P<path>[\w/.]+)#L(?P<line>\d+)\)")
NOTEBOOK = re.compile(r"\[(?P<number>\w+)\]\(\.\./(?P<path>notebooks/[\w.]+)\): (?P<heading>[^|]+?) \|")


def defined_at(path: str, name: str) -> int:
    """The line where a file defines a name; 0 where it does not."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1)
             if re.match(rf"\s*(def|class) {name}\b|{name}\b.* = ", line)]  # fmt: skip
    return found[0] if found else 0


def renewed(text: str) -> str:
    """The text with every line as it is now."""
    return LINK.sub(lambda link: link[0].rpartition("#L")[0] + f"#L{defined_at(link['path'], link['name'])})", text)


def test_lines_are_those_of_the_functions():
    text = MAP.read_text(encoding="utf-8")
    assert len(LINK.findall(text)) > 80
    assert [link["name"] for link in LINK.finditer(text) if not defined_at(link["path"], link["name"])] == []
    assert text == renewed(text), "python tests/test_map.py renews them"


def test_headings_are_those_of_the_notebooks():
    places = list(NOTEBOOK.finditer(MAP.read_text(encoding="utf-8")))
    assert len(places) > 30
    for place in places:
        cells = json.loads((ROOT / place["path"]).read_text(encoding="utf-8"))["cells"]
        headings = [line.lstrip("# ").strip() for cell in cells if cell["cell_type"] == "markdown"
                    for line in "".join(cell["source"]).splitlines() if line.startswith("#")]  # fmt: skip
        assert place["heading"] in headings, place[0]


def test_nothing_that_the_paper_labels_is_left_out():
    paper = ROOT.parent / "shared" / "paper" / "paper.tex"
    if not paper.exists():
        pytest.skip("the paper's text is not at hand")
    lines = [line for line in paper.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("%")]
    labels = re.findall(r"\\label\{((?:tab|fig|eq):\w+)\}", "\n".join(lines))
    assert len(labels) >= 17
    text = MAP.read_text(encoding="utf-8")
    assert [label for label in labels if label not in text] == []


if __name__ == "__main__":
    MAP.write_text(renewed(MAP.read_text(encoding="utf-8")), encoding="utf-8")
