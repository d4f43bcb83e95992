"""Grade answers: two rules for when a number is the reference's."""

from decimal import Decimal

from lib.paths import check_choice
from lib.tasks.numbers import CONTEXT, parse_number

GRADERS = ("numeric", "exact")
_TOLERANCE = Decimal("1e-3")  # of PAL, the source of GSMHard
_HALF = Decimal("0.500000001")  # slightly above 1/2: -1895420.4999999998 is ...420.5 in floating point


def grade(answer: str | None, reference: str, grader: str = "numeric") -> bool:
    """Whether an answer is correct; a missing one is not.

    The prompt asks for an integer, but 303 of GSMHard's 1,319 references are not. Such a reference may be rounded to
    the answer's number of decimals, including none; half may be rounded either way.

    Parameters
    ----------
    answer, reference : str
    grader : str
        `numeric`: they differ by less than 1e-3, or the answer is a rounded non-integer reference. `exact`: their
        values are equal, as those of 18.00 and 18.

    Raises
    ------
    UserError
        For an unknown grader.
    """
    check_choice("grader", grader, GRADERS)
    value, expected = parse_number(answer), parse_number(reference)
    if value is None or expected is None:
        return False
    if grader == "exact":
        return value == expected
    gap = CONTEXT.abs(CONTEXT.subtract(value, expected))
    if gap < _TOLERANCE or expected == expected.to_integral_value(context=CONTEXT):
        return gap < _TOLERANCE
    decimals = max(0, -int(value.as_tuple().exponent))
    return CONTEXT.scaleb(gap, decimals) <= _HALF
