"""The name of a run says what it does, with which profile, and whose shipped frames it may read."""

import pytest

from lib.errors import UserError
from lib.run_names import (
    LAB,
    MAKE,
    PUBLISHED,
    REPLAY,
    RunName,
    check_own_name,
    is_word,
    join_names,
    make_word,
)


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


@pytest.mark.parametrize("text, word", [
    ("mine", "mine"),
    ("my questions (2)", "my-questions-2"),
    ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5-0.5B-Instruct"),
    ("a__b___c", "a_b_c"),
    ("../..", ""),
    ("Fragen für heute", "Fragen-für-heute"),
])  # fmt: skip
def test_the_name_of_a_file_or_of_a_servers_model_becomes_a_word(text, word):
    assert make_word(text) == word
    assert not word or is_word(word)


@pytest.mark.parametrize("name", [
    "demo", "Demo", "check", "replay", "replay-mine", "lab-mine", "published", "shipped", "stale",
    "a/b", "../a", "a b", "a__b", ".a", "", "a" * 101, "a\n",
])  # fmt: skip
def test_a_users_run_has_no_name_of_the_project(name):
    with pytest.raises(UserError, match="choose another by --name"):
        check_own_name(name, ["demo", "check"])


def test_a_users_run_bears_the_names_of_its_models_and_datasets():
    assert join_names(["mine", "other", "mine", "sums-1"]) == "mine-other-sums-1"
    assert check_own_name("mine-other-sums-1", ["demo"]) == "mine-other-sums-1"
