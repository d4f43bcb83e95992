"""Numbers in cells."""

import pytest

from lib.paper.cells import format_3dp, format_two_digits


@pytest.mark.parametrize(
    "value, text",
    [(0, "0.00"), (1, "1.00"), (0.53, "0.53"), (-0.054, "-0.054"), (0.00000054, "0.000001")],
)
def test_two_digits_are_shown_but_at_most_six_places(value, text):
    assert format_two_digits(value) == text


@pytest.mark.parametrize(
    "value, text", [(0.0531, ".053"), (-0.2091, "-.209"), (0.9996, "1.000"), (-0.0001, ".000")]
)
def test_three_places_are_shown_without_a_leading_or_a_negative_zero(value, text):
    assert format_3dp(value) == text


def test_a_plus_is_shown_if_wanted():
    assert format_3dp(0.012, "+") == "+.012"
