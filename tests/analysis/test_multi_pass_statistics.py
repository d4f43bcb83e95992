"""Statistics of P(True) and of dropout passes by hand."""

import numpy as np
import pandas as pd
import pytest
from synthetic import keyed, passed

from lib.analysis.multi_pass_statistics import (
    compare_rates,
    ece_by_prompt,
    entropy_curves,
    option_probabilities,
    split_half_reliability,
    summarize_passes,
    summarize_token_reduction,
    verification_costs,
)
from lib.params import EvaluationChoices

# ---- P(True)


def test_the_share_of_tokens_saved_in_situ_is_a_mean_by_pair():
    """In the order in which pairs come; a calibration row does not count."""
    verification = keyed(4, in_situ_tokens=[30] * 4, standard_tokens=[120, 60, 31, 40]).assign(
        model=["n", "n", "n", "m"], split=["evaluation", "evaluation", "calibration", "evaluation"]
    )
    saved = summarize_token_reduction(verification)
    assert saved.model.tolist() == ["n", "m"]
    assert saved.value.tolist() == [(75 + 50) / 2, 25]


def test_both_prompts_of_a_row_have_the_probabilities_of_their_options():
    """Masses .2 and .6 of a distribution; of ` A` there is no ` B`."""
    logits = np.log([0.2, 0.6, 0.1])
    prompts = {}
    for prompt, tokens in [("standard", 9), ("in_situ", 3)]:
        prompts[f"{prompt}_logits"] = [logits]
        prompts[f"{prompt}_logz"] = [0]
        prompts[f"{prompt}_tokens"] = [tokens]
    verified = keyed(1, spellings=[["A", "B", " A"]], **prompts).iloc[0]
    table = option_probabilities(verified)
    assert table["A"].tolist() == pytest.approx([0.2, 0.2])
    assert table["B"].tolist() == pytest.approx([0.6, 0.6])
    assert table["P(True)"].tolist() == pytest.approx([0.25, 0.25])
    assert table["tokens"].tolist() == [9, 3]


RESPONSES = {  # of 6, 2, 9 and 4 tokens, whose prompts and thoughts have others
    "prompt_tokens": [10, 90, 40, 20],
    "thinking_end": [5, 0, 1, 3],
    "token_ids": [[0] * 6, [0] * 2, [0] * 9, [0] * 4],
}


def costs(standard_tokens, **responses):
    verification = keyed(4, standard_tokens=standard_tokens, in_situ_tokens=[30] * 4)
    (row,) = verification_costs(verification, keyed(4, **responses)).itertuples()
    return row


def test_verification_costs_what_question_and_answer_cost_together():
    """They have 11, 92, 48 and 21 tokens, and the standard prompt 30 more."""
    assert costs([41, 122, 78, 51], **RESPONSES).r2 == pytest.approx(1)


def test_what_is_saved_is_held_against_the_response_alone():
    """The longer it is, the longer the standard prompt, whatever the question has."""
    assert costs([42, 34, 48, 38], **RESPONSES).saving_with_length == pytest.approx(1)


def test_costs_of_responses_of_one_length_are_no_statistics():
    alike = {"prompt_tokens": [7] * 4, "thinking_end": [0] * 4, "token_ids": [[1, 2]] * 4}
    row = costs([6, 2, 9, 4], **alike)
    assert np.isnan(row.r2)
    assert np.isnan(row.saving_with_length)


def test_raw_errors_of_both_prompts_stand_side_by_side():
    rows = [
        ("p_true", "", 0.1, 0.08, 0.13),
        ("p_true", "platt", 0.9, 0.88, 0.93),
        ("p_true_insitu", "", 0.2, 0.18, 0.23),
    ]
    results = pd.DataFrame(rows, columns=["estimator", "method", "value", "low", "high"])
    results = results.assign(model="m", dataset="d", metric="ece")
    (row,) = ece_by_prompt(results, "m", {"d": "D"}).to_dict("records")
    assert row == {
        "dataset": "D",
        "standard": 0.1,
        "standard low": 0.08,
        "standard high": 0.13,
        "in situ": 0.2,
        "in situ low": 0.18,
        "in situ high": 0.23,
    }


# ---- passes with dropout


def test_entropies_are_means_over_the_tokens_of_an_answer():
    predictive = [[[0.1, 0.3], [0.2, 0.6]]]
    conditional = [[[0.0, 0.0], [0.0, 0.0]]]
    dropout = passed(predictive=predictive, conditional=conditional)
    curves = entropy_curves(dropout)
    assert curves.term.tolist() == ["predictive", "predictive", "conditional", "conditional"]
    assert curves.passes.tolist() == [1, 2, 1, 2]
    assert curves["mean"].tolist() == pytest.approx([0.2, 0.4, 0, 0])
    assert curves.n.tolist() == [1, 1, 1, 1]


def test_passes_of_one_row_have_an_excess_and_a_growth_without_intervals():
    """BALD is .2 and .6, the predictive entropy .5 and .7: .4 less half of .6."""
    (row,) = summarize_passes(passed()).itertuples()
    assert row.excess == pytest.approx(0.4 - 0.6 / 2)
    assert row.growth == pytest.approx(0.2)
    assert np.isnan(row.excess_low)
    assert np.isnan(row.growth_low)


def test_growth_is_the_smallest_step_and_so_are_the_ends_of_its_interval():
    """Steps of .2 and .25, and of .1 and .3: means .15 and .275, each with Student's interval of
    two rows."""
    slower = passed(predictive=[[[0.1, 0.2], [0.2, 0.3], [0.5, 0.6]]])
    (row,) = summarize_passes(pd.concat([passed(), slower])).itertuples()
    standard_errors = 12.7062047361747
    assert row.growth == pytest.approx(0.15)
    assert row.growth_low == pytest.approx(0.15 - standard_errors * 0.05)
    assert row.growth_high == pytest.approx(0.275 + standard_errors * 0.025)


# three rows of one answer token, BALD by half: .1 .2 .6 and .2 .1 .6; one more without an answer
ANSWERS = keyed(4, correct=[True, False, False, True], answer=[[-1], [-1], [-1], None])
HALVES = keyed(
    4,
    half_predictive=[[[0.1], [0.2]], [[0.2], [0.1]], [[0.6], [0.6]], [[9], [9]]],
    half_conditional=[[[0], [0]]] * 4,
    predictive=[[[0.15]], [[0.15]], [[0.6]], [[9]]],
    conditional=[[[0]]] * 4,
).assign(rate=0.1, selected=True, tuning=False)


def test_two_halves_of_the_passes_are_compared():
    first, second = [0.9, 0.8, 0.4], [0.8, 0.9, 0.4]
    (row,) = split_half_reliability(ANSWERS, HALVES, EvaluationChoices()).itertuples()
    r = np.corrcoef(first, second)[0, 1]
    assert row.rows == 3
    assert row.correlation == pytest.approx(r)
    assert row.expected == pytest.approx(2 * r / (1 + r))
    assert (row.auroc_1, row.auroc_2) == (1, 0.5)
    assert row.ece_1 == pytest.approx((0.1 + 0.8 + 0.4) / 3)
    assert row.ece_2 == pytest.approx((0.2 + 0.9 + 0.4) / 3)


def test_a_single_pass_has_no_halves_to_compare():
    nothing = pd.Series([[]] * 4)
    single = HALVES.assign(half_predictive=nothing, half_conditional=nothing)
    assert split_half_reliability(ANSWERS, single, EvaluationChoices()).empty


# ---- rates: answers of which half is right, with BALD .5 (right on average) or .2

BALD_BY_RATE = {0.1: 0.5, 0.2: 0.2, 0.3: 0.5}


@pytest.fixture(scope="module")
def tuning_rows():
    """Forty responses, and their passes at three rates."""
    responses = keyed(
        40, split="calibration", correct=[True, False] * 20, answer=[np.zeros(1)] * 40
    ).assign(parsed=True)
    parts = []
    for rate, bald in BALD_BY_RATE.items():
        part = keyed(
            40, split="calibration", predictive=[[[bald]]] * 40, conditional=[[[0.0]]] * 40
        )
        parts.append(part.assign(rate=rate, tuning=True, selected=False))
    return responses, pd.concat(parts)


def test_a_rate_at_which_scores_are_too_high_differs_by_more_than_exchanged_ones(tuning_rows):
    (row,) = compare_rates(*tuning_rows, EvaluationChoices(), draws=200).itertuples()
    assert row.ece_range == pytest.approx(0.3)
    assert 0 < row.chance_high < 0.2


def test_equal_rates_differ_by_nothing_and_exchanging_them_changes_nothing(tuning_rows):
    responses, passes = tuning_rows
    alike = passes[passes.rate != 0.2]
    (row,) = compare_rates(responses, alike, EvaluationChoices()).itertuples()
    assert row.ece_range == 0
    assert row.chance_high == 0
