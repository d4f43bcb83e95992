"""Calibrators against scikit-learn, netcal, slow direct versions, and on what usually breaks them."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from synthetic import generations, logits_of, responses

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import Isotonic, Platt, Temperature, parabolic_argmin
from lib.generate import scoring
from lib.score.estimators import ans_avg, ans_joint

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def scores(seed=0, n=300):
    rng = np.random.default_rng(seed)
    c = rng.beta(5, 1, n)
    return c, rng.random(n) < c**2


ADVERSARIAL = {
    "ties": (np.repeat([0.2, 0.5, 0.9], 20), np.arange(60) % 3 > 0),
    "saturated": (np.append(np.ones(50), [0.1, 0.99]), np.arange(52) % 4 > 0),
    "nearly sure": (1 - np.logspace(-8, -4, 60), np.arange(60) % 5 < 2 + np.arange(60) // 30),
    "constant": (np.full(30, 0.7), np.arange(30) % 5 > 0),
    "anti-correlated": (np.linspace(0, 1, 40), np.arange(40) < 25),
    "separable": (np.linspace(0, 1, 40), np.arange(40) > 25),
    "two": (np.array([0.3, 0.4]), np.array([False, True])),
}
unit = st.floats(0, 1)
both = pytest.mark.parametrize("given", [*ADVERSARIAL, 0, 1, 2])


def example(given):
    return ADVERSARIAL[given] if given in ADVERSARIAL else scores(given)


# ---- isotonic regression


def pooled(c, y, w):
    """Pool adjacent violators, the textbook loop: fitted value at each distinct score."""
    blocks = []
    for x in np.unique(c):
        at = c == x
        blocks.append([w[at] @ y[at] / w[at].sum(), w[at].sum(), 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (v1, w1, n1), (v2, w2, n2) = blocks[-2:]
            blocks[-2:] = [[(v1 * w1 + v2 * w2) / (w1 + w2), w1 + w2, n1 + n2]]
    return np.concatenate([np.full(n, v) for v, _, n in blocks])


@both
@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_is_pooled_adjacent_violators(given, weighted):
    c, y = example(given)
    w = np.random.default_rng(9).integers(1, 5, len(c)).astype(float) if weighted else np.ones(len(c))
    fitted = Isotonic().fit(c, y, w)
    assert fitted.predict(np.unique(c)) == pytest.approx(pooled(c, y.astype(float), w), abs=1e-9)


def test_isotonic_is_netcals():
    from netcal import binning

    c, y = scores()
    theirs = binning.IsotonicRegression()
    theirs.fit(c, y.astype(int))
    assert Isotonic().fit(c, y).predict(c) == pytest.approx(theirs.transform(c), abs=1e-5)


@given(st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=40), st.lists(unit, min_size=1))
def test_isotonic_is_monotone_within_zero_and_one_and_never_nan(rows, new):
    c, y = (np.array(column) for column in zip(*rows, strict=True))
    predicted = Isotonic().fit(c, y).predict(np.sort(new))
    assert ((predicted >= 0) & (predicted <= 1)).all() and (np.diff(predicted) >= 0).all()
    assert (
        Isotonic().fit(c, y).predict([0.0, 1.0]).tolist() == Isotonic().fit(c, y).predict([c.min(), c.max()]).tolist()
    )


# ---- Platt scaling


def likelihood(parameters, m, y):
    a, b = parameters
    z = a * m + b
    return np.logaddexp(0, z).sum() - z @ y


def margins(seed, n=200, slope=0.7, shift=-0.4):
    rng = np.random.default_rng(seed)
    m = rng.normal(scale=3, size=n)
    return m, rng.random(n) < expit(slope * m + shift)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slope", [0.7, 0.02, -0.3])
def test_platt_is_the_maximum_of_the_likelihood(seed, slope):
    m, y = margins(seed, slope=slope)
    fitted = Platt().fit(m, y)
    direct = minimize(likelihood, [0.1, 0.0], args=(m, y.astype(float)), method="BFGS", options={"gtol": 1e-9})
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000).fit(m[:, None], y)
    assert [fitted.a_, fitted.b_] == pytest.approx(direct.x, abs=1e-5)
    assert fitted.predict(m) == pytest.approx(theirs.predict_proba(m[:, None])[:, 1], abs=1e-5)
    assert not fitted.separable_


def test_platt_is_netcals():
    from netcal import scaling

    m, y = margins(0)
    theirs = scaling.LogisticCalibration(method="mle")
    theirs.fit(expit(m), y.astype(int))
    assert Platt().fit(m, y).predict(m) == pytest.approx(theirs.transform(expit(m)), abs=1e-5)


def test_platt_takes_margins_of_any_scale_and_offset():
    m, y = margins(1)
    plain = Platt().fit(m, y).predict(m)
    for scale, offset in ((1e-6, 0), (1e4, 5e5), (-1, 3)):
        assert Platt().fit(scale * m + offset, y).predict(scale * m + offset) == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shared", [0, 1])  # quasi-separable: both kinds at the threshold
def test_separable_rows_get_platts_smoothed_targets(sign, shared):
    m, y = sign * np.array([-3.0, -2, -1, 1 - shared, 1, 2]), np.array([0, 0, 0, 0, 1, 1]) > 0
    m = np.append(m, [sign * 1.0 * shared + sign * 2.0 * (1 - shared)])
    y = np.append(y, True)
    fitted = Platt().fit(m, y)
    assert fitted.separable_ and np.isfinite([fitted.a_, fitted.b_]).all() and np.sign(fitted.a_) == sign
    target = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
    direct = minimize(likelihood, [0.1 * sign, 0.0], args=(m, target), method="BFGS", options={"gtol": 1e-10})
    assert [fitted.a_, fitted.b_] == pytest.approx(direct.x, abs=1e-5)
    assert ((fitted.predict(m) > 0) & (fitted.predict(m) < 1)).all()


def test_constant_margins_give_the_base_rate():
    fitted = Platt().fit(np.full(10, 2.5), np.arange(10) < 7)
    assert fitted.a_ == 0 and fitted.predict([2.5, -9.0]) == pytest.approx([0.7, 0.7])


def test_weights_are_repeated_rows():
    m, y = margins(2, 40)
    times = np.random.default_rng(0).integers(1, 5, 40)
    weighted, repeated = Platt().fit(m, y, times), Platt().fit(np.repeat(m, times), np.repeat(y, times))
    assert [weighted.a_, weighted.b_] == pytest.approx([repeated.a_, repeated.b_], abs=1e-6)
    frame = generations(rows=40).iloc[:40]
    answers, y = answers_of(frame), np.arange(40) % 3 > 0
    twice = answers_of(frame.loc[frame.index.repeat(times)])
    t = Temperature().fit(answers, y, times).temperature_
    assert t == pytest.approx(Temperature().fit(twice, np.repeat(y, times)).temperature_, rel=1e-6)


# ---- temperature


def answers_of(frame, **choices):
    return AnswerLogits.of(frame, responses(frame, **choices).span)


def full_softmax(row, t, joint):
    """The estimator at temperature t from all of a row's logits."""
    logits = np.stack(row.logits).astype(float)[: row.last_number_end - row.last_number_start] / t
    logprobs = logits[:, 0] - np.logaddexp.reduce(logits, axis=1)
    return (ans_joint if joint else ans_avg)(np.minimum(logprobs, 0))


@pytest.mark.parametrize("joint", [False, True])
def test_temperature_through_what_is_stored_is_that_of_all_logits(joint):
    frame = generations(rows=15)
    answers = answers_of(frame)
    for t in np.exp(np.linspace(np.log(0.1), np.log(20), 25)):
        direct = [full_softmax(row, t, joint) for row in frame.itertuples()]
        right, wrong = answers.confidence(t, joint)
        assert right == pytest.approx(direct, abs=2e-5) and right + wrong == pytest.approx(1)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_temperature_through_what_is_stored_at_a_real_vocabulary(scale):
    logits = logits_of(np.random.default_rng(0), 4, 0, 128256) * scale
    logits[:, 0] = scale * np.array([0.0, 4.0, 9.0, 20.0])
    values, _, curve = (x.numpy() for x in scoring.compress_logits(torch.from_numpy(logits), 64, 33))
    largest = values[:, :1].astype(float)
    answers = AnswerLogits(4, np.arange(4), logits[:, 0] - largest[:, 0], values - largest, curve.astype(float))
    for t in np.exp(np.linspace(np.log(0.1), np.log(20), 40)):
        z = logits.astype(float) / t
        assert answers.confidence(t)[0] == pytest.approx(np.exp(z[:, 0] - np.logaddexp.reduce(z, axis=1)), abs=2e-5)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_temperature_is_the_optimum_over_all_logits(joint, seed):
    frame = generations(rows=60, accuracy=0.5, seed=seed).iloc[:60]
    y = responses(frame).correct.to_numpy(bool)
    fitted = Temperature("ans_joint" if joint else "ans_avg").fit(answers_of(frame), y)

    def loss(t):
        c = np.clip([full_softmax(row, t, joint) for row in frame.itertuples()], 1e-12, 1 - 1e-12)
        return -np.log(np.where(y, c, 1 - c)).sum()

    assert not fitted.at_bound_ and 0.1 < fitted.temperature_ < 20
    grid = np.exp(np.linspace(np.log(0.1), np.log(20), 60))
    assert loss(fitted.temperature_) <= min(map(loss, grid)) + 1e-5
    near = fitted.temperature_ * np.exp(np.array([-1e-3, 1e-3]))
    assert loss(fitted.temperature_) < min(map(loss, near))


def tokens_of(rows, lead):
    """One answer token a row: its logit and another's, nothing beside them."""
    top = np.column_stack([np.zeros(rows), np.full(rows, -lead)])
    return AnswerLogits(rows, np.arange(rows), np.zeros(rows), top, np.full((rows, 33), -1e6))


@pytest.mark.parametrize("rows, share, found", [
    (40, 1, 0.1), (40, 0.5, 20), (40, 0.75, 1 / np.log(3)), (4000, 1 / (1 + np.exp(-1 / 15)), 15)])  # fmt: skip
def test_a_temperature_by_hand_and_at_its_bounds(rows, share, found):
    """Right tokens lead by 1. Always right: the coldest; half of the time, at odds that no temperature gives: the
    hottest."""
    fitted = Temperature().fit(tokens_of(rows, 1.0), np.arange(rows) < round(share * rows))
    assert fitted.temperature_ == pytest.approx(found, rel=0.01) and fitted.at_bound_ == (share in (1, 0.5))
    assert fitted.predict(tokens_of(1, 1.0))[0] == pytest.approx(1 / (1 + np.exp(-1 / fitted.temperature_)))


def test_one_temperature_serves_both_means():
    frame = generations(rows=30)
    answers, y = answers_of(frame), responses(frame).correct
    fitted = Temperature().fit(answers, y)
    average, joint = fitted.predict(answers), fitted.predict(answers, joint=True)
    assert (joint <= average + 1e-12).all() and (joint < average - 1e-6).any()
    assert average == pytest.approx(answers.confidence(fitted.temperature_)[0])


def test_a_response_without_answer_follows_the_choice():
    frame = generations(rows=5)
    zero = answers_of(frame, missing="zero").confidence(3.0)[0]
    assert (zero[[4, 9]] == 0).all() and (np.delete(zero, [4, 9]) > 0).all()
    assert (answers_of(frame, missing="last_number").confidence(3.0)[0] > 0).all()


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
    top, rest = np.log([[0.5, 0.3]]), np.full((1, 4), np.log(0.2))
    two, one = (AnswerLogits(1, np.array([0]), top[:, 0], some, rest) for some in (top, top[:, :1]))
    assert two.margins().tolist() == pytest.approx([0.2])
    assert one.margins().tolist() == pytest.approx([(0.5 - 0.2) / 0.7]), "against all others, of one logit alone"


@pytest.mark.parametrize("vertex", [0.0, 0.2, 1.0, 2.5, 3.7, 6.0])
def test_the_lowest_point_is_the_vertex_of_a_parabola(vertex):
    loss = 3 * (np.arange(7) - vertex) ** 2 + 1
    assert parabolic_argmin(loss) == pytest.approx(vertex)


def test_the_lowest_point_stays_on_the_grid():
    assert parabolic_argmin(np.arange(5.0)) == 1, "a line has no vertex: the middle of the three at its lower end"
    assert parabolic_argmin((np.arange(6.0) + 3) ** 2) == 0 and parabolic_argmin((np.arange(6.0) - 9) ** 2) == 5
    assert parabolic_argmin(np.array([1.0, 1.0, 1.0])) == 1


# ---- few rows, one class


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_one_class_gives_the_constant_where_it_is_chosen(n, right):
    expected = (n * right + 1) / (n + 2)
    c, y = np.linspace(0.2, 0.9, n), np.full(n, right)
    frame = generations(rows=20)
    for model, old, new in (
        (Isotonic("constant"), c, [0.1, 0.99]),
        (Platt("constant"), c, [-50.0, 50.0]),
        (Temperature(one_class="constant"), *map(answers_of, (frame.iloc[:n], frame.iloc[:2]))),
    ):
        assert model.fit(old, y).constant_ == expected and model.predict(new).tolist() == [expected] * 2


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_one_class_gives_what_the_method_gives(n, right):
    """Isotonic regression, and the limit of Platt's likelihood: the class; temperature: its bound."""
    frame, y = generations(rows=40), np.full(n, right)
    c = np.linspace(0.2, 0.9, n)
    assert Isotonic().fit(c, y).predict([0.1, 0.99]).tolist() == [right, right]
    platt = Platt().fit(c, y)
    assert platt.predict([-50.0, 50.0]).tolist() == [right, right] and platt.learned == {"a": None, "b": None}
    sure = AnswerLogits(n, np.arange(n), np.zeros(n), np.tile([0.0, -1.0], (n, 1)), np.full((n, 33), -50.0))
    temperature = Temperature().fit(sure, y)
    assert temperature.at_bound_ and temperature.temperature_ == pytest.approx(0.1 if right else 20.0, rel=1e-5)
    assert {model.note for model in (platt, temperature, Isotonic().fit(c, y))} == {"one class only"}
    subsets = Temperature().on_subsets(answers_of(frame), np.full(80, right), answers_of(frame.iloc[:5]))
    whole = Temperature().fit(answers_of(frame), np.full(80, right)).predict(answers_of(frame.iloc[:5]))
    assert subsets(np.arange(80), np.ones(80)) == pytest.approx(whole, abs=5e-3)


def test_refitting_forgets_the_constant():
    model = Isotonic("constant").fit([], [])
    assert model.predict([0.3]) == 0.5 and model.fit([0.1, 0.9], [False, True]).predict([0.9]) == 1


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60)
def test_platt_never_fails(rows):
    m, y = (np.array(column) for column in zip(*rows, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = Platt().fit(m, y).predict(m)
    assert ((predicted >= 0) & (predicted <= 1)).all()


@pytest.mark.parametrize(
    "score, correct", [([0.5, 0.6], [0, 2]), ([0.5, 0.6], [0, 1, 1]), ([[0.5, 0.6]], [0, 1]), (0.5, 1)]
)
def test_rows_that_cannot_be_fitted_are_refused(score, correct):
    for calibrator in (Isotonic(), Platt()):
        with pytest.raises(ValueError, match="fit needs|one dimension"):
            calibrator.fit(score, correct)


def test_predict_needs_a_fit_and_rows():
    with pytest.raises(NotFittedError):
        Platt().predict([0.5])
    fitted = Isotonic().fit([0.1, 0.4, 0.8], [True, False, True])
    with pytest.raises(ValueError, match="one dimension"):
        fitted.predict([[0.5]])
    assert Isotonic().fit([], []).predict([0.2, 0.9]).tolist() == [0.5, 0.5]
