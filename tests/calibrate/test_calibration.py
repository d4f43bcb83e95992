"""Calibrators by hand, against other libraries and slow direct versions, and on what usually breaks
them."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import netcal_and_baal
from scipy.optimize import isotonic_regression
from scipy.special import log_softmax, softmax
from scipy.stats import entropy
from synthetic import columns, generations, responses, single_pass

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibration_sets import calibration_data, token_signals
from lib.calibrate.calibrators import Calibrator, Isotonic, Platt, SmoothedIsotonic, Temperature
from lib.paths import ROOT
from lib.score.confidence import confidence_frame
from lib.score.estimators import ESTIMATORS, ans_avg, ans_joint

# ---- isotonic regression

NEARLY_SURE = st.sampled_from([0.0, 0.2, 1 - 2e-8, 1 - 1e-8, 1.0])
SCORES = NEARLY_SURE | st.floats(0, 1).map(lambda c: round(c, 9))
ROWS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=60)


def highest_of_lowest_means(place, accuracy, count):
    """Of the blocks around a place the highest, over where they begin, of the lowest mean."""
    highest = 0
    for start in range(place + 1):
        lowest = 1
        for end in range(place + 1, len(count) + 1):
            block = slice(start, end)
            lowest = min(lowest, np.average(accuracy[block], weights=count[block]))
        highest = max(highest, lowest)
    return highest


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=20))
def test_isotonic_is_pooled_adjacent_violators(rows):
    """By the min-max formula over the distinct scores."""
    c, y = columns(rows)
    scores, place, count = np.unique(c, return_inverse=True, return_counts=True)
    accuracy = np.bincount(place, y) / count
    places = range(len(scores))
    expected = [highest_of_lowest_means(i, accuracy, count) for i in places]
    assert Isotonic().fit(c, y).predict(scores) == pytest.approx(expected, abs=1e-9)


@given(ROWS)
def test_isotonic_is_constant_beyond_its_rows(rows):
    c, y = columns(rows)
    fitted = Isotonic().fit(c, y)
    ends = fitted.predict([c.min(), c.max()])
    assert fitted.predict([0.0, 1.0]).tolist() == ends.tolist()


# a wrong row at .1 and at .2, three of four right ones at .5, a right one at .9: base rate 4/7
C = [0.1, 0.2, 0.5, 0.5, 0.5, 0.5, 0.9]
Y = [0, 0, 0, 1, 1, 1, 1]


def test_isotonic_by_hand():
    assert Isotonic().fit(C, Y).predict([0.2, 0.5, 0.9]).tolist() == [0, 0.75, 1]


def test_smoothing_adds_a_row_of_the_base_rate_to_each_block():
    fitted = SmoothedIsotonic().fit(C, Y)
    wrong = (0 + 4 / 7) / (2 + 1)
    mostly_right = (3 + 4 / 7) / (4 + 1)
    right = (1 + 4 / 7) / (1 + 1)
    assert fitted.predict([0, 0.1, 0.2]) == pytest.approx([wrong] * 3)
    assert fitted.predict([0.5, 0.9, 1]) == pytest.approx([mostly_right, right, right])
    assert fitted.predict([0.35]) == pytest.approx([(wrong + mostly_right) / 2])


def test_smoothing_pools_a_right_row_that_falls_below_a_large_block():
    """Ten wrong rows, ten of which nine are right, one that is right: base rate 10/21."""
    c = [0.1] * 10 + [0.5] * 10 + [0.9]
    y = [0] * 11 + [1] * 10
    large = (9 + 10 / 21) / (10 + 1)
    alone = (1 + 10 / 21) / (1 + 1)
    assert alone < large
    pooled = (9 + 1 + 2 * 10 / 21) / (10 + 1 + 2)
    expected = [10 / 21 / 11, pooled, pooled]
    assert SmoothedIsotonic().fit(c, y).predict([0.1, 0.5, 0.9]) == pytest.approx(expected)


def test_smoothing_of_one_class_has_a_base_rate_that_is_not_certain():
    base_rate = (1 + 1) / (1 + 2)
    fitted = SmoothedIsotonic().fit([0.4], [True])
    assert fitted.predict([0.4]) == pytest.approx([(1 + base_rate) / 2])


@given(ROWS)
def test_smoothed_isotonic_is_scipys_regression_of_rows_and_then_of_blocks(rows):
    c, y = columns(rows)
    scores, place, count = np.unique(c, return_inverse=True, return_counts=True)
    accuracy = np.bincount(place, y) / count
    plain = isotonic_regression(accuracy, weights=count).x
    _, block = np.unique(plain.round(9), return_inverse=True)
    size = np.bincount(block, count)
    right = np.bincount(block, accuracy * count)
    rate = y.mean()
    if rate in (0, 1):
        rate = (y.sum() + 1) / (len(y) + 2)
    blocks = isotonic_regression((right + rate) / (size + 1), weights=size + 1).x
    smoothed = SmoothedIsotonic().fit(c, y).predict(scores)
    assert smoothed == pytest.approx(blocks[block], abs=1e-9)


@given(ROWS)
def test_smoothed_isotonic_is_ordered_and_never_certain(rows):
    c, y = columns(rows)
    smoothed = SmoothedIsotonic().fit(c, y).predict(np.unique(c))
    assert (np.diff(smoothed) >= 0).all()
    assert smoothed.min() > 0
    assert smoothed.max() < 1


@given(ROWS)
@pytest.mark.parametrize("times", [10, 10**6])
def test_smoothed_isotonic_of_many_rows_is_the_plain_one(times, rows):
    c, y = columns(rows)
    plain = Isotonic().fit(c, y).predict(c)
    repeated = SmoothedIsotonic().fit(c, y, np.full(len(c), times))
    assert repeated.predict(c) == pytest.approx(plain, abs=1 / times + 1e-8)


# ---- Platt scaling

# at five new margins, printed by tests/oracles/netcal_and_baal.py
PLATT_BY_NETCAL = {
    "the surer, the more are right": [0.026372, 0.367697, 0.474018, 0.528723, 0.950855],
    "as many everywhere": [0.427206, 0.462501, 0.467583, 0.470126, 0.503283],
    "the surer, the fewer are right": [0.937021, 0.532930, 0.441532, 0.396906, 0.057166],
}
SHIFTS = {
    "as they are": lambda margins: margins,
    "tiny": lambda margins: 1e-6 * margins,
    "far from zero": lambda margins: 1e4 * margins + 5e5,
    "turned around": lambda margins: 3 - margins,
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", PLATT_BY_NETCAL)
def test_platt_is_the_maximum_of_the_likelihood_and_netcals(kind, shift):
    """Whatever the scale and offset of the margins."""
    move = SHIFTS[shift]
    margins = np.array(netcal_and_baal.MARGINS)
    new_margins = np.array(netcal_and_baal.NEW_MARGINS)
    fitted = Platt().fit(move(margins), np.array(netcal_and_baal.OUTCOMES[kind]))
    assert not fitted.separable_
    assert fitted.predict(move(new_margins)) == pytest.approx(PLATT_BY_NETCAL[kind], abs=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("last_wrong", [0, 1])  # 1: both kinds at the threshold
def test_separable_rows_get_platts_smoothed_targets(sign, last_wrong):
    """At the only minimum of their log-loss, whose slopes in a and b are zero."""
    margins = sign * np.array([-3.0, -2, -1, last_wrong, 1, 2, 2])
    right = np.arange(7) >= 4
    fitted = Platt().fit(margins, right)
    assert fitted.separable_
    assert np.sign(fitted.a_) == sign
    targets = np.where(right, (3 + 1) / (3 + 2), 1 / (4 + 2))
    residuals = fitted.predict(margins) - targets
    assert margins @ residuals == pytest.approx(0, abs=1e-6)
    assert residuals.sum() == pytest.approx(0, abs=1e-6)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60)
def test_platt_never_fails(rows):
    margins, right = columns(rows)
    predicted = Platt().fit(margins, right).predict(margins)
    assert ((predicted >= 0) & (predicted <= 1)).all()


def test_platt_of_constant_margins_is_the_base_rate():
    constant = Platt().fit(np.full(10, 2.5), np.arange(10) < 7)
    assert constant.a_ == 0
    assert constant.predict([2.5, -9.0]) == pytest.approx([0.7, 0.7])


# ---- temperature


def full_softmax(frame, t, estimator):
    """The estimator at temperature t from all logits of the rows."""
    values = []
    for logits in frame.logits:
        logprobs = log_softmax(np.stack(logits).astype(float) / t, axis=1)
        values.append(estimator(logprobs[:, 0]))
    return np.array(values)


@pytest.mark.parametrize("joint, estimator", [(False, ans_avg), (True, ans_joint)])
@pytest.mark.parametrize("rows, vocabulary, chosen", [(15, 300, 0), (15, 300, 7), (2, 128256, 0)])
def test_temperature_through_what_is_stored_is_that_of_all_logits(
    rows, vocabulary, chosen, joint, estimator
):
    """Also of tokens that are not the most probable."""
    frame = generations(rows=rows, vocabulary=vocabulary)
    logits = [np.roll(of_token, -chosen, axis=1) for of_token in frame.logits]
    frame = frame.assign(logits=logits, chosen_logit=[of_token[:, 0] for of_token in logits])
    answers = AnswerLogits.of(frame, responses(frame).span)
    for t in np.geomspace(0.1, 20, 25):
        right, wrong = answers.confidence(t, joint)
        assert right == pytest.approx(full_softmax(frame, t, estimator), abs=2e-5)
        assert right + wrong == pytest.approx(1)


def test_temperature_is_the_optimum_over_all_logits():
    """Of Ans Avg; it serves both."""
    frame = generations(rows=60, accuracy=0.5).iloc[:60]
    read = responses(frame)
    answers = AnswerLogits.of(frame, read.span)
    fitted = Temperature().fit(answers, read.correct)

    def loss(t):
        right = full_softmax(frame, t, ans_avg).clip(1e-12, 1 - 1e-12)
        return -np.log(np.where(read.correct, right, 1 - right)).sum()

    best = loss(fitted.temperature_)
    assert not fitted.at_bound_
    for factor in np.exp([-1e-3, 1e-3]):
        assert best < loss(factor * fitted.temperature_)
    for t in np.geomspace(0.1, 20, 60):
        assert best < loss(t)
    joint = full_softmax(frame, fitted.temperature_, ans_joint)
    assert fitted.predict(answers, joint=True) == pytest.approx(joint, abs=2e-5)


def tokens_of(rows, lead):
    """One answer token a row: its logit and another's, `lead` below, nothing beside them."""
    top_logits = np.zeros((rows, 2))
    top_logits[:, 1] = -np.asarray(lead)
    nothing = np.full((rows, 33), -1e6)
    return AnswerLogits(rows, np.arange(rows), np.zeros(rows), top_logits, nothing)


@pytest.mark.parametrize(
    "rows, right, temperature, at_bound",
    [
        pytest.param(40, 40, 0.1, True, id="always right: the coldest"),
        pytest.param(40, 20, 20, True, id="even odds, which none gives: the hottest"),
        pytest.param(40, 30, 1 / np.log(3), False, id="three to one"),
        pytest.param(4000, 2067, 15, False, id="exp(1/15) to one"),
    ],
)
def test_a_temperature_by_hand_and_at_its_bounds(rows, right, temperature, at_bound):
    """Right tokens lead by 1."""
    fitted = Temperature().fit(tokens_of(rows, 1.0), np.arange(rows) < right)
    assert fitted.temperature_ == pytest.approx(temperature, rel=0.01)
    assert fitted.at_bound_ == at_bound


# ---- tokens of answers


def test_margins_and_entropies_are_those_of_the_whole_vocabulary():
    """From the kept logits and the curve of the rest, against all 300 logits."""
    frame = generations(rows=20)
    read = responses(frame)
    signals = token_signals(calibration_data(frame, read))
    scores = confidence_frame(read, names=["ans_margin", "ans_entropy"], further=signals)
    table = scores.pivot(index="example_id", columns="estimator", values="confidence")
    for row in frame.itertuples():
        p = np.sort(softmax(np.stack(row.logits).astype(float), axis=1))
        margin = (p[:, -1] - p[:, -2]).min()
        certainty = np.exp(-entropy(p, axis=1).mean())
        assert table.ans_margin[row.example_id] == pytest.approx(margin, abs=1e-5)
        assert table.ans_entropy[row.example_id] == pytest.approx(certainty, abs=1e-4)


def test_estimators_of_ones_own_are_not_among_the_papers():
    for name in single_pass(generations(rows=5)).estimator:
        assert not ESTIMATORS[name].own


def test_a_margin_is_against_the_rest_where_one_logit_is_stored():
    """.5 against three of .2 at most, of .7 in all."""
    top = np.log([[0.5]])
    rest = np.full((1, 4), np.log(0.2))
    answers = AnswerLogits(1, np.array([0]), np.log([0.5]), top, rest)
    assert answers.margins().tolist() == pytest.approx([(0.5 - 0.2) / 0.7])


# ---- weights, few rows, one class

WEIGHTED_ROWS = st.lists(
    st.tuples(st.integers(-5, 5), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12
)
METHODS = [Isotonic, SmoothedIsotonic, Platt, Temperature]


def scores_for(method, x):
    """What the method takes, in the order of integers x."""
    if method is Platt:
        return x.astype(float)
    if method is Temperature:
        return tokens_of(len(x), 1 + np.abs(x))
    return x / 10 + 0.5


@given(WEIGHTED_ROWS)
@settings(max_examples=60)
@pytest.mark.parametrize("method", METHODS)
def test_weights_are_repeated_rows(method, rows):
    """Weight 0: no such row, also for the classes that it saw, for separability and for every
    count."""
    x, y, times = columns(rows)
    scores = scores_for(method, x)
    places = np.repeat(np.arange(len(x)), times)
    weighted = method().fit(scores, y, times)
    repeated = method().fit(scores[places], y[places])
    assert weighted.predict(scores) == pytest.approx(repeated.predict(scores), abs=1e-6)
    assert weighted.n_rows_ == repeated.n_rows_
    assert weighted.note_ == repeated.note_


@given(WEIGHTED_ROWS)
@settings(max_examples=60)
@pytest.mark.parametrize("method", METHODS)
def test_weights_are_repeated_rows_of_a_resample(method, rows):
    x, y, times = columns(rows)
    scores = scores_for(method, x)
    fit = method().fit_many(scores, y)
    places = np.repeat(np.arange(len(x)), times)
    weighted = fit(np.arange(len(x)), times)(scores, False)
    repeated = fit(places, np.ones(len(places)))(scores, False)
    assert weighted == pytest.approx(repeated, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_without_rows_every_score_becomes_one_half(method):
    scores = scores_for(method, np.arange(3))
    fitted = method().fit(scores, [0, 1, 1], [0, 0, 0])
    assert set(fitted.predict(scores)) == {0.5}


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("n", [1, 30])
@pytest.mark.parametrize("method", [Isotonic, Platt])
def test_one_class_is_predicted_everywhere(method, n, right):
    """Also the limit of Platt's likelihood."""
    fitted = method().fit(np.linspace(0.2, 0.9, n), np.full(n, right))
    assert fitted.predict([-50.0, 0.1, 0.99, 50.0]).tolist() == [right] * 4
    assert fitted.note_ == "one class only"


def test_platt_of_one_class_has_learned_no_numbers():
    assert Platt().fit([0.2, 0.9], [True, True]).learned == {"a": None, "b": None}


@pytest.mark.parametrize("right, bound", [(True, 0.1), (False, 20.0)])
@pytest.mark.parametrize("n", [1, 30])
def test_one_class_drives_the_temperature_to_its_bound(n, right, bound):
    tokens = tokens_of(n, 1.0)
    new = tokens_of(2, 2.0)
    fitted = Temperature().fit(tokens, np.full(n, right))
    assert fitted.at_bound_
    assert fitted.temperature_ == pytest.approx(bound, rel=1e-5)
    assert fitted.note_ == "one class only"
    fit = Temperature().fit_many(tokens, np.full(n, right))
    predicted = fit(np.arange(n), np.ones(n))(new, False)
    assert predicted == pytest.approx(fitted.predict(new), abs=5e-3)


@pytest.mark.parametrize("correct", [[0, 1, 0], [1, 1, 1]])
@pytest.mark.parametrize("method", [Isotonic, Platt])
def test_a_score_that_is_no_number_is_not_calibrated(method, correct):
    fitted = method().fit([0.5, 0.6, 0.7], correct)
    with pytest.raises(ValueError, match="predict needs scores without NaN"):
        fitted.predict([0.55, np.nan])
    assert np.isfinite(fitted.predict([0.55, np.inf])).all()


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(([0.5, 0.6], [0, 2]), id="no outcome"),
        pytest.param(([0.5, 0.6], [0, 1, 1]), id="two lengths"),
        pytest.param(([0.5, 0.6], [0, 1], [1, -1]), id="a negative weight"),
        pytest.param(([0.5, 0.6], [0, 1], [1]), id="a weight too few"),
        pytest.param(([0.5, np.inf], [0, 1]), id="an infinite score"),
    ],
)
@pytest.mark.parametrize("method", [Isotonic, Platt])
def test_rows_that_cannot_be_fitted_are_refused(method, rows):
    with pytest.raises(ValueError, match="fit needs"):
        method().fit(*rows)


def test_the_guides_calibrator_is_complete():
    """The share of right answers in each tenth, by hand."""
    guide = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = re.search(r"```\n(class Histogram.*?)\n\n\"histogram\"", guide, re.DOTALL)[1]
    names = {"Calibrator": Calibrator, "np": np}
    exec(code, names)  # noqa: S102  our page
    confidence = np.array([0.05, 0.95, 0.95, 1.0])
    histogram = names["Histogram"]().fit(confidence, [False, True, True, False])
    assert histogram.predict(np.array([0.0, 0.5, 1.0])) == pytest.approx([1 / 3, 1 / 2, 3 / 5])
