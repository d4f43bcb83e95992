r"""Extract the final answer of a response, and map it to the generated tokens.

Location of the answer. The prompt asks for "the answer as an integer after '#### '" (appendix on answer extraction).
The answer is on the first non-blank line after the last `####` outside the thinking text. It is the first number of
that line or, in an equation, the number after the last `=` outside parentheses (`#### 3 * 6 = 18` is 18).
- Words and symbols around it are skipped: `#### $18`, `#### **18** apples`, `#### x = 18`.
- The closing mark of `#### 18 ####` is ignored.
- A line without a number has no answer, and later lines are not searched.
- In LaTeX, a line that only opens a formula (`$$`, `\[`) is skipped. A number in `\boxed{...}` precedes others on the
  line, but a `\boxed` without `####` is not an answer.

Format of a number.
- An optional sign (also Unicode minus, dashes and `-$18`) directly before it and not after a word or number: `10-3`
  ends in 3.
- Digits, with commas (`,` or LaTeX's `{,}`) only before groups of exactly three; decimals; an exponent (`1.5e6`).
- A fraction (`3/4`, `\frac{3}{4}`, `\dfrac`, `\tfrac`), alone or after a whole number: `1 1/2` is 1.5, and
  `-1\frac{1}{2}` is -1.5.
- Any other comma ends the number: `12,5` is 12, and a list has several numbers.
- The period of `18.` ends the sentence. `%` and currencies do not change the value, as in the references.
- Digits inside a word (`x1`) are not a number; a unit may follow (`18km`).
The span of a number includes all these characters.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from itertools import accumulate, pairwise
from typing import Any

from tokenizers.decoders import DecodeStream

MARK, CLOSING_TAG = "####", "</think>"
_MINUS = "\u2010\u2011\u2012\u2013\u2212\uff0d"  # hyphens, dashes and minus signs that models write for "-"
_CURRENCY = "$\u00a3\u20ac\u00a5\u20b9"
_WHOLE = r"(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
_BOTTOM = "[0-9]*[1-9][0-9]*"  # excludes zero
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
_LINE = re.compile(r"(?:\s*(?:\$\$?|\\[\[(])[ \t\r]*\n)?\s*(\S[^\n]*)")  # skips a line that only opens a formula
_BOX = "\\boxed{"
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_PLAIN = str.maketrans(dict.fromkeys(_MINUS, "-") | dict.fromkeys(_CURRENCY + "\\{},", ""))
_AROUND = f" \t\r\n*.%\\{_CURRENCY}"  # characters allowed around the number in `parse_number`
# 60 digits represent every reference exactly; no response overflows or traps
CONTEXT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])

Span = tuple[int, int]  # half-open


def token_texts(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the decoded text with special tokens.

    Decoding is incremental, so spaces and merges are those of the whole text. A character whose bytes span several
    tokens belongs to the last one; the others add "", as does an id without a token. `tokenizer` is a fast tokenizer
    of transformers or a `tokenizers.Tokenizer`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    ids = [int(token) for token in ids]
    texts, stream = [], DecodeStream(skip_special_tokens=False)
    for token in ids:
        try:
            texts.append(stream.step(backend, token) or "")
        except Exception:  # a decoder that changes earlier text (WordPiece: "do n't"): restart
            stream = DecodeStream(skip_special_tokens=False)
            texts.append(backend.decode([token], skip_special_tokens=False))
    if ids and not texts[-1]:  # the last character is incomplete: the stream waits for its other bytes
        whole, text = backend.decode(ids, skip_special_tokens=False), "".join(texts)
        texts[-1] = whole[len(text) :] if whole.startswith(text) else ""
    return texts


def text_offsets(texts: Iterable[str]) -> list[Span]:
    """Return each token's character span in the joined text; empty for a token that adds no text."""
    return list(pairwise(accumulate(map(len, texts), initial=0)))


def token_span(spans: Sequence[Span], span: Span | None) -> Span:
    """Return the half-open range of tokens that overlap the characters of `span`; (-1, -1) if none do.

    Directly preceding tokens without text are included: they are the first bytes of the next token's text.
    """
    hits = [i for i, (c0, c1) in enumerate(spans) if span and c0 < span[1] and c1 > span[0]]
    if not hits:
        return -1, -1
    start = hits[0]
    while start > 0 and spans[start - 1][0] == spans[start - 1][1]:
        start -= 1
    return start, hits[-1] + 1


def answer_start_char(text: str, thinking: bool) -> int:
    """Return the start of the text after the thinking: 0 without thinking, the text's end if never closed."""
    if not thinking:
        return 0
    tag = text.find(CLOSING_TAG)
    return len(text) if tag < 0 else tag + len(CLOSING_TAG)


def _answer_line(text: str, start: int) -> Span | None:
    """Return the span of the first non-blank line after the last opening `####`."""
    mark = text.rfind(MARK, start)
    if mark < 0:
        return None
    line = max(start, text.rfind("\n", 0, mark) + 1)
    opening = text[line:mark].rstrip("#").rfind(MARK)
    if opening >= 0 and not text[mark + len(MARK) :].partition("\n")[0].strip():
        mark = line + opening  # an earlier mark on the line and no text after this one: it closes
    rest = _LINE.match(text, mark + len(MARK))
    return rest.span(1) if rest else None


def _boxed(text: str, c0: int, c1: int) -> Span:
    """Return the span inside the last `\\boxed{...}` of text[c0:c1], up to its closing brace; empty without one."""
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
    """Return the span of the number after the last `=` outside parentheses in text[c0:c1], else of the first."""
    equals = text.rfind("=", c0, c1)
    aside = equals < 0 or text.count("(", c0, equals) != text.count(")", c0, equals)
    match = None if aside else _NUMBER.search(text, equals + 1, c1)
    match = match or _NUMBER.search(text, c0, c1)
    return match.span() if match else None


def find_answer(text: str, start: int = 0) -> Span | None:
    """Return the character span of the final answer in text[start:], with its sign; None without one."""
    line = _answer_line(text, start)
    return line and (_result(text, *_boxed(text, *line)) or _result(text, *line))


def last_number(text: str, start: int = 0) -> Span | None:
    """Return the character span of the last number in text[start:], the fallback without an answer."""
    return max((match.span() for match in _NUMBER.finditer(text, start)), default=None)


def parse_number(text: str | None) -> Decimal | None:
    """Return the finite value of a string with one number and at most `$`, `%`, `*`, blanks or a period around it."""
    match = _NUMBER.search(text) if isinstance(text, str) else None
    if match is None or text is None or (text[: match.start()] + text[match.end() :]).strip(_AROUND):
        return None
    head, _, bottom = _FRACTION.sub(r" \1/\2", match.group()).translate(_PLAIN).partition("/")
    whole, _, top = head.strip().rpartition(" ")  # -1 1/2; for -\frac{1}{2} only the sign
    value = CONTEXT.divide(Decimal(top), Decimal(bottom)) if bottom else Decimal(top)
    if whole:
        value = CONTEXT.add(Decimal(whole.lstrip("+-") or 0), value)
    return value.copy_negate() if whole.startswith("-") else value


def format_number(number: Decimal) -> str:
    """Return the unique spelling of a value: no exponent, plus, commas or trailing zeros."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def canonical_number(text: str | None) -> str | None:
    """Return the canonical spelling of a string's number; None if it is not a number."""
    number = parse_number(text)
    return None if number is None else format_number(number)


def locate_answer(texts: Sequence[str], thinking: bool) -> dict[str, Any]:
    """Find the answer in a response, from the text that each of its tokens adds.

    Parameters
    ----------
    texts : from `token_texts`, without the end token
    thinking : whether to skip the text before `</think>`

    Returns
    -------
    dict
        `text`; `answer`, its canonical number or None; half-open token positions, -1 for none: answer_start,
        answer_end, last_number_start, last_number_end; `thinking_end`, the first token after the thinking, which is
        one more than there are if the thinking never ended.
    """
    text, spans = "".join(texts), text_offsets(texts)
    start = answer_start_char(text, thinking)
    answer = find_answer(text, start)
    answer_start, answer_end = token_span(spans, answer)
    last_start, last_end = token_span(spans, last_number(text, start))
    return {
        "text": text,
        "answer_start": answer_start,
        "answer_end": answer_end,
        "last_number_start": last_start,
        "last_number_end": last_end,
        "thinking_end": sum(c1 <= start for _, c1 in spans) + (CLOSING_TAG not in text) if start else 0,
        "answer": canonical_number(text[slice(*answer)] if answer else None),
    }


def find_boxed_answer(text: str) -> str | None:
    """Return the canonical number in the last \\boxed{} of a text, or None. It is not used as an answer."""
    boxes = _BOXED.findall(text)
    return canonical_number(boxes[-1].replace(r"\text{", "").strip("{} ") if boxes else None)


def find_answers_by_rule(text: str, thinking: bool) -> dict[str, Any]:
    """Extract answers under other settings, so that changing them does not need the text.

    Columns: `plain`, whether the answer is alone after `####`; `last_number` outside the thinking and `boxed`,
    canonical numbers or None.
    """
    span = last_number(text, answer_start_char(text, thinking))
    number = canonical_number(text[slice(*span)] if span else None)
    return {"plain": is_bare_answer(text, thinking), "last_number": number, "boxed": find_boxed_answer(text)}


def has_answer(row: Any) -> bool:
    """Whether a generations row has an extracted answer."""
    return isinstance(row.answer, str) and 0 <= row.answer_start < row.answer_end


def is_bare_answer(text: str, thinking: bool = False) -> bool:
    """Whether the answer has the requested format: `#### ` and only a number, on one line."""
    line = _answer_line(text, answer_start_char(text, thinking))
    alone = line and text[: line[0]].rstrip().endswith(MARK)
    return bool(line and alone and _NUMBER.fullmatch(text[slice(*line)].strip()))


def answer_span(row: Any, answered: bool | None = None) -> Span:
    """Return the answer's token range in a generations row, else that of the last number, else the last token.

    `answered`: whether the row has an answer (default: `has_answer`).
    """
    if has_answer(row) if answered is None else answered:
        return int(row.answer_start), int(row.answer_end)
    if 0 <= row.last_number_start < row.last_number_end:
        return int(row.last_number_start), int(row.last_number_end)
    last = max(len(row.token_logprobs) - int(row.eos), 1)
    return last - 1, last
