"""Metrics, and scores beside a constant: against other libraries, and by property (numbers by hand:
tests/analysis)."""

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
from lib.score.metrics import METRICS, bin_index, ece, mce, measure

unit = st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0])
pairs = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=80)


def test_every_edge_is_on_its_side():
    for bins in (1, 2, 3, 7, 10, 15, 20, 30, 49, 100):
        k = np.arange(bins + 1)
        assert (bin_index(k / bins, bins) == np.maximum(k - 1, 0)).all(), "0 in the first"
    for kind in (np.float16, np.float32, np.float64):
        assert bin_index(np.array([0.1, 0.3, 0.6, 0.7, 0.9], kind), 10).tolist() == [0, 2, 5, 6, 8]


@given(pairs)
def test_measures_are_those_of_scikit_learn(rows):
    """The area below the risk-coverage curve: from the surest score down, straight between equal
    ones, which are answered in any order."""
    # its isotonic regression takes nearer scores for equal
    c, y = columns([(round(c, 9), right) for c, right in rows])
    found = {name: measure(name, c, y) for name in METRICS} | metrics.decompose_brier(c, y)
    best, one_class = IsotonicRegression().fit(c, y).predict(c), len(set(y)) < 2
    mean, best = brier_score_loss(y, np.full(len(y), y.mean())), np.mean((best - y) ** 2)
    curve = pd.DataFrame({"answered": 1, "wrong": ~y}).groupby(-c).sum().cumsum() / len(c)
    theirs = {
        "brier": brier_score_loss(y, c), "log_loss": log_loss(y, c, labels=[0, 1]),
        "auroc": np.nan if one_class else roc_auc_score(y, c),
        "augrc": np.trapezoid([0, *curve.wrong], [0, *curve.answered]),
        "mcb": brier_score_loss(y, c) - best, "dsc": mean - best, "unc": mean,
    }  # fmt: skip
    assert {name: found[name] for name in theirs} == pytest.approx(theirs, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_bins_are_those_of_scikit_learn_torchmetrics_and_mapie(bins):
    """torchmetrics puts a score on an edge into the bin above; MAPIE cuts rows as they stand."""
    import torch
    from mapie.metrics import calibration
    from torchmetrics.functional import classification as functional

    c, y = columns(sorted(zip(*scored(600), strict=True)))
    right, sure = calibration_curve(y, c, n_bins=bins)
    frame = metrics.reliability_diagram(c, y, bins)
    assert np.allclose(frame.accuracy, right) and np.allclose(frame.confidence, sure)
    equal = calibration.expected_calibration_error(
        y.astype(int), c, num_bins=bins, split_strategy="array split"
    )
    assert metrics.equal_mass_ece(c, y, bins) == pytest.approx(equal, abs=1e-9)
    assert np.abs(c * bins - np.rint(c * bins)).min() > 1e-6, "none is on an edge"
    for metric, norm in ((ece, "l1"), (mce, "max")):
        theirs = functional.binary_calibration_error(
            torch.tensor(c), torch.tensor(y).long(), n_bins=bins, norm=norm
        )
        assert metric(c, y, bins) == pytest.approx(float(theirs), abs=1e-6)


@given(pairs, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_weights_are_resampled_rows_in_any_order(rows, bins, seed):
    (c, y), rng = columns(rows), np.random.default_rng(seed)
    drawn = np.stack([rng.permutation(len(c)), *rng.integers(0, len(c), (3, len(c)))])
    weights = np.stack([np.bincount(row, minlength=len(c)) for row in drawn])
    for name in METRICS:
        # whose bins are those of the rows without weights
        some = slice(1 if name == "ece_mass" else None)
        expected = [measure(name, c[row], y[row], bins) for row in drawn[some]]
        found = measure(name, c, y, bins, sample_weight=weights[some])
        assert found == pytest.approx(expected, abs=1e-9, nan_ok=True), name


def test_one_class_is_said_and_never_a_nan():
    right = keyed(10, confidence=np.linspace(0.1, 1, 10), correct=[True] * 10).assign(
        method="", estimator="seq_avg"
    )
    scores = evaluation.add_base_rate(pd.concat([right, right.assign(split="calibration")]), right)
    table = evaluation.compare_with_base_rate(scores, resamples=50)
    for found in (table, evaluation.evaluate(right)):
        missing = found[found.value.isna()]
        assert set(missing.metric) == {"auroc"} and set(missing.reason) == {"one class only"}
