"""Which sources are paths, and which are names on the hub."""

import pytest

from lib.paths import is_path

PATHS = [
    "~/models/mine", "/data/model", "./model", "../model", "models/mine", "demo/models/none",
    "docs/none", "org/name/more", "README.md",
]  # fmt: skip


@pytest.mark.parametrize("source", PATHS)
def test_a_source_that_begins_as_a_path_is_one_though_nothing_lies_there(source):
    assert is_path(source)


@pytest.mark.parametrize("source", ["org/name", "gpt2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_another_source_is_a_name_on_the_hub(source):
    assert not is_path(source)
