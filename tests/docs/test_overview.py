"""The response that 00_overview spells is the one that is shipped."""

import json

from docs.tables import example
from lib import store


def test_the_tokens_of_the_example_are_spelled():
    told = json.loads(example.PATH.read_text(encoding="utf-8"))
    row = store.load_frames("replay-small", "generations", [told["model"]], [told["dataset"]])[0]
    row = row.set_index("example_id").loc[told["example_id"]]
    words = [told["spelled"][str(token)] for token in row.token_ids]
    assert "".join(words) == told["response"]
    assert "".join(words[row.answer_start : row.answer_end]) == row.answer
