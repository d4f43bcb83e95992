"""Where losses are lowest and likelihoods highest, on margins of any scale."""

import numpy as np
import pytest

from lib.calibrate.optima import maximize_likelihood, parabolic_argmin

MARGINS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
CORRECT = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])


WEIGHT = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0])


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_the_likelihood_of_margins_in_another_unit_is_the_same(unit):
    """sigmoid(a m + b) of margins that are `unit` times as large has a slope of a / unit."""
    a, b = maximize_likelihood(MARGINS, CORRECT, WEIGHT)
    scaled = maximize_likelihood(unit * MARGINS, CORRECT, WEIGHT)
    assert scaled is not None, "a bound on the determinant must not depend on the unit"
    assert scaled == pytest.approx((a / unit, b), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_likelihood_of_rows_that_all_count_more_or_less_is_the_same(unit):
    optimum = maximize_likelihood(MARGINS, CORRECT, WEIGHT)
    assert maximize_likelihood(MARGINS, CORRECT, unit * WEIGHT) == pytest.approx(optimum)


def test_slope_and_offset_that_float64_cannot_tell_apart_have_no_optimum():
    """Margins of one value, and of nearly one: slope and offset can replace each other."""
    weight = np.ones(6)
    assert maximize_likelihood(np.full(6, 2.0), CORRECT, weight) is None
    assert maximize_likelihood(1e9 + MARGINS, CORRECT, weight) is None


def test_at_the_optimum_neither_slope_nor_offset_gains():
    """By hand: the sums of outcome minus sigmoid, plain and times the margin, are zero there."""
    a, b = maximize_likelihood(MARGINS, CORRECT, np.ones(6))
    gap = CORRECT - 1 / (1 + np.exp(-(a * MARGINS + b)))
    assert gap.sum() == pytest.approx(0, abs=1e-12)
    assert gap @ MARGINS == pytest.approx(0, abs=1e-12)


def test_a_parabola_is_found_between_the_points_of_its_grid():
    places = np.arange(7.0)
    assert parabolic_argmin((places - 2.25) ** 2) == pytest.approx(2.25)
    assert parabolic_argmin((places + 1) ** 2) == 0.0, "its vertex lies before the first point"
    assert parabolic_argmin((places - 8) ** 2) == 6.0, "its vertex lies behind the last point"
    assert parabolic_argmin(-((places + 1) ** 2)) == 5.0, "no parabola that opens upwards"
