"""What a confidence costs in tokens."""

import pytest

from lib import store

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
