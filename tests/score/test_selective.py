"""When to answer: curves by a loop, thresholds by a loop and by MAPIE, and their promise in simulated draws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest

from lib.random_streams import first_rows
from lib.score import selective
from lib.store import KEYS

pairs_of = st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]), st.booleans()), min_size=1, max_size=40)


def raw(n=300, seed=0, estimator="seq_avg", power=1):
    rng = np.random.default_rng(seed)
    c = rng.beta(6, 2, n)
    split = np.where(np.arange(n) < 2 * n // 3, "calibration", "evaluation")
    return pd.DataFrame(
        {
            "model": "m",
            "dataset": "d",
            "split": split,
            "example_id": [f"{i:04d}" for i in range(n)],
            "estimator": estimator,
            "confidence": c,
            "correct": rng.random(n) < c**power,
        }
    )


# ---- curves


@given(pairs_of, st.randoms())
def test_a_curve_by_a_loop_whatever_the_order(pairs, random):
    c, y = (np.array(column) for column in zip(*pairs, strict=True))
    found = selective.risk_coverage(c, y)
    assert found.threshold.tolist() == sorted(set(c), reverse=True)
    for row in found.itertuples():
        given_ = c >= row.threshold
        assert row.answered == given_.mean() and row.accuracy == pytest.approx(y[given_].mean())
    mixed = random.sample(pairs, len(pairs))
    other = selective.risk_coverage(*(np.array(column) for column in zip(*mixed, strict=True)))
    pd.testing.assert_frame_equal(found, other)


def test_thinned_curves_keep_their_end():
    frame = raw(3000).assign(method="")
    found = selective.risk_coverage_curves(frame, 50)
    assert len(found) == 50 and found.answered.iloc[-1] == 1
    assert found.accuracy.iloc[-1] == pytest.approx(frame.correct[frame.split == "evaluation"].mean())
    assert selective.risk_coverage_curves(frame[frame.split == "calibration"]).empty


# ---- thresholds


def test_p_values_are_those_of_the_exact_test_and_mapies():
    """MAPIE's where its rounding does not add an error: 1 - 1/2 and the like are exact."""
    from mapie.risk_control import methods

    for wrong, answered, target in ((0, 1, 0.9), (0, 30, 0.9), (3, 50, 0.9), (10, 40, 0.8), (8, 64, 0.75)):
        found = selective.binomial_p_values(wrong, answered, target)
        assert found == pytest.approx(binomtest(wrong, answered, 1 - target, alternative="less").pvalue, rel=1e-12)
    theirs = methods.compute_hoeffding_bentkus_p_value(np.array([8 / 64]), np.array([64]), 0.25, binary=True)
    assert found == pytest.approx(theirs.item(), rel=1e-9)
    assert selective.binomial_p_values(0, 0, 0.9) == 1


def by_a_loop(learning, testing, target, certainty, steps=20):
    """The same search, a row and a threshold at a time."""
    proposed = sorted({sorted(learning[0])[int(np.floor(k / steps * (len(learning[0]) - 1)))] for k in range(steps)})

    def p_value(side, at):
        answered = [right for score, right in zip(*side, strict=True) if score >= at]
        if not answered:
            return 1.0
        return binomtest(answered.count(False), len(answered), 1 - target, alternative="less").pvalue

    learned = [p_value(learning, at) for at in proposed]
    found = None
    for at in reversed(proposed[: learned.index(min(learned)) + 1]):
        if p_value(testing, at) > 1 - certainty:
            break
        found = at
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_by_a_loop(seed):
    frame = raw(300, seed, power=[0.3, 1][seed % 2])
    sides = [(part.confidence.tolist(), part.correct.tolist()) for part in (frame[:100], frame[100:])]
    for target in (0.7, 0.8, 0.9):
        arrays = [tuple(map(np.array, side)) for side in sides]
        assert selective.find_threshold(*arrays, target) == by_a_loop(*sides, target, 0.9)


def test_the_promise_holds_in_five_hundred_draws():
    """The true precision above each threshold is known here, up to 200,000 rows. A threshold that merely came out right
    on the same rows breaks the promise far more often than one draw in ten: the test could fail."""
    rng = np.random.default_rng(1)

    def chance(c):
        return expit(6 * (c - 0.55))

    many = rng.beta(4, 2, 200_000)
    order = np.sort(many)[::-1]
    precision = np.cumsum(chance(order)) / np.arange(1, len(order) + 1)

    def true_precision(at):
        return precision[max(np.searchsorted(-order, -at, side="right") - 1, 0)]

    broken = found = naive = 0
    for _ in range(500):
        c = rng.beta(4, 2, 240)
        y = rng.random(240) < chance(c)
        at = selective.find_threshold((c[:80], y[:80]), (c[80:], y[80:]), 0.8)
        if at is not None:
            found += 1
            broken += true_precision(at) < 0.8
        curve = selective.risk_coverage(c, y)
        seen = curve.threshold[(curve.accuracy >= 0.8) & (curve.answered > 0.1)]
        naive += bool(len(seen)) and true_precision(seen.min()) < 0.8
    assert broken <= 0.1 * 500
    assert found > 0.2 * 500, "a promise that is never given is easily kept"
    assert naive > 0.4 * 500


def test_the_promise_holds_where_scores_are_equal():
    """Answers of exactly 1.0 are common; at a precision that the whole lot just misses, hardly any is promised."""
    rng, broken = np.random.default_rng(2), 0
    for _ in range(500):
        c = np.where(rng.random(240) < 0.7, 1.0, 0.5)
        y = rng.random(240) < np.where(c == 1, 0.78, 0.4)
        broken += selective.find_threshold((c[:80], y[:80]), (c[80:], y[80:]), 0.8) is not None
    assert 0 < broken <= 0.1 * 500


# ---- over frames


def test_who_proposes_and_who_tests():
    frame = raw()
    calibration = frame[frame.split == "calibration"]
    first = set(first_rows(calibration, 66, 0).example_id)
    learns = selective.mark_learning_rows(calibration, {}, 0)
    assert set(calibration.example_id[learns]) == first and learns.sum() == 66
    tuned = calibration[~learns][KEYS].head(30)
    both = selective.mark_learning_rows(calibration, {"seq_avg": tuned, "ans_avg": calibration[KEYS]}, 0)
    assert set(calibration.example_id[both]) == first | set(tuned.example_id)
    assert selective.mark_learning_rows(calibration.head(2), {}, 0).sum() == 1, "of few rows one proposes"


def test_a_table_of_thresholds():
    frame = raw(900, power=0.2)
    found = selective.selective_thresholds(frame, [0.8, 0.999]).set_index("target")
    evaluation = frame[frame.split == "evaluation"]
    answered = evaluation.confidence >= found.threshold[0.8]
    assert found.answered[0.8] == answered.mean() and found.precision[0.8] == evaluation.correct[answered].mean()
    assert found.held[0.8] and (found.n == 300).all() and (found.tested == 400).all()
    assert pd.isna(found.threshold[0.999]) and found.reason[0.999] == selective.TOO_FEW_ROWS
    assert selective.min_rows_for_guarantee(0.999) == 2302 and selective.min_rows_for_guarantee(0.9) == 22
    hopeless = selective.selective_thresholds(raw(900, power=40), [0.8])
    assert hopeless.reason.tolist() == [selective.NO_GUARANTEE] and hopeless.answered.isna().all()


def test_few_rows_promise_nothing_and_a_broken_promise_is_said():
    for rows in (1, 2, 5):
        frame = pd.concat([raw(300)[:rows], raw(300)[250:]], ignore_index=True)
        assert selective.selective_thresholds(frame, [0.9]).reason.tolist() == [selective.TOO_FEW_ROWS]
    without = selective.selective_thresholds(frame[frame.split == "evaluation"], [0.9])
    assert without.reason.tolist() == [selective.TOO_FEW_ROWS] and without.tested.tolist() == [0]
    frame = raw(900, power=0.05)
    frame.loc[frame.split == "evaluation", "correct"] = False
    assert selective.selective_thresholds(frame, [0.9]).held.tolist() == [False]
