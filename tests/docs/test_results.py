"""The tables, sentences and numbers of the pages are those of the shipped runs and of the code."""

import re

import goldens
import pytest

from docs.tables import address, claims, expected, findings, sentences, small_models
from lib.paths import ROOT

README = small_models.README.read_text(encoding="utf-8")
APPENDIX = expected.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page, renewed", [
    ("README.md", findings.renewed), ("docs/code-map.md", claims.renewed), ("ARTIFACT-APPENDIX.md", expected.renewed),
    ("docs/small-models.md", small_models.renewed), ("README.md", small_models.renewed_readme),
    ("README.md", sentences.renewed)])  # fmt: skip
def test_a_table_is_what_its_script_makes(page, renewed):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert renewed(text) == text, f"python {renewed.__module__.replace('.', '/')}.py renews it"


def test_the_sentences_of_readme_are_what_stored_reports_say():
    """They are made from the shipped signals; the reports were made by commands, and are stored."""
    text, stored = " ".join(README.split()), goldens.read("replay-small")
    values = re.findall(r"^/\d+/(value|low|high): (.*)$", stored["rep_pooled"], flags=re.M)
    first = [
        f"{float(value):.3f}".replace("0.", ".") for _, value in sorted(values[:3], reverse=True)
    ]
    assert f"as in the paper: {first[0]} [{first[1]}, {first[2]}] on average" in text
    judged = {name: one["here_said"] for name, one in findings.judged("replay-small").items()}
    (unread,) = re.findall(r"are ([\d.]+%) without a parsable answer", stored["rep_notes"])
    assert f"**{unread} of responses have no readable answer**" in text
    assert (
        judged["means_overlap_first"] == "5 pairs agree, 1 disagrees"
        and "told apart on 5 of 6 pairs" in text
    )
    assert (
        judged["means_part_later"] == "5 pairs agree, 1 open"
        and "differ late on 5 (1 open)" in text
    )
    assert judged["no_single_token"] == "1 pair agrees, 4 open, 1 disagrees"
    assert "worse on 1, better on 1, open on 4" in text
    assert judged["seq_avg_below_answer"] == "6 pairs agree"
    failing = [name for name, one in findings.judged("replay").items() if one["paper"] == "fails"]
    assert failing == ["seq_joint_below_answer"]
    assert "claim fails on the paper's own numbers: Seq Joint below Ans" in text


def test_the_method_is_as_short_as_readme_says():
    """Lines of code of the modules that the sentence names, without blank lines, comments and
    docstrings."""
    said = re.search(
        r"paper's method is about (\d+) lines of code in (\d+) files: (.*?\))\. ",
        README,
        flags=re.S,
    )
    files = re.findall(r"\]\((lib/[\w/]+\.py)\)", said[3])
    code = "\n".join(
        re.sub(r'(?s)""".*?"""', "", (ROOT / file).read_text(encoding="utf-8")) for file in files
    )
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
        told = address.addressed(
            path, path.read_text("utf-8"), "https://github.com/someone/math.confidence.git"
        )
        assert (
            address.CONSTANT not in told
            and "confidence.git" not in told
            and not address.LINK.search(told)
        )
        is_linked = "](https://someone.github.io/math.confidence/" in told
        assert is_linked == (path.suffix == ".ipynb" or path == small_models.README), path
