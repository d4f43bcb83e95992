"""Metrics by hand, against other libraries, and by property."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.metrics.calibration import expected_calibration_error
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from synthetic import columns, scored
from torchmetrics.functional.classification import binary_calibration_error

from lib.score.metrics import (
    METRICS,
    accuracy,
    auroc,
    brier,
    decompose_brier,
    ece,
    equal_mass_ece,
    mce,
    measure,
)
from lib.score.reliability import bin_index, reliability_diagram

# ---- five rows by hand, in three bins

CONFIDENCE = [0.05, 0.15, 0.15, 0.95, 1.0]
CORRECT = [0, 1, 0, 1, 1]


def test_a_reliability_diagram_has_a_row_for_each_bin_with_scores():
    diagram = reliability_diagram(CONFIDENCE, CORRECT)
    assert diagram.lower.tolist() == pytest.approx([0, 0.1, 0.9])
    assert diagram.upper.tolist() == pytest.approx([0.1, 0.2, 1])
    assert diagram["count"].tolist() == [1, 2, 2]
    assert diagram.confidence.tolist() == pytest.approx([0.05, 0.15, 0.975])
    assert diagram.accuracy.tolist() == [0, 0.5, 1]


def test_ece_is_the_mean_gap_of_the_bins():
    gaps = 1 * 0.05 + 2 * 0.35 + 2 * 0.025
    assert ece(CONFIDENCE, CORRECT) == pytest.approx(gaps / 5)


def test_mce_is_the_largest_gap():
    assert mce(CONFIDENCE, CORRECT) == pytest.approx(0.35)


def test_brier_is_the_mean_squared_error():
    squares = 0.05**2 + 0.85**2 + 0.15**2 + 0.05**2 + 0
    assert brier(CONFIDENCE, CORRECT) == pytest.approx(squares / 5)


def test_accuracy_is_the_share_of_right_rows():
    assert accuracy(CONFIDENCE, CORRECT) == 0.6


def test_auroc_is_the_share_of_ordered_pairs():
    """Of .15 and .15 half a pair."""
    pairs = (0.5 + 1) + 2 + 2
    assert auroc(CONFIDENCE, CORRECT) == pytest.approx(pairs / 6)


@pytest.mark.parametrize(
    "confidence, correct, mcb, dsc",
    [
        pytest.param([0, 0, 1, 1], [0, 0, 1, 1], 0, 0.25, id="in order and sure"),
        pytest.param([0.8] * 4, [1, 0, 1, 0], 0.3**2, 0, id="a constant where half is right"),
        # the best non-decreasing scores are the mean; (.1, 1) and (.9, 0) cost .81
        pytest.param([0.1, 0.9], [1, 0], 0.81 - 0.25, 0, id="against the order"),
        # the best scores are 0, 1/2, 1/2, 1, of .125; these have (.04 + .36 + .36 + .04) / 4
        pytest.param([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1], 0.2 - 0.125, 0.125, id="two violators"),
        # .5 becomes 1/3, of (2 / 3) / 4; these have (.25 * 3 + .01) / 4
        pytest.param(
            [0.5, 0.5, 0.5, 0.9], [1, 0, 0, 1], 0.19 - 1 / 6, 0.25 - 1 / 6, id="equal scores"
        ),
    ],
)
def test_brier_is_miscalibration_less_discrimination_and_uncertainty(confidence, correct, mcb, dsc):
    """Half of the rows is right."""
    parts = decompose_brier(confidence, correct)
    assert parts == pytest.approx({"mcb": mcb, "dsc": dsc, "unc": 0.25}, abs=1e-12)


# ---- what is refused


@pytest.mark.parametrize("metric", [ece, mce, brier])
@pytest.mark.parametrize("confidence", [1.5, 1.0000001, -1e-9, np.nan])
def test_a_score_outside_the_unit_interval_is_refused_with_its_row(metric, confidence):
    with pytest.raises(ValueError, match="at row 0"):
        metric([confidence], [1])


@pytest.mark.parametrize("confidence, correct", [([], []), ([0.5], [1, 0])])
def test_columns_that_are_empty_or_of_two_lengths_are_refused(confidence, correct):
    with pytest.raises(ValueError, match="equally long and not empty"):
        brier(confidence, correct)


@pytest.mark.parametrize("metric, outcome", [(brier, np.nan), (accuracy, 2), (auroc, 2)])
def test_an_outcome_is_true_or_false(metric, outcome):
    with pytest.raises(ValueError, match="only true and false"):
        metric([0.5], [outcome])


# ---- bins


def test_a_score_on_an_edge_is_in_the_bin_below_however_it_was_computed():
    of_linspace = np.linspace(0, 1, 11)[3]
    on_the_edge = [0.3, 3 / 10, 0.1 + 0.2, 0.1 * 3, 1 - 0.7, of_linspace]
    assert bin_index(on_the_edge, 10).tolist() == [2] * 6
    assert bin_index([0.3 - 1e-9, 0.3 + 1e-9], 10).tolist() == [2, 3]


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 20, 30, 49, 100])
def test_every_edge_is_on_its_side(bins):
    edges = np.arange(bins + 1) / bins
    expected = [0, *range(bins)]  # 0 in the first bin
    assert bin_index(edges, bins).tolist() == expected


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_an_edge_of_few_digits_is_one(kind):
    scores = np.array([0.1, 0.3, 0.6, 0.7, 0.9], kind)
    assert bin_index(scores, 10).tolist() == [0, 2, 5, 6, 8]


@pytest.fixture(scope="module")
def rows():
    """600 rows in ascending order, of which none is on an edge of 10, 20 or 30 bins."""
    confidence, correct = scored(600)
    order = np.argsort(confidence)
    for bins in (10, 20, 30):
        distances = confidence * bins - np.rint(confidence * bins)
        assert np.abs(distances).min() > 1e-6
    return confidence[order], correct[order]


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_bins_are_those_of_scikit_learn(rows, bins):
    confidence, correct = rows
    diagram = reliability_diagram(confidence, correct, bins)
    their_accuracy, their_confidence = calibration_curve(correct, confidence, n_bins=bins)
    assert diagram.accuracy.to_numpy() == pytest.approx(their_accuracy)
    assert diagram.confidence.to_numpy() == pytest.approx(their_confidence)


@pytest.mark.parametrize("bins", [10, 20, 30])
@pytest.mark.parametrize("metric, norm", [(ece, "l1"), (mce, "max")])
def test_ece_and_mce_are_torchmetrics(rows, metric, norm, bins):
    """Which puts a score on an edge into the bin above."""
    confidence, correct = rows
    theirs = binary_calibration_error(
        torch.tensor(confidence), torch.tensor(correct).long(), n_bins=bins, norm=norm
    )
    assert metric(confidence, correct, bins) == pytest.approx(float(theirs), abs=1e-6)


@pytest.mark.parametrize("bins", [10, 20, 30])
def test_bins_of_equal_mass_are_mapies(rows, bins):
    """Which cuts rows as they stand."""
    confidence, correct = rows
    theirs = expected_calibration_error(
        correct.astype(int), confidence, num_bins=bins, split_strategy="array split"
    )
    assert equal_mass_ece(confidence, correct, bins) == pytest.approx(theirs, abs=1e-9)


# ---- any rows

UNIT = st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0])
ROWS = st.lists(st.tuples(UNIT, st.booleans()), min_size=1, max_size=80)


@given(ROWS)
def test_measures_are_those_of_scikit_learn(rows):
    c, y = columns(rows)
    assert measure("brier", c, y) == pytest.approx(brier_score_loss(y, c))
    assert measure("log_loss", c, y) == pytest.approx(log_loss(y, c, labels=[0, 1]))
    if y.all() or not y.any():
        assert np.isnan(measure("auroc", c, y))
    else:
        assert measure("auroc", c, y) == pytest.approx(roc_auc_score(y, c))


@given(ROWS)
def test_augrc_is_the_area_below_the_curve_of_wrong_answers(rows):
    """From the surest score down, straight between equal ones, which are answered in any order."""
    c, y = columns(rows)
    by_score = pd.DataFrame({"answered": 1, "wrong": ~y}).groupby(-c).sum()
    curve = by_score.cumsum() / len(c)
    area = np.trapezoid([0, *curve.wrong], [0, *curve.answered])
    assert measure("augrc", c, y) == pytest.approx(area, abs=1e-9)


@given(ROWS)
def test_the_best_scores_are_those_of_isotonic_regression(rows):
    c, y = columns(rows)
    c = c.round(9)  # scikit-learn takes nearer scores for equal
    best_error = brier_score_loss(y, IsotonicRegression().fit(c, y).predict(c).clip(0, 1))
    mean_error = brier_score_loss(y, np.full(len(y), y.mean()))
    mcb = brier_score_loss(y, c) - best_error
    expected = {"mcb": mcb, "dsc": mean_error - best_error, "unc": mean_error}
    assert decompose_brier(c, y) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=30)
@given(ROWS, st.integers(1, 40), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("name", METRICS)
def test_weights_are_resampled_rows_in_any_order(name, rows, bins, seed):
    c, y = columns(rows)
    rng = np.random.default_rng(seed)
    resamples = rng.integers(0, len(c), (3, len(c)))
    if name == "ece_mass":  # whose bins are those of the rows without weights
        resamples = rng.permutation(len(c))[None]
    weights = [np.bincount(places, minlength=len(c)) for places in resamples]
    expected = [measure(name, c[places], y[places], bins) for places in resamples]
    weighted = measure(name, c, y, bins, sample_weight=np.array(weights))
    assert weighted == pytest.approx(expected, abs=1e-9, nan_ok=True)
