"""Metrics by hand (edges above all), against other libraries, and by property."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, roc_auc_score

from lib.score.metrics import METRICS, accuracy, auroc, bin_index, brier, ece, evaluate, mce, reliability_bins
from lib.score.metrics import ablate_bins as ablate

scored = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80)
n_bins_ablation, sides = st.integers(1, 40), st.sampled_from(["right", "left"])


def random(n=400, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.beta(4, 1, n)
    return c, rng.random(n) < c**2


# ---- edges


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 20, 30, 49, 100])
def test_every_edge_is_on_its_side(bins):
    edges = np.arange(bins + 1) / bins
    k = np.arange(bins + 1)
    assert (bin_index(edges, bins, "right") == np.maximum(k - 1, 0)).all()  # 0 in the first
    assert (bin_index(edges, bins, "left") == np.minimum(k, bins - 1)).all()  # 1.0 in the last


def test_edges_however_they_were_computed():
    three = [0.3, 3 / 10, 0.1 + 0.2, 0.1 * 3, 1 - 0.7, np.linspace(0, 1, 11)[3], np.float64("0.3")]
    assert (bin_index(three, 10, "right") == 2).all()
    assert (bin_index(three, 10, "left") == 3).all()
    for value, right in ((0.1, 0), (0.3, 2), (0.6, 5), (0.7, 6), (0.9, 8)):
        for kind in (np.float16, np.float32, np.float64):
            assert bin_index(np.array([value], kind), 10, "right") == right
            assert bin_index(np.array([value], kind), 10, "left") == right + 1


def test_beside_an_edge_is_not_on_it():
    for closed in ("right", "left"):
        assert bin_index([0.3 - 1e-9, 0.3 + 1e-9], 10, closed).tolist() == [2, 3]


def test_convention_changes_the_result():
    c, y = np.full(40, 0.9), np.arange(40) < 19
    c = np.append(c, np.full(20, 0.95))
    y = np.append(y, np.zeros(20))
    # right: (.8, .9] holds the 40, (.9, 1] the 20; left: both share [.9, 1]
    assert ece(c, y, closed="right") == pytest.approx((40 * 0.425 + 20 * 0.95) / 60)
    assert mce(c, y, closed="right") == pytest.approx(0.95)
    assert ece(c, y, closed="left") == mce(c, y, closed="left") == pytest.approx(55 / 60 - 19 / 60)


# ---- by hand


def test_by_hand():
    c, y = [0.05, 0.15, 0.15, 0.95, 1.0], [0, 1, 0, 1, 1]
    table = reliability_bins(c, y)
    assert table.count.tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0, 2]
    frame = table.frame()
    assert frame.lower.tolist() == [0, 0.1, 0.9] and frame.upper.tolist() == [0.1, 0.2, 1]
    assert frame.confidence.to_list() == pytest.approx([0.05, 0.15, 0.975])
    assert frame.accuracy.to_list() == [0, 0.5, 1]
    assert ece(c, y) == pytest.approx((0.05 + 2 * 0.35 + 2 * 0.025) / 5)
    assert mce(c, y) == pytest.approx(0.35)
    assert brier(c, y) == pytest.approx((0.05**2 + 0.85**2 + 0.15**2 + 0.05**2) / 5)
    assert accuracy(c, y) == 0.6
    assert auroc(c, y) == pytest.approx((1.5 + 2 + 2) / 6)
    assert ece([1.0], [0]) == mce([1.0], [0]) == brier([1.0], [0]) == 1.0


@pytest.mark.parametrize("bad", [1.0000001, -1e-9, np.nan, np.inf])
@pytest.mark.parametrize("metric", [ece, mce, brier, auroc, accuracy, reliability_bins])
def test_out_of_range_is_refused(metric, bad):
    with pytest.raises(ValueError, match="row 1"):
        metric([0.5, bad], [1, 0])


def test_other_bad_input_is_refused():
    for c, y in (([], []), ([0.5], [1, 0]), ([0.5], [2]), ([0.5], [np.nan])):
        with pytest.raises(ValueError):
            ece(c, y)


# ---- against other libraries


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_right_closed_against_scikit_learn(bins):
    c, y = random()
    accuracy_, confidence_ = calibration_curve(y, c, n_bins=bins)
    frame = reliability_bins(c, y, bins).frame()
    assert np.allclose(frame.accuracy, accuracy_) and np.allclose(frame.confidence, confidence_)
    gap = np.abs(accuracy_ - confidence_)
    assert ece(c, y, bins) == pytest.approx((gap * frame["count"]).sum() / len(c))
    assert mce(c, y, bins) == pytest.approx(gap.max())


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_left_closed_against_torchmetrics(bins):
    import torch
    from torchmetrics.functional import classification as functional

    c, y = random()  # below 1: torchmetrics puts 1.0 in a bin of its own
    given = torch.tensor(c), torch.tensor(y).long()
    for metric, norm in ((ece, "l1"), (mce, "max")):
        expected = functional.binary_calibration_error(*given, n_bins=bins, norm=norm)
        assert metric(c, y, bins, "left") == pytest.approx(float(expected), abs=1e-6)


def test_brier_and_auroc_against_scikit_learn():
    c, y = np.round(random()[0], 1), random()[1]
    assert brier(c, y) == pytest.approx(brier_score_loss(y, c))
    assert auroc(c, y) == pytest.approx(roc_auc_score(y, c))


# ---- properties


@given(scored, n_bins_ablation, sides)
def test_bounds(rows, bins, closed):
    c, y = map(list, zip(*rows, strict=True))
    expected, maximum = ece(c, y, bins, closed), mce(c, y, bins, closed)
    assert 0 <= expected <= maximum + 1e-12 <= 1 + 2e-12
    assert expected >= abs(np.mean(c) - np.mean(y)) - 1e-9
    assert 0 <= brier(c, y) <= 1 and 0 <= accuracy(c, y) <= 1
    assert reliability_bins(c, y, bins, closed).count.sum() == len(c)
    assert np.isnan(auroc(c, y)) or 0 <= auroc(c, y) <= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), n_bins_ablation, sides)
def test_a_score_lies_in_its_bin(c, bins, closed):
    index, c = bin_index(c, bins, closed), np.array(c)
    assert (index / bins - 1e-12 <= c).all() and (c <= (index + 1) / bins + 1e-12).all()
    order = np.argsort(c)
    assert (np.diff(index[order]) >= 0).all()


@given(scored, n_bins_ablation, st.integers(0, 2**32 - 1))
def test_weights_are_resampled_rows(rows, bins, seed):
    c, y = (np.array(column) for column in zip(*rows, strict=True))
    drawn = np.random.default_rng(seed).integers(0, len(c), (3, len(c)))
    weights = np.stack([np.bincount(row, minlength=len(c)) for row in drawn])
    for metric in (ece, mce):
        expected = [metric(c[row], y[row], bins) for row in drawn]
        assert metric(c, y, bins, sample_weight=weights) == pytest.approx(expected, abs=1e-9)
    for metric in (brier, accuracy):
        assert metric(c, y, sample_weight=weights) == pytest.approx([metric(c[row], y[row]) for row in drawn], abs=1e-9)


# ---- frames


def frame(n=50):
    c, y = random(n)
    keys = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": [str(i) for i in range(n)]}
    part = pd.DataFrame(keys | {"confidence": c, "correct": y})
    other = part.assign(estimator="seq_joint", confidence=c / 2)
    ignored = part.assign(estimator="seq_avg", split="calibration", confidence=0.5)
    return pd.concat([part.assign(estimator="seq_avg"), other, ignored], ignore_index=True)


def test_evaluate():
    c, y = random(50)
    results = evaluate(frame())
    assert list(results) == ["model", "dataset", "estimator", "metric", "value", "n", "reason", "of_bin"]
    assert set(results.n) == {50}
    value = results.set_index(["estimator", "metric"]).value
    assert value["", "acc"] == y.mean() and len(results) == 1 + 2 * 4
    assert value["seq_avg", "ece"] == ece(c, y) and value["seq_joint", "mce"] == mce(c / 2, y)
    assert set(results.metric) == set(METRICS)


def test_one_class_is_missing_with_a_reason_and_never_nan():
    results = evaluate(frame().assign(correct=True)).set_index(["estimator", "metric"])
    cell = results.loc[("seq_avg", "auroc")]
    assert cell.value is pd.NA and cell.reason == "one class only"
    assert results.drop(index=[(e, "auroc") for e in ("seq_avg", "seq_joint")]).value.notna().all()


def test_ablation_of_bins_leaves_brier_alone():
    results = ablate(frame(), [10, 20, 30])
    assert results.bins.unique().tolist() == [10, 20, 30]
    assert (results[results.metric == "brier"].groupby("estimator").value.nunique() == 1).all()
    assert results[results.metric == "mce"].groupby("estimator").value.nunique().max() > 1
