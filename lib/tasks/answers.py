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

    @property
    def span(self) -> Span:
        return self.start, self.end

    def moved(self, characters: int) -> "Number":
        """Return the same number in a text with so many characters before it."""
        return Number(self.start + characters, self.end + characters, self.value)


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
    """Return a line of the same length with blanks for markup, and one spelling of `-` and `'`.

    Examples
    --------
    >>> set_markup_aside("is **$18**").replace("\\x1f", "_")
    'is ___18__'
    """

    def blank(mark: re.Match[str]) -> str:
        return mark["fraction"] or _BLANK * len(mark[0])

    return _MARKUP.sub(blank, line.translate(_SPELLINGS))


# ---- a number

_PLAIN = rf"{_DECIMAL}(?:[eE][-+]?[0-9]{{1,3}})?(?:\s?/\s?[0-9]+)?"
_UNSIGNED = rf"(?P<number>{_PLAIN}|{_FRACTION})"
# -$3, - 3 and -\boxed{ 3}, but - **3** may be an item of a list
_NUMBER = rf"(?P<sign>[-+]\x1f*+[^\S\x1f]*+)?{_UNSIGNED}"
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
    """Return the value of a text that is one number, perhaps with markup or a period; else None.

    Examples
    --------
    >>> parse_number("$1,234.50"), parse_number("18 apples")
    (Decimal('1234.50'), None)
    """
    if not isinstance(text, str):
        return None
    match = _ALONE.fullmatch(set_markup_aside(text))
    number = _to_number(match) if match else None
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
    sign_is_apart = len(groups["sign"].rstrip(_BLANK)) > 1
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


def _lines_from_last(text: str, start: int) -> list[re.Match[str]]:
    """Return the lines of text[start:] that are not empty, the last first."""
    return list(_TEXT_LINE.finditer(text, start))[::-1]


def _marked_lines(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yield what follows `####` if it holds a letter or digit, and its place; the last first."""
    for line in _lines_from_last(text, start):
        if MARK not in line[0]:
            continue
        before, mark, _ = line[0].rstrip("# \t\r").rpartition(MARK)  # a second mark closes
        end_of_mark = line.start() + len(before + mark) if mark else line.end()
        rest = _AFTER_MARK.match(text, end_of_mark)
        if rest and re.search(r"[^\W_]", rest[1]):
            yield rest.start(1), rest[1].rstrip("# \t\r")


def _find_numbers(text: str, start: int) -> Iterator[Number | None]:
    """Yield the number of each line with `####`, the last line first; None if it is not read."""
    for place, line in _marked_lines(text, start):
        number = read_line(line)
        yield None if number is None else number.moved(place)


def find_answer(text: str, start: int = 0) -> Span | None:
    """Return the character span of the final answer in text[start:], with its sign, or None.

    Examples
    --------
    >>> find_answer("He has 3 + 15.\\n#### 18 apples")
    (20, 22)
    """
    number = next(_find_numbers(text, start), None)
    return number.span if number else None


def unread_line(text: str, start: int = 0) -> str | None:
    """Return what follows the last `####` in text[start:], if it is not read; else None.

    Examples
    --------
    >>> unread_line("#### 5 or 6")
    '5 or 6'
    """
    place, line = next(_marked_lines(text, start), (0, ""))
    return line if line and read_line(line) is None else None


def runs_on(text: str, thinking: bool = False) -> bool:
    """Whether a response goes on after an answer: it asks a question, or gives another number.

    Examples
    --------
    >>> runs_on("#### 18"), runs_on("#### 18\\nQuestion: Ann has 2 pens.")
    (False, True)
    """
    start = answer_start_char(text, thinking)
    numbers = [number for number in _find_numbers(text, start) if number]
    if not numbers:
        return False
    if len({number.value for number in numbers}) > 1:
        return True
    return _NEXT_QUESTION.search(text, numbers[-1].end) is not None


# a sign apart stands after no operand, as in `= - 3`; else as in `is -3`
_APART = r"(?<![\w)])(?<![\w)]\s)[-+]\x1f*+[^\S\x1f]*+|(?<=\s)[-+]\x1f*+"
_ANY_NUMBER = re.compile(rf"(?P<sign>{_APART})?(?<![^\W_]){_UNSIGNED}")


def last_number(text: str, start: int = 0) -> Span | None:
    """Return the character span of the last number in text[start:], if there is no answer.

    Examples
    --------
    >>> last_number("It is 3, or 18.")
    (12, 14)
    """
    for line in _lines_from_last(text, start):
        matches = list(_ANY_NUMBER.finditer(set_markup_aside(line[0])))
        for match in reversed(matches):
            number = _to_number(match)
            if number:
                return number.moved(line.start()).span
    return None


# ---- tokens


def token_texts(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the decoded text with special tokens.

    Decoding is incremental, so spaces and merges are those of the whole text. A character whose
    bytes span several tokens belongs to the last one; the others add "", as does an id without a
    token. `tokenizer` is a fast tokenizer of transformers or a `tokenizers.Tokenizer`.

    Examples
    --------
    >>> from tokenizers import Tokenizer, models
    >>> tokenizer = Tokenizer(models.WordLevel({"18": 0, "19": 1}, unk_token="18"))
    >>> token_texts(tokenizer, [1])
    ['19']
    """
    from tokenizers.decoders import DecodeStream  # needed for a model, not for a log

    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    ids = [int(token) for token in ids]
    texts = []
    stream = DecodeStream(skip_special_tokens=False)
    for token in ids:
        try:
            texts.append(stream.step(backend, token) or "")
        except Exception:  # a decoder that changes earlier text (WordPiece: "do n't"): restart
            stream = DecodeStream(skip_special_tokens=False)
            texts.append(backend.decode([token], skip_special_tokens=False))
    if ids and not texts[-1]:  # the stream waits for the other bytes of the last character
        text = "".join(texts)
        whole = backend.decode(ids, skip_special_tokens=False)
        if whole.startswith(text):
            texts[-1] = whole.removeprefix(text)
    return texts


def text_offsets(texts: Iterable[str]) -> list[Span]:
    """Return each token's character span in the joined text; empty for one that adds no text.

    Examples
    --------
    >>> text_offsets(["#### ", "", "18"])
    [(0, 5), (5, 5), (5, 7)]
    """
    ends = accumulate(map(len, texts), initial=0)
    return list(pairwise(ends))


def token_span(spans: Sequence[Span], span: Span | None) -> Span:
    """Return the half-open range of tokens that overlap the characters of `span`, else (-1, -1).

    Directly preceding tokens without text are included: they hold the first bytes of its text.

    Examples
    --------
    >>> token_span([(0, 5), (5, 6), (6, 7)], (5, 7))
    (1, 3)
    """
    if span is None:
        return -1, -1
    span_start, span_end = span
    overlapping = []
    for token, (start, end) in enumerate(spans):
        if start < span_end and end > span_start:
            overlapping.append(token)
    if not overlapping:
        return -1, -1
    first = overlapping[0]
    while first > 0 and len(set(spans[first - 1])) == 1:
        first -= 1
    return first, overlapping[-1] + 1


def answer_start_char(text: str, thinking: bool) -> int:
    """Return where the text after the thinking starts: 0 without, the end if it never closes.

    Examples
    --------
    >>> answer_start_char("<think>3 * 6</think>#### 18", thinking=True)
    20
    """
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

    Examples
    --------
    >>> located = locate_answer(["3 * 6", "\\n#### ", "18"], thinking=False)
    >>> located["answer"], located["answer_start"], located["answer_end"]
    ('18', 2, 3)
    """
    text = "".join(texts)
    spans = text_offsets(texts)
    start = answer_start_char(text, thinking)
    answer = find_answer(text, start)
    answer_start, answer_end = token_span(spans, answer)
    last_start, last_end = token_span(spans, last_number(text, start))
    thinking_end = 0
    if start > 0:
        thinking_end = sum(end <= start for _, end in spans)
        if not CLOSING.search(text):
            thinking_end += 1
    return {
        "text": text,
        "answer_start": answer_start,
        "answer_end": answer_end,
        "last_number_start": last_start,
        "last_number_end": last_end,
        "thinking_end": thinking_end,
        "answer": canonical_number(text[slice(*answer)]) if answer else None,
    }


def has_answer(row: Any) -> bool:
    """Whether a generations row has an extracted answer.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> has_answer(SimpleNamespace(answer="18", answer_start=2, answer_end=3))
    True
    """
    return isinstance(row.answer, str) and 0 <= row.answer_start < row.answer_end


def answer_span(row: Any) -> Span:
    """Return the tokens of a generations row's answer, else of its last number, else the last.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> row = SimpleNamespace(answer_start=-1, answer_end=-1)
    >>> row.last_number_start, row.last_number_end = 4, 6
    >>> answer_span(row)
    (4, 6)
    """
    if 0 <= row.answer_start < row.answer_end:
        return int(row.answer_start), int(row.answer_end)
    if 0 <= row.last_number_start < row.last_number_end:
        return int(row.last_number_start), int(row.last_number_end)
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
