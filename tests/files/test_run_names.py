"""The name of a run says what it does, with which profile, and whose shipped frames it may read."""

import pytest

from lib.run_names import LAB, MAKE, PUBLISHED, REPLAY, RunName


@pytest.mark.parametrize("name, parts, command, shipped", [
    ("demo", (MAKE, "demo"), "demo", ""),
    ("small", (MAKE, "small"), "small", ""),
    ("my-profile", (MAKE, "my-profile"), "my-profile", ""),
    ("replays-small", (MAKE, "replays-small"), "replays-small", ""),
    ("replay", (REPLAY, "demo"), "replay", "demo"),
    ("replay-small", (REPLAY, "small"), "replay small", "small"),
    ("replay-my-profile", (REPLAY, "my-profile"), "replay my-profile", "my-profile"),
    ("published", (PUBLISHED, "demo"), "published", ""),
    ("lab", (LAB, "demo"), "", "demo"),
    ("lab-mine", (LAB, "mine"), "", "demo"),
])  # fmt: skip
def test_a_name_is_a_verb_and_a_profile(name, parts, command, shipped):
    run = RunName.parse(name)
    assert (run.verb, run.profile) == parts
    assert str(run) == name
    assert str(RunName(*parts)) == name
    assert (run.command, run.shipped) == (command, shipped)
