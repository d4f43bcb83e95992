"""Metrics, and scores beside a constant: by hand (edges above all), against other libraries, and by property."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from synthetic import columns, keyed, scored

from lib.score import evaluation, metrics
from lib.score.metrics import (
    METRICS,
    accuracy,
    auroc,
    bin_index,
    bin_sums,
    brier,
    decompose_brier,
    ece,
    mce,
    reliability_diagram,
)

unit = st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0])
pairs = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=80)


# ---- edges


def test_every_edge_is_on_its_side():
    for bins in (1, 2, 3, 7, 10, 15, 20, 30, 49, 100):
        k = np.arange(bins + 1)
        assert (bin_index(k / bins, bins) == np.maximum(k - 1, 0)).all(), "0 in the first"


def test_edges_however_they_were_computed():
    three = [0.3, 3 / 10, 0.1 + 0.2, 0.1 * 3, 1 - 0.7, np.linspace(0, 1, 11)[3]]
    assert (bin_index(three, 10) == 2).all()
    for kind in (np.float16, np.float32, np.float64):
        tenths = np.array([0.1, 0.3, 0.6, 0.7, 0.9], kind)
        assert bin_index(tenths, 10).tolist() == [0, 2, 5, 6, 8]
    assert bin_index([0.3 - 1e-9, 0.3 + 1e-9], 10).tolist() == [2, 3], "beside an edge is not on it"


# ---- by hand


def test_by_hand():
    c, y = [0.05, 0.15, 0.15, 0.95, 1.0], [0, 1, 0, 1, 1]
    assert bin_sums(c, y)[0].tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0, 2]
    frame = reliability_diagram(c, y)
    assert frame.lower.tolist() == [0, 0.1, 0.9] and frame.upper.tolist() == [0.1, 0.2, 1]
    assert frame.confidence.to_list() == pytest.approx([0.05, 0.15, 0.975])
    assert frame.accuracy.to_list() == [0, 0.5, 1]
    assert ece(c, y) == pytest.approx((0.05 + 2 * 0.35 + 2 * 0.025) / 5)
    assert mce(c, y) == pytest.approx(0.35)
    assert brier(c, y) == pytest.approx((0.05**2 + 0.85**2 + 0.15**2 + 0.05**2) / 5)
    assert accuracy(c, y) == 0.6
    assert auroc(c, y) == pytest.approx((1.5 + 2 + 2) / 6)


def test_what_is_no_score_or_outcome_is_refused():
    for metric in (ece, mce, brier, auroc, accuracy):
        for c, y in (
            ([], []),
            ([0.5], [1, 0]),
            ([0.5], [2]),
            ([0.5], [np.nan]),
            *(([bad], [1]) for bad in (1.0000001, -1e-9, np.nan)),
        ):
            with pytest.raises(ValueError, match="equally long and not empty|only true and false|at row 0"):
                metric(c, y)


# ---- against other libraries


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_edges_against_scikit_learn(bins):
    c, y = scored(400)
    right, sure = calibration_curve(y, c, n_bins=bins)
    frame = reliability_diagram(c, y, bins)
    assert np.allclose(frame.accuracy, right) and np.allclose(frame.confidence, sure)
    assert ece(c, y, bins) == pytest.approx((np.abs(right - sure) * frame["count"]).sum() / 400)
    assert mce(c, y, bins) == pytest.approx(np.abs(right - sure).max())


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_between_edges_against_torchmetrics(bins):
    """Which puts a score on an edge into the bin above."""
    import torch
    from torchmetrics.functional import classification as functional

    c, y = scored(400)
    between = np.abs(c * bins - np.rint(c * bins)) > 1e-6
    c, y = c[between], y[between]
    for metric, norm in ((ece, "l1"), (mce, "max")):
        theirs = functional.binary_calibration_error(torch.tensor(c), torch.tensor(y).long(), n_bins=bins, norm=norm)
        assert metric(c, y, bins) == pytest.approx(float(theirs), abs=1e-6)


@given(pairs)
def test_brier_and_auroc_against_scikit_learn(rows):
    c, y = columns(rows)
    assert brier(c, y) == pytest.approx(brier_score_loss(y, c), abs=1e-12)
    if y.all() or not y.any():
        assert np.isnan(auroc(c, y))
    else:
        assert auroc(c, y) == pytest.approx(roc_auc_score(y, c), abs=1e-12)


# ---- properties


@given(pairs, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_weights_are_resampled_rows(rows, bins, seed):
    c, y = columns(rows)
    drawn = np.random.default_rng(seed).integers(0, len(c), (3, len(c)))
    weights = np.stack([np.bincount(row, minlength=len(c)) for row in drawn])
    for name in METRICS.keys() - {"ece_mass"}:  # its bins are those of the rows without weights
        expected = [metrics.measure(name, c[row], y[row], bins) for row in drawn]
        found = metrics.measure(name, c, y, bins, sample_weight=weights)
        assert found == pytest.approx(expected, abs=1e-9, nan_ok=True), name


# ---- frames


def test_evaluate():
    c, y = scored(50)
    part = keyed(50, confidence=c, correct=y).assign(estimator="seq_avg")
    other = part.assign(estimator="seq_joint", confidence=c / 2)
    frame = pd.concat([part, other, part.assign(split="calibration", confidence=0.5)])
    results = evaluation.evaluate(frame)
    assert (
        set(results.n) == {50} and set(results.metric) == set(evaluation.RESULT_METRICS) and len(results) == 1 + 2 * 4
    )
    value = results.set_index(["estimator", "metric"]).value
    assert value["", "acc"] == y.mean()
    assert value["seq_avg", "ece"] == pytest.approx(ece(c, y))
    assert value["seq_joint", "mce"] == pytest.approx(mce(c / 2, y))
    missing = evaluation.evaluate(frame.assign(correct=True)).query("reason == 'one class only'")
    assert missing.metric.tolist() == ["auroc"] * 2 and missing.value.tolist() == [pd.NA] * 2


# ---- beside a constant


def test_log_loss_is_that_of_scikit_learn():
    assert evaluation.base_rate([True, True, False]) == 3 / 5 and evaluation.base_rate([]) == 0.5
    for c, y in (scored(), (np.array([0.0, 1.0, 1.0]), np.array([1, 1, 0]))):
        assert metrics.log_loss(c, y) == pytest.approx(log_loss(y, c, labels=[0, 1]), rel=1e-12)


@pytest.mark.parametrize("c, y, mcb, dsc, unc", [
    # In order and sure: the best scores are the outcomes, so all of .25 is discrimination.
    ([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1], 0, 0.25, 0.25),
    # A constant at .8 where half is right: (.8 - .5)^2 of miscalibration, no discrimination.
    ([0.8] * 4, [1, 0, 1, 0], 0.09, 0, 0.25),
    # Against the order: the best non-decreasing scores are the mean; (.1, 1), (.9, 0) cost .81.
    ([0.1, 0.9], [1, 0], 0.81 - 0.25, 0, 0.25),
    # Three pools: 0; the violators .4, .6 at 1/2; 1. Brier (.04 + .36 + .36 + .04) / 4 = .2, of the best scores .125.
    ([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1], 0.2 - 0.125, 0.25 - 0.125, 0.25),
    # Equal scores are one: .5 with 1, 0 and 0 becomes 1/3. Brier (.25 * 3 + .01) / 4, of the best scores (2 / 3) / 4.
    ([0.5, 0.5, 0.5, 0.9], [1, 0, 0, 1], 0.19 - 1 / 6, 0.25 - 1 / 6, 0.25),
])  # fmt: skip
def test_the_parts_of_the_brier_score_by_hand(c, y, mcb, dsc, unc):
    assert decompose_brier(c, y) == pytest.approx({"mcb": mcb, "dsc": dsc, "unc": unc}, abs=1e-12)


@given(pairs)
def test_the_parts_of_the_brier_score_by_scikit_learns_isotonic_regression(rows):
    c, y = columns(rows)
    c = np.round(c, 9)  # it takes nearer scores for equal
    found = decompose_brier(c, y)
    best = IsotonicRegression().fit(c, y).predict(c)
    assert found["mcb"] == pytest.approx(brier(c, y) - brier(best, y), abs=1e-9)
    assert found["dsc"] == pytest.approx(brier(np.full(len(y), y.mean()), y) - brier(best, y), abs=1e-9)
    assert found["mcb"] - found["dsc"] + found["unc"] == pytest.approx(brier(c, y), abs=1e-12)


@given(pairs)
def test_augrc_is_the_area_under_the_curve(rows):
    """From the surest score down; equal scores are answered in any order, so the curve is straight between them."""
    c, y = columns(rows)
    curve = pd.DataFrame({"answered": 1, "wrong": ~y}).groupby(-c).sum().cumsum() / len(c)
    area = np.trapezoid([0, *curve.wrong], [0, *curve.answered])
    assert metrics.augrc(c, y) == pytest.approx(area, abs=1e-12)


def test_bins_of_equally_many_rows_are_mapies():
    """Its `array split` cuts rows as they stand, so they are sorted first."""
    from mapie.metrics import calibration

    c, y = columns(sorted(zip(*scored(100), strict=True)))
    theirs = calibration.expected_calibration_error(y.astype(int), c, num_bins=10, split_strategy="array split")
    assert metrics.equal_mass_ece(c, y) == pytest.approx(theirs, abs=1e-9)


@given(pairs, st.randoms())
def test_the_order_of_rows_does_not_count(rows, random):
    """Of the same rows in another order every measure is the same, equal scores or not."""
    mixed = random.sample(rows, len(rows))
    (c, y), (mixed_c, mixed_y) = map(columns, (rows, mixed))
    for name in METRICS:
        expected = pytest.approx(metrics.measure(name, mixed_c, mixed_y), abs=1e-12, nan_ok=True)
        assert metrics.measure(name, c, y) == expected


def test_one_class_is_said_and_never_a_nan():
    right = keyed(10, confidence=np.linspace(0.1, 1, 10), correct=[True] * 10).assign(method="", estimator="seq_avg")
    scores = evaluation.add_base_rate(pd.concat([right, right.assign(split="calibration")]), right)
    table = evaluation.compare_with_base_rate(scores, resamples=50)
    missing = table[table.value.isna()]
    assert set(missing.metric) == {"auroc"} and set(missing.reason) == {"one class only"}
    assert not table[["value", "low", "high"]].astype(float).isin([np.inf, -np.inf]).any(axis=None)
    assert table.set_index(["estimator", "metric"]).value["seq_avg", "augrc"] == 0
