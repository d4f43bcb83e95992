"""When to answer: curves and thresholds by a loop, p-values by scipy and MAPIE, the promise in
simulated draws."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest
from synthetic import columns, keyed, scored

from lib.row_order import first_rows
from lib.score import selective
from lib.store import KEYS

pairs_of = st.lists(
    st.tuples(st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]), st.booleans()), min_size=1, max_size=40
)


def raw(n=300, seed=0, power=1.0):
    """A raw frame of one pair, of which two thirds calibrate; the lower the power, the more answers
    are right."""
    c, y = scored(n, seed, power)
    frame = keyed(n, confidence=c, correct=y).assign(estimator="seq_avg", method="")
    return frame.assign(split=np.where(np.arange(n) < 2 * n // 3, "calibration", "evaluation"))


@given(pairs_of, st.randoms())
def test_a_curve_by_a_loop_whatever_the_order(pairs, random):
    c, y = columns(pairs)
    found = selective.risk_coverage(*columns(random.sample(pairs, len(pairs))))
    assert found.threshold.tolist() == sorted(set(c), reverse=True)
    for row in found.itertuples():
        answered = c >= row.threshold
        assert row.answered == answered.mean() and row.accuracy == pytest.approx(y[answered].mean())


def test_a_p_value_is_mapies():
    """Where its rounding does not add an error: 1 - 1/4 is exact."""
    from mapie.risk_control import methods

    theirs = methods.compute_hoeffding_bentkus_p_value(
        np.array([8 / 64]), np.array([64]), 0.25, binary=True
    )
    assert selective.binomial_p_values(8, 64, 0.75) == pytest.approx(theirs.item(), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_by_a_loop_of_exact_tests(seed):
    """From the one of the lowest p-value down, a threshold at a time. Of scores that are equal,
    too."""
    c, y = scored(300, seed, power=[0.3, 1][seed % 2])
    c = np.round(c, 1 if seed > 3 else 9)
    sides, scores = ((c[:100], y[:100]), (c[100:], y[100:])), np.sort(c[:100])
    for target in (0.7, 0.8, 0.9):
        learned, tested = {}, {}
        for at in sorted({scores[int(k / 20 * 99)] for k in range(20)}, reverse=True):
            for (c_, y_), found in zip(sides, (learned, tested), strict=True):
                wrong, answered = (~y_[c_ >= at]).sum(), (c_ >= at).sum()
                found[at] = binomtest(wrong, answered, 1 - target, "less").pvalue if answered else 1
        below = [at for at in learned if at <= min(reversed(learned), key=learned.get)]
        kept = list(itertools.takewhile(lambda at: tested[at] <= 1 - 0.9, below))  # noqa: B023
        assert selective.find_threshold(*sides, target) == (kept[-1] if kept else None)


def test_the_promise_holds_in_five_hundred_draws():
    """The true precision above each threshold is known here, up to 200,000 rows."""
    rng = np.random.default_rng(1)

    def drawn(n):
        c = rng.beta(4, 2, n)
        return c, rng.random(n) < expit(6 * (c - 0.55))

    c, y = drawn(200_000)
    found = [selective.find_threshold(drawn(80), drawn(160), 0.8) for _ in range(500)]
    found = [at for at in found if at is not None]
    assert sum(y[c >= at].mean() < 0.8 for at in found) <= 0.1 * 500
    assert len(found) > 0.2 * 500, "a promise that is never given is easily kept"


def test_a_score_at_the_threshold_is_answered():
    """By hand: all answers at .7 are right, and all at .2 are wrong."""
    high = np.array([True] * 90 + [False] * 90 + [True, True, False])
    frame = raw(len(high)).assign(confidence=np.where(high, 0.7, 0.2), correct=high)
    frame["split"] = ["calibration"] * 180 + ["evaluation"] * 3
    (found,) = selective.selective_thresholds(frame, [0.8]).itertuples()
    assert (found.threshold, found.answered, found.precision) == (0.7, 2 / 3, 1)


def test_rows_on_which_an_estimator_was_tuned_do_not_test_its_threshold():
    frame = raw(900, power=0.2)
    calibration = frame[frame.split == "calibration"]
    tuned = calibration[KEYS].tail(150)
    learning = first_rows(calibration, 200, seed=0)
    used = {*learning.example_id, *tuned.example_id}
    assert 200 < len(used) < 350, "some are both"
    for estimator, tested in ("seq_avg", 600 - len(used)), ("c_bald", 400):
        found = selective.selective_thresholds(frame, [0.8], tuned={estimator: tuned})
        assert found.tested.tolist() == [tested]


def test_a_table_of_thresholds():
    frame = raw(900, power=0.2)
    found = selective.selective_thresholds(frame, [0.8, 0.999]).set_index("target")
    evaluation = frame[frame.split == "evaluation"]
    answered = evaluation.confidence >= found.threshold[0.8]
    assert (
        found.answered[0.8] == answered.mean()
        and found.precision[0.8] == evaluation.correct[answered].mean()
    )
    assert found.held[0.8] and (found.n == 300).all() and (found.tested == 400).all()
    assert pd.isna(found.threshold[0.999]) and found.reason[0.999] == selective.TOO_FEW_ROWS
    hopeless = selective.selective_thresholds(raw(900, power=40), [0.8])
    assert hopeless.reason.tolist() == [selective.NO_GUARANTEE] and hopeless.answered.isna().all()
    frame.loc[frame.split == "evaluation", "correct"] = False
    assert selective.selective_thresholds(frame, [0.8]).held.tolist() == [False], (
        "a broken promise is said"
    )
    for rows, tested in ((0, 0), (1, 0), (2, 1), (5, 4)):
        few = selective.selective_thresholds(
            pd.concat([raw()[:rows], raw().tail(100)], ignore_index=True), [0.9]
        )
        assert few.reason.tolist() == [selective.TOO_FEW_ROWS] and few.tested.tolist() == [tested]
