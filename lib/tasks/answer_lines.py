"""Read a line that gives an answer, strictly or not at all.

The line must be one number with at most plain words around it (`The answer is $18 per day.`), or an
equation that ends so (`3 * 6 = 18 apples`). It is no answer if a word changes the number
(`18 thousand`, `half of 18`), or says that it is not the result (`more than 18`, `not 18`,
`Step 2`).
"""

import re

from lib.tasks.written_numbers import (
    BLANK,
    LETTER,
    SIGNED_NUMBER,
    Number,
    set_markup_aside,
    to_number,
)

# a line with one of these is a heading, or says what the result is not
_NO_ANSWER = """
    step part section question problem example case stage phase method option approach scenario
    solution note task exercise if not no never cannot nor neither or than least most except
"""
# a number beside one of these is another number
_CHANGING = """
    minus negative plus times by to and half halves double triple twice thrice dozen dozens pi
    root log ln exp sin cos tan div squared cubed factorial third thirds quarter quarters fourths
    fifths sixths sevenths eighths ninths tenths hundredths thousandths millionths hundred hundreds
    thousand thousands million millions billion billions trillion trillions lakh lakhs crore crores
    mil mln mn bn twenty thirty forty fifty sixty seventy eighty ninety
"""
_VARIABLES = frozenset("abcdefghijklmnopqrstuvwxyzαβγδεθλμπσφω")
_NOT_ON_LINE = frozenset(_NO_ANSWER.split())
_NOT_BESIDE = _NOT_ON_LINE | frozenset(_CHANGING.split())
_NOT_BEFORE = _NOT_BESIDE | {"square", "cube"} | _VARIABLES - {"a"}
_NOT_AFTER = _NOT_BESIDE | _VARIABLES - frozenset("acfghls")  # 18 a day, 18 km/h

_WORD = re.compile(rf"{LETTER}+(?:'{LETTER}+)*")
_WORDS = rf"""{LETTER}(?:
    {LETTER} | \s | (?<={LETTER})['.] | (?<={LETTER})-(?={LETTER}) | /(?=\s*{LETTER}))*+"""
_ANSWER = re.compile(
    rf"""\s*+ (?P<before>{_WORDS}:?+\s*+)?+ (?<!{LETTER})(?<!\.)
    {SIGNED_NUMBER}
    (?P<after>\s*+/?\s*+{_WORDS} | -{LETTER}{_WORDS})? \s*+[.!]?+\s*+""",
    re.VERBOSE,
)
# `Total: 3 * 6`; no item of a list, no comparison, no second equation
_LEFT_SIDE = re.compile(
    rf"""(?:\s*+{_WORDS}:)?+ (?!\s*[0-9]+[.)]\s) (?:[^=<>!~:,;?]|,(?=[0-9]{{3}}))*+""", re.VERBOSE
)


def _has_word(text: str, words: frozenset[str]) -> bool:
    """Whether a text has one of these words, or one like `isn't`."""
    words_of_text = _WORD.findall(text.lower())
    return any(word in words or word.endswith("n't") for word in words_of_text)


def _is_left_side(text: str) -> bool:
    """Whether a text is the left side of an equation that may end in an answer."""
    whole = _LEFT_SIDE.fullmatch(text) is not None
    return whole and not text.rstrip().endswith("(") and not _has_word(text, _NOT_ON_LINE)


def read_line(line: str) -> Number | None:
    """Return the number of a line that is an answer; None for any other line.

    Examples
    --------
    >>> read_line("The answer is $18 per day.").value
    Decimal('18')
    >>> read_line("18 thousand") is None
    True
    """
    plain = set_markup_aside(line)
    if any(char.isnumeric() and char not in "0123456789" for char in plain):
        return None  # 18², 5½, 20万
    left, equals, _ = plain.rpartition("=")
    match = _ANSWER.fullmatch(plain, len(left + equals))
    if match is None:
        return None
    groups = match.groupdict(default="")
    before = groups["before"]
    if equals and (before or not _is_left_side(left)):
        return None
    if _has_word(before, _NOT_BEFORE) or _has_word(groups["after"], _NOT_AFTER):
        return None
    sign_is_apart = len(groups["sign"].rstrip(BLANK)) > 1
    if sign_is_apart and before and not before.rstrip().endswith(":"):
        return None  # Total - 18
    return to_number(match)
