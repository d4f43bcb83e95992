"""The ablation of the prompt: which questions are asked again, and what is said of each arm, by hand."""

import numpy as np
import pytest
from synthetic import keyed

from lib import store
from lib.score import interpretation


def answered(answers, probabilities):
    """Responses of one token each to questions e0, e1, ... whose answer is 7."""
    n = len(answers)
    frame = keyed(n, answer=answers, reference=["7"] * n, finish_reason=["stop"] * n, eos=[0] * n)
    frame["token_logprobs"] = [np.log([0.5, p]) for p in probabilities]
    return frame.assign(answer_start=1, answer_end=2, last_number_start=1, last_number_end=2)


def test_arms_by_hand():
    ours, other = answered(["7", None, None, "8"], [0.9, 0.2, 0.2, 0.9]), answered(["7", "7", None, "7"], [1.0] * 4)
    both = interpretation.combine_arms(ours, "one", {"none": other})
    found = interpretation.summarize_arms(both).set_index("demonstration")
    assert found.profile.to_dict() == {"one": True, "none": False} and (found["rows"] == 4).all()
    assert found.loc["one", ["parsed", "accuracy", "ece"]].tolist() == pytest.approx(
        [0.5, 0.25, (2 * 0.4 + 2 * 0.2) / 4]
    )
    assert found.loc["none", ["parsed", "accuracy", "ece"]].tolist() == pytest.approx([0.75, 0.75, 0.25])
    assert np.isnan(interpretation.summarize_arms(both.assign(ans_avg=np.nan)).ece).all()
    assert set(interpretation.summarize_arms(both[:0])) == set(found.reset_index())


def test_the_same_evaluation_questions_are_asked_again():
    frame = store.read_frame(store.find_frame("shipped", "generations", "tiny-llama__demo-easy"))
    rows = interpretation.choose_ablation_rows(frame, 5)
    assert len(rows) == 5 and set(rows.split) == {"evaluation"}
