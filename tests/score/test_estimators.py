"""Estimators by hand and by property."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib.score.estimators import (
    ans_avg,
    ans_joint,
    c_bald,
    exp_neg_entropy,
    min_top2_margin,
    min_window_mean,
    p_true,
    seq_avg,
    seq_joint,
)

# ---- single pass: means over log-probabilities of tokens


@pytest.mark.parametrize("average", [seq_avg, ans_avg])
def test_avg_is_the_mean_probability(average):
    assert average(np.log([0.5, 0.8])) == pytest.approx(0.65)


@pytest.mark.parametrize("joint", [seq_joint, ans_joint])
def test_joint_is_the_geometric_mean_probability(joint):
    assert joint(np.log([0.5, 0.8])) == pytest.approx((0.5 * 0.8) ** 0.5)


def test_an_impossible_token_counts_as_zero():
    assert seq_avg([0.0, -np.inf]) == 0.5
    assert seq_joint([0.0, -np.inf]) == 0


def test_a_logprob_may_be_above_zero_as_far_as_float32_rounds():
    assert seq_avg([1e-5]) == 1
    with pytest.raises(ValueError, match="none above 0"):
        seq_avg([1.01e-5])


def test_what_is_no_logprob_is_refused():
    with pytest.raises(ValueError, match="none above 0"):
        seq_avg([-1, np.nan])
    with pytest.raises(ValueError, match="must be at least one number"):
        seq_avg([])


LOGPROBS = st.lists(st.floats(-50, 0), min_size=1, max_size=60)


@given(LOGPROBS)
@example([0.0] * 9)  # 9 * (1 / 9) is more than 1
def test_in_unit_interval_and_joint_at_most_average(logprobs):
    assert 0 <= seq_joint(logprobs) <= seq_avg(logprobs) + 1e-12
    assert seq_avg(logprobs) <= 1


@given(LOGPROBS)
@example([0.0] * 9)
def test_the_lowest_window_is_that_of_all_windows_of_sixteen(logprobs):
    width = min(len(logprobs), 16)
    windows = np.lib.stride_tricks.sliding_window_view(np.exp(logprobs), width)
    lowest = windows.mean(axis=1).min()
    assert min_window_mean(logprobs) == pytest.approx(lowest, abs=1e-12)
    assert min_window_mean(logprobs) <= 1


# ---- further signals


def test_p_true_is_the_sigmoid_of_the_margin():
    assert p_true(np.log(3)) == pytest.approx(0.75)
    assert p_true(800.0) == 1
    assert p_true(-30.0) == pytest.approx(np.exp(-30))


def test_c_bald_is_one_less_the_mean_of_bald_within_its_bounds():
    assert c_bald([-0.5, 0.25, 2.0]) == pytest.approx((1 + 0.75 + 0) / 3)


def test_the_margin_is_the_lowest_and_never_negative():
    assert min_top2_margin([0.4, 0.3]) == 0.3
    assert min_top2_margin([-1e-9, 0.3]) == 0


def test_entropy_becomes_confidence_by_its_mean():
    assert exp_neg_entropy([0.1, 0.3]) == pytest.approx(np.exp(-0.2))
    assert exp_neg_entropy([-0.1]) == 1
