"""What tables and claims rest on beyond errors, by hand: positions, passes, costs, calibration rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2
from synthetic import generations, keyed, passed, told

from lib import store
from lib.analysis import multi_pass_statistics, token_statistics
from lib.calibrate import experiments
from lib.params import EvaluationChoices

LOG = np.log


# ---- tokens


def test_a_position_is_a_token_and_the_running_mean_ends_in_seq_avg():
    found = token_statistics.probabilities_at_positions(LOG([0.1, 0.2, 0.3]), 5)
    assert found.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.3])
    rows = told([[0.5, 0.9, 0.9], [0.5, 0.9, 0.8], [0.5, 0.2, 0.1], [0.5, 0.2, 0.3]], [True, True, False, False])
    curves = token_statistics.position_curves(rows, points=3)
    assert list(curves.single) == [0.5, 1, 1] and list(curves.running)[-1] == 1


def test_right_less_wrong_with_the_interval_of_a_difference():
    """Means .8 and .3; halves as of means of two rows each, the larger of the side that was cut and the other."""
    rows = told([[0.6], [1.0], [0.2], [0.4]], [True, True, False, False])
    each = token_statistics.running_mean_curves(pd.concat([rows, rows.head(1).assign(split="calibration")]), 2)
    assert each.position.tolist() == [0, 1] * 2 and set(each.correct) == {True, False} and each.n.tolist() == [2] * 4
    found = token_statistics.right_minus_wrong(each)
    assert each.high.max() == 1 and each.low.tolist() == pytest.approx([0.104] * 2 + [0.408] * 2)
    half = np.hypot(1.96 * 0.2, 1.96 * 0.1)
    for column, value in (("mean", 0.5), ("low", 0.5 - half), ("high", 0.5 + half)):
        assert found[column].tolist() == pytest.approx([value] * 2)


def test_the_median_probability_of_answer_tokens():
    """Of the tokens of all answers together: .1, .2, .6, .7, .9."""
    rows = told([[0.5]] * 3, [True, False, True]).assign(answer=[LOG([0.1, 0.9]), LOG([0.2, 0.6, 0.7]), None])
    (found,) = token_statistics.summarize_answer_tokens(rows).itertuples()
    assert found.median == pytest.approx(0.6)


# ---- verification


def test_tokens_that_are_saved_in_percent():
    """A query of 30 tokens in place of 120, and of 40: by pair, in the order in which they come."""
    pairs = [
        keyed(2, "n", in_situ_tokens=[30, 30], standard_tokens=[120, 60]),
        keyed(1, "n", split="calibration", in_situ_tokens=[30], standard_tokens=[31]),
        keyed(1, "m", in_situ_tokens=[30], standard_tokens=[40]),
    ]
    found = multi_pass_statistics.summarize_token_reduction(pd.concat(pairs))
    assert found.model.tolist() == ["n", "m"] and found.value.tolist() == [62.5, 25.0]


def test_costs_of_verification():
    """Responses of 6, 2, 9 and 4 tokens, whose prompts and thoughts have others."""
    length, prompt, thought = (np.array(x) for x in ([6, 2, 9, 4], [10, 90, 40, 20], [5, 0, 1, 3]))
    more = {"prompt_tokens": prompt, "thinking_end": thought, "token_ids": [[0] * n for n in length]}
    generations = keyed(4, **more)

    def facts_of(tokens, **other):
        verification = keyed(4, standard_tokens=tokens, in_situ_tokens=[30] * 4)
        return multi_pass_statistics.verification_costs(verification, generations.assign(**other)).iloc[0]

    assert facts_of(prompt + length - thought + 30).r2 == pytest.approx(1), "question and answer together"
    facts = facts_of(2 * length + 30)
    assert facts.r2 < 0.5 and facts.saving_with_length == pytest.approx(1), (
        "what is saved is held against the response alone"
    )
    alike = facts_of(length, token_ids=[[1, 2]] * 4, prompt_tokens=7, thinking_end=0)
    assert alike[["r2", "saving_with_length"]].isna().all()


# ---- one row, as a notebook shows it


def test_options_by_hand():
    """Masses .2 and .6 of a distribution: p = .25; of ` A` there is no ` B`, so it does not count."""
    verified = dict.fromkeys(["model", "dataset", "split", "example_id"], "x") | {"spellings": ["A", "B", " A"]}
    for way, tokens in (("standard", 9), ("in_situ", 3)):
        logits = np.log(np.array([0.2, 0.6, 0.1])) + 5
        verified |= {f"{way}_tokens": tokens, f"{way}_logits": logits, f"{way}_logz": 5.0}
    table = multi_pass_statistics.option_probabilities(pd.Series(verified))
    assert table.loc["standard", ["A", "B", "P(True)"]].tolist() == pytest.approx([0.2, 0.6, 0.25])
    assert table.tokens.to_dict() == {"standard": 9, "in situ": 3}


def test_disagreement_by_hand():
    table = multi_pass_statistics.bald_by_token(passed(), EvaluationChoices())
    assert table.predictive.tolist() == [0.5, 0.7] and table.conditional.tolist() == [0.3, 0.1]
    assert table.BALD.tolist() == pytest.approx([0.2, 0.6]) and table.phi.tolist() == pytest.approx([0.8, 0.4])


# ---- passes


def test_tokens_of_passes_by_hand():
    """Two passes over a prompt of 7 tokens, 10 of a solution and 3 of an answer read twice 7 + 13 - 1."""
    rows = generations(rows=2).assign(prompt_tokens=7, last_number_end=13)
    rows["answer_end"] = np.where(rows.answer.notna(), 13, -1)
    made = rows.loc[rows.split == "evaluation", store.KEYS].assign(rate=0.1, tuning=False, selected=True)
    made["predictive"] = [[np.zeros(3)] * 2] * 2
    asked = rows[store.KEYS].assign(standard_tokens=[9, 9, 30, 50], in_situ_tokens=5)
    found = token_statistics.count_tokens(rows, asked, made).set_index("estimator").value
    response = 7 + rows.token_ids.map(len)[rows.split == "evaluation"].mean()
    assert found.to_dict() == {"response": response, "p_true": 40, "p_true_insitu": 5, "c_bald": 38}


def test_what_the_passes_of_a_pair_come_to():
    """BALD .2 and .6, of predictive entropies .5 and .7; entropies of single passes .15, .25 and .2."""
    facts = multi_pass_statistics.summarize_passes(passed()).iloc[0]
    assert facts.entropy_variation == pytest.approx(np.sqrt(1 / 24))
    assert facts.bald_share == pytest.approx(0.4 / 0.6) and facts.unchanged == 1
    assert np.isnan(facts.auroc_where_unchanged)
    turned = passed(top_changed=[[False, True]], predictive=[[[9, 9]] * 3])
    calm = multi_pass_statistics.summarize_passes(pd.concat([passed(), passed(correct=[False]), turned])).iloc[0]
    assert (calm.unchanged, calm.auroc_where_unchanged) == (2, 0.5), "one confidence for all tells nothing"


def test_halves_of_the_passes_are_held_against_each_other():
    """Three rows of one answer token, BALD by half: .1 .2 .6 and .2 .1 .6; one more without an answer."""
    bald = np.array([[0.1, 0.2], [0.2, 0.1], [0.6, 0.6], [9, 9]])
    halves = {"half_predictive": [[[a], [b]] for a, b in bald], "half_conditional": [[[0.0], [0.0]]] * 4}
    whole = {"predictive": [[[b.mean()]] for b in bald], "conditional": [[[0.0]]] * 4}
    frame = keyed(4, **whole, **halves).assign(selected=True, tuning=False, rate=0.1)
    responses = told([[0.5]] * 4, [True, False, False, True])
    responses.loc[3, "answer"] = None
    found = multi_pass_statistics.split_half_reliability(responses, frame, EvaluationChoices()).iloc[0]
    r = np.corrcoef(1 - bald[:3].T)[0, 1]
    assert (found.rows, found.correlation, found.expected) == pytest.approx((3, r, 2 * r / (1 + r)))
    assert (found.auroc_1, found.auroc_2) == (1, 0.5)
    assert (found.ece_1, found.ece_2) == pytest.approx(((0.1 + 0.8 + 0.4) / 3, (0.2 + 0.9 + 0.4) / 3))
    single = frame.assign(half_predictive=[[]] * 4, half_conditional=[[]] * 4)
    assert multi_pass_statistics.split_half_reliability(responses, single, EvaluationChoices()).empty


# ---- what calibration rows show


def test_the_quadratic_term_by_maximum_likelihood():
    rng = np.random.default_rng(3)
    c, y = rng.uniform(0.05, 0.95, 80).round(2), rng.random(80) < 0.6
    x = LOG(c / (1 - c))

    def loss(weights, powers):
        z = sum(weight * x**power for power, weight in zip(powers, weights, strict=True))
        return np.logaddexp(0, np.where(y, -z, z)).sum()

    curvature = experiments.test_curvature
    least = [minimize(loss, np.zeros(len(powers)), (powers,), tol=1e-12).fun for powers in ((0, 1), (0, 1, 2))]
    assert curvature(c, y) == pytest.approx(chi2.sf(2 * (least[0] - least[1]), 1), rel=1e-4)
    assert np.isnan(curvature(c, np.ones(80, bool))) and np.isnan(curvature(np.full(80, 0.9), y))


def test_the_middle_eighty_percent_of_the_draws():
    fixed = {"model": "m", "dataset": "d", "sampling": "uniform", "method": "isotonic", "n": 5}
    draws = pd.DataFrame(fixed | {"ece": np.linspace(0, 1, 11), "one_class": [True] + [False] * 10})
    (found,) = experiments.summarize_curves(draws).itertuples()
    assert (found.mean, found.low, found.high, found.one_class) == pytest.approx((0.5, 0.1, 0.9, 1))
