"""The questions that are asked again after other prompts."""

import numpy as np
import pandas as pd
import pytest
from responses_by_hand import respond
from synthetic import keyed

from lib.analysis.prompt_ablation import combine_arms, summarize_arms
from lib.generate.prompt_arms import choose_ablation_rows


def arm(*answers):
    """Responses with these answers, each with the probability of its token."""
    rows = []
    for answer, probability in answers:
        rows.append(respond(probabilities=[0.1, 0.1, probability, 0.1], answer=answer))
    return pd.DataFrame(rows)


@pytest.fixture
def arms():
    """Of ours one of four answers is right, of the other prompt's three are."""
    ours = arm(("7", 0.9), (None, 0.2), (None, 0.2), ("8", 0.9))
    other = arm(("7", 1.0), (None, 1.0), ("7", 1.0), ("7", 1.0))
    return combine_arms(ours, "one", {"none": other})


def test_an_arm_has_its_shares_of_answers_and_its_error(arms):
    table = summarize_arms(arms).set_index("demonstration")
    assert table.profile.to_dict() == {"one": True, "none": False}
    assert (table["rows"] == 4).all()
    assert table.parsed.to_dict() == {"one": 0.5, "none": 0.75}
    assert table.accuracy.to_dict() == {"one": 0.25, "none": 0.75}
    # half is right at .9, nothing at .2; three quarters at 1
    assert table.ece["one"] == pytest.approx((2 * 0.4 + 2 * 0.2) / 4)
    assert table.ece["none"] == pytest.approx(0.25)


def test_an_arm_without_probabilities_has_no_error(arms):
    assert summarize_arms(arms.assign(ans_avg=np.nan)).ece.isna().all()


def test_without_rows_the_columns_are_the_same(arms):
    assert set(summarize_arms(arms[:0])) == set(summarize_arms(arms))


def test_every_model_is_asked_the_same_evaluation_questions_again():
    rows = keyed(30).assign(split=["calibration", "evaluation", "evaluation"] * 10)
    of_another_model = rows.assign(model="n").sample(frac=1, random_state=0)
    first = choose_ablation_rows(rows, 8).example_id.tolist()
    second = choose_ablation_rows(of_another_model, 8).example_id.tolist()
    assert len(set(first)) == 8
    assert set(first) == set(second)
    assert set(first) <= set(rows.example_id[rows.split == "evaluation"])
    in_order = [name for name in of_another_model.example_id if name in second]
    assert second == in_order, "each model's in its own order"
