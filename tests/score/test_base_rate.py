"""Scores beside a constant."""

import numpy as np
import pandas as pd
import pytest
from synthetic import keyed

from lib.score.baselines import add_base_rate, compare_with_base_rate, smoothed_base_rate
from lib.score.evaluation import evaluate


def test_the_base_rate_is_never_certain():
    """As if one more row were right and one more wrong."""
    assert smoothed_base_rate([True, True, False]) == pytest.approx((2 + 1) / (3 + 2))
    assert smoothed_base_rate([]) == 0.5


@pytest.fixture
def all_right():
    rows = keyed(10, confidence=np.linspace(0.1, 1, 10), correct=[True] * 10)
    return rows.assign(method="", estimator="seq_avg")


def test_auroc_of_one_class_is_missing_with_the_reason(all_right):
    calibration = all_right.assign(split="calibration")
    scores = add_base_rate(pd.concat([all_right, calibration]), all_right)
    for results in (compare_with_base_rate(scores, resamples=50), evaluate(all_right)):
        missing = results[results.value.isna()]
        assert set(missing.metric) == {"auroc"}
        assert set(missing.reason) == {"one class only"}


def test_intervals_are_of_five_thousand_resamples_unless_another_number_is_given():
    rng = np.random.default_rng(0)
    rows = keyed(20, confidence=rng.uniform(size=20), correct=rng.uniform(size=20) < 0.5)
    scores = rows.assign(method="", estimator="seq_avg")
    pd.testing.assert_frame_equal(
        compare_with_base_rate(scores), compare_with_base_rate(scores, resamples=5000)
    )
