"""The command says what it said, to the word, and ends as it ended: transcript.txt, typed again."""

import re

import goldens
import pytest
import transcript

CASES = transcript.parse(transcript.FILE.read_text("utf-8"))
# a notebook begins, or models are looked at
SLOW = [case for case in CASES if re.search("wrote in|model 'mine': ", case.said) or "check demo" in case.command]
AT_ONCE = [case for case in CASES if case not in SLOW]


@pytest.mark.parametrize("cases", [
    pytest.param(AT_ONCE, id="at once"), pytest.param(SLOW, id="begun", marks=pytest.mark.slow),
])  # fmt: skip
def test_it_says_the_same(cases, tmp_path):
    goldens.same(transcript.differences(cases, transcript.all_typed(cases, tmp_path)), "transcript.py")


def test_a_transcript_is_what_was_parsed():
    assert "\n".join(map(str, CASES)) == transcript.FILE.read_text("utf-8") and len(CASES) > 120
    for case in (case for case in CASES if case.code == 2):
        assert case.said.count("run_all.sh: ") == 1 and "Traceback" not in case.said, case.command
        assert case.said.count("\n") == 1 or "| tail" in case.command, "one line, where no notebook had begun"
