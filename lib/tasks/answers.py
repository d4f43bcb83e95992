r"""Find the final answer of a response, map it to the generated tokens, and grade it.

The prompt asks for "the answer as an integer after '#### '" (appendix on answer extraction). lib.tasks.numbers says how
numbers are written and what ends one.

- The answer is on the last line with `####` that holds a number, outside the thinking text. Its text begins after the
  mark, or on the next non-blank line if nothing follows the mark. The closing mark of `#### 18 ####` is ignored.
- Lines without a number do not count (`#### Explanation`, an echo of `#### N`). Nor do headings with one
  (`#### Step 2`, `#### 2. Check`, `#### 2: check`; not `#### 18. Done`) and lines that end in a colon.
- Only whole numbers are answers. If the number of that line is a part of something longer (`#### 2*9`, `#### 12,5`,
  `#### 5 or 6`), there is no answer: neither its first digits nor an earlier line is read.
- The first number of the line is read; words and symbols around it are skipped (`#### **Total:** $18 per day`).
- An equation gives the side that is a number, the last one if several are: `3 * 6 = 18` and `18 = 3 * 6` are 18. Two
  equations with different results have no answer. What stands in parentheses after a number or word is left out, unless
  there is no other number.
- In LaTeX, a line that only opens a formula (`$$`, `\[`) is skipped. A number in `\boxed{...}` precedes others on the
  line, but a `\boxed` without `####` is not an answer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

from lib.paths import check_choice
from lib.tasks import numbers
from lib.tasks.numbers import BOXED, MARKUP, Token, canonical_number, kinds_of, number_at, read_tokens, simplify
from lib.tasks.thinking import CLOSING

MARK = "####"
_LINE = re.compile("[^\n]+")
_LINES, _EQUATIONS = numbers.compile_table("lines"), numbers.compile_table("equations")
GRADERS = ("numeric", "exact")
_TOLERANCE = Decimal("1e-3")  # of PAL, the source of GSMHard
_HALF = Decimal("0.500000001")  # slightly above 1/2: -1895420.4999999998 is ...420.5 in floating point

Span = tuple[int, int]  # half-open


def token_texts(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the decoded text with special tokens.

    Decoding is incremental, so spaces and merges are those of the whole text. A character whose bytes span several
    tokens belongs to the last one; the others add "", as does an id without a token. `tokenizer` is a fast tokenizer
    of transformers or a `tokenizers.Tokenizer`.
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
    closing = CLOSING.search(text)
    return closing.end() if closing else len(text)


def _read_equation(tokens: list[Token], c0: int, c1: int) -> Token | None:
    """Return the number of a phrase or equation, in tokens[c0:c1]; None without one, no value if it is not whole."""
    kinds, number, results, others = kinds_of(tokens), None, [], set()
    outside = _EQUATIONS["parentheses"].sub(lambda inner: "(" * len(inner.group()), kinds)
    for left, right in (side.span() for side in re.finditer("[^=]+", outside)):
        first = max(left, c0)
        at = kinds.find("n", first, min(right, c1))
        if at < 0:
            continue
        number = number_at(tokens[left:right], at - left)
        begins = not re.search(r"\w", kinds[first:at])
        if number.value is not None and (begins or right >= c1):
            results.append(number)
        if begins and left > 0 and right < c1 and _EQUATIONS["next"].match(kinds, at + 1, right):
            others.add(number.value)
    number = results[-1] if results else number
    return number._replace(value=None) if number and others - {number.value} else number


def _read_line(line: str) -> Token | None:
    """Return the number of a line, which has no value if it is not whole; None for a line that holds no answer."""
    plain = simplify(line)
    tokens = [] if _LINES["heading"].match(plain) else read_tokens(plain)
    kept = _EQUATIONS["aside"].sub(lambda aside: MARKUP * len(aside.group()), kinds_of(tokens))
    if "n" in kept:
        tokens = [token for token, kind in zip(tokens, kept, strict=True) if kind != MARKUP]
    kinds = kinds_of(tokens)
    box = kinds.rfind(BOXED)
    end = kinds.find("}", box) if "}" in kinds[box:] else len(kinds)
    return (_read_equation(tokens, box, end) if box >= 0 else None) or _read_equation(tokens, 0, len(kinds))


def _find_answers(text: str, start: int) -> Iterator[Token]:
    """Yield the numbers after `####`, the last one first."""
    for line in reversed([*_LINE.finditer(text, start)]):
        if MARK in line[0]:
            opening = line[0].rstrip("# \t\r").rfind(MARK)  # a second mark closes
            rest = _LINES["rest"].match(text, line.start() + opening + len(MARK) if opening >= 0 else line.end())
            if rest and (number := _read_line(rest[1])):
                yield number._replace(start=rest.start(1) + number.start, end=rest.start(1) + number.end)


def find_answer(text: str, start: int = 0) -> Span | None:
    """Return the character span of the final answer in text[start:], with its sign; None without one."""
    number = next(_find_answers(text, start), None)
    return None if number is None or number.value is None else (number.start, number.end)


def runs_on(text: str, thinking: bool = False) -> bool:
    """Whether a response goes on to a further question after an answer: it asks one, or gives another number."""
    found = list(_find_answers(text, answer_start_char(text, thinking)))
    another = len({number.value for number in found}) > 1
    return another or bool(found and _LINES["question"].search(text, found[-1].end))


def last_number(text: str, start: int = 0) -> Span | None:
    """Return the character span of the last number in text[start:], the fallback without an answer."""
    for line in reversed([*_LINE.finditer(text, start)]):
        tokens = read_tokens(simplify(line[0]))
        if readable := [at for at, token in enumerate(tokens) if token.value is not None]:
            number = number_at(tokens, readable[-1])
            return line.start() + number.start, line.start() + number.end
    return None


def locate_answer(texts: Sequence[str], thinking: bool) -> dict[str, Any]:
    """Find the answer in a response, from the text that each of its tokens adds.

    Parameters
    ----------
    texts : from `token_texts`, without the end token
    thinking : whether to skip the text before the mark that ends the thinking, such as `</think>`

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
    """Return the answer's token range in a generations row, else that of the last number, else the last token."""
    last = max(len(row.token_logprobs) - int(row.eos), 1)
    spans = (row.answer_start, row.answer_end), (row.last_number_start, row.last_number_end), (last - 1, last)
    return next((int(start), int(end)) for start, end in spans if 0 <= start < end)


# ---- grades


def grade(answer: str | None, reference: str, grader: str = "numeric") -> bool:
    """Whether an answer is correct; a missing one is not.

    The prompt asks for an integer, but 303 of GSMHard's 1,319 references are not. Such a reference may be rounded to
    the answer's number of decimals, including none; half may be rounded either way.

    Parameters
    ----------
    answer, reference : str
    grader : str
        `numeric`: they differ by less than 1e-3, or the answer is a rounded non-integer reference. `exact`: their
        values are equal, as those of 18.00 and 18.

    Raises
    ------
    UserError
        For an unknown grader.
    """
    check_choice("grader", grader, GRADERS)
    value, expected = numbers.parse_number(answer), numbers.parse_number(reference)
    if value is None or expected is None:
        return False
    if grader == "exact":
        return value == expected
    gap = numbers.CONTEXT.abs(numbers.CONTEXT.subtract(value, expected))
    if gap < _TOLERANCE or expected == expected.to_integral_value(context=numbers.CONTEXT):
        return gap < _TOLERANCE
    decimals = max(0, -int(value.as_tuple().exponent))
    return numbers.CONTEXT.scaleb(gap, decimals) <= _HALF
