"""A mistake in a user's JSON is said with its line."""

import pytest

from lib.errors import UserError
from lib.files import parse_json


def test_a_mistake_is_in_its_line_of_a_file():
    with pytest.raises(UserError, match=r"^q\.json, line 3: not JSON \("):
        parse_json(b'{"a": 1,\n"b": 2,\n"c": }\n', "q.json")


def test_a_mistake_in_one_line_is_in_that_line_of_its_file():
    with pytest.raises(UserError, match=r"^r\.jsonl, line 7: not JSON \("):
        parse_json(b'{"a": }', "r.jsonl", 7)


def test_bytes_that_are_no_text_are_said():
    with pytest.raises(UserError, match=r"^r\.jsonl, line 7: not JSON \("):
        parse_json(b'"\xff"', "r.jsonl", 7)
