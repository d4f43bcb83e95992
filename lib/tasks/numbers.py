r"""Numbers in a text: how models and datasets write them, and what ends one.

A number is read whole or not at all: a prefix of a longer number is never a number.

How a number is written (`n` of the kinds in grammar.yaml):

- Digits of any script, also in groups: `1,000`, `1{,}000`, `1\,000`, `1 000`, `1'000`, `1_000`. All groups have three
  digits and the same separator, or are the Indian `1,00,000`.
- A decimal point: `.5` and `5.` are numbers, `12,5` is not.
- Powers of ten: `1.5e6`, `1.5 \times 10^6`, `10**6`, `1.5 million`, `2 lakh`. Other powers are not read.
- Fractions and mixed numbers: `3/4`, `\frac{3}{4}`, `\frac34`, `1 1/2`, `1 and 1/2`, and the characters of Unicode.
- A sign, also apart, as a word or before parentheses: `- 3`, `-$3`, `-(3)`, `minus 3`, `negative 3`. After a word only
  `-3` has a sign: `x - 3` is an expression. `%` and currencies do not change the value, as in the references.

What ends a number (`number_at`) is seen in the kinds of a line's tokens, a character each. Those of
`#### x = 18 km/h, not 20` are `y = n w/l, z n`.

- A unit, other words and symbols: `18km`, `18 km/h`, `**18** apples`. Digits inside a word (`x1`) are not a number.
- Two numbers with at most one word between them are one longer thing: `2*9`, `5-6`, `12,5`, `3:30`, `1.2.3`, `5 or 6`,
  `5 feet 6`. So are two numbers with several words between them that begin with `and` or `or`, or end in `and`, `or`,
  `to` or an operator. `because`, `since`, `as` and `not` end a number.
- Powers, roots, variables and parts belong to the number: `2^{10}`, `\sqrt{18}`, `x * 18`, `18k`, `half of 18`,
  `2 thirds`, `3 and a half`.
"""

import re
import unicodedata
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import yaml

# 60 digits represent every reference exactly; no response overflows or traps
CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


class Token(NamedTuple):
    """A part of a line: its kind, the span of its characters, and a number's value: None if it can't be read."""

    kind: str
    start: int
    end: int
    value: Decimal | None


# ---- the grammar

_GRAMMAR = yaml.safe_load(Path(__file__).with_name("grammar.yaml").read_text(encoding="utf-8"))
_SCALES = _GRAMMAR["scales"]


def _complete(pattern: str) -> str:
    """Return a pattern of the grammar with the parts that it names."""
    parts = _GRAMMAR["parts"] | {"scales": "|".join(_SCALES)}
    return re.sub(r"(?<!P)<(\w+)>", lambda name: _complete(parts[name[1]]), pattern)


def compile_table(table: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a table of the grammar, by name."""
    return {name: re.compile(_complete(pattern), re.VERBOSE) for name, pattern in _GRAMMAR[table].items()}


# ---- one spelling for many, of the same length

THIN, MARKUP, BOXED = "\u2009", "\0", "\u25a1"  # a space within a number; marks without a meaning; `\boxed{`
_SPELLINGS = {other: plain for plain, others in _GRAMMAR["spellings"].items() for other in others}
_CATEGORIES = {"Sc": MARKUP, "Cf": MARKUP, "Zs": THIN, "Pd": "-"}  # currencies, of no width; spaces, dashes
_LATEX = compile_table("latex")


@cache
def _plain(char: str) -> str:
    digit, category = unicodedata.decimal(char, None), unicodedata.category(char)
    if digit is not None:
        return str(digit)
    if unicodedata.decomposition(char).startswith(("<wide>", "<small>")) and category not in _CATEGORIES:
        return unicodedata.normalize("NFKC", char)
    return _SPELLINGS.get(char) or _CATEGORIES.get(category, char)


def _pad(plain: str, match: re.Match[str]) -> str:
    return plain + (THIN if plain in (",", THIN) else MARKUP) * (len(match.group()) - 1)


def simplify(text: str) -> str:
    """Return a text of the same length in which digits, operators, spaces, currencies and LaTeX have one spelling."""
    if not text.isascii():
        text = "".join(char if char.isascii() else _plain(char) for char in text)
    for plain, pattern in _LATEX.items():
        text = pattern.sub(partial(_pad, plain), text)
    return text


# ---- the tokens of a line


_NAMED = "|".join(f"(?P<{kind}>{_complete(pattern)})" for kind, pattern in _GRAMMAR["kinds"].items())
_TOKEN = re.compile(rf"{_NAMED} | \s+ | =+>? | [<>!]=+ | \.\.+ | \\[A-Za-z]+ | [^{MARKUP}_]", re.VERBOSE)


def _to_decimal(text: str) -> Decimal:
    return Decimal(re.sub(rf"[\s,'_{{}}{MARKUP}]", "", text))


def _value(number: re.Match[str]) -> Decimal | None:
    """Return the value of a number; None for a superscript, a division by zero, `1 3/2` or `\\frac{x}{2}`."""
    above, _, below = unicodedata.normalize("NFKC", number["vulgar"] or "").partition("\u2044")
    top = above or number["over"] or number["top"] or number["decimal"] or number["factor"] or (number["power"] and "1")
    bottom = _to_decimal(below or number["under"] or number["bottom"] or "1")
    if not top or not bottom:
        return None
    value = CONTEXT.scaleb(CONTEXT.divide(_to_decimal(top), bottom), _to_decimal(number["power"] or number["e"] or "0"))
    if number["whole"] and not 0 <= value < 1:
        return None
    value = CONTEXT.add(value, _to_decimal(number["whole"] or "0"))
    for word in re.findall("[a-z]+", (number["scale"] or "").lower()):  # two hundred thousand
        value = CONTEXT.scaleb(value, _SCALES[word.rstrip("s")])
    return value


def read_tokens(line: str) -> list[Token]:
    """Return the tokens of a simplified line, without markup."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(line):
        kind = match.lastgroup or (" " if match.group().isspace() else match.group()[0])
        if kind != " " or (tokens and tokens[-1].kind != " "):
            tokens.append(Token(kind, *match.span(), _value(match) if kind == "n" else None))
    return tokens


def kinds_of(tokens: Sequence[Token]) -> str:
    return "".join(token.kind for token in tokens)


# ---- what stands around a number

_AROUND = compile_table("around")


def number_at(tokens: Sequence[Token], at: int) -> Token:
    """Return the number at a place in a phrase, with its sign; without value if it is a part of something longer."""
    kind, start, end, value = tokens[at]
    head, rest = kinds_of(tokens[:at]), kinds_of(tokens[at + 1 :])
    sign = _AROUND["sign"].search(head)
    close = re.match(r" ?\)|", rest) if sign and sign[1] else None
    if sign and (close is None or close.group()):
        first = tokens[sign.start()]
        start, head = first.start, head[: sign.start()]
        value = value if value is None or first.kind == "+" else value.copy_negate()
        if close:
            end, rest = tokens[at + close.end()].end, rest[close.end() :]
    phrase = _AROUND["end"].split(rest, 1)[0]
    if _AROUND["before"].search(head) or _AROUND["after"].match(rest) or _AROUND["joined"].match(phrase):
        value = None
    return Token(kind, start, end, value)


# ---- numbers alone


@cache
def parse_number(text: str | None) -> Decimal | None:
    """Return the value of a string with one number and at most currency, `%`, `*`, blanks or a period around it."""
    plain = simplify(text) if isinstance(text, str) else ""
    tokens = read_tokens(plain)
    if "n" not in kinds_of(tokens):
        return None
    number = number_at(tokens, kinds_of(tokens).index("n"))
    around = plain[: number.start] + plain[number.end :]
    return None if around.strip(f" \t\r\n*.\\{THIN}{MARKUP}") else number.value


def format_number(number: Decimal) -> str:
    """Return the unique spelling of a value: no exponent, plus, commas or trailing zeros."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def canonical_number(text: str | None) -> str | None:
    """Return the canonical spelling of a string's number; None if it is not a number."""
    number = parse_number(text)
    return None if number is None else format_number(number)
