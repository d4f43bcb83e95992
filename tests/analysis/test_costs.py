"""What a confidence costs in tokens, and who betters whom."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import store
from lib.paper import beyond_figures

PAIR = ("tiny-qwen", "demo-hard")


def test_tokens_by_hand(demo):
    """Of one pair: what its evaluation responses hold with their prompts, and what verification read beyond."""
    model, dataset = PAIR
    tokens = demo.frames["costs"].query("model == @model and dataset == @dataset").set_index("estimator").value
    rows, checked = (
        store.load_frames("shipped", kind, [model], [dataset])[0].query("split == 'evaluation'")
        for kind in ("generations", "verification")
    )
    whole = sum(len(ids) + prompt for ids, prompt in zip(rows.token_ids, rows.prompt_tokens, strict=True))
    assert tokens["response"] == pytest.approx(whole / len(rows))
    assert tokens["p_true"] == pytest.approx(checked.standard_tokens.mean())
    assert set(demo.frames["costs"].metric) == {"tokens"}, "nothing that two runs do not share"


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12), st.sampled_from([1, -1]))
def test_who_is_bettered_by_a_loop(points, sign):
    """A point is on the line if no other of at most as many tokens is at least as good, itself aside."""

    def betters(other, point):
        return other != point and other[0] <= point[0] and sign * other[1] <= sign * point[1]

    line = {point for point in points if not any(betters(other, point) for other in points)}
    front = beyond_figures.pareto_front(pd.DataFrame(points, columns=["tokens", "ece"], dtype=float), sign)
    assert list(front.itertuples(index=False, name=None)) == sorted(line)
