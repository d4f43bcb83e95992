"""Find the final answer of a response, and map it to the generated tokens.

The prompt asks for "the answer as an integer after '#### '" (appendix on answer extraction). An
answer is read strictly or not at all:

- The last line with `####` and a letter or digit after it counts, or the next line if nothing
  follows the mark. A second mark on the line closes it (`#### 18 ####`). If this line is not read,
  there is no answer: earlier lines are not tried.
- Markup, currencies, `%`, LaTeX wrappers, tags and end tokens are set aside.
- The rest must be one number with at most plain words around it (lib.tasks.answer_lines).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from lib.tasks.answer_lines import read_line
from lib.tasks.thinking import CLOSING
from lib.tasks.written_numbers import (
    UNSIGNED_NUMBER,
    Number,
    Span,
    canonical_number,
    set_markup_aside,
    to_number,
)

MARK = "####"
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
_ANY_NUMBER = re.compile(rf"(?P<sign>{_APART})?(?<![^\W_]){UNSIGNED_NUMBER}")


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
            number = to_number(match)
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
