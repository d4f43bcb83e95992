"""Numbers worked out by hand: edges, signs, percents and places that a wrong operator would move."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import chi2

from lib.analysis import (
    ablation_statistics,
    calibration_statistics,
    dropout_statistics,
    token_statistics,
    verification_statistics,
)
from lib.analysis.results import Results
from lib.calibrate import fitting
from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import Platt, Temperature
from lib.generate import scoring, seeded_dropout
from lib.generate.temperatures import temperatures
from lib.paper.claims import CLAIMS
from lib.paper.verdicts import QUANTIFIERS, judge
from lib.params import Reading
from lib.score import confidence, estimators, running_example, selective
from lib.store import KEYS
from lib.tasks import answers

LOG = np.log


def keyed(rows, model="m", dataset="d", split="evaluation", **columns):
    """A per-example frame of one pair."""
    fixed = {"model": model, "dataset": dataset, "split": split, "example_id": [f"e{i}" for i in range(rows)]}
    return pd.DataFrame(fixed | {name: pd.Series(list(values)) for name, values in columns.items()})


def holding(**frames):
    """Results of these frames, on two datasets."""
    names = {"d": "D", "h": "H"}
    return Results({"m": "M"}, names, {"m": "M"}, ({"m": "M"}, names), [], frames)


# ---- verification


def test_tokens_that_are_saved_in_percent():
    """A query of 30 tokens in place of 120, and of 40: by pair, in the order in which they come."""
    frame = pd.concat([keyed(2, "n", in_situ_tokens=[30, 30], standard_tokens=[120, 60]),
                       keyed(1, "n", split="calibration", in_situ_tokens=[30], standard_tokens=[31]),
                       keyed(1, "m", in_situ_tokens=[30], standard_tokens=[40])])  # fmt: skip
    found = verification_statistics.token_reduction(frame)
    assert found.model.tolist() == ["n", "m"] and found.value.tolist() == [62.5, 25.0]


def verified():
    """Probabilities .6 and .2 of A and B in the standard prompt (.1 and .1 in the second row), .3 and .3 in situ."""
    standard, in_situ = LOG([[0.6, 0.2], [0.1, 0.1]]) + 5, LOG([[0.3, 0.3], [0.3, 0.3]]) + 7
    return keyed(2, spellings=[["A", "B"]] * 2, standard_logits=standard, standard_logz=[5.0, 5.0],
                 in_situ_logits=in_situ, in_situ_logz=[7.0, 7.0],
                 standard_tokens=[90, 91], in_situ_tokens=[9, 9])  # fmt: skip


def test_mass_of_the_options():
    margins = confidence.option_log_odds(verified())
    assert margins.standard_margin.tolist() == pytest.approx([LOG(3), 0])
    assert margins.standard_mass.tolist() == pytest.approx([0.8, 0.2]) and margins.in_situ_mass[1] == pytest.approx(0.6)
    found = verification_statistics.option_mass(verified()).set_index(["estimator", "metric"])
    assert found.value.to_dict() == pytest.approx({
        ("p_true", "option_mass"): 0.5, ("p_true", "option_mass_low"): 0.5,
        ("p_true_insitu", "option_mass"): 0.6, ("p_true_insitu", "option_mass_low"): 0.0})  # fmt: skip
    assert (found.n == 2).all()
    half = verified().assign(standard_logits=[np.zeros(2)] * 2, standard_logz=LOG(4))
    found = verification_statistics.option_mass(half).set_index(["estimator", "metric"]).value["p_true"]
    assert found.to_dict() == {"option_mass": 0.5, "option_mass_low": 0.0}, "half is not below half"


def test_the_options_of_one_row():
    table = running_example.option_probabilities(verified().iloc[0])
    assert table.loc["standard", ["A", "B", "P(True)"]].tolist() == pytest.approx([0.6, 0.2, 0.75])
    assert table.tokens.to_dict() == {"standard": 90, "in situ": 9}


def test_errors_of_both_ways_of_asking_with_their_intervals():
    values = (("d", "p_true", 0.2), ("d", "p_true_insitu", 0.3), ("e", "p_true", 0.3), ("e", "p_true_insitu", 0.3))
    rows = [("m", dataset, name, method, "ece", value, value - 0.01, value + 0.02)
            for dataset, name, value in values for method in ("", "isotonic")]  # fmt: skip
    names = ["model", "dataset", "estimator", "method", "metric", "value", "low", "high"]
    frame = pd.DataFrame(rows, columns=names)
    frame.loc[frame.method != "", "value"] = 0.9
    found = verification_statistics.in_situ_errors(frame, "m", {"d": "D", "e": "E"})
    assert found.dataset.tolist() == ["D", "E"] and found.standard.tolist() == pytest.approx([0.2, 0.3])
    assert found["standard low"].tolist() == pytest.approx([0.19, 0.29])
    assert found["in situ high"].tolist() == pytest.approx([0.32, 0.32])
    bare = verification_statistics.in_situ_errors(frame.drop(columns=["low", "high"]), "m", {"d": "D"})
    assert list(bare) == ["dataset", "standard", "in situ"]


# ---- dropout


def passed(**columns):
    """Three passes over an answer of two tokens."""
    fixed = {"predictive": [[[0.1, 0.2], [0.3, 0.4], [0.5, 0.7]]],
             "conditional": [[[0.1, 0.2], [0.2, 0.2], [0.3, 0.1]]],
             "top_k_10": [[[10, 10], [11, 14], [12, 20]]], "top_p_0.95": [[[1, 1], [2, 1], [3, 2]]],
             "top_changed": [[False, False]], "correct": [True]}  # fmt: skip
    return keyed(1, **fixed | columns)


def test_bald_after_some_passes_and_after_all():
    row = next(passed().itertuples())
    assert confidence.compute_bald(row).tolist() == pytest.approx([0.2, 0.6])
    assert confidence.compute_bald(row, 2).tolist() == pytest.approx([0.1, 0.2])
    (scaled,) = confidence.scale_bald(passed(), "top_k")
    assert scaled.tolist() == pytest.approx([0.2 / LOG(12), 0.6 / LOG(20)])


def test_one_row_is_shown_after_all_passes():
    table = running_example.bald_by_token(passed(), Reading())
    assert table.predictive.tolist() == [0.5, 0.7] and table.conditional.tolist() == [0.3, 0.1]
    assert table.BALD.tolist() == pytest.approx([0.2, 0.6]) and table.phi.tolist() == pytest.approx([0.8, 0.4])
    said = running_example.describe_c_bald(table)
    assert "clip(1 - 0.200, 0, 1) = 0.800" in said and said.endswith("c_BALD = (0.800 + 0.400) / 2 = 0.600")


def test_what_the_passes_of_a_pair_come_to():
    """Of the supports the range, of the others a mean by hand: BALD .2 and .6, of predictive entropies .5 and .7."""
    facts = dropout_statistics.summary(passed()).iloc[0]
    assert (facts.top_k, facts.top_p, facts.unchanged) == (8, 1, 1)
    assert facts.share == pytest.approx(0.4 / 0.6) and facts.largest == pytest.approx(0.6)
    assert facts.bald == pytest.approx(0.4) and np.isnan(facts.auroc)
    bare = dropout_statistics.summary(passed().drop(columns=["top_k_10", "top_p_0.95"])).iloc[0]
    assert np.isnan(bare.top_k) and np.isnan(bare.top_p)


def test_halves_of_the_passes_are_held_against_each_other():
    """Three rows of one answer token, BALD by half: .1 .2 .6 and .2 .1 .6; one more without an answer."""
    bald = np.array([[0.1, 0.2], [0.2, 0.1], [0.6, 0.6], [9, 9]])
    whole = {"predictive": [[[b.mean()]] for b in bald], "conditional": [[[0.0]]] * 4}
    frame = keyed(4, **whole, half_predictive=[[[a], [b]] for a, b in bald], half_conditional=[[[0.0], [0.0]]] * 4,
                  selected=[True] * 4, tuning=[False] * 4, rate=[0.1] * 4)  # fmt: skip
    responses = keyed(4, correct=[True, False, False, True], response=[LOG([0.5])] * 4,
                      answer=[LOG([0.5])] * 3 + [None])  # fmt: skip
    found = dropout_statistics.split_half_reliability(responses, frame, Reading()).iloc[0]
    r = np.corrcoef(1 - bald[:3].T)[0, 1]
    assert (found.rows, found.correlation, found.expected) == pytest.approx((3, r, 2 * r / (1 + r)))
    assert (found.auroc_1, found.auroc_2) == (1, 0.5)
    assert (found.ece_1, found.ece_2) == pytest.approx(((0.1 + 0.8 + 0.4) / 3, (0.2 + 0.9 + 0.4) / 3))
    for older in (frame.drop(columns="half_predictive"), frame.assign(half_predictive=None, half_conditional=None)):
        assert dropout_statistics.split_half_reliability(responses, older, Reading()).empty


def test_numbers_of_passes_are_asked_once():
    """All of them come last, whether they are asked for or not."""
    frame = passed().assign(selected=True, rate=0.1).drop(columns="correct")
    responses = keyed(1, correct=[True], response=[LOG([0.5])], answer=[LOG([0.5, 0.5])])
    for asked, made in (((1, 3), [1, 3]), ((2, 9), [2, 3]), ((), [1, 2, 3])):
        found = dropout_statistics.by_passes(responses, frame, Reading(), asked)
        assert found.passes.tolist() == made
    assert found.ece.tolist() == pytest.approx([0, 0.15, 0.4])


@pytest.mark.parametrize("errors, best", [([0.3, 0.1, 0.2], 0.15), ([0.1, 0.3, 0.1], 0.1), ([0.2, 0.2, 0.1], 0.2)])
def test_the_rate_of_least_error_the_lower_of_two(errors, best):
    rows = [(rate, metric, value) for rate, value in zip((0.2, 0.15, 0.1), errors[::-1], strict=True)
            for metric, value in (("acc", 0.0), ("ece", value))]  # fmt: skip
    assert confidence.select_dropout_rate(pd.DataFrame(rows, columns=["rate", "metric", "value"])) == best


def test_masks_are_drawn_from_the_stream_of_pass_and_site():
    """The numbers of Philox themselves: 16 bits an entry, kept from p on, what is kept divided by 1 - p."""
    seeds, x = [7, 8], torch.ones(2, 1, 3, 3)
    masks = seeded_dropout.SeededDropout([(seed, 0.25) for seed in seeds])
    first, second = masks(x.clone()), masks(x.clone())
    for site, mask in enumerate((first, second)):
        for row, seed in enumerate(seeds):
            stream = np.random.Philox(key=seed, counter=[0, 0, site, 0])
            bits = stream.random_raw(3).view(np.uint16)[:9].reshape(3, 3)
            assert mask[row, 0].numpy() == pytest.approx(np.where(bits >= 16384, 1 / 0.75, 0))
    assert not torch.equal(first, second)


# ---- curves


def test_a_running_mean_between_its_tokens():
    assert token_statistics.running_mean(LOG([0.5, 1.0]), 5).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.625, 0.75])


def test_a_band_is_the_mean_with_its_interval():
    found = token_statistics.mean_with_interval(np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 1.0]]))
    half = 1.96 * 0.5 / np.sqrt(3)
    assert found["mean"].tolist() == [0.5, 1] and found.n.tolist() == [3, 3]
    assert found.high.tolist() == pytest.approx([0.5 + half, 1]) and found.low.tolist() == pytest.approx([0, 1])
    assert token_statistics.mean_with_interval(np.array([[0.0, 1.0], [1.0, 1.0]]), 0, 1).high.tolist() == [1, 1]
    one = token_statistics.mean_with_interval(np.array([[0.25, 1.0]]))
    assert one.low.tolist() == one.high.tolist() == [0.25, 1]


def told(probabilities, correct, **more):
    return keyed(len(correct), correct=correct, response=[LOG(p) for p in probabilities],
                 answer=[LOG(p[-1:]) for p in probabilities], **more)  # fmt: skip


def test_right_less_wrong_with_the_interval_of_a_difference():
    """Means .8 and .3; halves as of means of two rows each, the larger of the side that was cut and the other."""
    responses = told([[0.6], [1.0], [0.2], [0.4]], [True, True, False, False])
    each = token_statistics.running_mean_curves(responses, 2)
    assert each.position.tolist() == [0, 1] * 2 and set(each.correct) == {True, False}
    found = token_statistics.right_minus_wrong(each)
    assert each.high.max() == 1 and each.low.tolist() == pytest.approx([0.104] * 2 + [0.408] * 2)
    half = np.hypot(1.96 * 0.2, 1.96 * 0.1)
    assert found["mean"].tolist() == pytest.approx([0.5] * 2)
    assert found.low.tolist() == pytest.approx([0.5 - half] * 2)
    assert found.high.tolist() == pytest.approx([0.5 + half] * 2)


def test_running_means_are_of_each_pair():
    frame = pd.concat([told([[0.7], [0.2]], [True, False]).assign(dataset=name) for name in ("e", "d")])
    found = token_statistics.running_mean_curves_by_pair(frame)
    assert found.groupby(["model", "dataset", "correct"], sort=False).size().to_dict() == {
        ("m", name, kind): 101 for name in ("e", "d") for kind in (False, True)}  # fmt: skip


def test_entropies_by_number_of_passes():
    both = pd.concat([passed(), passed(predictive=[[[0.3, 0.4], [0.5, 0.6], [0.7, 0.9]]])])
    found = dropout_statistics.entropy_curves(both)
    means = found.set_index(["term", "passes"])["mean"]
    assert means["predictive"].tolist() == pytest.approx([0.25, 0.45, 0.7])
    assert means["conditional"].tolist() == pytest.approx([0.15, 0.2, 0.2]) and (found.n == 2).all()


# ---- estimators


def test_rounding_above_zero_ends_where_it_is_said():
    assert estimators.seq_avg([1e-5]) == 1.0
    with pytest.raises(ValueError, match="none above 0"):
        estimators.seq_avg([1.01e-5])


def test_the_lowest_window_holds_sixteen_tokens():
    """Twenty sure tokens, then fifteen at .5, and more sure ones: one sure token stands in the window."""
    x = LOG([1.0] * 20 + [0.5] * 15 + [1.0] * 5)
    assert estimators.min_window_mean(x) == pytest.approx((15 * 0.5 + 1) / 16)
    assert estimators.min_window_mean(LOG([0.5, 1.0])) == pytest.approx(0.75)
    assert all(0.99 < estimators.min_window_mean(np.zeros(n)) <= 1 for n in range(1, 20)), "9 * (1 / 9) is more"


def test_the_least_lead_and_certainty_stay_in_the_unit_interval():
    assert estimators.min_top2_margin([0.4, 0.3]) == 0.3 and estimators.min_top2_margin([-1e-9, 0.3]) == 0.0
    assert (
        estimators.exp_neg_entropy([0.1, 0.3]) == pytest.approx(np.exp(-0.2))
        and estimators.exp_neg_entropy([-0.1]) == 1.0
    )
    assert estimators.c_bald([-0.5, 0.25, 2.0]) == pytest.approx((1 + 0.75 + 0) / 3)


# ---- when to answer


def test_scores_that_are_equal_are_answered_together():
    found = selective.risk_coverage([0.9, 0.5, 0.9, 0.0], [1, 0, 0, 1])
    assert found.threshold.tolist() == [0.9, 0.5, 0.0] and found.answered.tolist() == [0.5, 0.75, 1.0]
    assert found.accuracy.tolist() == pytest.approx([0.5, 1 / 3, 0.5])


@pytest.mark.parametrize("wrong, answered, expected", [(0, 0, 1), (0, 1, 0.9), (1, 1, 1), (0, 2, 0.81), (1, 2, 0.99)])
def test_the_exact_tail_of_few_wrong_ones(wrong, answered, expected):
    assert selective.binomial_p_values([wrong], [answered], 0.9)[0] == pytest.approx(expected)


def test_how_many_right_answers_guarantee_a_precision():
    assert selective.min_rows_for_guarantee(0.9) == 22 and 0.9**22 <= 0.1 < 0.9**21
    assert selective.min_rows_for_guarantee(0.5, 0.75) == 2


# ---- what calibration rows show


def pair_of(scores, correct):
    """Both splits of a pair, of Ans Avg alone."""
    nothing = AnswerLogits(len(scores), np.zeros(0, int), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 4)))
    rows = fitting.ScoredSplit(keyed(len(scores))[KEYS], np.array(scores), nothing, np.array(correct, dtype=bool))
    return fitting.CalibrationData(rows, rows)


def test_confident_errors_per_fifty_rows():
    sets = {("m", "d"): pair_of([0.95, 0.9, 0.99, 0.2], [0, 0, 1, 0]), ("m", "e"): pair_of([], [])}
    found = calibration_statistics.describe_calibration_split(sets)
    assert found.confident_errors[0] == 12.5, "one of four: .9 itself is not above"
    assert np.isnan(found.confident_errors[1])


def test_the_quadratic_term_by_maximum_likelihood():
    rng = np.random.default_rng(3)
    c, y = rng.uniform(0.05, 0.95, 80).round(2), rng.random(80) < 0.6
    x = LOG(c / (1 - c))

    def loss(weights, powers):
        z = sum(weight * x**power for power, weight in zip(powers, weights, strict=True))
        return np.logaddexp(0, np.where(y, -z, z)).sum()

    least = [minimize(loss, np.zeros(len(powers)), (powers,), tol=1e-12).fun for powers in ((0, 1), (0, 1, 2))]
    assert calibration_statistics.test_curvature(c, y) == pytest.approx(chi2.sf(2 * (least[0] - least[1]), 1), rel=1e-4)
    assert (
        0
        <= calibration_statistics.test_curvature(
            np.array([0.2, 0.5, 0.9] * 4), np.array([0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0])
        )
        <= 1
    )


@pytest.mark.parametrize("means, first", [([0.3, 0.22, 0.21, 0.2], 20), ([0.3, 0.23, 0.2, 0.2], 50),
                                          ([0.1, 0.1, 0.1, 0.2], 5), ([0.3, 0.3, 0.3, 0.2], 80)])  # fmt: skip
def test_enough_rows_are_those_from_which_on_the_error_stays(means, first):
    """Within a tenth, which itself is within."""
    fixed = {"model": "m", "dataset": "d", "sampling": "uniform", "method": "isotonic"}
    bands = pd.DataFrame(fixed | {"n": [5, 20, 50, 80], "mean": means})
    (found,) = calibration_statistics.find_rows_needed(bands).itertuples()
    assert (found.enough, found.all) == (first, 80)
    half = calibration_statistics.find_rows_needed(bands.assign(mean=[0.5, 0.375, 0.25, 0.25]), within=0.5)
    assert half.enough.tolist() == [20], "1.5 times .25 is within"
    assert calibration_statistics.find_rows_needed(bands.assign(method="")).empty


def test_the_middle_eighty_percent_of_the_draws():
    fixed = {"model": "m", "dataset": "d", "sampling": "uniform", "method": "isotonic", "n": 5}
    draws = pd.DataFrame(fixed | {"ece": np.linspace(0, 1, 11), "one_class": [True] + [False] * 10})
    (found,) = calibration_statistics.curve_bands(draws).itertuples()
    assert (found.mean, found.low, found.high, found.one_class) == pytest.approx((0.5, 0.1, 0.9, 1))


# ---- calibrators


def tokens_of(rows, chosen, others):
    """One answer token a row: its logit and another's, nothing beside them."""
    top = np.column_stack([np.zeros(rows), np.full(rows, others)])
    return AnswerLogits(rows, np.arange(rows), np.full(rows, chosen), top, np.full((rows, 4), -1e6))


def test_without_a_temperature_tokens_are_as_they_are():
    tokens = tokens_of(1, 0.0, -1.0)
    assert tokens.confidence(1.0)[0][0] == pytest.approx(1 / (1 + np.exp(-1)))
    calibrator = Temperature()
    calibrator.constant_ = None
    assert calibrator.predict(tokens)[0] == pytest.approx(tokens.confidence(1.0)[0][0])
    calibrator.temperature_ = 2.0
    assert calibrator.predict(tokens)[0] == pytest.approx(1 / (1 + np.exp(-0.5)))


@pytest.mark.parametrize("right, bound", [(40, 0.1), (20, 20.0)])
def test_the_search_for_a_temperature_ends_at_its_bounds(right, bound):
    """Always right: the coldest. Right half of the time, at odds that no finite temperature gives: the hottest."""
    calibrator = Temperature().fit(tokens_of(40, 0.0, -1.0), np.arange(40) < right)
    assert calibrator.temperature_ == pytest.approx(bound) and calibrator.at_bound_
    inside = Temperature().fit(tokens_of(40, 0.0, -1.0), np.arange(40) < 30)
    assert inside.temperature_ == pytest.approx(1 / LOG(3), rel=1e-4) and not inside.at_bound_
    near = Temperature().fit(tokens_of(4000, 0.0, -1.0), np.arange(4000) < round(4000 / (1 + np.exp(-1 / 15))))
    assert near.temperature_ == pytest.approx(15, rel=0.01) and not near.at_bound_


def test_responses_without_an_answer_have_no_tokens():
    kept = ("kept_positions", "chosen_logit", "top_logits", "tail_curve")
    rows = pd.DataFrame({name: [[], []] for name in kept})
    nothing = AnswerLogits.of(rows, pd.Series([None, None]))
    assert [nothing.row.size, nothing.chosen.size, *nothing.top.shape, *nothing.tail.shape] == [0, 0, 0, 1, 0, 4]
    assert nothing.confidence(2.0)[0].tolist() == [0, 0] and nothing.by_row(nothing.chosen) == [None, None]


def test_tokens_of_chosen_rows_in_their_order():
    chosen, top = np.array([-1.0, -2, -3]), np.array([[0.0], [1], [2]])
    tokens = AnswerLogits(3, np.array([0, 0, 2]), chosen, top, np.zeros((3, 4)))
    some = tokens[np.array([2, 1, 0])]
    assert some.row.tolist() == [0, 2, 2] and some.chosen.tolist() == [-3, -1, -2] and len(some) == 3
    assert [None if part is None else part.tolist() for part in some.by_row(some.chosen)] == [[-3], None, [-1, -2]]


def test_the_lead_of_the_most_probable_token():
    top = LOG([[0.5, 0.3], [0.5, 0.3]])[:1]
    rest = np.full((1, 4), LOG(0.2))
    two = AnswerLogits(1, np.array([0]), top[:, 0], top, rest)
    one = AnswerLogits(1, np.array([0]), top[:, 0], top[:, :1], rest)
    assert two.margins().tolist() == pytest.approx([0.2])
    assert one.margins().tolist() == pytest.approx([(0.5 - 0.2) / 0.7]), "against all others, of one logit alone"


def test_a_likelihood_without_a_maximum_has_smoothed_targets():
    """Two right above two wrong, and its mirror: sigmoid(a m + b) of targets 3/4 and 1/4 at +1 and -1."""
    for sign in (1, -1):
        calibrator = Platt().fit(sign * np.array([1.0, 1.0, -1.0, -1.0]), [1, 1, 0, 0])
        assert calibrator.separable_ and calibrator.a_ == pytest.approx(sign * LOG(3), rel=1e-6)
        assert calibrator.b_ == pytest.approx(0, abs=1e-9)


def test_what_is_drawn_of_calibrators():
    """Of P(True) a map of 201 scores, even in the log-odds, between the ends of its own calibration rows."""
    scores = keyed(6, split="calibration", estimator=["p_true"] * 6, correct=[True, False, True, True, False, True],
                   confidence=[0.2, 0.5, 0.9, 0.8, 0.1, 0.7])  # fmt: skip
    scores["margin"] = LOG(scores.confidence / (1 - scores.confidence))
    others = ({"dataset": "e"}, {"split": "evaluation"}, {"estimator": "seq_avg"})
    frame = pd.concat([scores, *(scores.assign(**other, confidence=0.01) for other in others)])
    found = calibration_statistics.calibration_maps(frame, {}, {}, ("m", "d"))
    assert set(found.estimator) == {"p_true"} and found[found.method == ""].score.tolist() == scores.confidence.tolist()
    even = found[found.method == "platt"]
    assert len(even) == 201 and (even.score.min(), even.score.max()) == pytest.approx((0.1, 0.9))
    odds = LOG(even.score / (1 - even.score))
    assert np.diff(odds) == pytest.approx(np.full(200, 2 * LOG(9) / 200))
    known = found[found.method == ""]
    assert known.correct.tolist() == scores.correct.tolist() and even.correct.isna().all()
    sure = calibration_statistics.calibration_maps(
        scores.assign(confidence=[0.2, 0.5, 1.0, 0.8, 0.0, 0.7]), {}, {}, ("m", "d")
    )
    assert np.isfinite(sure[sure.method == "isotonic"].score).all()


# ---- what is kept of logits, and answers


def test_what_is_kept_is_relative_to_the_largest():
    """Logits 3, 1, 0 of which one is kept: of the rest log(e^-2/t + e^-3/t), below 0, at every temperature."""
    values, ids, curve = scoring.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 1, 5)
    assert values.tolist() == [[3.0]] and ids.tolist() == [[1]]
    t = temperatures(5)
    assert (t[0], t[-1]) == pytest.approx((0.1, 20)) and curve.shape == (1, 5)
    assert curve[0].numpy() == pytest.approx(LOG(np.exp(-2 / t) + np.exp(-3 / t)), rel=1e-5)
    top, *_ = scoring.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 9, 5)
    assert top.tolist() == [[3.0, 1.0]], "one is left over"


@pytest.mark.parametrize("answer, start, end, found", [
    ("7", 0, 1, True), ("7", 3, 5, True), (None, 3, 5, False), ("7", -1, -1, False), ("7", 3, 3, False),
    ("7", -1, 4, False), (float("nan"), 3, 5, False)])  # fmt: skip
def test_an_answer_is_a_text_and_its_place(answer, start, end, found):
    assert answers.has_answer(SimpleNamespace(answer=answer, answer_start=start, answer_end=end)) is found


# ---- the ablations


def arms(**right):
    """Questions e0, e1, ... answered rightly (1) or not, by arm."""
    parts = [keyed(len(values), reference=["7"] * len(values), answer=["7" if value else "8" for value in values],
                   boxed=[None] * len(values)).assign(demonstration=arm) for arm, values in right.items()]  # fmt: skip
    return pd.concat(parts)


def test_the_question_that_another_beginning_turns():
    assert ablation_statistics.find_changed_answer(arms(one=[1, 1, 0], few=[1, 1, 0], none=[1, 0, 0]), "one") == (
        "e1",
        "none",
    )
    assert ablation_statistics.find_changed_answer(arms(one=[1, 1], none=[1, 1]), "one") == ("e0", "none")
    assert ablation_statistics.find_changed_answer(arms(one=[1, 1], few=[1, 1], none=[1, 1]), "few") == ("e0", "one")
    assert ablation_statistics.find_changed_answer(arms(one=[1, 1]), "one") == ("e0", "one")


def test_no_question_turned_is_no_evidence():
    found = ablation_statistics.compare_demonstrations(arms(one=[1, 0], none=[1, 0])).set_index("outcome")
    assert found.p.to_dict() == {"accuracy": 1.0, "extracted": 1.0} and (found["rows"] == 2).all()
    one = (
        ablation_statistics.compare_demonstrations(arms(one=[1, 1, 1], none=[0, 0, 0]))
        .set_index("outcome")
        .loc["accuracy"]
    )
    assert (one["with"], one.without, one.p) == (3, 0, 0.25)


# ---- findings


@pytest.mark.parametrize("word, count, total, held", [
    ("all", 4, 4, True), ("all", 3, 4, False), ("most", 3, 4, True), ("most", 2, 4, False), ("most", 7, 10, False),
    ("often", 2, 4, False), ("often", 3, 5, True), ("generally", 2, 4, False), ("generally", 3, 4, True),
    ("several", 1, 4, True), ("several", 1, 5, False), ("some", 0, 4, False), ("some", 1, 4, True),
    ("some", 4, 4, True), ("can", 1, 9, True), ("can", 0, 9, False),
    ("figure", 1, 1, True), ("figure", 0, 1, False)])  # fmt: skip
def test_words_for_how_many(word, count, total, held):
    assert QUANTIFIERS[word][1](count, total) is held


@pytest.mark.parametrize("name, one, other, held", [
    ("SeqAvgBelowAnswer", 0.125, 0.125, False), ("SeqAvgBelowAnswer", 0.125, 0.126, True),
    ("SubstantiallyBetter", 0.12, 0.15, True), ("SubstantiallyBetter", 0.121, 0.15, False),
    ("InSituMatches", 0.125, 0.125, True), ("InSituMatches", 0.126, 0.125, False),
    ("InSituComparable", 0.25, 0.2, True), ("InSituComparable", 0.15, 0.2, True),
    ("InSituComparable", 0.251, 0.2, False),
    ("BaldBelowPTrue", 0.2, 0.2, False), ("BaldBelowPTrue", 0.199, 0.2, True)])  # fmt: skip
def test_edges_of_what_is_counted(name, one, other, held):
    """Equal errors are not below one another, but near; a distance of just so much is within."""
    left = dict.fromkeys(("seq_avg", "seq_joint", "p_true_insitu", "c_bald"), one)
    right = dict.fromkeys(("ans_avg", "ans_joint", "p_true"), other)
    rows = [("m", "d", estimator, "ece", value) for estimator, value in (left | right).items()]
    frame = pd.DataFrame(rows, columns=["model", "dataset", "estimator", "metric", "value"])
    results = holding(result_estimation=frame, insitu_ptrue=frame)
    claim = next(claim for claim in CLAIMS if claim.name == name)
    assert judge(claim, results).held is held


@pytest.mark.parametrize("largest, held", [(0.2, False), (0.201, True)])
def test_a_transfer_is_severe_above_a_fifth(largest, held):
    ends = [("a", "d", "b", "d", -0.5), ("b", "d", "a", "d", largest), ("a", "h", "a", "d", 0.9)]
    keys = ["source_model", "source_dataset", "model", "dataset"]
    moved = pd.DataFrame(ends, columns=[*keys, "value"]).assign(metric="delta_ece", method="isotonic")
    accuracy = pd.DataFrame([("a", "d", 0.9), ("a", "h", 0.5)], columns=["model", "dataset", "value"])
    results = holding(calibration_transfer_summary=moved, result_estimation=accuracy.assign(metric="acc", estimator=""))
    results = replace(results, moved=(dict.fromkeys("ab", ""), dict.fromkeys("dh", "")))
    verdict = judge(next(claim for claim in CLAIMS if claim.name == "TransferSevere"), results)
    assert verdict.held is held and verdict.rows.largest.tolist() == [largest]
