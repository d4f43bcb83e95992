r"""Find the final answer of a response, map it to the generated tokens, and grade it.

The prompt asks for "the answer as an integer after '#### '" (appendix on answer extraction). An
answer is read strictly or not at all:

- The last line with `####` and a letter or digit after it counts, or the next line if nothing
  follows the mark. A second mark on the line closes it (`#### 18 ####`). If this line is not read,
  there is no answer: earlier lines are not tried.
- Markup, currencies, `%`, LaTeX wrappers, tags and end tokens are set aside.
- The rest must be one number with at most plain words around it (`The answer is $18 per day.`), or
  an equation that ends so (`3 * 6 = 18 apples`). A number has digits, perhaps in groups of three
  with commas, decimals, an exponent (`1.5e6`) or a denominator (`3/4`, `\frac{3}{4}`), and a sign.
- There is no answer if a word changes the number (`18 thousand`, `half of 18`), or says that it is
  not the result (`more than 18`, `not 18`, `Step 2`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from lib.errors import check_choice
from lib.tasks.thinking import CLOSING

MARK = "####"
GRADERS = ("numeric", "exact")
# 60 digits represent every reference exactly; no response overflows or traps
CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_TOLERANCE = Decimal("1e-3")  # of PAL, the source of GSMHard
_HALF = Decimal("0.500000001")  # slightly above 1/2: -1895420.4999999998 is ...420.5 in floats

Span = tuple[int, int]  # half-open


class Number(NamedTuple):
    """A number in a text: the span of its characters, with its sign, and its value."""

    start: int
    end: int
    value: Decimal


# ---- markup

_BLANK = "\x1f"  # stands for markup; `\s` matches it, but the sign of -$3 is not apart, as in - 3
_LETTER = r"[^\W\d_]"
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
    """Return a line of the same length with blanks for markup, and one spelling of `-` and `'`."""
    plain = line.translate(_SPELLINGS)
    return _MARKUP.sub(lambda mark: mark["fraction"] or _BLANK * len(mark[0]), plain)


# ---- a number

_PLAIN = rf"{_DECIMAL}(?:[eE][-+]?[0-9]{{1,3}})?(?:\s?/\s?[0-9]+)?"
_UNSIGNED = rf"(?P<number>{_PLAIN}|{_FRACTION})"
# -$3 and - 3, but - **3** may be an item of a list
_NUMBER = rf"(?P<sign>[-+](?:\x1f++|[^\S\x1f]*+))?{_UNSIGNED}"
_ALONE = re.compile(rf"\s*{_NUMBER}\s*\.?\s*")


def _to_number(match: re.Match[str]) -> Number | None:
    """Return the number of a match; None for a division by zero."""
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
    """Return the value of a text that is one number, perhaps with markup or a period; else None."""
    match = _ALONE.fullmatch(set_markup_aside(text)) if isinstance(text, str) else None
    number = _to_number(match) if match else None
    return number.value if number else None


def format_number(number: Decimal) -> str:
    """Return the unique spelling of a value: no exponent, plus, commas or trailing zeros."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def canonical_number(text: str | None) -> str | None:
    """Return the canonical spelling of a text that is one number; None if it is not."""
    value = parse_number(text)
    return None if value is None else format_number(value)


# ---- a line

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

_WORD = re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*")
_WORDS = rf"""{_LETTER}(?:
    {_LETTER} | \s | (?<={_LETTER})['.] | (?<={_LETTER})-(?={_LETTER}) | /(?=\s*{_LETTER}))*+"""
_ANSWER = re.compile(
    rf"""\s*+ (?P<before>{_WORDS}:?+\s*+)?+ (?<!{_LETTER})(?<!\.)
    {_NUMBER}
    (?P<after>\s*+/?\s*+{_WORDS} | -{_LETTER}{_WORDS})? \s*+[.!]?+\s*+""",
    re.VERBOSE,
)
# `Total: 3 * 6`; no item of a list, no comparison, no second equation
_LEFT_SIDE = re.compile(
    rf"""(?:\s*+{_WORDS}:)?+ (?!\s*[0-9]+[.)]\s) (?:[^=<>!~:,;?]|,(?=[0-9]{{3}}))*+""", re.VERBOSE
)


def _has_word(text: str, words: frozenset[str]) -> bool:
    found = _WORD.findall(text.lower())
    return any(word in words or word.endswith("n't") for word in found)


def _is_left_side(text: str) -> bool:
    """Whether a text is the left side of an equation that may end in an answer."""
    whole = _LEFT_SIDE.fullmatch(text) is not None
    return whole and not text.rstrip().endswith("(") and not _has_word(text, _NOT_ON_LINE)


def read_line(line: str) -> Number | None:
    """Return the number of a line that is an answer; None for any other line."""
    plain = set_markup_aside(line)
    if any(char.isnumeric() and char not in "0123456789" for char in plain):
        return None  # 18², 5½, 20万
    left, equals, _ = plain.rpartition("=")
    match = _ANSWER.fullmatch(plain, len(left + equals))
    if match is None or (equals and (match["before"] or not _is_left_side(left))):
        return None
    before, after = match["before"] or "", match["after"] or ""
    if _has_word(before, _NOT_BEFORE) or _has_word(after, _NOT_AFTER):
        return None
    sign_is_apart = len((match["sign"] or "").rstrip(_BLANK)) > 1
    if sign_is_apart and before and not before.rstrip().endswith(":"):
        return None  # Total - 18
    return _to_number(match)


# ---- a response

_TEXT_LINE = re.compile("[^\n]+")
# after the mark; a line that only opens a formula is skipped
_AFTER_MARK = re.compile(r"(?:\s*(?:\$\$?|\\[\[(])[ \t\r]*\n)?\s*(\S[^\n]*)")
_NEXT_QUESTION = re.compile(
    r"(?im)^[^\w\n]*(?:q|question|problem|exercise|user|human)\b[ \d*.)#]*(?::|$)"
)


def _marked_lines(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yield what follows `####` if it holds a letter or digit, and its place; the last first."""
    for line in reversed([*_TEXT_LINE.finditer(text, start)]):
        if MARK not in line[0]:
            continue
        mark = line[0].rstrip("# \t\r").rfind(MARK)  # a second mark closes
        end_of_mark = line.start() + mark + len(MARK) if mark >= 0 else line.end()
        rest = _AFTER_MARK.match(text, end_of_mark)
        if rest and re.search(r"[^\W_]", rest[1]):
            yield rest.start(1), rest[1].rstrip("# \t\r")


def _find_numbers(text: str, start: int) -> Iterator[Number | None]:
    """Yield the number of each line with `####`, the last line first; None if it is not read."""
    for place, line in _marked_lines(text, start):
        number = read_line(line)
        yield number and Number(place + number.start, place + number.end, number.value)


def find_answer(text: str, start: int = 0) -> Span | None:
    """Return the character span of the final answer in text[start:], with its sign, or None."""
    number = next(_find_numbers(text, start), None)
    return (number.start, number.end) if number else None


def unread_line(text: str, start: int = 0) -> str | None:
    """Return what follows the last `####` in text[start:], if it is not read; else None."""
    place, line = next(_marked_lines(text, start), (0, ""))
    return line if line and read_line(line) is None else None


def runs_on(text: str, thinking: bool = False) -> bool:
    """Whether a response goes on after an answer: it asks a question, or gives another number."""
    numbers = [*filter(None, _find_numbers(text, answer_start_char(text, thinking)))]
    if not numbers:
        return False
    another = len({number.value for number in numbers}) > 1
    return another or _NEXT_QUESTION.search(text, numbers[-1].end) is not None


# a sign apart stands after no operand, as in `= - 3`; else as in `is -3`
_APART = r"(?<![\w)])(?<![\w)]\s)[-+]\s*+|(?<=\s)[-+]\x1f*+"
_ANY_NUMBER = re.compile(rf"(?P<sign>{_APART})?(?<![^\W_]){_UNSIGNED}")


def last_number(text: str, start: int = 0) -> Span | None:
    """Return the character span of the last number in text[start:], if there is no answer."""
    for line in reversed([*_TEXT_LINE.finditer(text, start)]):
        plain = set_markup_aside(line[0])
        numbers = [*filter(None, map(_to_number, _ANY_NUMBER.finditer(plain)))]
        if numbers:
            return line.start() + numbers[-1].start, line.start() + numbers[-1].end
    return None


# ---- tokens


def token_texts(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the decoded text with special tokens.

    Decoding is incremental, so spaces and merges are those of the whole text. A character whose
    bytes span several tokens belongs to the last one; the others add "", as does an id without a
    token. `tokenizer` is a fast tokenizer of transformers or a `tokenizers.Tokenizer`.
    """
    from tokenizers.decoders import DecodeStream  # needed for a model, not for a log

    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    ids = [int(token) for token in ids]
    texts, stream = [], DecodeStream(skip_special_tokens=False)
    for token in ids:
        try:
            texts.append(stream.step(backend, token) or "")
        except Exception:  # a decoder that changes earlier text (WordPiece: "do n't"): restart
            stream = DecodeStream(skip_special_tokens=False)
            texts.append(backend.decode([token], skip_special_tokens=False))
    if ids and not texts[-1]:  # the stream waits for the other bytes of the last character
        whole, text = backend.decode(ids, skip_special_tokens=False), "".join(texts)
        texts[-1] = whole[len(text) :] if whole.startswith(text) else ""
    return texts


def text_offsets(texts: Iterable[str]) -> list[Span]:
    """Return each token's character span in the joined text; empty for one that adds no text."""
    return list(pairwise(accumulate(map(len, texts), initial=0)))


def token_span(spans: Sequence[Span], span: Span | None) -> Span:
    """Return the half-open range of tokens that overlap the characters of `span`, else (-1, -1).

    Directly preceding tokens without text are included: they hold the first bytes of its text.
    """
    if span is None:
        return -1, -1
    first, last = span
    hits = [i for i, (start, end) in enumerate(spans) if start < last and end > first]
    if not hits:
        return -1, -1
    start = hits[0]
    while start > 0 and spans[start - 1][0] == spans[start - 1][1]:
        start -= 1
    return start, hits[-1] + 1


def answer_start_char(text: str, thinking: bool) -> int:
    """Return where the text after the thinking starts: 0 without, the end if it never closes."""
    if not thinking:
        return 0
    closing = CLOSING.search(text)
    return closing.end() if closing else len(text)


def locate_answer(texts: Sequence[str], thinking: bool) -> dict[str, Any]:
    """Find the answer in a response, from the text that each of its tokens adds.

    Parameters
    ----------
    texts : from `token_texts`, without the end token
    thinking : whether to skip the text before the mark that ends the thinking, such as `</think>`

    Returns
    -------
    dict
        `text`; `answer`, its canonical number or None; half-open token positions, -1 for none:
        answer_start, answer_end, last_number_start, last_number_end; `thinking_end`, the first
        token after the thinking, which is one more than there are if the thinking never ended.
    """
    text, spans = "".join(texts), text_offsets(texts)
    start = answer_start_char(text, thinking)
    answer = find_answer(text, start)
    answer_start, answer_end = token_span(spans, answer)
    last_start, last_end = token_span(spans, last_number(text, start))
    never_ended = start > 0 and not CLOSING.search(text)
    return {
        "text": text,
        "answer_start": answer_start,
        "answer_end": answer_end,
        "last_number_start": last_start,
        "last_number_end": last_end,
        "thinking_end": sum(c1 <= start for _, c1 in spans) + never_ended if start else 0,
        "answer": canonical_number(text[slice(*answer)] if answer else None),
    }


def has_answer(row: Any) -> bool:
    """Whether a generations row has an extracted answer."""
    return isinstance(row.answer, str) and 0 <= row.answer_start < row.answer_end


def answer_span(row: Any) -> Span:
    """Return the tokens of a generations row's answer, else of its last number, else the last."""
    answer = int(row.answer_start), int(row.answer_end)
    number = int(row.last_number_start), int(row.last_number_end)
    for start, end in (answer, number):
        if 0 <= start < end:
            return start, end
    count = max(len(row.token_logprobs) - int(row.eos), 1)
    return count - 1, count


# ---- grades


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
