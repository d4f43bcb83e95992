"""What the paper does not have has tables of its own: a pair without passes, and what passes read, by hand."""

import numpy as np
import pandas as pd
import synthetic

from lib import params, store
from lib.analysis import answer_dropout, dropout_statistics
from lib.paper import beyond_paper
from lib.params import Reading

DEMO = params.load_profile("demo")
RUN = ("shipped", DEMO.models, DEMO.datasets)
PAIR = ("tiny-llama", "demo-medium")


def values(made, pair=PAIR):
    frame = made["dropout_in_situ"]
    rows = frame[(frame.model == pair[0]) & (frame.dataset == pair[1])]
    return rows.set_index(["estimator", "metric"])


def test_a_pair_without_passes_says_why(shipped, monkeypatch):
    answer = store.load_frames("shipped", "dropout_answer", *RUN[1:])[0]
    others = answer[(answer.model != PAIR[0]) | (answer.dataset != PAIR[1])]
    monkeypatch.setattr(store, "load_frames", lambda *_, may_lack=False: (others, None) if may_lack else ())
    made = answer_dropout.compare_dropout_scopes(*RUN, shipped)
    lines, others = values(made).value, values(made, ("tiny-qwen", "demo-medium")).value
    assert pd.isna(lines["c_bald_insitu", "ece"]) and lines["c_bald", "ece"] > 0 and others["c_bald_insitu", "ece"] > 0
    table = beyond_paper.dropout_in_situ(synthetic.results_of(dropout_in_situ=made["dropout_in_situ"]))
    assert ">--<" in table._repr_html_()
    assert "no passes at the answer only" in set(table.numbers.reason[table.numbers.value.isna()])


def test_a_small_frame_by_hand():
    """Two responses of 3 answer tokens after a prompt of 7 and 10 others: T = 2 passes read 6 tokens each in situ, and
    38 over the whole (7 + 13 - 1, twice)."""
    generations = synthetic.generations(rows=2).assign(prompt_tokens=7, last_number_end=13)
    generations["answer_end"] = np.where(generations.answer.notna(), 13, -1)
    made = generations.loc[generations.split == "evaluation", store.KEYS].assign(rate=0.1, tuning=False, selected=True)
    made["predictive"] = made["conditional"] = [[np.zeros(3)] * 2] * 2
    passes, responses = {"trajectory": made, "answer": made}, synthetic.responses(generations)
    found = dropout_statistics.evaluate_scopes(generations, responses, passes, Reading())
    assert dropout_statistics.evaluate_scopes(generations, responses.head(0), passes, Reading()).empty
    assert found.tokens.tolist() == [38, 6] and found.once.tolist() == [0, 16] and found.rows.tolist() == [2, 2]
