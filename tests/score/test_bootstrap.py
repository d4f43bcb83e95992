"""The bootstrap against scipy and by property; and what chance alone gives, by exact
probabilities."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from scipy.stats import bootstrap as scipy_bootstrap
from synthetic import keyed, scored

from lib.score import evaluation
from lib.score.evaluation import RESAMPLED, draw_chance_errors, evaluate, resample_metric
from lib.score.metrics import measure

SEQ, ANS = ("seq_avg", ""), ("ans_avg", "")


def frame(*names, n=80):
    """Scores of the same rows by estimator and method."""
    c, y = scored(n)
    parts = [keyed(n, confidence=c**power, correct=y) for power in range(1, len(names) + 1)]
    return pd.concat(
        [part.assign(estimator=e, method=how) for part, (e, how) in zip(parts, names, strict=True)]
    )


def results_of(frame, **options):
    return (
        evaluate(frame, names=RESAMPLED, **options)
        .set_index(["estimator", "method", "metric"])
        .sort_index()
    )


@pytest.mark.parametrize("name", RESAMPLED)
def test_intervals_are_scipys(name):
    c, y = scored(400)
    options = {"paired": True, "vectorized": False, "method": "percentile", "n_resamples": 2000}
    theirs = scipy_bootstrap(
        (c, y), partial(measure, name), rng=np.random.default_rng(1), **options
    )
    ends = evaluation.percentile_interval(resample_metric(name, c, y))
    assert ends == pytest.approx(theirs.confidence_interval, abs=0.3 * theirs.standard_error)


def test_draws_depend_on_the_seed_and_on_nothing_else():
    """Not on the order of rows, here with calibrated scores before raw ones, nor on rows that
    calibrate."""
    rows = frame(SEQ, ANS, ("seq_avg", "isotonic"))
    mixed = pd.concat(
        [rows.assign(split="calibration", confidence=0.5), rows.sample(frac=1, random_state=0)]
    )
    one, same, other = (
        results_of(some, resamples=100, seed=seed)
        for some, seed in ((rows, 1), (mixed, 1), (rows, 2))
    )
    pd.testing.assert_frame_equal(one, same)
    assert (one.value == other.value).all() and (one.low != other.low).any()


def test_estimators_of_fewer_rows_are_drawn_from_their_own():
    """As c_BALD, where only some rows were dropped out: on its own rows."""
    rows = frame(SEQ, ANS, ("seq_avg", "isotonic"))
    fewer = (rows.estimator == "seq_avg") & rows.example_id.isin([f"e{i}" for i in range(30)])
    some = rows[(rows.estimator == "ans_avg") | fewer]
    found, alone = (results_of(part, resamples=200) for part in (some, rows[fewer]))
    pd.testing.assert_frame_equal(found.loc["seq_avg"], alone.loc["seq_avg"])
    assert set(alone.n) == {30} and found.n["", "", "acc"] == 80


# ---- what chance alone gives to calibrated scores


def test_two_constants_by_the_binomial_distribution():
    """Two bins, of independent numbers of right answers: the ECE is the sum of |right - n c| of
    each, over all rows."""
    c, n = np.array([0.72, 0.35]), np.array([180, 120])
    gaps = [np.abs(np.arange(rows + 1) - rows * score) for score, rows in zip(c, n, strict=True)]
    p = [binom.pmf(np.arange(rows + 1), rows, score) for score, rows in zip(c, n, strict=True)]
    error, p = np.add.outer(*gaps).ravel() / n.sum(), np.outer(*p).ravel()
    drawn, few = (draw_chance_errors(np.repeat(c, n), 10, draws) for draws in (20_000, 3))
    assert drawn.mean() == pytest.approx(error @ p, rel=0.02)
    assert drawn.size == 20_000 and np.allclose(few, drawn[:3]), "they come in blocks"
    for level in (0.03, 0.041, 0.06):
        assert (drawn <= level).mean() == pytest.approx(p[error <= level].sum(), abs=0.015)


def test_draws_of_chance_depend_on_the_seed():
    c = scored(50)[0]
    first, again, other = (draw_chance_errors(c, 10, 100, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.isin(first, other).all()


def test_what_cannot_be_told_from_calibrated_is_marked():
    """Answers are right as often as the square of Seq Avg here, which is Ans Avg."""
    rows = frame(SEQ, ANS, n=600)
    found = evaluation.compare_with_chance(rows, 10, 500, seed=2).set_index("estimator")
    assert found.calibrated.to_dict() == {"seq_avg": False, "ans_avg": True}
    drawn = draw_chance_errors(rows.confidence[rows.estimator == "seq_avg"], 10, 500, seed=2)
    assert found.chance["seq_avg"] == drawn.mean() and found.chance_high[
        "seq_avg"
    ] == np.percentile(drawn, 95)
