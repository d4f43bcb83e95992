"""What a number's canonical form is, and which answers are right."""

import numpy as np
import pytest

from lib.tasks.grading import grade
from lib.tasks.written_numbers import canonical_number

CANONICAL = {
    "1,000": "1000",
    " $1,000. ": "1000",
    "-9867630.0": "-9867630",
    "5e-07": "0.0000005",
    "1e+22": "10000000000000000000000",
    "3244047.0999999996": "3244047.0999999996",
    "18%": "18",
    "$\\frac{1}{2}$": "0.5",
    "-\\frac{-1}{2}": "0.5",
    "- 3": "-3",
    "+3/2": "1.5",
    "\u22127": "-7",
    "0010": "10",
    "**5**": "5",
}
NO_NUMBERS = [
    *("", "-", "--", "$"),
    *("nan", "inf", "-Infinity", "1e9999"),
    *("\\frac12", "\\frac{1}{0}", "\\frac{x}{2}", "1 1/0", "+1 1/2"),
    *("1_000", "1,2345", "12,5", "0x10", "\u0661"),
    *("1.2.3", "1 2", "5-6", "x - 3", "2^{10}"),
    *("5 apples", "3 and a half"),
]


@pytest.mark.parametrize("text", CANONICAL)
def test_a_number_has_one_form(text):
    assert canonical_number(text) == CANONICAL[text]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_not_wholly_one_number_is_none(text):
    assert canonical_number(text) is None


# ---- grades: (answer, reference)

EQUAL = [
    ("18", "18"),
    ("1,000", "1000"),
    ("-9867630", "-9867630.0"),
    ("\\frac{32}{4}", "8"),
    ("7.3", "7.3"),
    ("0.0000005", "5e-7"),
]
NEARLY_EQUAL = [
    ("3244047.1", "3244047.0999999996"),
    ("0", "5e-7"),
    ("0.3333333", "1/3"),
    ("0.0000001", "0"),
    ("18.0005", "18"),
    ("9280000000000.12", "9280000000000.123456"),
]
ROUNDED = [
    ("3244047", "3244047.0999999996"),
    ("7", "7.3"),
    ("1643532", "1643531.4999999998"),
    ("2", "2.5"),
    ("3", "2.5"),
    ("-2", "-2.5"),
    ("-3", "-2.5"),
    ("0.33", "1/3"),
    ("2.34", "2.345"),
    ("2.35", "2.345"),
]
WRONG = [
    ("6277880", "6277881"),
    ("1000001", "1000000"),
    ("17", "18"),
    ("7.2", "7.3"),
    ("18.5", "18"),
    ("18.001", "18"),  # by 1e-3, which is not less
    ("2.4", "2.345"),
    ("nan", "18"),
    ("18", "none"),
    (None, "18"),
    (np.nan, "18"),  # which pandas makes of a missing answer
]


@pytest.mark.parametrize("answer, reference", EQUAL)
def test_another_spelling_of_the_number_is_right(answer, reference):
    assert grade(answer, reference, "exact")
    assert grade(answer, reference, "numeric")


@pytest.mark.parametrize("answer, reference", NEARLY_EQUAL + ROUNDED)
def test_a_rounded_number_is_right_unless_grading_is_exact(answer, reference):
    assert grade(answer, reference, "numeric")
    assert not grade(answer, reference, "exact")


@pytest.mark.parametrize("answer, reference", WRONG)
def test_another_number_is_wrong(answer, reference):
    assert not grade(answer, reference, "exact")
    assert not grade(answer, reference, "numeric")


def test_grading_is_numeric_by_default():
    assert grade("7", "7.3")


def test_a_grader_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="'numerc'.*'numeric'"):
        grade("1", "1", "numerc")
