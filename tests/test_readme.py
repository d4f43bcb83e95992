"""README and the pages in docs/: commands that are understood, links that lead somewhere, lines that run, and numbers
that come from the code. `python tests/test_readme.py` renews README's table of findings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import makespan  # noqa: E402

from lib.analysis import run_results, run_signals  # noqa: E402
from lib.paper.claims import CLAIMS, FINDINGS  # noqa: E402
from lib.paper.reference import paper_facts, published  # noqa: E402
from lib.paper.verdicts import QUANTIFIERS, Verdict, judge_all  # noqa: E402
from lib.params import Reading, load_profile  # noqa: E402
from lib.tasks.prompts import WORKED  # noqa: E402
from workflow import cli, finding  # noqa: E402
from workflow.pipeline import NOTEBOOKS, Run  # noqa: E402

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README, APPENDIX = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "ARTIFACT-APPENDIX.md"))
BEGIN, END = "<!-- findings: python tests/test_readme.py renews this table -->\n", "\n\n"
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MINUTES = {"1": 5, "2": 4, "3": 2, "4": 5}


def counted(verdicts_of: dict[str, Verdict]) -> str:
    return "{} of {}".format(*finding.tally(verdicts_of))


def table() -> str:
    """The findings, each with its command and how many of its claims hold."""
    demo = load_profile("demo")
    moved = {"transfer_models": demo.transfer_models, "transfer_datasets": demo.transfer_datasets}
    head = ("finding", "command", "minutes", "notebooks", "on the paper's numbers", "on the demo")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for number, notebooks in finding.NEEDS.items():
        some = [claim for claim in CLAIMS if claim.group == f"Finding {number}"]
        here = run_results.partial_results(
            "replay", demo.models, demo.datasets, Reading(), finding.kinds(number), **moved
        )
        counts = f"{counted(judge_all(published(), some))} | {counted(judge_all(here, some))}"
        names = ", ".join(name.split("_")[0] for name in notebooks)
        said, command = FINDINGS[f"Finding {number}"], f"`./run_all.sh finding {number}`"
        lines.append(f"| {number}. {said} | {command} | {MINUTES[number]} | {names} | {counts} |")
    return "\n".join(lines)


def section(name: str) -> str:
    return README.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def numbers(text: str) -> set[str]:
    """Numbers of a text, in figures and in words: not those of names, links and code."""
    plain = re.sub(r"```.*?```|`[^`]*`|<!--.*?-->|\]\([^)]*\)", " ", text, flags=re.S).replace("one-shot", "")
    figures = re.findall(r"(?<![\w.-])\.?\d[\d.,]*%?(?![\w-])", plain)
    return {figure.rstrip(".,") for figure in figures} | (set(plain.lower().split()) & set(WORDS[2:]))


def experiments() -> dict[str, str]:
    """By command the time that the appendix gives it."""
    rows = re.findall(r"^\|[^|]*?(?:: `([^`]*)`)?[^|`]*\|[^|]*\| ([^|]*) \|", APPENDIX, flags=re.M)
    return {command: time for command, time in rows if command}


def test_the_findings_are_counted():
    assert README.partition(BEGIN)[2].partition(END)[0] == table(), "python tests/test_readme.py renews it"


def test_the_claims_are_counted():
    """All of the paper, in figures; and one of them, as an example."""
    claims = [claim for claim in CLAIMS if claim.kind == "claim"]
    asked = load_profile("demo")
    where, reading = (asked.models, asked.datasets), Reading.of(asked.model_dump())
    signals = run_signals.RunSignals.of("replay", *where, reading)
    moved = {"transfer_models": asked.transfer_models, "transfer_datasets": asked.transfer_datasets}
    demo = judge_all(run_results.results_of_run("replay", signals, *where, **moved), claims)
    paper = judge_all(published(), claims)
    text = section("Findings").partition(END)[2]
    figures = {str(len(claims)), *(str(n) for side in (paper, demo) for n in finding.tally(side))}
    example = [side["SeqAvgBelowAnswer"] for side in (paper, demo)]
    assert [one.held for one in example] == [True, False]
    figures |= {figure for one in example for figure in re.findall(r"\d+", one.said)}
    assert numbers(text) == figures | {"three"}  # three quarters
    assert QUANTIFIERS["most"][1](3, 4) and not QUANTIFIERS["most"][1](29, 40)
    assert QUANTIFIERS["often"][1](51, 100) and not QUANTIFIERS["often"][1](50, 100)


def test_what_has_run():
    """Models, questions and jobs of the profiles; times of the appendix."""
    demo, small, paper = map(load_profile, ("demo", "small", "paper"))
    assert [len(demo.models), len(paper.models)] == [2, 5] and small.limit == 300
    assert numbers(README.partition("\n## ")[0]) == {"80%", ".804", ".060", "1", "300", "two", "five"}
    start, run = section("Quick start"), Run("demo", demo.model_dump(mode="json"))
    done, all_of, made, kept, seconds = re.search(
        r"demo: (\d+) of (\d+) jobs .*demo: (\d+) made, (\d+) kept, ([\d.]+) s", start, flags=re.S
    ).groups()
    assert {done, all_of, made} == {str(len(run.jobs))} and kept == "0"
    setup, demo_time = re.search(r"set up .*?\| .*? \| (.*?) \|", APPENDIX)[1], experiments()["./run_all.sh"]
    assert numbers(start) == numbers(setup) | numbers(demo_time) | {"two"} and setup in start and demo_time in start
    least, most = map(int, re.findall(r"\d+", demo_time))
    assert least * 60 <= float(seconds) <= most * 60


def test_what_to_run_takes_the_time_of_the_appendix():
    text = section("What to run")
    rows = re.findall(r"^\| [^|]* \| `([^`]*)` \| ([^|]*) \|", text, flags=re.M)
    assert len(rows) == 6 and set(rows) <= set(experiments().items())
    low, high = re.search(r">=3\.(\d+),<3\.(\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8")).groups()
    pythons = {f"3.{minor}" for minor in range(int(low), int(high))}
    hardware = APPENDIX.partition("### Hardware")[2].partition("###")[0]
    assert numbers(text.rpartition(END)[2]) == pythons | (numbers(hardware) - {"two", "12"})


def test_numbers_elsewhere():
    """Of datasets and Finding 3; of worked examples and errata; none but in code in other sections."""
    assert numbers(section("A real model").partition(END)[2]) == {"3", "two", "three"}
    assert numbers(section("Limitations")) == {WORDS[len(WORKED)], WORDS[len(paper_facts()["twice"])]}
    for name in ("Customize", "Repository layout", "Documentation", "Use it as a library"):
        assert not numbers(section(name))
    stems = {row.number for row in NOTEBOOKS}
    assert set(re.findall(r"\b\d\d\b", section("Repository layout"))) <= stems


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


def test_the_lines_of_readme_run(tmp_path):
    """In any folder, and print what stands beside them."""
    (lines,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len(lines.strip().splitlines()) <= 5
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, text=True, capture_output=True,
                          env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == lines.strip().rpartition("  # ")[2]


def test_title_and_authors_are_those_to_be_cited():
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["preferred-citation"]
    entry = README.partition("```bibtex")[2]
    assert f"title = {{{paper['title']}}}" in entry
    names = [(one["given-names"], one["family-names"]) for one in paper["authors"]]
    assert " and ".join(f"{family}, {given}" for given, family in names) in entry
    assert all(f"{given} {family}" in README for given, family in names)


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


def test_readme_is_one_page():
    assert len(README.splitlines()) <= 125


if __name__ == "__main__":
    before, _, rest = README.partition(BEGIN)
    after = rest.partition(END)[2] if rest.startswith("|") else rest.lstrip("\n")
    (ROOT / "README.md").write_text(before + BEGIN + table() + END + after, encoding="utf-8")
