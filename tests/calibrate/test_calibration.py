"""Calibrators against netcal, slow direct versions, and on what usually breaks them."""

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
from lib.calibrate.calibrators import Isotonic, Platt, SmoothedIsotonic, Temperature
from lib.score.confidence import confidence_frame
from lib.score.estimators import ESTIMATORS, ans_avg, ans_joint

# ---- isotonic regression

SURE = st.sampled_from([0.0, 0.2, 1 - 2e-8, 1 - 1e-8, 1.0]) | st.floats(0, 1).map(
    lambda c: round(c, 9)
)


@given(st.lists(st.tuples(SURE, st.booleans()), min_size=1, max_size=60))
def test_isotonic_is_pooled_adjacent_violators(rows):
    """By the min-max formula over the distinct scores: of the blocks around each, the highest, over
    where they begin, of the lowest mean."""
    c, y = columns(rows)
    scores, place, count = np.unique(c, return_inverse=True, return_counts=True)
    right, rows = (np.append(0, np.cumsum(column)) for column in (np.bincount(place, y), count))
    with np.errstate(all="ignore"):
        means = (right[1:] - right[:-1, None]) / (rows[1:] - rows[:-1, None])
    expected = [means[: i + 1, i:].min(axis=1).max() for i in range(len(scores))]
    fitted = Isotonic().fit(c, y)
    assert fitted.predict(scores) == pytest.approx(expected, abs=1e-9)
    assert fitted.predict([0.0, 1.0]).tolist() == fitted.predict([c.min(), c.max()]).tolist()


def test_smoothing_by_hand():
    """A right row alone becomes (1 + 4/7) / 2; where it falls below a large block, both are
    pooled."""
    c, y = [0.1, 0.2, 0.5, 0.5, 0.5, 0.5, 0.9], [0, 0, 0, 1, 1, 1, 1]
    assert Isotonic().fit(c, y).predict([0.2, 0.5, 0.9]).tolist() == [0, 0.75, 1]
    fitted = SmoothedIsotonic().fit(c, y)
    expected = [4 / 21, 4 / 21, 5 / 7, 11 / 14, 11 / 14]
    assert fitted.predict([0, 0.2, 0.5, 0.9, 1]) == pytest.approx(expected)
    assert fitted.predict([0.35]) == pytest.approx([(4 / 21 + 5 / 7) / 2])

    c, y = [0.1] * 10 + [0.5] * 10 + [0.9], [0] * 10 + [0] + [1] * 9 + [1]  # base rate 10/21
    alone = [(9 + 10 / 21) / 11, (1 + 10 / 21) / 2]
    assert alone[0] > alone[1]
    together = (10 + 2 * 10 / 21) / (11 + 2)
    expected = [10 / 21 / 11, together, together]
    assert SmoothedIsotonic().fit(c, y).predict([0.1, 0.5, 0.9]) == pytest.approx(expected)

    one_class = SmoothedIsotonic().fit([0.4], [True])  # base rate (1 + 1) / (1 + 2)
    assert one_class.predict([0.4]) == pytest.approx([(1 + 2 / 3) / 2])


@given(st.lists(st.tuples(SURE, st.booleans()), min_size=1, max_size=60))
def test_smoothed_isotonic_is_ordered_and_never_certain(rows):
    """By scipy's regression of the rows, then of the blocks; with many rows it is the plain one."""
    c, y = columns(rows)
    order = np.argsort(c)
    scores, place, count = np.unique(c[order], return_inverse=True, return_counts=True)
    accuracy = np.bincount(place, y[order]) / count
    plain = isotonic_regression(accuracy, weights=count).x
    block = np.unique(plain.round(9), return_inverse=True)[1]
    size, right = np.bincount(block, count), np.bincount(block, accuracy * count)
    rate = y.mean() if 0 < y.mean() < 1 else (y.sum() + 1) / (len(y) + 2)
    expected = isotonic_regression((right + rate) / (size + 1), weights=size + 1).x[block]

    smoothed = SmoothedIsotonic().fit(c, y).predict(scores)
    assert smoothed == pytest.approx(expected, abs=1e-9)
    assert (np.diff(smoothed) >= 0).all() and smoothed.min() > 0 and smoothed.max() < 1
    for times in 10, 10**6:
        repeated = SmoothedIsotonic().fit(c, y, np.full(len(c), times))
        assert repeated.predict(scores) == pytest.approx(plain, abs=1 / times)


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
    m, y = sign * np.array([-3.0, -2, -1, last_wrong, 1, 2, 2]), np.array([0, 0, 0, 0, 1, 1, 1])
    fitted = Platt().fit(m, y)
    assert fitted.separable_ and np.sign(fitted.a_) == sign
    residuals = fitted.predict(m) - np.where(y, (3 + 1) / (3 + 2), 1 / (4 + 2))
    assert (m @ residuals, residuals.sum()) == pytest.approx((0, 0), abs=1e-6)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60)
def test_platt_never_fails(rows):
    """And constant margins give the base rate."""
    m, y = columns(rows)
    predicted = Platt().fit(m, y).predict(m)
    assert ((predicted >= 0) & (predicted <= 1)).all()
    constant = Platt().fit(np.full(10, 2.5), np.arange(10) < 7)
    assert constant.a_ == 0 and constant.predict([2.5, -9.0]) == pytest.approx([0.7, 0.7])


# ---- temperature


def full_softmax(frame, t, joint=False):
    """The estimator at temperature t from all logits of the rows."""
    logprobs = [
        log_softmax(np.stack(logits).astype(float) / t, axis=1)[:, 0] for logits in frame.logits
    ]
    return np.array([(ans_joint if joint else ans_avg)(of_row) for of_row in logprobs])


@pytest.mark.parametrize("rows, vocabulary, chosen", [(15, 300, 0), (15, 300, 7), (2, 128256, 0)])
def test_temperature_through_what_is_stored_is_that_of_all_logits(rows, vocabulary, chosen):
    """Also of tokens that are not the most probable."""
    frame = generations(rows=rows, vocabulary=vocabulary)
    logits = [np.roll(of_token, -chosen, axis=1) for of_token in frame.logits]
    frame = frame.assign(logits=logits, chosen_logit=[of_token[:, 0] for of_token in logits])
    answers = AnswerLogits.of(frame, responses(frame).span)
    for t in np.geomspace(0.1, 20, 25):
        for joint in (False, True):
            right, wrong = answers.confidence(t, joint)
            assert right == pytest.approx(
                full_softmax(frame, t, joint), abs=2e-5
            ) and right + wrong == pytest.approx(1)


def test_temperature_is_the_optimum_over_all_logits():
    """Of Ans Avg; it serves both."""
    frame = generations(rows=60, accuracy=0.5).iloc[:60]
    read = responses(frame)
    answers, y = AnswerLogits.of(frame, read.span), read.correct.to_numpy(bool)
    fitted = Temperature().fit(answers, y)

    def loss(t):
        c = np.clip(full_softmax(frame, t), 1e-12, 1 - 1e-12)
        return -np.log(np.where(y, c, 1 - c)).sum()

    near = fitted.temperature_ * np.exp([-1e-3, 1e-3])
    assert not fitted.at_bound_ and loss(fitted.temperature_) < min(
        map(loss, [*np.geomspace(0.1, 20, 60), *near])
    )
    assert fitted.predict(answers, joint=True) == pytest.approx(
        full_softmax(frame, fitted.temperature_, True), abs=2e-5
    )


def tokens_of(rows, lead):
    """One answer token a row: its logit and another's, `lead` below, nothing beside them."""
    top = np.column_stack([np.zeros(rows), np.broadcast_to(-lead, rows)])
    return AnswerLogits(rows, np.arange(rows), np.zeros(rows), top, np.full((rows, 33), -1e6))


@pytest.mark.parametrize("rows, share, found", [
    (40, 1, 0.1), (40, 0.5, 20), (40, 0.75, 1 / np.log(3)), (4000, 1 / (1 + np.exp(-1 / 15)), 15)])  # fmt: skip
def test_a_temperature_by_hand_and_at_its_bounds(rows, share, found):
    """Right tokens lead by 1. Always right: the coldest; half of the time, at odds that no
    temperature gives: the hottest."""
    fitted = Temperature().fit(tokens_of(rows, 1.0), np.arange(rows) < round(share * rows))
    assert fitted.temperature_ == pytest.approx(found, rel=0.01) and fitted.at_bound_ == (
        share in (1, 0.5)
    )


# ---- tokens of answers


def test_margins_and_entropies_are_those_of_the_whole_vocabulary():
    """From the kept logits and the curve of the rest, against all 300 logits; also where one logit
    is stored."""
    frame = generations(rows=20)
    read = responses(frame)
    signals = token_signals(calibration_data(frame, read))
    scores = confidence_frame(read, names=["ans_margin", "ans_entropy"], further=signals)
    found = scores.pivot(index="example_id", columns="estimator", values="confidence")
    for row in frame.itertuples():
        p = np.sort(softmax(np.stack(row.logits).astype(float), axis=1))
        assert found.ans_margin[row.example_id] == pytest.approx(
            (p[:, -1] - p[:, -2]).min(), abs=1e-5
        )
        assert found.ans_entropy[row.example_id] == pytest.approx(
            np.exp(-entropy(p, axis=1).mean()), abs=1e-4
        )
    assert not any(ESTIMATORS[name].own for name in single_pass(frame).estimator), (
        "nothing of the paper's"
    )
    of_one = AnswerLogits(
        1, np.zeros(1, int), np.log([0.5]), np.log([[0.5]]), np.full((1, 4), np.log(0.2))
    )
    assert of_one.margins().tolist() == pytest.approx([(0.5 - 0.2) / 0.7])


# ---- weights, few rows, one class


@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12
    )
)
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("make", [Isotonic, SmoothedIsotonic, Platt, Temperature])
def test_weights_are_repeated_rows(make, rows):
    """Weight 0: no such row, also for the classes that it saw, for separability and for every
    count. No rows: 1/2."""
    x, y, times = columns(rows)
    confidence, tokens = x / 10 + 0.5, tokens_of(len(x), 1 + np.abs(x))
    scores = {Platt: x.astype(float), Temperature: tokens}.get(make, confidence)
    which = np.repeat(np.arange(len(x)), times)
    weighted, repeated = make().fit(scores, y, times), make().fit(scores[which], y[which])
    assert weighted.predict(scores) == pytest.approx(repeated.predict(scores), abs=1e-6)
    assert (weighted.n_rows_, weighted.note_) == (repeated.n_rows_, repeated.note_)
    assert len(which) or set(weighted.predict(scores)) == {0.5}
    fit = make().fit_many(scores, y)
    by_weight = fit(np.arange(len(x)), times)(scores, False)
    assert by_weight == pytest.approx(fit(which, which**0)(scores, False), abs=1e-6)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("n", [1, 30])
def test_one_class_gives_what_the_method_gives(n, right):
    """Isotonic regression, and the limit of Platt's likelihood: the class; temperature: its
    bound."""
    c, y, tokens, new = (
        np.linspace(0.2, 0.9, n),
        np.full(n, right),
        tokens_of(n, 1.0),
        tokens_of(2, 2.0),
    )
    isotonic, platt, temperature = (
        Isotonic().fit(c, y),
        Platt().fit(c, y),
        Temperature().fit(tokens, y),
    )
    assert (
        isotonic.predict([0.1, 0.99]).tolist()
        == platt.predict([-50.0, 50.0]).tolist()
        == [right, right]
    )
    assert platt.learned == {"a": None, "b": None}
    assert temperature.at_bound_ and temperature.temperature_ == pytest.approx(
        0.1 if right else 20.0, rel=1e-5
    )
    assert {model.note_ for model in (isotonic, platt, temperature)} == {"one class only"}
    predict = Temperature().fit_many(tokens, y)(np.arange(n), np.ones(n))
    assert predict(new, False) == pytest.approx(temperature.predict(new), abs=5e-3)


@pytest.mark.parametrize("method", [Isotonic, Platt])
def test_a_score_that_is_no_number_is_not_calibrated(method):
    fitted, scores = method().fit([0.5, 0.6, 0.7], [0, 1, 0]), [0.55, np.nan]
    for calibrator in fitted, method().fit([0.5, 0.6], [1, 1]):
        with pytest.raises(ValueError, match="predict needs scores without NaN"):
            calibrator.predict(scores)
        assert np.isfinite(calibrator.predict([0.55, np.inf])).all()


@pytest.mark.parametrize("given", [([0.5, 0.6], [0, 2]), ([0.5, 0.6], [0, 1, 1]), ([0.5, 0.6], [0, 1], [1, -1]),
                                   ([0.5, 0.6], [0, 1], [1]), ([0.5, np.inf], [0, 1])])  # fmt: skip
@pytest.mark.parametrize("method", [Isotonic, Platt])
def test_rows_that_cannot_be_fitted_are_refused(method, given):
    with pytest.raises(ValueError, match="fit needs"):
        method().fit(*given)
