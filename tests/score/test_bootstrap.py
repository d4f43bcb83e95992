"""The bootstrap against scipy and by property; and what chance alone gives, by exact
probabilities."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from scipy.stats import bootstrap as scipy_bootstrap
from synthetic import keyed, scored

from lib.score.baselines import compare_with_chance, draw_chance_errors
from lib.score.bootstrap import percentile_interval, resample_metric
from lib.score.evaluation import RESAMPLED, evaluate
from lib.score.metrics import measure

SEQ = ("seq_avg", "")
ANS = ("ans_avg", "")
ISOTONIC = ("seq_avg", "isotonic")


def scores_of(*names, n=80):
    """Scores of the same rows by estimator and method, each lower than the one before."""
    c, y = scored(n)
    parts = []
    for power, (estimator, method) in enumerate(names, start=1):
        part = keyed(n, confidence=c**power, correct=y)
        parts.append(part.assign(estimator=estimator, method=method))
    return pd.concat(parts)


def intervals(frame, **options):
    results = evaluate(frame, names=RESAMPLED, **options)
    return results.set_index(["estimator", "method", "metric"]).sort_index()


@pytest.mark.parametrize("name", RESAMPLED)
def test_intervals_are_scipys(name):
    c, y = scored(400)
    theirs = scipy_bootstrap(
        (c, y),
        partial(measure, name),
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=np.random.default_rng(1),
    )
    ends = percentile_interval(resample_metric(name, c, y))
    assert ends == pytest.approx(theirs.confidence_interval, abs=0.3 * theirs.standard_error)


def test_draws_depend_on_the_seed():
    rows = scores_of(SEQ, ANS)
    first = intervals(rows, resamples=100, seed=1)
    other = intervals(rows, resamples=100, seed=2)
    assert (first.value == other.value).all()
    assert (first.low != other.low).any()


def test_draws_depend_neither_on_the_order_of_rows_nor_on_rows_that_calibrate():
    """Here calibrated scores come before raw ones."""
    rows = scores_of(SEQ, ANS, ISOTONIC)
    calibration = rows.assign(split="calibration", confidence=0.5)
    mixed = pd.concat([calibration, rows.sample(frac=1, random_state=0)])
    first = intervals(rows, resamples=100, seed=1)
    pd.testing.assert_frame_equal(first, intervals(mixed, resamples=100, seed=1))


def test_estimators_of_fewer_rows_are_drawn_from_their_own():
    """As c_BALD, where only some rows were dropped out."""
    rows = scores_of(SEQ, ANS, ISOTONIC)
    thirty = rows.example_id.isin([f"e{i}" for i in range(30)])
    fewer = rows[(rows.estimator == "seq_avg") & thirty]
    together = intervals(pd.concat([rows[rows.estimator == "ans_avg"], fewer]), resamples=200)
    alone = intervals(fewer, resamples=200)
    pd.testing.assert_frame_equal(together.loc["seq_avg"], alone.loc["seq_avg"])
    assert set(alone.n) == {30}
    assert together.n["", "", "acc"] == 80


# ---- what chance alone gives to calibrated scores


def test_two_constants_by_the_binomial_distribution():
    """Two bins, of independent numbers of right answers: the ECE is the sum of |right - n c| of
    each, over all rows."""
    right_of_180 = np.arange(181)
    right_of_120 = np.arange(121)
    first_gap = np.abs(right_of_180 - 180 * 0.72)
    second_gap = np.abs(right_of_120 - 120 * 0.35)
    error = np.add.outer(first_gap, second_gap).ravel() / 300
    first_p = binom.pmf(right_of_180, 180, 0.72)
    second_p = binom.pmf(right_of_120, 120, 0.35)
    p = np.outer(first_p, second_p).ravel()

    errors = draw_chance_errors(np.repeat([0.72, 0.35], [180, 120]), 10, 20_000)
    assert errors.size == 20_000
    assert errors.mean() == pytest.approx(error @ p, rel=0.02)
    for level in (0.03, 0.041, 0.06):
        at_most = p[error <= level].sum()
        assert (errors <= level).mean() == pytest.approx(at_most, abs=0.015)


def test_fewer_draws_are_the_first_of_more():
    """They come in blocks."""
    c = np.repeat([0.72, 0.35], [180, 120])
    assert draw_chance_errors(c, 10, 3) == pytest.approx(draw_chance_errors(c, 10, 20_000)[:3])


def test_draws_of_chance_depend_on_the_seed():
    c = scored(50)[0]
    first = draw_chance_errors(c, 10, 100, seed=1)
    again = draw_chance_errors(c, 10, 100, seed=1)
    other = draw_chance_errors(c, 10, 100, seed=2)
    assert np.array_equal(first, again)
    assert not np.isin(first, other).all()


def test_what_cannot_be_told_from_calibrated_is_marked():
    """Answers are right as often as the square of Seq Avg here, which is Ans Avg."""
    rows = scores_of(SEQ, ANS, n=600)
    chance = compare_with_chance(rows, 10, 500, seed=2).set_index("estimator")
    assert chance.calibrated.to_dict() == {"seq_avg": False, "ans_avg": True}
    errors = draw_chance_errors(rows.confidence[rows.estimator == "seq_avg"], 10, 500, seed=2)
    assert chance.chance["seq_avg"] == errors.mean()
    assert chance.chance_high["seq_avg"] == np.percentile(errors, 95)
