"""The bootstrap against a loop over resamples, scipy, and by property."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from lib.score.bootstrap import bootstrap, draw_resample_counts, resample_metrics
from lib.score.metrics import METRICS, brier, ece


def scores(n=200, k=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.6
    return np.round(rng.beta(4, 1, (n, k)), 2), y


def frame(methods=("", "isotonic"), n=80):
    c, y = scores(n, 2 * len(methods))
    keys = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": [f"{i}" for i in range(n)], "correct": y}
    names = [(e, how) for how in methods for e in ("seq_avg", "ans_avg")]
    parts = [pd.DataFrame(keys).assign(estimator=e, method=how, confidence=c[:, j]) for j, (e, how) in enumerate(names)]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("n", [1, 7, 300, 5000])
def test_counts_add_up(n):
    drawn = np.concatenate(list(draw_resample_counts(n, 1000, 0)))
    assert drawn.shape == (1000, n) and (drawn.sum(axis=1) == n).all()
    assert drawn.mean() == 1 and (n < 300 or abs(drawn.var() - (1 - 1 / n)) < 0.02)


@pytest.mark.parametrize("closed", ["right", "left"])
def test_distributions_are_the_metrics_of_resampled_rows(closed):
    c, y = scores()
    found = resample_metrics(c, y, 10, closed, resamples=40, seed=3)
    weights = np.concatenate(list(draw_resample_counts(len(y), 40, 3)))
    for name in ("ece", "mce", "brier"):
        for j in range(c.shape[1]):
            bins = (10, closed) if METRICS[name].binned else ()
            expected = METRICS[name].function(c[:, j], y, *bins, sample_weight=weights)
            assert found[name][:, j] == pytest.approx(expected, abs=1e-12)
    assert found["acc"][:, 0] == pytest.approx(weights @ y / len(y))
    row = np.repeat(np.arange(len(y)), weights[0].astype(int))
    assert found["ece"][0, 0] == pytest.approx(ece(c[row, 0], y[row], 10, closed), abs=1e-12)


def test_intervals_are_scipys():
    c, y = scores(400, 1)
    options = {"paired": True, "vectorized": False, "method": "percentile", "n_resamples": 2000}
    theirs = scipy_bootstrap((c[:, 0], y), brier, rng=np.random.default_rng(1), **options).confidence_interval
    ours = np.percentile(resample_metrics(c, y, resamples=5000)["brier"], [2.5, 97.5])
    assert ours == pytest.approx([theirs.low, theirs.high], abs=0.005)


def test_results_are_point_estimates_with_percentiles():
    given_ = frame()
    made = bootstrap(given_, resamples=500, seed=2)
    results = made.results.set_index(["estimator", "method", "metric"])
    part = given_.query("estimator == 'seq_avg' and method == ''")
    assert results.value["seq_avg", "", "ece"] == ece(part.confidence, part.correct)
    assert results.value["", "", "acc"] == part.correct.mean()
    assert len(results) == 1 + 4 * 3 and (made.results.low <= made.results.high).all()
    raw, after = results.value["ans_avg", "", "ece"], results.value["ans_avg", "isotonic", "ece"]
    assert results.relative["ans_avg", "isotonic", "ece"] == pytest.approx(1 - after / raw)
    assert results.relative.notna().sum() == 2  # ECE of calibrated scores alone


def test_without_evaluation_rows_there_are_no_results():
    made, usual = (bootstrap(f, resamples=9) for f in (frame().assign(split="calibration"), frame()))
    assert made.results.empty and list(made.results) == list(usual.results)
    assert made.differences([(("seq_avg", ""), ("ans_avg", ""))]).empty


def test_rows_in_another_order_give_the_same():
    given_ = frame()
    shuffled = given_.sample(frac=1, random_state=0)  # calibrated scores before raw ones, too
    one, two = (
        bootstrap(f, resamples=100).results.set_index(["estimator", "method", "metric"]).sort_index()
        for f in (given_, shuffled)
    )
    pd.testing.assert_frame_equal(one, two)
    again, other = (bootstrap(given_, resamples=100, seed=seed).results for seed in (1, 2))
    assert (again.value == other.value).all() and (again.low != other.low).any()
    twice = bootstrap(pd.concat([given_, given_.assign(dataset="e", model="z")]), resamples=50).draws
    assert (twice["m", "d", "seq_avg", "", "ece"] == twice["z", "e", "seq_avg", "", "ece"]).all(), "draws are shared"


def test_differences_are_paired():
    given_ = frame(methods=("",), n=150)
    twin = given_.query("estimator == 'seq_avg'").assign(estimator="ans_joint")
    twin["confidence"] *= 0.999
    made = bootstrap(pd.concat([given_, twin]), resamples=500)
    gap = made.differences([(("ans_joint", ""), ("seq_avg", "")), (("seq_avg", ""), ("absent", ""))])
    assert len(gap) == 1  # what is not there is left out
    one, other = (made.draws["m", "d", e, "", "ece"] for e in ("ans_joint", "seq_avg"))
    assert gap.low[0] == pytest.approx(np.percentile(one - other, 2.5))
    assert gap.high[0] - gap.low[0] < 0.1 * (np.percentile(other, 97.5) - np.percentile(other, 2.5))
    assert gap.lower[0] == (one < other).mean() + (one == other).mean() / 2
    values = made.results.query("metric == 'ece'").set_index("estimator").value
    assert gap.difference[0] == values.ans_joint - values.seq_avg
    same = made.differences([(("seq_avg", ""), ("seq_avg", ""))])
    assert same.lower[0] == 0.5 and same.difference[0] == 0


def test_estimators_of_fewer_rows_are_drawn_from_their_own():
    """As c_BALD, where only some rows were dropped out: on its own rows, and paired with none of more."""
    whole = frame(n=80)
    fewer = whole[whole.estimator != "seq_avg"]
    some = whole[(whole.estimator == "seq_avg") & whole.example_id.isin(sorted(whole.example_id.unique())[:30])]
    made = bootstrap(pd.concat([fewer, some]), resamples=200)
    alone = bootstrap(some, resamples=200)
    keys = ["estimator", "method", "metric"]
    own = made.results.query("estimator == 'seq_avg'").set_index(keys)
    pd.testing.assert_frame_equal(own, alone.results.query("estimator == 'seq_avg'").set_index(keys))
    assert set(own.n) == {30} and made.results.query("metric == 'acc'").n.tolist() == [80]
    other = next(name for name in whole.estimator.unique() if name != "seq_avg")
    assert made.differences([(("seq_avg", ""), (other, ""))]).empty
    assert len(made.differences([(("seq_avg", "isotonic"), ("seq_avg", ""))])) == 1
