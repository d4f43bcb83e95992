"""The command says what it said, to the word, and ends as it ended: transcript.txt, typed again."""

import re

import goldens
import pytest
import transcript

CASES = transcript.parse(transcript.FILE.read_text("utf-8"))
# a notebook begins, or models are looked at
BEGUN = re.compile(r"check demo|wrote in|model 'mine': ")


@pytest.mark.parametrize("begun", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_says_the_same(begun, tmp_path):
    cases = [case for case in CASES if has_begun(case) == begun]
    typed = transcript.all_typed(cases, tmp_path)
    goldens.same(transcript.differences(cases, typed), "transcript.py")


def has_begun(case):
    return bool(BEGUN.search(f"{case.command}\n{case.output}"))


def test_a_transcript_is_what_was_parsed():
    assert len(CASES) > 120
    assert "\n".join(map(str, CASES)) == transcript.FILE.read_text("utf-8")


def test_a_refusal_is_one_line():
    """Where no notebook had begun."""
    for case in CASES:
        if case.code == 2:
            assert case.output.count("run_all.sh: ") == 1, case.command
            assert "Traceback" not in case.output, case.command
            assert case.output.count("\n") == 1 or "| tail" in case.command, case.command
