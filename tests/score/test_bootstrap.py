"""The bootstrap against a loop over resamples, scipy, and by property; and what chance alone gives, by exact
probabilities."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from scipy.stats import bootstrap as scipy_bootstrap
from synthetic import keyed, scored

from lib.score.evaluation import (
    RESAMPLED,
    compare_with_chance,
    draw_chance_errors,
    draw_resample_counts,
    evaluate,
    paired_differences,
    resample_metric,
)
from lib.score.metrics import brier, measure

KEY = ["estimator", "method", "metric"]


def scores(n=200, k=3):
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.6
    return np.round(rng.beta(4, 1, (n, k)), 2), y


def frame(methods=("", "isotonic"), n=80):
    c, y = scores(n, 2 * len(methods))
    names = [(estimator, method) for method in methods for estimator in ("seq_avg", "ans_avg")]
    parts = [
        keyed(n, confidence=c[:, j], correct=y).assign(estimator=e, method=how) for j, (e, how) in enumerate(names)
    ]
    return pd.concat(parts, ignore_index=True)


def results_of(frame, **options):
    return evaluate(frame, names=RESAMPLED, **options).set_index(KEY).sort_index()


def test_distributions_are_the_metrics_of_resampled_rows():
    c, y = (column[:, 0] if column.ndim > 1 else column for column in scores())
    weights = np.concatenate(draw_resample_counts(len(y), 40, 3))
    row = np.repeat(np.arange(len(y)), weights[0])
    for name in RESAMPLED:
        found = resample_metric(name, c, y, resamples=40, seed=3)
        assert found == pytest.approx(measure(name, c, y, sample_weight=weights), abs=1e-12)
        assert found[0] == pytest.approx(measure(name, c[row], y[row]), abs=1e-12)


def test_intervals_are_scipys():
    c, y = scores(400, 1)
    options = {"paired": True, "vectorized": False, "method": "percentile", "n_resamples": 2000}
    theirs = scipy_bootstrap((c[:, 0], y), brier, rng=np.random.default_rng(1), **options).confidence_interval
    ours = np.percentile(resample_metric("brier", c[:, 0], y), [2.5, 97.5])
    assert ours == pytest.approx([theirs.low, theirs.high], abs=0.005)


def test_draws_depend_on_the_seed_and_on_nothing_else():
    """Neither on the order of rows, here with calibrated scores before raw ones, nor on the pair."""
    rows = frame()
    one, mixed, other = (
        results_of(some, resamples=100, seed=seed)
        for some, seed in ((rows, 1), (rows.sample(frac=1, random_state=0), 1), (rows, 2))
    )
    pd.testing.assert_frame_equal(one, mixed)
    assert (one.value == other.value).all() and (one.low != other.low).any()
    twice = evaluate(pd.concat([rows, rows.assign(dataset="e", model="z")]), resamples=50)
    assert twice[twice.model == "m"].low.tolist() == twice[twice.model == "z"].low.tolist()


def test_differences_are_paired():
    """A twin that is hardly lower differs by less than either varies."""
    rows = frame(methods=("",), n=150)
    twin = rows[rows.estimator == "seq_avg"].assign(
        estimator="ans_joint", confidence=lambda part: part.confidence * 0.999
    )
    both = pd.concat([rows, twin])
    contrasts = [(("ans_joint", ""), ("seq_avg", "")), (("seq_avg", ""), ("absent", ""))]
    gap = paired_differences(both, contrasts, resamples=500)
    assert len(gap) == 1, "what is not there is left out"
    given = (both[both.estimator == name].sort_values("example_id") for name in ("ans_joint", "seq_avg"))
    one, other = (resample_metric("ece", part.confidence, part.correct, resamples=500) for part in given)
    assert [gap.low[0], gap.high[0]] == pytest.approx(np.percentile(one - other, [2.5, 97.5]))
    assert gap.high[0] - gap.low[0] < 0.1 * (np.percentile(other, 97.5) - np.percentile(other, 2.5))
    values = evaluate(both, names=["ece"]).set_index("estimator").value
    assert gap.difference[0] == values.ans_joint - values.seq_avg
    same = paired_differences(both, [(("seq_avg", ""), ("seq_avg", ""))])
    assert same.difference[0] == same.low[0] == same.high[0] == 0


def test_estimators_of_fewer_rows_are_drawn_from_their_own():
    """As c_BALD, where only some rows were dropped out: on its own rows, and paired with none of more."""
    rows = frame()
    fewer = (rows.estimator == "seq_avg") & rows.example_id.isin([f"e{i}" for i in range(30)])
    some = rows[(rows.estimator == "ans_avg") | fewer]
    found, alone = (results_of(part, resamples=200) for part in (some, rows[fewer]))
    pd.testing.assert_frame_equal(found.loc["seq_avg"], alone.loc["seq_avg"])
    assert set(alone.n) == {30} and found.n["", "", "acc"] == 80
    assert paired_differences(some, [(("seq_avg", ""), ("ans_avg", ""))]).empty
    assert len(paired_differences(some, [(("seq_avg", "isotonic"), ("seq_avg", ""))])) == 1


# ---- what chance alone gives to calibrated scores


def test_a_constant_by_the_binomial_distribution():
    """All rows are in one bin, so the ECE is |right - n c| / n."""
    n, c = 300, 0.72
    drawn, right = draw_chance_errors(np.full(n, c), 10, 20_000), np.arange(n + 1)
    gaps, p = np.abs(right - n * c) / n, binom.pmf(right, n, c)
    assert drawn.mean() == pytest.approx(gaps @ p, rel=0.02)
    assert (drawn <= 0.041).mean() == pytest.approx(p[gaps <= 0.041].sum(), abs=0.01)


def test_the_mean_by_the_formula():
    """sqrt(2 / pi) / n times the sum over bins of sqrt(sum c (1 - c))."""
    c = np.random.default_rng(0).beta(4, 2, 2000)
    variance = pd.Series(c * (1 - c)).groupby(np.maximum(np.ceil(c * 10), 1)).sum()
    expected = np.sqrt(2 / np.pi) * np.sqrt(variance).sum() / c.size
    assert draw_chance_errors(c, 10, 4000).mean() == pytest.approx(expected, rel=0.02)


def test_what_cannot_be_told_from_calibrated_is_marked():
    c, y = scored(600, seed=3, power=1)
    scores = {"seq_avg": c, "ans_avg": np.sqrt(c)}
    parts = [keyed(600, confidence=score, correct=y).assign(estimator=name) for name, score in scores.items()]
    found = compare_with_chance(pd.concat(parts).assign(method=""), 10, 500, seed=2).set_index("estimator")
    assert found.calibrated.to_dict() == {"seq_avg": True, "ans_avg": False}
    assert (found.chance < found.chance_high).all() and (found.n == 600).all()
    drawn = draw_chance_errors(c, 10, 500, seed=2)
    assert found.chance["seq_avg"] == drawn.mean() and found.chance_high["seq_avg"] == np.percentile(drawn, 95)
    few, many = (draw_chance_errors(np.full(40_000, 0.5), 10, draws, seed=1) for draws in (3, 150))
    np.testing.assert_array_equal(few, many[:3], err_msg="the blocks of draws do not matter")
