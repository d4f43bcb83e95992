r"""Numbers as they are written: markup is set aside, and the value is exact.

A number has digits, perhaps in groups of three with commas, decimals, an exponent (`1.5e6`) or a
denominator (`3/4`, `\frac{3}{4}`), and a sign.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache
from typing import NamedTuple

# 60 digits represent every reference exactly; no response overflows or traps
CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])

Span = tuple[int, int]  # half-open


class Number(NamedTuple):
    """A number in a text: the span of its characters, with its sign, and its value."""

    start: int
    end: int
    value: Decimal

    @property
    def span(self) -> Span:
        return self.start, self.end

    def moved(self, characters: int) -> "Number":
        """Return the same number in a text with so many characters before it."""
        return Number(self.start + characters, self.end + characters, self.value)


# ---- markup

BLANK = "\x1f"  # stands for markup; `\s` matches it, but the sign of -$3 is not apart, as in - 3
LETTER = r"[^\W\d_]"
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)"
_FRACTION = rf"\\[dtc]?frac\s*\{{\s*[-+]?{_DECIMAL}\s*\}}\s*\{{\s*{_DECIMAL}\s*\}}"
_TAG = r"<<[^<>]*>> | <[/|｜]?[A-Za-z][^<>\s]*>"  # also GSM8K's calculations, <<3*6=18>>
# a bracket, quotation mark or star within a word or product is not markup: f[18], Bo's, 3 * 6
_MARKUP = re.compile(
    rf"""(?P<fraction>{_FRACTION})
    | \\(?:text|math)[a-z]*\s*\{{ | \\f?boxed\s*\{{
    | \\[][(){{}}$%_,;:!\ ]
    | (?<!-)(?:{_TAG} | ["“”`])
    | (?<![^\W_])[\[{{] | [\]}}]
    | (?<![^\W_])[*'_](?!\s) | (?<!\s)[*'_](?![^\W_]|\{{)
    | [$£€¥₹%]""",
    re.VERBOSE,
)
_SPELLINGS = str.maketrans("−–—﹣－’", "-----'")


def set_markup_aside(line: str) -> str:
    """Return a line of the same length with blanks for markup, and one spelling of `-` and `'`.

    Examples
    --------
    >>> set_markup_aside("is **$18**").replace("\\x1f", "_")
    'is ___18__'
    """

    def blank(mark: re.Match[str]) -> str:
        return mark["fraction"] or BLANK * len(mark[0])

    return _MARKUP.sub(blank, line.translate(_SPELLINGS))


# ---- a number

_PLAIN = rf"{_DECIMAL}(?:[eE][-+]?[0-9]{{1,3}})?(?:\s?/\s?[0-9]+)?"
UNSIGNED_NUMBER = rf"(?P<number>{_PLAIN}|{_FRACTION})"
# -$3, - 3 and -\boxed{ 3}, but - **3** may be an item of a list
SIGNED_NUMBER = rf"(?P<sign>[-+]\x1f*+[^\S\x1f]*+)?{UNSIGNED_NUMBER}"
_ALONE = re.compile(rf"\s*{SIGNED_NUMBER}\s*\.?\s*")


def to_number(match: re.Match[str]) -> Number | None:
    """Return the number of a match of SIGNED_NUMBER or UNSIGNED_NUMBER; None for a division by
    zero.

    Examples
    --------
    >>> to_number(re.search(f"(?P<sign>-)?{UNSIGNED_NUMBER}", "is -3/4")).value
    Decimal('-0.75')
    """
    digits = re.sub(r"[\s,]|\\[dtc]?frac\s*\{|\}$", "", match["number"])
    top, _, bottom = digits.replace("}{", "/").partition("/")
    divisor = Decimal(bottom or 1)
    if not divisor:
        return None
    value = CONTEXT.divide(Decimal(top), divisor)
    sign = match["sign"] or ""
    start, end = match.span("number")
    return Number(start - len(sign), end, value.copy_negate() if "-" in sign else value)


@cache
def parse_number(text: str | None) -> Decimal | None:
    """Return the value of a text that is one number, perhaps with markup or a period; else None.

    Examples
    --------
    >>> parse_number("$1,234.50"), parse_number("18 apples")
    (Decimal('1234.50'), None)
    """
    if not isinstance(text, str):
        return None
    match = _ALONE.fullmatch(set_markup_aside(text))
    number = to_number(match) if match else None
    return number.value if number else None


def format_number(number: Decimal) -> str:
    """Return the unique spelling of a value: no exponent, plus, commas or trailing zeros.

    Examples
    --------
    >>> format_number(Decimal("1e3")), format_number(Decimal("-2.50"))
    ('1000', '-2.5')
    """
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def canonical_number(text: str | None) -> str | None:
    """Return the canonical spelling of a text that is one number; None if it is not.

    Examples
    --------
    >>> canonical_number("1,234.50"), canonical_number("eighteen")
    ('1234.5', None)
    """
    value = parse_number(text)
    return None if value is None else format_number(value)
