"""What a confidence costs in tokens."""

import numpy as np
import pytest
import synthetic

from lib import store
from lib.analysis import token_statistics

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


def test_tokens_of_passes_by_hand():
    """Two passes over a prompt of 7 tokens, 10 of a solution and 3 of an answer read twice 7 + 13 - 1."""
    generations = synthetic.generations(rows=2).assign(prompt_tokens=7, last_number_end=13)
    generations["answer_end"] = np.where(generations.answer.notna(), 13, -1)
    made = generations.loc[generations.split == "evaluation", store.KEYS].assign(rate=0.1, tuning=False, selected=True)
    made["predictive"] = [[np.zeros(3)] * 2] * 2
    asked = generations[store.KEYS].assign(standard_tokens=[9, 9, 30, 50], in_situ_tokens=5)
    found = token_statistics.count_tokens(generations, asked, made).set_index("estimator").value
    response = 7 + generations.token_ids.map(len)[generations.split == "evaluation"].mean()
    assert found.to_dict() == {"response": response, "p_true": 40, "p_true_insitu": 5, "c_bald": 38}
