"""The tables, sentences and numbers of the pages are those of the shipped runs and of the code."""

import re

import goldens
import pandas as pd
import pytest

from docs.tables import address, claims, expected, findings, small_models
from lib.paths import ROOT

README = small_models.README.read_text(encoding="utf-8")
APPENDIX = expected.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page, renewed", [
    ("README.md", findings.renewed), ("docs/code-map.md", claims.renewed), ("ARTIFACT-APPENDIX.md", expected.renewed),
    ("docs/small-models.md", small_models.renewed), ("README.md", small_models.renewed_readme)])  # fmt: skip
def test_a_table_is_what_its_script_makes(page, renewed):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert renewed(text) == text, f"python {renewed.__module__.replace('.', '/')}.py renews it"


def test_the_sentences_of_readme_count_what_its_table_and_the_stored_reports_say():
    measured = small_models.results()
    columns = {head: measured[row] for head, row in small_models.IN_README.items()}
    table = pd.DataFrame(columns).rename(index=lambda name: name.split("-")[-1]).astype(float)
    judged, isotonic, stored = findings.judged("replay-small"), "ECE Ans Avg, isotonic", goldens.read("replay-small")
    said = {name: one["here_said"].removesuffix(" pairs") for name, one in judged.items()}
    right = [round(300 * table.accuracy["0.5b", dataset]) for dataset in ("gsm8k", "gsmhard")]
    (unread,) = re.findall(r"are ([\d.]+%) without a parsable answer", stored["rep_notes"])
    (of_zero,) = re.findall(r'zero, not last_number SeqAvgBelowAnswer/then: "(.*) pairs"', stored["rep_sensitivity"])

    def lower(one: str, other: str) -> str:
        return f"{sum(table[one] < table[other])} of {len(table)}"

    for sentence in (
        f"Seq Avg has the lower ECE on {lower('ECE Seq Avg', 'ECE Ans Avg')} pairs**",
        f"(ECE {min(table['ECE Seq Avg']):.3f} to {max(table['ECE Seq Avg']):.3f})".replace("0.", "."),
        f"Ans Avg ranks answers better (by AUROC) on {lower('AUROC Seq Avg', 'AUROC Ans Avg')}.",
        f"on {right[0]} of 300 questions of GSM8K and {right[1]} of GSMHard.",
        f"{unread} of responses (mostly 0.5B) have no readable answer; "
        f"counted as confidence zero, Seq Avg has the lower ECE on {of_zero}.",
        f"lowers the ECE of Ans Avg on {lower(isotonic, 'ECE Ans Avg')}.",
        f"has a still lower ECE on {lower('ECE constant', isotonic)}, ",
        f"has a lower ECE than Seq Avg on {lower('ECE P(True)', 'ECE Seq Avg')}, in a fresh prompt and in situ",
        f"differ late in the response on {said['MeansPartLater']} pairs.",
        f"start out overlapping on only {said['MeansOverlapFirst']}.",
        "On none do they",
        "In situ has a lower ECE than a fresh prompt on the 0.5B, and a higher one on the 1.5B.",
        "fails on the paper's own numbers: Seq Joint below Ans",
    ):
        assert sentence in " ".join(README.split())
    assert said["MeansDiverge"] == said["NoSingleToken"] == "0 of 6"
    in_situ = table["ECE P(True) in situ"] < table["ECE P(True)"]
    assert (in_situ == (table.index.get_level_values(0) == "0.5b")).all()
    failing = [name for name, one in findings.judged("replay").items() if one["paper"] == "does not hold"]
    assert failing == ["SeqJointBelowAnswer"]


def test_the_method_is_as_short_as_readme_says():
    """Lines of code of the modules that the sentence names, without blank lines, comments and docstrings."""
    said = re.search(r"paper's method is about (\d+) lines of code in (\d+) files: (.*?\))\. ", README, flags=re.S)
    files = re.findall(r"\]\((lib/[\w/]+\.py)\)", said[3])
    code = "\n".join(re.sub(r'(?s)""".*?"""', "", (ROOT / file).read_text(encoding="utf-8")) for file in files)
    lines = len(re.findall(r"(?m)^ *[^\s#]", code))
    assert len(files) == int(said[2]) and abs(lines - int(said[1])) <= 25, lines


def test_pages_agree_on_times_and_on_room():
    times = r"(?m)^\|[^|`]*`(\./run_all[^`]*)`.*?\| (\d+ to \d+ \w+)"
    rows, others = (dict(re.findall(times, text)) for text in (README, APPENDIX))
    assert len(rows) == 6 and rows.items() <= others.items()
    for said in (r"\d GB of disk", r"half a minute with uv, [\w ]+\b"):
        assert re.findall(said, README) == re.findall(said, APPENDIX) != []


def test_one_command_tells_where_the_pages_are():
    """Of README and of each notebook, whose first lines lead to docs/results.md until then."""
    for path in address.places():
        told = address.addressed(path, path.read_text("utf-8"), "https://github.com/someone/math.confidence.git")
        assert address.CONSTANT not in told and "confidence.git" not in told and not address.LINK.search(told)
        is_linked = "](https://someone.github.io/math.confidence/" in told
        assert is_linked == (path.suffix == ".ipynb" or path == small_models.README), path
