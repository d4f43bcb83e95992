"""What README and the pages in docs/ say: commands that are understood, links that lead somewhere, findings as they are
counted. `python tests/test_readme.py` renews README's table of findings."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lib.paper import run_results  # noqa: E402
from lib.paper.claims import FINDINGS, HEADLINES  # noqa: E402
from lib.paper.findings import verdicts  # noqa: E402
from lib.paper.judging import ClaimVerdict  # noqa: E402
from lib.paper.results import published  # noqa: E402
from lib.params import Reading, load_profile  # noqa: E402
from workflow import finding, words  # noqa: E402

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BEGIN, END = "<!-- findings: python tests/test_readme.py renews this table -->\n", "<!-- end -->"
MINUTES = {"1": 5, "2": 4, "3": 2, "4": 5}


def held(judged: dict[str, ClaimVerdict]) -> str:
    return "{} of {}".format(*finding.tally(judged))


def table() -> str:
    """The findings, each with its command and how many of its claims hold."""
    demo = load_profile("demo")
    head = ("finding", "command", "minutes", "notebooks", "on the paper's numbers", "on the demo")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for number, notebooks in finding.NEEDS.items():
        some = [claim for claim in FINDINGS if claim.group == f"Finding {number}"]
        moved = demo.transfer_models, demo.transfer_datasets
        here = run_results.so_far("replay", demo.models, demo.datasets, Reading(), finding.kinds(number), *moved)
        names = ", ".join(name.split("_")[0] for name in notebooks)
        counts = f"{held(verdicts(published(), some))} | {held(verdicts(here, some))}"
        said, command = HEADLINES[f"Finding {number}"], f"`./run_all.sh finding {number}`"
        lines.append(f"| {number}. {said} | {command} | {MINUTES[number]} | {names} | {counts} |")
    return "\n".join(lines) + "\n"


def test_the_findings_are_counted():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == table(), "python tests/test_readme.py renews it"
    assert f"{sum(claim.kind == 'claim' for claim in FINDINGS)} in all" in " ".join(text.split())


def commands(text: str) -> set[str]:
    """Every `./run_all.sh ...` of a page, in code or in a line of text, up to a comment."""
    lines = [line for block in re.findall(r"```\w*\n(.*?)```", text, flags=re.S) for line in block.splitlines()]
    lines += re.findall(r"`(\./run_all\.sh[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return {line.partition("  #")[0].strip() for line in lines if line.startswith("./run_all.sh")}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_is_understood(page, tmp_path):
    for folder in ("", "models", "datasets"):  # a user's own
        (tmp_path / "params" / folder).mkdir(parents=True, exist_ok=True)
        for path in (ROOT / "params" / folder).glob("*.yaml"):
            (tmp_path / "params" / folder / path.name).touch()
        (tmp_path / "params" / folder / "mine.yaml").touch()
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    for command in commands(page.read_text(encoding="utf-8")):
        argv = command.split()[1:]
        argv = [{"PROFILE": "demo", "[PROFILE]": "demo", "NAME": "mine", "FOLDER": str(tmp_path)}.get(word, word)
                for word in argv]  # fmt: skip
        try:
            asked = words.check(argv, tmp_path)
        except words.WordError as problem:
            pytest.fail(f"{page.name}: {command}: {problem}")
        assert asked.verb


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        place = (page.parent / path) if path else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name}: {target}"


def test_readme_is_one_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 180


if __name__ == "__main__":
    page = ROOT / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
