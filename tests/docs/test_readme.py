"""README and the pages in docs/: commands that are understood, links that lead somewhere, lines that run, and numbers
that come from the code."""

import ast
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from docs.tables import small_models
from docs.tables.findings import judged, renewed
from lib.paper.verdicts import CLAIMS
from lib.paths import ROOT, UserError
from workflow import cli

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SPACE = {getattr(tokenize, name) for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")}


def test_the_findings_are_counted():
    assert renewed(README) == README, "python docs/tables/findings.py renews the table"


def minutes(page: str) -> dict[str, str]:
    """The time that a page's table states for each command, the cell after it that speaks of time."""
    rows = re.findall(r"^\|[^|`]*`(\./run_all\.sh[^`]*)`[^|]*\|(.*)\|$", (ROOT / page).read_text("utf-8"), flags=re.M)
    cells = {command: [cell.strip() for cell in rest.split("|")] for command, rest in rows}
    return {command: one for command, some in cells.items() for one in some if re.match(r"\d+ to \d+ \w+", one)}


def test_times_are_those_of_the_appendix():
    told, source = minutes("README.md"), minutes("ARTIFACT-APPENDIX.md")
    assert len(told) == 6 and {command: source[command] for command in told} == told
    setup = "half a minute with uv, 3 to 6 with pip alone"
    assert setup in README and setup in (ROOT / "ARTIFACT-APPENDIX.md").read_text(encoding="utf-8")


def test_readme_fits_on_some_screens():
    assert len(README.splitlines()) <= 110


def test_the_method_is_as_short_as_it_says():
    """Lines of code of the modules that the sentence names, without blank lines, comments and docstrings."""
    said = re.search(r"paper's method is about (\d+) lines of code in (\d+) files: (.*?\))\. ", README, flags=re.S)
    files = re.findall(r"\]\((lib/[\w/]+\.py)\)", said[3])
    lines = 0
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        documented = {
            line
            for node in ast.walk(ast.parse(text))
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
        }
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in SPACE]
        lines += len({n for token in tokens for n in range(token.start[0], token.end[0] + 1)} - documented)
    assert len(files) == int(said[2]) and abs(lines - int(said[1])) <= 25, lines


TEXT = " ".join(README.split())


def test_what_readme_says_of_the_real_models_is_what_their_report_counts():
    report = json.loads(lzma.decompress((ROOT / "tests/blackbox/goldens/replay-small.json.xz").read_bytes()))
    counted = {name: said["here_said"].removesuffix(" pairs") for name, said in judged("replay-small").items()}
    said = {
        "SeqAvgBelowAnswer": r"Seq Avg has the lower ECE on (\d of \d) pairs",
        "MeansPartLater": r"differ late in the response on (\d of \d)",
        "MeansOverlapFirst": r"start out overlapping on only (\d of \d)",
        "MeansDiverge": r"On (none) do they rise for correct and fall for incorrect",
        "NoSingleToken": r"On (no) pair does the whole response separate",
    }
    for claim, words in said.items():
        assert re.search(words, TEXT)[1].replace("none", "no").replace("no", "0 of 6") == counted[claim], claim
    (zero,) = re.findall(
        r"/.*\(missing\): zero.* SeqAvgBelowAnswer/then: \"(\d of \d) pairs\"", report["rep_sensitivity"]
    )
    assert f"counted as confidence zero, Seq Avg has the lower ECE on {zero}." in TEXT
    (unparsed,) = re.findall(r"are ([\d.]+%) without a parsable answer", report["rep_notes"])
    assert f"{unparsed} of responses (mostly 0.5B) have no readable answer" in TEXT


def test_what_readme_says_of_the_real_models_is_what_their_signals_give():
    values = small_models.results()
    pairs = len(small_models.PAIRS)

    def lower(one: str, other: str) -> str:
        return f"{sum(float(values[one][pair]) < float(values[other][pair]) for pair in small_models.PAIRS)} of {pairs}"

    assert f"ranks answers better (by AUROC) on {lower('AUROC Seq Avg', 'AUROC Ans Avg')}." in TEXT
    isotonic = small_models.ISOTONIC["ece"]
    assert f"lowers the ECE of Ans Avg on {lower(isotonic, 'ECE Ans Avg')}." in TEXT
    assert f"has a still lower ECE on {lower(small_models.CONSTANT, isotonic)}, " in TEXT
    raw = sorted(values["ECE Seq Avg"].values())
    assert f"badly calibrated, too (ECE {raw[0]} to {raw[-1]})" in TEXT
    fresh, in_situ = (lower(f"ECE {name}", "ECE Seq Avg") for name in ("P(True)", "P(True) in situ"))
    assert fresh == in_situ and f"has a lower ECE than Seq Avg on {fresh}, in a fresh prompt and in situ" in TEXT
    less = {label for pair, label in small_models.PAIRS.items()
            if values["ECE P(True) in situ"][pair] < values["ECE P(True)"][pair]}  # fmt: skip
    assert less == {label for label in small_models.PAIRS.values() if label.startswith("0.5B")}
    evaluated = small_models.signals().responses.query("split == 'evaluation'")
    right = evaluated.groupby(["model", "dataset"]).correct.agg(["sum", "size"])
    (gsm8k, of), (gsmhard, _) = (right.loc[("qwen2.5-coder-0.5b", name)] for name in ("gsm8k", "gsmhard"))
    assert f"on {gsm8k} of {of} questions of GSM8K and {gsmhard} of GSMHard." in TEXT


def test_what_readme_says_of_claims():
    mechanism = {"MeansOverlapFirst", "MeansPartLater", "MeansDiverge", "NoSingleToken", "SignalAccumulates"}
    verdicts = judged("replay-small")
    first = {claim.name for claim in CLAIMS if claim.group == "Finding 1"}
    (ece, about_ece), (other, about) = (
        (sum(verdicts[name]["here"] == "holds" for name in some), len(some)) for some in (first - mechanism, mechanism)
    )
    assert f"{ece} of {about_ece} claims about ECE and {other} of {about} about the mechanism hold" in TEXT
    failing = [name for name, said in judged("replay").items() if said["paper"] == "does not hold"]
    assert failing == ["SeqJointBelowAnswer"] and "fails on the paper's own numbers: Seq Joint below Ans Avg" in TEXT


@pytest.mark.parametrize("page", ["README.md", "docs/extending.md"])
def test_the_lines_of_a_page_run(page, tmp_path):
    """In any folder, and print what stands beside them. README's are at most five."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.S)
    (lines,) = (block for block in blocks if "artifacts/" not in block)  # the others read a run
    assert page != "README.md" or len(lines.strip().splitlines()) <= 5
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, text=True, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^print.*  # (.*)$", lines, flags=re.M)


def commands(text: str) -> set[str]:
    """Every `./run_all.sh ...` of a page, in code or in a line of text, up to a comment."""
    lines = [line for block in re.findall(r"```\w*\n(.*?)```", text, flags=re.S) for line in block.splitlines()]
    lines += re.findall(r"`(\./run_all\.sh[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return {line.partition("  #")[0].strip() for line in lines if line.startswith("./run_all.sh")}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_is_understood(page, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    shutil.copytree(ROOT / "params", tmp_path / "params")
    for folder in ("", "models", "datasets"):  # a user's own
        (tmp_path / "params" / folder / "mine.yaml").touch()
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    words = {"PROFILE": "demo", "[PROFILE]": "demo", "NAME": "mine", "FOLDER": str(tmp_path)}
    for command in commands(page.read_text(encoding="utf-8")):
        try:
            assert cli.parse_and_check([words.get(word, word) for word in command.split()[1:]]).verb
        except UserError as problem:
            pytest.fail(f"{page.name}: {command}: {problem}")


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        place = (page.parent / path) if path else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name}: {target}"
