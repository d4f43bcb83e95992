"""The tables, numbers and pictures of the pages are those of the shipped runs and of the code."""

import json
import re
from collections import defaultdict

import pandas as pd
import pytest

from docs.tables import address, claims, example, expected, findings, results, small_models
from lib import store
from lib.paths import ROOT

README = small_models.README.read_text(encoding="utf-8")
TEXT = " ".join(README.split())
CODE_MAP = ROOT / "docs" / "code-map.md"
RENEWED = {
    "findings": (small_models.README, findings.renewed), "claims": (CODE_MAP, claims.renewed),
    "expected": (expected.PAGE, expected.renewed), "small_models": (small_models.PAGE, small_models.renewed),
    "small_models, README": (small_models.README, small_models.renewed_readme),
}  # fmt: skip


@pytest.mark.parametrize("name", RENEWED)
def test_a_table_is_what_its_script_makes(name):
    page, renewed = RENEWED[name]
    text = page.read_text(encoding="utf-8")
    assert renewed(text) == text, f"python docs/tables/{name.split(',')[0]}.py renews it"


def test_the_sentences_of_readme_count_what_its_table_and_the_stored_reports_say():
    measured = small_models.results()
    columns = {head: measured[row] for head, row in small_models.IN_README.items()}
    table = pd.DataFrame(columns).rename(index=lambda name: name.split("-")[-1]).astype(float)

    def lower(one: str, other: str) -> str:
        return f"{sum(table[one] < table[other])} of {len(table)}"

    judged, isotonic = findings.judged("replay-small"), "ECE Ans Avg, isotonic"
    said = {name: judged[name]["here_said"].removesuffix(" pairs") for name in judged}
    right = [round(300 * table.accuracy["0.5b", dataset]) for dataset in ("gsm8k", "gsmhard")]
    for sentence in (
        f"Seq Avg has the lower ECE on {lower('ECE Seq Avg', 'ECE Ans Avg')} pairs**",
        f"(ECE {min(table['ECE Seq Avg']):.3f} to {max(table['ECE Seq Avg']):.3f})".replace("0.", "."),
        f"Ans Avg ranks answers better (by AUROC) on {lower('AUROC Seq Avg', 'AUROC Ans Avg')}.",
        f"on {right[0]} of 300 questions of GSM8K and {right[1]} of GSMHard.",
        f"lowers the ECE of Ans Avg on {lower(isotonic, 'ECE Ans Avg')}.",
        f"has a still lower ECE on {lower('ECE constant', isotonic)}, ",
        f"has a lower ECE than Seq Avg on {lower('ECE P(True)', 'ECE Seq Avg')}, in a fresh prompt and in situ",
        f"differ late in the response on {said['MeansPartLater']} pairs.",
        f"start out overlapping on only {said['MeansOverlapFirst']}.",
    ):
        assert sentence in TEXT
    assert said["MeansDiverge"] == said["NoSingleToken"] == "0 of 6" and "On none do they" in TEXT
    failing = [name for name, one in findings.judged("replay").items() if one["paper"] == "does not hold"]
    assert failing == ["SeqJointBelowAnswer"] and "fails on the paper's own numbers: Seq Joint below Ans" in TEXT


def test_the_method_is_as_short_as_readme_says():
    """Lines of code of the modules that the sentence names, without blank lines, comments and docstrings."""
    said = re.search(r"paper's method is about (\d+) lines of code in (\d+) files: (.*?\))\. ", README, flags=re.S)
    files = re.findall(r"\]\((lib/[\w/]+\.py)\)", said[3])
    code = "\n".join(re.sub(r'(?s)""".*?"""', "", (ROOT / file).read_text(encoding="utf-8")) for file in files)
    lines = len([line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")])
    assert len(files) == int(said[2]) and abs(lines - int(said[1])) <= 25, lines


def test_pages_agree_on_times_and_on_room():
    said = defaultdict(set)
    for page in ("README.md", "ARTIFACT-APPENDIX.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for what, value in re.findall(r"^\|[^|`]*`(\./run_all[^`]*)`.*?\| (\d+ to \d+ \w+)", text, flags=re.M):
            said[what].add(value)
        for what in (r"memory,? (?:and )?(\d) GB of disk", r"\((half a minute with uv, [^)]*)\)"):
            said[what] |= set(re.findall(what, text))
    assert len(said) >= 8 and all(len(values) == 1 for values in said.values()), said


def test_every_picture_is_there_and_shown():
    shown = re.findall(r"\]\(results/([\w.]+)\)", results.PAGE.read_text(encoding="utf-8"))
    files = list(results.PICTURES.iterdir())
    assert sorted(shown) == sorted(path.name for path in files) and len(files) >= 5
    assert sum(path.stat().st_size for path in files) < 1.5e6


def test_the_tokens_of_the_example_of_00_are_spelled():
    told = json.loads(example.PATH.read_text(encoding="utf-8"))
    row = store.load_frames("replay-small", "generations", [told["model"]], [told["dataset"]])[0]
    row = row.set_index("example_id").loc[told["example_id"]]
    words = [told["spelled"][str(token)] for token in row.token_ids]
    assert "".join(words) == told["response"]
    assert "".join(words[row.answer_start : row.answer_end]) == row.answer


def test_one_command_tells_where_the_pages_are():
    """Of README and of each notebook, whose first lines lead to docs/results.md until then."""
    url = "https://github.com/someone/math.confidence"
    for path in address.places():
        told = address.addressed(path, path.read_text(encoding="utf-8"), f"{url}.git")
        assert address.CONSTANT not in told and not address.LINK.search(told)
        if path.suffix == ".ipynb" or path.name == "README.md":
            assert re.search(r"\[[^\]]*executed[^\]]*\]\(https://someone\.github\.io/math\.confidence/", told), path
    assert f"git clone {url} " in address.addressed(small_models.README, README, url)
