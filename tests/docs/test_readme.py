"""README and the pages in docs/: commands that are understood, links that lead somewhere, lines that run, and numbers
that come from the code. `python tests/docs/test_readme.py` renews README's table of findings."""

import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from docs.benchmarks import makespan  # noqa: E402
from lib.analysis import run_results  # noqa: E402
from lib.paper.claims import CLAIMS, FINDINGS, Claim  # noqa: E402
from lib.paper.reference import published  # noqa: E402
from lib.paper.verdicts import Verdict, judge_all  # noqa: E402
from lib.params import Reading, load_profile  # noqa: E402
from workflow import cli, finding  # noqa: E402
from workflow.pipeline import Run  # noqa: E402

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README, APPENDIX = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "ARTIFACT-APPENDIX.md"))
BEGIN, END = "<!-- findings: python tests/docs/test_readme.py renews this table -->\n", "\n\n"
MINUTES = {"1": 5, "2": 4, "3": 2, "4": 5}


def counted(verdicts_of: dict[str, Verdict]) -> str:
    return "{} of {}".format(*finding.tally(verdicts_of))


def counted_in_report(run: str, side: str, claims: list[Claim]) -> str:
    """How many of the claims hold in the golden report of a run, `here` or on the numbers of the `paper`."""
    report = json.loads(lzma.decompress((ROOT / f"tests/blackbox/goldens/{run}.json.xz").read_bytes()))
    verdict_of = dict(re.findall(rf'^/(\w+)/{side}: "(.*)"$', report["rep_findings"], flags=re.M))
    verdicts = [verdict_of[claim.name] for claim in claims if claim.kind == "claim"]
    return f"{verdicts.count('holds')} of {sum(verdict in ('holds', 'does not hold') for verdict in verdicts)}"


def table() -> str:
    """The findings, each with its command and how many of its claims hold."""
    demo = load_profile("demo")
    moved = {"transfer_models": demo.transfer_models, "transfer_datasets": demo.transfer_datasets}
    head = ("finding", "command", "minutes", "notebooks", "on the paper's numbers", "on the demo", "on a real model")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for number, notebooks in finding.NEEDS.items():
        some = [claim for claim in CLAIMS if claim.group == f"Finding {number}"]
        here = run_results.partial_results(
            "replay", demo.models, demo.datasets, Reading(), finding.kinds(number), **moved
        )
        sides = [counted(judge_all(results, some)) for results in (published(), here)]
        sides.append(counted_in_report("replay-small", "here", some))
        names = ", ".join(name.split("_")[0] for name in notebooks)
        said, command = FINDINGS[f"Finding {number}"], f"`./run_all.sh finding {number}`"
        lines.append(f"| {number}. {said} | {command} | {MINUTES[number]} | {names} | {' | '.join(sides)} |")
    return "\n".join(lines)


def experiments() -> dict[str, str]:
    """By command the time that the appendix gives it."""
    rows = re.findall(r"^\|[^|]*?(?:: `([^`]*)`)?[^|`]*\|[^|]*\| ([^|]*) \|", APPENDIX, flags=re.M)
    return {command: time for command, time in rows if command}


def test_the_findings_are_counted():
    assert README.partition(BEGIN)[2].partition(END)[0] == table(), "python tests/docs/test_readme.py renews it"


def test_all_claims_are_counted():
    demo, small = (counted_in_report(run, "here", list(CLAIMS)) for run in ("replay", "replay-small"))
    held, judged = counted_in_report("replay", "paper", list(CLAIMS)).split(" of ")
    number = sum(claim.kind == "claim" for claim in CLAIMS)
    assert f"{number} claims. It prints numbers for {judged}, and {held} hold" in README
    assert f"On the demo {demo} hold, on the real model {small}." in README


@pytest.mark.slow
def test_the_hours_of_the_papers_run(shared):
    """As `check` would reckon them for each card, everywhere where they stand."""
    run, guide = Run("paper", load_profile("paper").model_dump(mode="json"), gpus=1), ROOT / "docs" / "hardware.md"
    found = makespan.hours_of_one_gpu(run, shared / "tokenizers")
    rows = re.findall(
        r"^\| \w+.*?, with vLLM \| (.*?) \| (.*?) \| (.*?), (.*?) \|", guide.read_text("utf-8"), flags=re.M
    )
    expected = {tuple(f"{pair[kind]:.0f} h" for kind in (0, 1) for pair in pairs) for pairs in found.values()}
    assert len(rows) == len(expected) and set(rows) == expected
    low, high = (f"{every:.0f}" for every, _ in found[makespan.H200.name])
    assert experiments()["./run_all.sh paper"].startswith(f"{low} to {high} hours on one H200")


@pytest.mark.parametrize("page", ["README.md", "docs/extending.md"])
def test_the_lines_of_a_page_run(page, tmp_path):
    """In any folder, and print what stands beside them. README's are at most five."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.S)
    (lines,) = (block for block in blocks if "artifacts/" not in block)  # the others read a run
    assert page != "README.md" or len(lines.strip().splitlines()) <= 5
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, text=True, capture_output=True,
                          env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^print.*  # (.*)$", lines, flags=re.M)


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
            asked = cli.check(argv, tmp_path)
        except cli.WordError as problem:
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


if __name__ == "__main__":
    before, _, rest = README.partition(BEGIN)
    after = rest.partition(END)[2] if rest.startswith("|") else rest.lstrip("\n")
    (ROOT / "README.md").write_text(before + BEGIN + table() + END + after, encoding="utf-8")
