"""The tables, sentences and numbers of the pages are those of the shipped runs and of the code."""

import re

import goldens
import pytest

from docs.tables import (
    address,
    claims,
    expected,
    findings,
    picture,
    sentences,
    small_models,
    spellings,
)
from lib import params, store
from lib.paper.response_views import read_spellings
from lib.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
APPENDIX = expected.PAGE.read_text(encoding="utf-8")
SMALL_MODELS = small_models.PAGE.read_text(encoding="utf-8")
CODE_MAP = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page, renewed",
    [
        ("README.md", sentences.renewed_readme),
        ("docs/small-models.md", sentences.renewed_page),
        ("docs/code-map.md", claims.renewed),
        ("docs/small-models.md", small_models.renewed),
        ("ARTIFACT-APPENDIX.md", expected.renewed),
    ],
)
def test_a_table_is_what_its_script_makes(page, renewed):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert renewed(text) == text, f"python {renewed.__module__.replace('.', '/')}.py renews it"


def test_the_picture_of_readme_is_what_its_script_draws():
    assert picture.draw_picture().save("png") == picture.PATH.read_bytes()


@pytest.mark.parametrize("model", spellings.MODELS)
def test_every_token_of_a_shipped_response_is_spelled(model):
    datasets = params.load_profile("small").datasets
    generations, _ = store.load_frames("replay-small", "generations", [model], datasets)
    spelled = read_spellings(model)
    for row in generations.itertuples():
        assert all(str(token) in spelled for token in row.token_ids)
    row = generations[generations.answer.notna()].iloc[0]
    answer = row.token_ids[row.answer_start : row.answer_end]
    assert "".join(spelled[str(token)] for token in answer) == row.answer


def test_the_sentences_on_real_models_are_what_stored_reports_say():
    """They are made from the shipped signals; the reports were made by commands, and are stored."""
    text = " ".join(SMALL_MODELS.split())
    stored = goldens.read("replay-small")
    pooled = {}
    for name in ("value", "low", "high"):
        number = re.search(rf"^/\d+/{name}: (.*)$", stored["rep_pooled"], flags=re.M)[1]
        pooled[name] = f"{float(number):.3f}".replace("0.", ".")
    interval = f"{pooled['value']} [{pooled['low']}, {pooled['high']}]"
    for page in (text, " ".join(README.split())):
        assert f"as in the paper: {interval} on average" in page
    judged = {}
    for name, verdict in findings.judged("replay-small").items():
        judged[name] = verdict["here_said"]
    (unread,) = re.findall(r"are ([\d.]+%) without a parsable answer", stored["rep_notes"])
    assert f"**{unread} of responses have no readable answer**" in text
    assert judged["means_overlap_first"] == "5 pairs agree, 1 disagrees"
    assert "told apart on 5 of 6 pairs" in text
    assert judged["means_part_later"] == "5 pairs agree, 1 open"
    assert "differ late on 5 (1 open)" in text
    assert judged["no_single_token"] == "1 pair agrees, 4 open, 1 disagrees"
    assert "worse on 1, better on 1, open on 4" in text
    assert judged["seq_avg_below_answer"] == "6 pairs agree"
    failing = []
    for name, verdict in findings.judged("replay").items():
        if verdict["paper"] == "fails":
            failing.append(name)
    assert failing == ["seq_joint_below_answer"]
    assert "claim fails on the paper's own numbers: Seq Joint below Ans" in APPENDIX


def test_the_method_is_as_short_as_the_code_map_says():
    """Lines of code of the modules that the sentence names, without blank lines, comments and
    docstrings."""
    sentence = r"paper's method is about (\d+) lines of code in (\d+) files: (.*?\))\. "
    stated_lines, stated_files, links = re.search(sentence, CODE_MAP, flags=re.S).groups()
    files = re.findall(r"\]\(\.\./(lib/[\w/]+\.py)\)", links)
    lines = 0
    for file in files:
        code = re.sub(r'(?s)""".*?"""', "", (ROOT / file).read_text(encoding="utf-8"))
        lines += len(re.findall(r"(?m)^ *[^\s#]", code))
    assert len(files) == int(stated_files)
    assert lines == pytest.approx(int(stated_lines), abs=25)


def test_pages_agree_on_times_and_on_room():
    doors = r"(?m)^(\./run_all.sh[^#]*?) *# .*?(\d+ to \d+ \w+)"
    rows = r"(?m)^\|[^|`]*`(\./run_all[^`]*)`.*?\| (\d+ to \d+ \w+)"
    times = dict(re.findall(doors, README))
    assert list(times) == ["./run_all.sh replay small", "./run_all.sh"]
    assert times.items() <= dict(re.findall(rows, APPENDIX)).items()
    for room in (r"\d GB of disk", r"half a minute with uv, [\w ]+\b"):
        assert re.search(room, README)
        assert re.findall(room, README) == re.findall(room, APPENDIX)


def test_one_command_tells_where_the_pages_are():
    """Of each notebook, whose first lines lead to docs/results.md until then."""
    for path in address.places():
        repository = "https://github.com/someone/math.confidence.git"
        text = address.addressed(path, path.read_text("utf-8"), repository)
        assert address.CONSTANT not in text
        assert "confidence.git" not in text
        assert not address.LINK.search(text)
        has_page = path.suffix == ".ipynb" and path.stem != "10_judge"  # of a user's table
        assert ("](https://someone.github.io/math.confidence/" in text) == has_page, path
