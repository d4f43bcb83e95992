r"""The grammar of numbers: how models and datasets write them, and what ends one.

A number is read whole or not at all: a prefix of a longer number is never a number.

How a number is written (`read_number`):

- Digits of any script, also in groups: `1,000`, `1{,}000`, `1\,000`, `1 000`, `1'000`, `1_000`. All groups have three
  digits and the same separator, or are the Indian `1,00,000`.
- A decimal point: `.5` and `5.` are numbers, `12,5` is not.
- Powers of ten: `1.5e6`, `1.5 \times 10^6`, `10**6`, `1.5 million`, `2 lakh`. Other powers are not read.
- Fractions and mixed numbers: `3/4`, `\frac{3}{4}`, `\frac34`, `1 1/2`, `1 and 1/2`, and the characters of Unicode.
- A sign, also apart, as a word or before parentheses: `- 3`, `-$3`, `-(3)`, `minus 3`, `negative 3`. After a word only
  `-3` has a sign: `x - 3` is an expression. `%` and currencies do not change the value, as in the references.

What ends a number (`first_number`):

- A unit, other words and symbols: `18km`, `18 km/h`, `**18** apples`. Digits inside a word (`x1`) are not a number.
- Two numbers with at most one word between them are one longer thing: `2*9`, `5-6`, `12,5`, `3:30`, `1.2.3`, `5 or 6`,
  `5 feet 6`. So are two numbers with several words between them that begin with `and` or `or`, or end in `and`, `or`,
  `to` or an operator. `because`, `since`, `as` and `not` end a number.
- Powers, roots, variables and parts belong to the number: `2^{10}`, `\sqrt{18}`, `x * 18`, `18k`, `half of 18`,
  `2 thirds`, `3 and a half`.
"""

import re
import unicodedata
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import NamedTuple

# 60 digits represent every reference exactly; no response overflows or traps
CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


class Number(NamedTuple):
    """A number's place in a text, with its sign, and its value: None if it is part of something longer."""

    start: int
    end: int
    value: Decimal | None


# ---- one spelling for many, of the same length

THIN, MARKUP = "\u2009", "\0"  # a space within a number; LaTeX, currencies and other marks without a meaning
_CHARACTERS = {
    "-": "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\u2796",
    "+": "\uff0b",
    "*": "\u00b7\u00d7\u2217\u2219\u22c5\u2715\u2716",
    "/": "\u2044\u2215\uff0f",
    "=": "\u2248\u2261\uff1d",
    ",": "\u060c\u066c\ufe50\uff0c",
    ".": "\u066b\uff0e",
    "'": "`\u00b4\u02bc\u2018\u2019\uff07",
    "(": "\uff08",
    ")": "\uff09",
    ":": "\uff1a",
    THIN: "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u202f\u205f",
    MARKUP: "\u200b\u2060\ufeff",
}
_LATEX = re.compile(
    r"""(?P<times> \\(?:times|cdot|ast)(?![A-Za-z])) | (?P<equals> \\(?:approx|equiv)(?![A-Za-z]))
      | (?P<over> \\over(?![A-Za-z])) | (?P<comma> \{,\}) | (?P<thin> \\[,!:;\ _] | \{\\[,!]\})
      | (?P<markup> \\(?:text|math|bold|bm|bf|boxed|fbox|mbox|emph|underline|left|right|big|display)[A-Za-z]*\s*\{?
                  | \^\{?\\circ\}? | \\degree | \\[]()[\0%{}\\] | <<[^<>]*>>)""",
    re.VERBOSE,
)
_FIRST = {"times": "*", "equals": "=", "over": "/", "comma": ",", "thin": THIN, "markup": MARKUP}
_OTHERS = {"times": " ", "equals": " ", "over": " ", "comma": THIN, "thin": THIN, "markup": MARKUP}


class _Spellings(dict[int, int]):
    """The plain character of each character."""

    def __missing__(self, code: int) -> int:
        digit = unicodedata.decimal(chr(code), None)
        other = ord(MARKUP) if unicodedata.category(chr(code)) == "Sc" else code
        self[code] = other if digit is None else ord("0") + digit
        return self[code]


_SPELLINGS = _Spellings({ord(char): ord(plain) for plain, chars in _CHARACTERS.items() for char in chars})


def simplify(text: str) -> str:
    """Return a text of the same length in which digits, operators, spaces, currencies and LaTeX have one spelling."""

    def plain(match: re.Match[str]) -> str:
        name = str(match.lastgroup)
        return _FIRST[name] + _OTHERS[name] * (len(match.group()) - 1)

    return _LATEX.sub(plain, text.translate(_SPELLINGS))


# ---- a number without its sign, in simplified text

_VULGAR = "".join(map(chr, (*range(0xBC, 0xBF), *range(0x2150, 0x215F), 0x2189)))  # fractions in one character
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"  # superscript 0 to 9
_LETTER = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f"  # of scripts that write words with spaces
_GAP = rf"[\s{MARKUP}]*"
_GROUPED = [rf"[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+(?![0-9])" for mark in (f",{THIN}*", f"{THIN}+", "'", "_")]
_UNSPACED = "|".join([*_GROUPED, rf"[0-9]{{1,2}}(?:,{THIN}*[0-9]{{2}})+,{THIN}*[0-9]{{3}}(?![0-9])", "[0-9]+"])
_DIGITS = rf"(?:[0-9]{{1,3}}(?:[ ][0-9]{{3}})+(?![0-9])|{_UNSPACED})"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)"
_ARGUMENT = rf"\s*(?:\{{{_GAP}([-+]?{_DECIMAL}){_GAP}\}}|([0-9]))"
_RAISED_TO = r"\s*(?:\^|\*\*)\s*(?:[{(]\s*([-+]?[0-9]{1,3})\s*[})]|([-+]?[0-9]{1,3})(?![0-9]))"
_TEN_TO = rf"10(?:{_RAISED_TO}|(\u207b?[{_RAISED}]{{1,3}}))"

_WHOLE_AND = re.compile(rf"({_DIGITS}){_GAP}(?:(?<=\s)and\s+)?")  # of a mixed number
_FRACTION = re.compile(
    rf"\\[a-z]*frac{_ARGUMENT}{_ARGUMENT}|((?:{_UNSPACED})(?:\.[0-9]+)?)\s*/\s*({_DIGITS})|([{_VULGAR}])"
    rf"|([{_RAISED}]+)/([\u2080-\u2089]+)"
)
_PLAIN_NUMBER = re.compile(_DECIMAL)
_POWER_OF_TEN = re.compile(_TEN_TO)
_EXPONENT = re.compile(rf"[eE]([-+]?[0-9]{{1,3}})(?!\w)|\s*[*xX]\s*{_TEN_TO}")
_WORDS = {"hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12}
_CHARACTERS_OF_TEN = {"\u767e": 2, "\u5343": 3, "\u4e07": 4, "\u842c": 4, "\u5104": 8, "\u4ebf": 8}  # Chinese
_SCALE = re.compile(  # not a kilogram, kilometer, kilowatt or kilocalorie
    rf"(?:{_GAP}|-)(?:({'|'.join(_WORDS)})s?(?!\w)|([{''.join(_CHARACTERS_OF_TEN)}])(?![\u514b\u7c73\u74e6\u5361]))",
    re.I,
)
_SCALES = _WORDS | _CHARACTERS_OF_TEN
_START = re.compile(  # not inside a word or after a subscript's mark
    rf"(?<![{_LETTER}0-9])(?<![0-9]\.)(?<![{_LETTER}0-9)}}][_^])"
    rf"(?:[0-9{_VULGAR}{_RAISED}]|(?<!\.)\.(?=[0-9])|\\[a-z]*frac(?![A-Za-z]))"
)

Reading = tuple[int, Decimal]  # where it ends, its value


def _to_decimal(text: str) -> Decimal:
    digits = "".join(str(unicodedata.digit(char, char)) for char in text)
    return Decimal(re.sub(rf"[ ,'_{THIN}]", "", digits.replace("\u207b", "-")))


def _given(match: re.Match[str]) -> list[str]:
    return [group for group in match.groups() if group]


def _read_fraction(text: str, at: int) -> Reading | None:
    match = _FRACTION.match(text, at)
    if match is None:
        return None
    parts = _given(match) if len(_given(match)) == 2 else unicodedata.normalize("NFKC", match.group()).split("\u2044")
    top, bottom = map(_to_decimal, parts)
    return (match.end(), CONTEXT.divide(top, bottom)) if bottom else None


def _read_mixed(text: str, at: int) -> Reading | None:
    whole = _WHOLE_AND.match(text, at)
    fraction = whole and _read_fraction(text, whole.end())
    if whole is None or fraction is None or not 0 <= fraction[1] < 1:
        return None
    return fraction[0], CONTEXT.add(_to_decimal(whole[1]), fraction[1])


def _read_power(text: str, at: int) -> Reading | None:
    match = _POWER_OF_TEN.match(text, at)
    return match and (match.end(), CONTEXT.scaleb(Decimal(1), _to_decimal(*_given(match))))


def _read_decimal(text: str, at: int) -> Reading | None:
    match = _PLAIN_NUMBER.match(text, at)
    exponent = match and _EXPONENT.match(text, match.end())
    if match is None or exponent is None:
        return match and (match.end(), _to_decimal(match.group()))
    return exponent.end(), CONTEXT.scaleb(_to_decimal(match.group()), _to_decimal(*_given(exponent)))


def read_number(text: str, at: int) -> Reading | None:
    """Return the end and the value of the longest number without a sign that begins at `at` in a simplified text."""
    for read in (_read_mixed, _read_fraction, _read_power, _read_decimal):
        if found := read(text, at):
            end, value = found
            while scale := _SCALE.match(text, end):  # two hundred thousand
                end, value = scale.end(), CONTEXT.scaleb(value, _SCALES[_given(scale)[0].lower()])
            return end, value
    return None


# ---- what stands around it

_NEAR = 60  # characters before a number that are looked at
_SIGN = re.compile(  # a long dash is one only in front of a line's first digit
    rf"(?:(?P<before>[^\W_]+|[)\]}}%])(?P<apart>\s*))?(?P<sign>[-+]|(?<!\S)(?<!\w\s)[\u2014\u2015](?!\s)"
    rf"|(?<![^\W_])(?:minus|negative)(?=\W))(?P<space>[\s{MARKUP}{{}}[*_]*)(?P<open>\({_GAP})?$",
    re.I,
)
_CLOSE = re.compile(rf"{_GAP}\)")
_UNFINISHED = re.compile(  # what comes before goes on with the number
    rf"""(?: [^\W_][-+*/^]+\s* | [^\W_]\s+[-+*/^]+\s+ | [)\]}}]\s*[-+*/^]+\s*  # x*18, x - 18
           | [0-9{_VULGAR}]{_GAP}(?:(?:and|or|to){_GAP})?                        # 1\boxed{{8, 5 or \boxed{{8
           | [-+]{_GAP}\(?{_GAP} | (?<!\w)-\s*[A-Za-z]{{1,3}}\.?\s*              # --18, -USD 18
           | [^\W_][_^]\{{?\s* | [^\W\d_]\(\s*                                   # x_{{1, f(18
           | \\[A-Za-z]+\s*(?:\[[^]]*\])?\{{\s* | \}}\{{\s*                      # \sqrt{{18
           | (?:\\(?:sqrt|pm|mp|div)(?![A-Za-z])|[\u221a\u221b\u00b1\u00f7])\s*
           | (?<![{_LETTER}])(?:log|ln|sin|cos|tan|exp|half|twice|thrice|double|triple|times
               |(?:half|third|quarter|root|square|cube)\s+of)\s*[\s{MARKUP}] )$  # \log 18, half of 18""",
    re.VERBOSE | re.I,
)
_PARTS = "half|halves|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth|millionth)s"
_COUNTS = "an?|half|one|two|three|four|five|six|seven|eight|nine|ten"
_CONTINUED = re.compile(  # what comes after goes on with the number
    rf"""[)}}\]\s{MARKUP}]*\^ | [{_RAISED}\u207b\u207f\u0304\u0305]                         # 2^{{10}}, a bar over .3
       | {_GAP}(?:\\sqrt|\\pi|[\u221a\u03c0]|pi(?!\w))                                    # 2\pi
       | {_GAP}(?:[kKMB]|bn|mn|mln|mil)(?![{_LETTER}])                                    # 18k, 18 bn
       | (?:{MARKUP}*|\s*/\s*)[einxyz](?![{_LETTER}]) | [{_LETTER}]+\.?[0-9{_VULGAR}]     # 18x, 18/x, 18km2
       | (?:{_GAP}|-)(?:{_PARTS}|squared|cubed|factorial)(?!\w)                           # 2 thirds
       | (?:\s+[+*]\s+|[+*])(?=[{_LETTER}(\\]) | \s*-\s*[A-Za-z](?!\w)                    # 18 + x, 18 - x
       | \s+(?:and|or|to|plus|minus|times|by)\s+(?:{_COUNTS})(?!\w)                       # 3 and a half""",
    re.VERBOSE,
)
_TOKEN = re.compile(
    rf"(?P<end>[.!?;:](?=\s))|(?P<number>[0-9{_VULGAR}{_RAISED}]|\\[a-z]*frac)|(?P<factor>[eExX](?=\s*[-+^]?\s*\{{?[0-9{_VULGAR}]))"
    r"|(?P<word>[^\W\d_]+[\w^{}]*)|\\[A-Za-z]+|\S"
)
_ENDING = {"because", "since", "as", "not"}
_JOINING = {"and", "or", "to", "by", "plus", "minus", "times", "\\div", *"-+*/^<>="}


def _joins_another(text: str, at: int, stop: int) -> bool:
    """Whether what follows a number that ends at `at` joins it to another one."""
    words, first, last = 0, "", ""
    for token in _TOKEN.finditer(text, at, stop):
        if token.lastgroup in ("number", "factor"):
            return words < 2 or token.lastgroup == "factor" or last in _JOINING or first in ("and", "or")
        label = token.group() == ":" and first == "," and words == 1  # Bo: 18, Jo: 6
        if token.lastgroup == "end" and words and not label or token.group().lower() in _ENDING:
            return False
        words, last = words + (token.lastgroup == "word"), token.group().lower()
        first = first or last
    return False


def _with_sign(text: str, at: int, reading: Reading, floor: int) -> tuple[Number, bool]:
    """Return a number with the sign before it, not before `floor`, and whether that is an operator instead."""
    (end, value), head = reading, text[max(floor, at - _NEAR) : at]
    sign = _SIGN.search(head)
    if sign is None:
        return Number(at, end, value), False
    before, word = sign["before"], sign["sign"].lower() in ("minus", "negative")
    if before and (len(before) == 1 if word else sign["apart"] == "" or re.search(r"\s", sign["space"])):
        return Number(at, end, value), True
    close = _CLOSE.match(text, end) if sign["open"] else None
    if sign["open"] and close is None:
        return Number(at, end, value), True
    value = value if sign["sign"] == "+" else value.copy_negate()
    return Number(at - len(head) + sign.start("sign"), close.end() if close else end, value), False


def find_numbers(text: str, start: int = 0) -> Iterator[Number]:
    """Yield the numbers of a simplified text from `start` on, also those that are part of something longer."""
    at = start
    while match := _START.search(text, at):
        reading = read_number(text, match.start())
        if reading:
            yield _with_sign(text, match.start(), reading, start)[0]
        at = reading[0] if reading else match.end()


def first_number(text: str, c0: int, c1: int, around: tuple[int, int] | None = None) -> Number | None:
    """Return the first number in text[c0:c1] of a simplified text; None without one.

    It has no value if what stands around it, in text[slice(*around)], makes it a part of something longer.
    """
    floor, stop = around or (c0, c1)
    match = _START.search(text, c0, c1)
    if match is None:
        return None
    reading = read_number(text[match.start() : c1], 0)
    if reading is None:
        return Number(*match.span(), None)
    number, joined = _with_sign(text, match.start(), (match.start() + reading[0], reading[1]), floor)
    head = text[max(floor, number.start - _NEAR) : number.start].rstrip(MARKUP)
    goes_on = _UNFINISHED.search(head) or _CONTINUED.match(text, number.end, stop)
    part = joined or goes_on or _joins_another(text, number.end, stop)
    return number._replace(value=None) if part else number


# ---- numbers alone


def parse_number(text: str | None) -> Decimal | None:
    """Return the value of a string with one number and at most currency, `%`, `*`, blanks or a period around it."""
    plain = simplify(text) if isinstance(text, str) else ""
    number = next(find_numbers(plain), None)
    if number is None or (plain[: number.start] + plain[number.end :]).strip(f" \t\r\n*.%\\{THIN}{MARKUP}"):
        return None
    return number.value


def format_number(number: Decimal) -> str:
    """Return the unique spelling of a value: no exponent, plus, commas or trailing zeros."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def canonical_number(text: str | None) -> str | None:
    """Return the canonical spelling of a string's number; None if it is not a number."""
    number = parse_number(text)
    return None if number is None else format_number(number)
