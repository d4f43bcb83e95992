r"""Find the final answer in a response, grade it, and map it to the tokens that were generated.

Where the answer is. The prompt asks for "the answer as an integer after '#### '" (appendix on answer extraction).
It is read from the first non-blank line after the last `####` outside the thinking text: the first number of
that line or, in an equation, the one after its last `=` outside parentheses (`#### 3 * 6 = 18` is 18). Words
and symbols around it are skipped (`#### $18`, `#### **18** apples`, `#### x = 18`); the closing mark of
`#### 18 ####` opens nothing; a line without a number is no answer, and nothing below it is read. LaTeX is read
there, too: a line that only opens a formula (`$$`, `\[`) is passed over, and what stands in a `\boxed{...}` comes
before what stands beside it; a `\boxed` without `####` is no answer.

What a number is. A sign, if any (Unicode minus and dashes too, and `-$18`), that touches what follows and
continues no word or number (`10-3` ends in 3); digits, with commas (`,` or LaTeX's `{,}`) only before groups
of exactly three; decimals; an exponent (`1.5e6`); a fraction (`3/4` and `\frac{3}{4}` are 0.75; `\dfrac` and
`\tfrac` likewise), alone or after a whole number (`1 1/2` is 1.5, and `-1\frac{1}{2}` is -1.5). All that spells
it belongs to its span. Any other comma ends the number: `12,5` is 12, and a list is read number by number. The
full stop of `18.` ends the sentence; `%` and currencies carry no value, as in the references. Digits inside a word
(`x1`) are no number; a unit may follow (`18km`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from tokenizers.decoders import DecodeStream

from lib.paths import UserError, nearest

MARK, CLOSING_TAG = "####", "</think>"
_MINUS = "\u2010\u2011\u2012\u2013\u2212\uff0d"  # hyphens, dashes, the minus sign: models write them for "-"
_CURRENCY = "$\u00a3\u20ac\u00a5\u20b9"
_WHOLE = r"(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
_BOTTOM = "[0-9]*[1-9][0-9]*"  # nothing is divided by zero
_NUMBER = re.compile(
    rf"""(?: (?<![A-Za-z0-9_)\]%]) [-+{_MINUS}] (?:\\?[{_CURRENCY}])?  # a sign that joins nothing, or
           | (?<![A-Za-z0-9_]) (?<![0-9]\.) )                         # a place that continues nothing
         (?: {_WHOLE} [ ] [0-9]+/{_BOTTOM}                            # 1 1/2
           | (?: {_WHOLE} (?:\\?[ ]|\\[,;])? )?
             \\[dt]?frac\{{ [-+{_MINUS}]?{_DECIMAL} \}}\{{ {_BOTTOM} \}}  # \frac{{1}}{{2}}, 1\frac{{1}}{{2}}
           | {_DECIMAL} (?: [eE][-+]?[0-9]{{1,3}}(?![A-Za-z0-9_]) )? (?: /{_BOTTOM} )? )""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{(.*?)\}\{([0-9]+)\}")
_LINE = re.compile(r"(?:\s*(?:\$\$?|\\[\[(])[ \t\r]*\n)?\s*(\S[^\n]*)")  # but for one that only opens a formula
_BOX = "\\boxed{"
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_PLAIN = str.maketrans(dict.fromkeys(_MINUS, "-") | dict.fromkeys(_CURRENCY + "\\{},", ""))
_AROUND = f" \t\r\n*.%\\{_CURRENCY}"  # what may surround the number in a string that is a number
# 60 digits hold every reference exactly; nothing overflows or traps, however long the digits of a response
_CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_RELATIVE = Decimal("1e-6")
_PAL = Decimal("1e-3")  # absolute, as PAL, where GSMHard comes from, compares answers
_HALF = Decimal("0.500000001")  # a little over 1/2: -1895420.4999999998 is a ...420.5 cut by floating point

Span = tuple[int, int]  # half-open


def token_texts(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """The text that each token adds; joined, they are the decoded text, special tokens too.

    Decoded as a stream, so spaces and merges come out as in the whole text. A character whose bytes are
    spread over several tokens belongs to the last of them; the others add "", as does an id without a token.
    Takes any fast tokenizer of transformers, or a `tokenizers.Tokenizer`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    ids = [int(token) for token in ids]
    texts, stream = [], DecodeStream(skip_special_tokens=False)
    for token in ids:
        try:
            texts.append(stream.step(backend, token) or "")
        except Exception:  # a decoder that rewrites what it has written (WordPiece: "do n't"): start anew
            stream = DecodeStream(skip_special_tokens=False)
            texts.append(backend.decode([token], skip_special_tokens=False))
    if ids and not texts[-1]:  # the last character is incomplete: the stream still waits for its other bytes
        whole, text = backend.decode(ids, skip_special_tokens=False), "".join(texts)
        texts[-1] = whole[len(text) :] if whole.startswith(text) else ""
    return texts


def text_offsets(texts: Iterable[str]) -> list[Span]:
    """Character span of each token in the joined text; empty for a token that adds nothing."""
    spans, end = [], 0
    for text in texts:
        spans.append((end, end + len(text)))
        end += len(text)
    return spans


def token_span(spans: Sequence[Span], span: Span | None) -> Span:
    """Tokens that overlap the characters of `span`, half-open; (-1, -1) for none.

    Tokens just before that add nothing hold the first bytes of the next token's text, and are taken in.
    """
    if span is None:
        return -1, -1
    hits = [i for i, (c0, c1) in enumerate(spans) if c0 < span[1] and c1 > span[0]]
    if not hits:
        return -1, -1
    start = hits[0]
    while start > 0 and spans[start - 1][0] == spans[start - 1][1]:
        start -= 1
    return start, hits[-1] + 1


def answer_start_char(text: str, thinking: bool) -> int:
    """Where the text after the thinking starts: 0 without thinking, the text's end when never closed."""
    if not thinking:
        return 0
    tag = text.find(CLOSING_TAG)
    return len(text) if tag < 0 else tag + len(CLOSING_TAG)


def _answer_line(text: str, start: int) -> Span | None:
    """The first non-blank line after the last `####` that opens something."""
    mark = text.rfind(MARK, start)
    if mark < 0:
        return None
    line = max(start, text.rfind("\n", 0, mark) + 1)
    opening = text[line:mark].rstrip("#").rfind(MARK)
    if opening >= 0 and not text[mark + len(MARK) :].partition("\n")[0].strip():
        mark = line + opening  # nothing follows on the line, which has an earlier mark: this one closes it
    rest = _LINE.match(text, mark + len(MARK))
    return rest.span(1) if rest else None


def _boxed(text: str, c0: int, c1: int) -> Span:
    """What the last `\\boxed{...}` of text[c0:c1] holds, up to the brace that closes it; nothing without one."""
    box = text.rfind(_BOX, c0, c1)
    if box < 0:
        return c0, c0
    box, depth = box + len(_BOX), 1
    for end in range(box, c1):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return box, end
    return box, c1


def _result(text: str, c0: int, c1: int) -> Span | None:
    """The number that text[c0:c1] comes to: the one after its last `=` outside parentheses, else its first."""
    equals = text.rfind("=", c0, c1)
    aside = equals < 0 or text.count("(", c0, equals) != text.count(")", c0, equals)
    match = None if aside else _NUMBER.search(text, equals + 1, c1)
    match = match or _NUMBER.search(text, c0, c1)
    return match.span() if match else None


def find_answer(text: str, start: int = 0) -> Span | None:
    """Character span of the final answer, sign and digits, in text[start:]; None without one."""
    line = _answer_line(text, start)
    return line and (_result(text, *_boxed(text, *line)) or _result(text, *line))


def last_number(text: str, start: int = 0) -> Span | None:
    """Character span of the last number in text[start:], the fallback of a response without an answer."""
    span = None
    for match in _NUMBER.finditer(text, start):
        span = match.span()
    return span


def parse_number(text: str | None) -> Decimal | None:
    """The finite value of a string that is one number (with `$`, `%`, `*`, blanks or a full stop around)."""
    match = _NUMBER.search(text) if isinstance(text, str) else None
    if match is None or text is None or (text[: match.start()] + text[match.end() :]).strip(_AROUND):
        return None
    head, _, bottom = _FRACTION.sub(r" \1/\2", match.group()).translate(_PLAIN).partition("/")
    whole, _, top = head.strip().rpartition(" ")  # -1 1/2; of -\frac{1}{2} only the sign
    value = _CONTEXT.divide(Decimal(top), Decimal(bottom)) if bottom else Decimal(top)
    if whole:
        value = _CONTEXT.add(Decimal(whole.lstrip("+-") or 0), value)
    return value.copy_negate() if whole.startswith("-") else value


def format_number(number: Decimal) -> str:
    """One spelling per value, which parses back to it: no exponent, plus, commas or trailing zeros."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def locate_answer(tokenizer: Any, ids: Iterable[int], thinking: bool) -> dict[str, Any]:
    """Find the answer in a response's token ids.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizer
    ids : iterable of int
        Without the end token.
    thinking : bool
        Whether a part before `</think>` is to be skipped.

    Returns
    -------
    dict
        `text`; `answer`, its canonical number or None; token positions, half-open, -1 for none: answer_start,
        answer_end, last_number_start, last_number_end; `thinking_end`, the first token after the thinking. Positions
        are those of the given ids: nothing is tokenized again.
    """
    return locate_answer_in_texts(token_texts(tokenizer, ids), thinking)


def locate_answer_in_texts(texts: Sequence[str], thinking: bool) -> dict[str, Any]:
    """The same of the texts that a response's tokens add, one for each."""
    text, spans = "".join(texts), text_offsets(texts)
    start = answer_start_char(text, thinking)
    answer = find_answer(text, start)
    number = parse_number(text[slice(*answer)]) if answer else None
    answer_start, answer_end = token_span(spans, answer)
    last_start, last_end = token_span(spans, last_number(text, start))
    return {
        "text": text,
        "answer_start": answer_start,
        "answer_end": answer_end,
        "last_number_start": last_start,
        "last_number_end": last_end,
        "thinking_end": sum(c1 <= start for _, c1 in spans) if start else 0,
        "answer": None if number is None else format_number(number),
    }


def find_boxed_answer(text: str) -> str | None:
    """The number in the last \\boxed{} of a text, canonical; None without one. No answer is read there."""
    boxes = _BOXED.findall(text)
    number = parse_number(boxes[-1].replace(r"\text{", "").strip("{} ")) if boxes else None
    return None if number is None else format_number(number)


def find_alternative_answers(text: str, thinking: bool) -> dict[str, Any]:
    """Find what other readings of a response would find, so that none of them needs its text.

    Returns
    -------
    dict
        `plain`, whether the answer stands alone after `####`; `last_number` outside the thinking and the number in
        `boxed`, canonical or None.
    """
    span = last_number(text, answer_start_char(text, thinking))
    number = parse_number(text[slice(*span)]) if span else None
    return {"plain": is_bare_answer(text, thinking), "last_number": None if number is None else format_number(number),
            "boxed": find_boxed_answer(text)}  # fmt: skip


def has_answer(row: Any) -> bool:
    """Whether a generations row holds an answer that could be read."""
    return isinstance(row.answer, str) and 0 <= row.answer_start < row.answer_end


def is_bare_answer(text: str, thinking: bool = False) -> bool:
    """Whether the answer is written as the prompt asks: `#### ` and a number with nothing around it, on one line."""
    line = _answer_line(text, answer_start_char(text, thinking))
    alone = line is not None and text[: line[0]].rstrip().endswith(MARK)
    return line is not None and alone and _NUMBER.fullmatch(text[slice(*line)].strip()) is not None


def answer_span(row: Any, answered: bool | None = None) -> Span:
    """The answer's tokens of a generations row; without an answer those of its last number, else its last token.
    `answered` says whether it has one (`has_answer` by default)."""
    if answered is None:
        answered = has_answer(row)
    if answered:
        return int(row.answer_start), int(row.answer_end)
    if 0 <= row.last_number_start < row.last_number_end:
        return int(row.last_number_start), int(row.last_number_end)
    last = max(len(row.token_logprobs) - int(row.eos), 1)
    return last - 1, last


def _integral(number: Decimal) -> bool:
    return number == number.to_integral_value(context=_CONTEXT)


def _gap(answer: Decimal, reference: Decimal) -> Decimal:
    return _CONTEXT.abs(_CONTEXT.subtract(answer, reference))


def _pal(answer: Decimal, reference: Decimal) -> bool:
    """Less than 1e-3 apart."""
    return _gap(answer, reference) < _PAL


def _numeric(answer: Decimal, reference: Decimal) -> bool:
    """An integer is met by itself alone, up to 1e-3. A reference that is no integer (303 of GSMHard's 1,319, though the
    prompt asks for one) is also met by its rounding to as many decimals as the answer has, none included; of two
    equally near ones by either."""
    if _pal(answer, reference) or _integral(reference):
        return _pal(answer, reference)
    exponent = answer.as_tuple().exponent
    decimals = max(0, -exponent) if isinstance(exponent, int) else 0
    return _CONTEXT.scaleb(_gap(answer, reference), decimals) <= _HALF


def _relative(answer: Decimal, reference: Decimal) -> bool:
    """Within 1e-6 of the reference, so that large integers may be off by one; or a nearest integer to one that is no
    integer."""
    gap = _gap(answer, reference)
    rounded = _integral(answer) and not _integral(reference) and gap <= _HALF
    return rounded or gap <= _CONTEXT.multiply(_RELATIVE, _CONTEXT.abs(reference))


GRADERS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "numeric": _numeric,
    "relative": _relative,
    "pal": _pal,
    "exact": lambda answer, reference: answer == reference,  # the same value, no tolerance: 18.00 is 18
    "integer": lambda answer, reference: answer == reference and _integral(reference),  # 2.5 is never matched
}


def grade(answer: str | None, reference: str, grader: str = "numeric") -> bool:
    """Whether an answer is right; a missing one is not.

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
