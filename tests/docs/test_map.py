"""docs/code-map.md leads from the paper to functions, tests and sections of notebooks that are there.
`python tests/docs/test_map.py` renews its table of claims."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.paper.claims import CLAIMS, VIEWS  # noqa: E402

MAP = ROOT / "docs" / "code-map.md"
LINK = re.compile(r"\[`(?P<name>\w+)`\]\(\.\./(?P<path>[\w/.]+)\)")
NOTEBOOK = re.compile(r"\[(?P<number>\w+)\]\(\.\./(?P<path>notebooks/[\w.]+)\): (?P<heading>[^|]+?) \|")

BEGIN, END = "<!-- claims: python tests/docs/test_map.py renews this table -->\n", "\n\n"


def shown_in() -> dict[str, list[str]]:
    """By claim and by finding, the notebooks that show its verdict."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        code = path.read_text(encoding="utf-8")
        for names in re.findall(r'show_claims\(\\"([^\\]+)\\"', code):
            for name in [names] if names.startswith("Finding ") else names.split():
                found.setdefault(name, []).append(path.stem.partition("_")[0])
    return found


def table_of_claims() -> str:
    """Each claim of the paper: its sentence, its view, and the notebooks that show its verdict."""
    notebooks, lines = shown_in(), ["| claim | in the paper | view | notebook |", "|---|---|---|---|"]
    for claim in (claim for claim in CLAIMS if claim.kind == "claim"):
        where = sorted(
            {*notebooks.get(claim.name, []), *notebooks.get(claim.group, []) * claim.group.startswith("Finding"), "08"}
        )
        view = f"[`{claim.view}`](../lib/paper/{VIEWS[claim.view].__module__.rpartition('.')[2]}.py)"
        lines.append(f"| `{claim.name}` | {claim.group}: {claim.quote} | {view} | {', '.join(where)} |")
    return "\n".join(lines)


def test_every_claim_is_in_the_table():
    text = MAP.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == table_of_claims(), "python tests/docs/test_map.py renews it"


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
    before, mark, rest = MAP.read_text(encoding="utf-8").partition(BEGIN)
    MAP.write_text(before + mark + table_of_claims() + END + rest.partition(END)[2], encoding="utf-8")
