"""Whether an answer is correct."""

from decimal import Decimal

from lib.errors import check_choice
from lib.tasks.written_numbers import CONTEXT, parse_number

GRADERS = ("numeric", "exact")
_TOLERANCE = Decimal("1e-3")  # of PAL, the source of GSMHard
_HALF = Decimal("0.500000001")  # slightly above 1/2: -1895420.4999999998 is ...420.5 in floats


def grade(answer: str | None, reference: str, grader: str = "numeric") -> bool:
    """Whether an answer is correct; a missing one is not.

    The prompt asks for an integer, but 303 of GSMHard's 1,319 references are not. Such a reference
    may be rounded to the answer's number of decimals, including none; half either way.

    Parameters
    ----------
    answer, reference : str
    grader : str
        `numeric`: they differ by less than 1e-3, or the answer is a rounded non-integer
        reference. `exact`: their values are equal, as those of 18.00 and 18.

    Raises
    ------
    UserError
        For an unknown grader.

    Examples
    --------
    >>> grade("18", "18"), grade("18.4", "18"), grade("18", "18.4"), grade(None, "18")
    (True, False, True, False)
    """
    check_choice("grader", grader, GRADERS)
    value = parse_number(answer)
    expected = parse_number(reference)
    if value is None or expected is None:
        return False
    if grader == "exact":
        return value == expected
    gap = CONTEXT.abs(CONTEXT.subtract(value, expected))
    if gap < _TOLERANCE:
        return True
    if expected == expected.to_integral_value(context=CONTEXT):
        return False
    decimals = max(0, -int(value.as_tuple().exponent))
    return CONTEXT.scaleb(gap, decimals) <= _HALF
