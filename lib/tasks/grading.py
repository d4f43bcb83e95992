"""Grade answers: two rules for when a number is the reference's."""

from collections.abc import Callable
from decimal import Decimal

from lib.paths import UserError, nearest
from lib.tasks.numbers import CONTEXT, parse_number

_TOLERANCE = Decimal("1e-3")  # of PAL, the source of GSMHard
_HALF = Decimal("0.500000001")  # slightly above 1/2: -1895420.4999999998 is ...420.5 in floating point


def _numeric(answer: Decimal, reference: Decimal) -> bool:
    """Whether they differ by less than 1e-3, or the answer is a rounded non-integer reference.

    The prompt asks for an integer, but 303 of GSMHard's 1,319 references are not. Such a reference may be rounded to
    the answer's number of decimals, including none; half may be rounded either way.
    """
    gap = CONTEXT.abs(CONTEXT.subtract(answer, reference))
    if gap < _TOLERANCE or reference == reference.to_integral_value(context=CONTEXT):
        return gap < _TOLERANCE
    exponent = answer.as_tuple().exponent
    decimals = max(0, -exponent) if isinstance(exponent, int) else 0
    return CONTEXT.scaleb(gap, decimals) <= _HALF


GRADERS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "numeric": _numeric,
    "exact": lambda answer, reference: answer == reference,  # equal values without tolerance: 18.00 is 18
}


def grade(answer: str | None, reference: str, grader: str = "numeric") -> bool:
    """Whether an answer is correct; a missing one is not.

    Parameters
    ----------
    answer, reference : str
    grader : str
        Of GRADERS.

    Raises
    ------
    UserError
        For an unknown grader.
    """
    if grader not in GRADERS:
        raise UserError(f"there is no grader '{grader}'; {nearest(grader, GRADERS)}")
    value, expected = parse_number(answer), parse_number(reference)
    return value is not None and expected is not None and GRADERS[grader](value, expected)
