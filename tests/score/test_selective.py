"""When to answer: curves and thresholds by a loop, p-values by scipy and MAPIE, the promise in
simulated draws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from scipy.special import expit
from scipy.stats import binomtest
from synthetic import columns, keyed, scored

from lib.row_order import first_rows
from lib.score.selective import (
    NO_GUARANTEE,
    TOO_FEW_ROWS,
    binomial_p_values,
    find_threshold,
    min_rows_for_guarantee,
    risk_coverage,
    selective_thresholds,
)
from lib.store import KEYS

# ---- curves

ROWS = st.lists(
    st.tuples(st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]), st.booleans()), min_size=1, max_size=40
)


@given(ROWS, st.randoms())
def test_a_curve_by_a_loop_whatever_the_order(rows, random):
    c, y = columns(rows)
    shuffled = random.sample(rows, len(rows))
    curve = risk_coverage(*columns(shuffled))
    assert curve.threshold.tolist() == sorted(set(c), reverse=True)
    for row in curve.itertuples():
        answered = c >= row.threshold
        assert row.answered == answered.mean()
        assert row.accuracy == pytest.approx(y[answered].mean())


# ---- p-values


def test_a_p_value_is_mapies():
    """Where its rounding does not add an error: 1 - 1/4 is exact."""
    theirs = compute_hoeffding_bentkus_p_value(
        np.array([8 / 64]), np.array([64]), 0.25, binary=True
    )
    assert binomial_p_values(8, 64, 0.75) == pytest.approx(theirs.item(), rel=1e-9)


def test_without_rows_nothing_is_shown():
    assert binomial_p_values(0, 0, 0.9) == 1


def test_the_fewest_rows_of_a_guarantee_are_those_without_an_error():
    """The powers of the precision that are at most .1."""
    assert 0.9**22 <= 0.1 < 0.9**21
    assert min_rows_for_guarantee(0.9) == 22
    assert 0.999**2302 <= 0.1 < 0.999**2301
    assert min_rows_for_guarantee(0.999) == 2302


# ---- thresholds


def threshold_by_a_loop(learning, testing, target):
    """The lowest threshold whose promise is kept by an exact test, from the one of the lowest
    p-value on calibration rows down, a threshold at a time."""

    def p_value(rows, threshold):
        c, y = rows
        answered = c >= threshold
        if not answered.any():
            return 1.0
        wrong = (answered & ~y).sum()
        return binomtest(wrong, answered.sum(), 1 - target, "less").pvalue

    scores = np.sort(learning[0])
    last = len(scores) - 1
    candidates = {scores[int(k / 20 * last)] for k in range(20)}
    start = min(sorted(candidates), key=lambda threshold: p_value(learning, threshold))
    lowest = None
    for threshold in sorted(candidates, reverse=True):
        if threshold <= start:
            if p_value(testing, threshold) > 1 - 0.9:
                break
            lowest = threshold
    return lowest


@pytest.mark.parametrize("target", [0.7, 0.8, 0.9])
@pytest.mark.parametrize(
    "seed, power, digits", [(0, 0.3, 9), (1, 1, 9), (2, 0.3, 9), (3, 1, 9), (4, 0.3, 1), (5, 1, 1)]
)
def test_a_threshold_by_a_loop_of_exact_tests(seed, power, digits, target):
    """Of scores that are equal, too, where they have one digit."""
    c, y = scored(300, seed, power)
    c = c.round(digits)
    learning = (c[:100], y[:100])
    testing = (c[100:], y[100:])
    expected = threshold_by_a_loop(learning, testing, target)
    assert find_threshold(learning, testing, target) == expected


def test_the_promise_holds_in_five_hundred_draws():
    """The true precision above each threshold is known here, up to 200,000 rows."""
    rng = np.random.default_rng(1)

    def draw(n):
        c = rng.beta(4, 2, n)
        return c, rng.random(n) < expit(6 * (c - 0.55))

    c, y = draw(200_000)
    promises = 0
    broken = 0
    for _ in range(500):
        threshold = find_threshold(draw(80), draw(160), 0.8)
        if threshold is not None:
            promises += 1
            broken += y[c >= threshold].mean() < 0.8
    assert broken <= 0.1 * 500
    assert promises > 0.2 * 500, "a promise that is never given is easily kept"


# ---- frames


def raw(n=300, seed=0, power=1.0):
    """A raw frame of one pair, of which two thirds calibrate; the lower the power, the more answers
    are right."""
    c, y = scored(n, seed, power)
    frame = keyed(n, confidence=c, correct=y).assign(estimator="seq_avg", method="")
    calibrates = np.arange(n) < 2 * n // 3
    return frame.assign(split=np.where(calibrates, "calibration", "evaluation"))


def test_a_score_at_the_threshold_is_answered():
    """By hand: all answers at .7 are right, and all at .2 are wrong."""
    high = np.array([True] * 90 + [False] * 90 + [True, True, False])
    frame = raw(len(high)).assign(confidence=np.where(high, 0.7, 0.2), correct=high)
    frame["split"] = ["calibration"] * 180 + ["evaluation"] * 3
    (row,) = selective_thresholds(frame, [0.8]).itertuples()
    assert (row.threshold, row.answered, row.precision) == (0.7, 2 / 3, 1)


def test_rows_on_which_an_estimator_was_tuned_do_not_test_its_threshold():
    frame = raw(900, power=0.2)
    calibration = frame[frame.split == "calibration"]
    tuned = calibration[KEYS].tail(150)
    learning = first_rows(calibration, 200, seed=0)
    used = {*learning.example_id, *tuned.example_id}
    assert 200 < len(used) < 350, "some are both"
    of_tuned = selective_thresholds(frame, [0.8], tuned={"seq_avg": tuned})
    assert of_tuned.tested.tolist() == [600 - len(used)]
    of_another = selective_thresholds(frame, [0.8], tuned={"c_bald": tuned})
    assert of_another.tested.tolist() == [600 - 200]


def test_a_threshold_has_its_shares_of_evaluation_rows():
    frame = raw(900, power=0.2)
    (row,) = selective_thresholds(frame, [0.8]).itertuples()
    evaluation = frame[frame.split == "evaluation"]
    answered = evaluation.confidence >= row.threshold
    assert (row.n, row.tested) == (300, 400)
    assert row.answered == answered.mean()
    assert row.precision == evaluation.correct[answered].mean()
    assert row.held


def test_a_broken_promise_is_said():
    frame = raw(900, power=0.2)
    frame.loc[frame.split == "evaluation", "correct"] = False
    assert selective_thresholds(frame, [0.8]).held.tolist() == [False]


def test_without_a_guarantee_there_is_no_threshold_and_the_reason():
    (hopeless,) = selective_thresholds(raw(900, power=40), [0.8]).itertuples()
    assert hopeless.reason == NO_GUARANTEE
    assert pd.isna(hopeless.threshold)
    assert pd.isna(hopeless.answered)
    (demanding,) = selective_thresholds(raw(900, power=0.2), [0.999]).itertuples()
    assert demanding.reason == TOO_FEW_ROWS
    assert pd.isna(demanding.threshold)


@pytest.mark.parametrize("calibration_rows, tested", [(0, 0), (1, 0), (2, 1), (5, 4)])
def test_few_rows_give_no_guarantee(calibration_rows, tested):
    frame = pd.concat([raw()[:calibration_rows], raw().tail(100)], ignore_index=True)
    (row,) = selective_thresholds(frame, [0.9]).itertuples()
    assert row.reason == TOO_FEW_ROWS
    assert row.tested == tested
