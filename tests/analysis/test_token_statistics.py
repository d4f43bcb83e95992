"""Statistics of tokens by hand: curves over a response, the running example, costs."""

import numpy as np
import pandas as pd
import pytest
from synthetic import keyed

from lib.analysis.costs import cost_and_quality, count_tokens
from lib.analysis.running_example import choose_example, rows_of_example
from lib.analysis.token_statistics import (
    probabilities_at_positions,
    right_minus_wrong,
    running_mean,
    running_mean_curves,
    summarize_answer_tokens,
)
from lib.errors import UserError

# ---- positions


def test_a_running_mean_is_flat_before_the_first_token_and_straight_between_tokens():
    """The mean is .5 at 1/2 and .65 at 1."""
    curve = running_mean(np.log([0.5, 0.8]), points=5)
    assert curve.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.575, 0.65])


def test_a_position_has_the_probability_of_its_token():
    tokens = probabilities_at_positions(np.log([0.1, 0.2, 0.3]), points=5)
    assert tokens.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.3])


def test_curves_are_means_of_right_and_of_wrong_responses():
    """Means .3 and .8, with 1.96 standard errors of two rows: .1 and .2 sqrt(2) / sqrt(2)."""
    responses = keyed(
        4,
        correct=[True, True, False, False],
        response=[np.log([0.6]), np.log([1.0]), np.log([0.2]), np.log([0.4])],
    )
    curves = running_mean_curves(responses, points=2)
    assert curves.position.tolist() == [0, 1, 0, 1]
    assert curves.correct.tolist() == [False, False, True, True]
    assert curves.n.tolist() == [2, 2, 2, 2]
    assert curves["mean"].tolist() == pytest.approx([0.3, 0.3, 0.8, 0.8])
    assert curves.low.tolist() == pytest.approx([0.104, 0.104, 0.408, 0.408])
    assert curves.high.tolist() == pytest.approx([0.496, 0.496, 1, 1]), "at most 1"


def test_the_interval_of_a_difference_is_of_the_wider_sides():
    """The upper side of the right ones was cut at 1."""
    curves = pd.DataFrame(
        {
            "correct": [True, False],
            "position": [0, 0],
            "mean": [0.8, 0.3],
            "low": [0.408, 0.104],
            "high": [1, 0.496],
        }
    )
    (row,) = right_minus_wrong(curves).to_dict("records")
    half = np.hypot(0.392, 0.196)
    assert row == pytest.approx({"position": 0, "mean": 0.5, "low": 0.5 - half, "high": 0.5 + half})


def test_the_median_is_that_of_the_tokens_of_all_answers():
    """Of .1, .2, .6, .7 and .9."""
    answers = [np.log([0.1, 0.9]), np.log([0.2, 0.6, 0.7]), None]
    medians = summarize_answer_tokens(keyed(3, correct=[True] * 3, answer=answers))
    assert medians["median"].tolist() == pytest.approx([0.6])


# ---- the running example


def responses(**columns):
    """Three evaluation rows, of which the last two are wrong, and a surer calibration row."""
    rows = keyed(
        4,
        correct=[True, False, False, False],
        answer=[np.log([0.9]), np.log([0.5]), np.log([0.8]), np.log([0.99])],
    )
    split = ["evaluation", "evaluation", "evaluation", "calibration"]
    return rows.assign(**{"split": split} | columns)


@pytest.mark.parametrize(
    "example, dataset, chosen",
    [
        pytest.param("", "d", "e2", id="the most confident wrong one"),
        pytest.param("e3", "d", "e2", id="never a calibration row"),
        pytest.param("e1", "other", "e1", id="the named one in whatever dataset"),
        pytest.param("", "other", "e2", id="of all if the dataset has none"),
    ],
)
def test_the_example_is_the_named_row_or_the_most_confident_wrong_one(example, dataset, chosen):
    assert choose_example(responses(), example, "m", dataset).example_id == chosen


def test_the_example_is_right_if_none_is_wrong():
    all_right = responses(correct=True)
    assert choose_example(all_right, "", "m", "d").example_id == "e0"


def test_the_example_is_the_first_if_none_has_an_answer():
    without_answers = responses(correct=False, answer=None)
    assert choose_example(without_answers, "", "m", "d").example_id == "e0"


def test_without_an_evaluation_row_there_is_no_example():
    message = "^model 'm': no evaluation row has an answer"
    with pytest.raises(UserError, match=message):
        choose_example(responses(split="calibration"), "", "m", "d")


def test_a_frame_has_the_rows_of_the_example_alone():
    """Other models and datasets have the same question's id; a grid has it twice."""
    frames = []
    for names in [("m", "d"), ("n", "d"), ("m", "e"), ("m", "d")]:
        model, dataset = names
        frames.append(keyed(3, model=model, dataset=dataset, example_id=["e0", "e1", "e2"]))
    frame = pd.concat(frames, ignore_index=True)
    example = responses().iloc[1]
    assert rows_of_example(frame, example).index.tolist() == [1, 10]


# ---- costs


def test_tokens_are_counted_by_estimator_on_evaluation_rows():
    """Two passes over a prompt of 7 tokens, 10 of a solution and 3 of an answer, but the last."""
    splits = ["calibration", "evaluation", "evaluation"]
    lengths = [1, 14, 16]
    tokens = [[0] * length for length in lengths]
    generations = keyed(
        3, prompt_tokens=[7, 7, 7], token_ids=tokens, token_logprobs=tokens, eos=[0, 0, 0]
    ).assign(
        split=splits,
        answer=["1", "1", None],
        answer_start=[0, 10, -1],
        answer_end=[1, 13, -1],
        last_number_start=10,
        last_number_end=13,
    )
    verification = keyed(3, standard_tokens=[9, 30, 50], in_situ_tokens=[5, 5, 5])
    passes = [[0], [0]]
    dropout = keyed(3, selected=[True] * 3, predictive=[passes] * 3)[1:]
    costs = count_tokens(generations, verification.assign(split=splits), dropout)
    expected = {
        "response": 7 + (14 + 16) / 2,
        "p_true": (30 + 50) / 2,
        "p_true_insitu": 5,
        "c_bald": 2 * (7 + 13 - 1),
    }
    assert costs.set_index("estimator").value.to_dict() == expected


def test_a_question_costs_its_response_and_what_a_score_adds():
    """A score that comes with the response adds nothing; one without an error has no row."""
    pair = {"model": "m", "dataset": "d"}
    costs = pd.DataFrame({"estimator": ["response", "p_true"], "value": [22.0, 40.0]})
    results = pd.DataFrame({
        "estimator": ["seq_avg", "p_true", "seq_avg", "c_bald", "p_true"],
        "metric": ["ece", "ece", "auroc", "ece", "brier"],
        "value": [0.25, 0.125, 0.75, None, 0.5],
    })  # fmt: skip
    table = cost_and_quality(costs.assign(**pair), results.assign(**pair)).set_index("estimator")
    assert table.tokens.to_dict() == {"p_true": 62, "seq_avg": 22}
    assert table.ece.to_dict() == {"p_true": 0.125, "seq_avg": 0.25}
    assert table.auroc["seq_avg"] == 0.75 and pd.isna(table.auroc["p_true"])
