"""What passes with dropout read, by hand."""

import numpy as np
import synthetic

from lib import store
from lib.analysis import costs


def test_tokens_of_passes_by_hand():
    """Two passes over a prompt of 7 tokens, 10 of a solution and 3 of an answer read twice 7 + 13 - 1."""
    generations = synthetic.generations(rows=2).assign(prompt_tokens=7, last_number_end=13)
    generations["answer_end"] = np.where(generations.answer.notna(), 13, -1)
    made = generations.loc[generations.split == "evaluation", store.KEYS].assign(rate=0.1, tuning=False, selected=True)
    made["predictive"] = [[np.zeros(3)] * 2] * 2
    found = costs.count_tokens_of_passes(generations, made)
    assert found.value.tolist() == [38] and found.estimator.tolist() == ["c_bald"]
