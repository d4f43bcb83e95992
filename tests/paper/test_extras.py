"""What passes with dropout read, by hand."""

import numpy as np
import synthetic

from lib import store
from lib.analysis import token_statistics


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
