r"""Find the final answer of a response, and map it to the generated tokens.

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
from itertools import accumulate, pairwise
from typing import Any

from tokenizers.decoders import DecodeStream

from lib.tasks.numbers import MARKUP, Number, canonical_number, find_numbers, first_number, simplify
from lib.tasks.numbers import format_number as format_number
from lib.tasks.numbers import parse_number as parse_number

MARK, CLOSING_TAG = "####", "</think>"
_LINE = re.compile(r"(?:\s*(?:\$\$?|\\[\[(])[ \t\r]*\n)?\s*(\S[^\n]*)")  # skips a line that only opens a formula
_HEADING = re.compile(
    r"[\s*_#>(]*(?:(?:step|part|section|question|problem|example|case|stage|phase|method|option|approach|scenario|solution"
    r"|note|task|exercise)\s*[#(]?\s*[0-9]|[0-9][.)]\s+[*_]*[^\W\d_])|[^\d\n]*[0-9]+\s*:\s*[^\s\d]|.*:[\s*_]*$",
    re.I,
)
_QUESTION = re.compile(r"^[^\w\n]*(?:q|question|problem|exercise|user|human)\b[ \d*.)#]*(?::|$)", re.I | re.M)
_EQUALS = re.compile(r"(?<![<>!=])=+>?")
_NEXT_EQUATION = re.compile(
    r"\W*(?:[,;&|]|\.\s|\\q?quad|\b(?:and|or|so)\b|(?<=\s)[a-z]\s*$)"
)  # after the result of one
_ASIDE = re.compile(r"(?<=[\w%)\]}.,*\0\"'])\s+\(")
_PARENTHESIS = re.compile(r"[()]")
_BOX = "\\boxed{"

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


def _answer_lines(text: str, start: int) -> Iterator[Span]:
    """Yield the spans of the text after the opening `####` of each line that has one, the last line first."""
    before = len(text)
    while (mark := text.rfind(MARK, start, before)) >= 0:
        line, end = max(start, text.rfind("\n", 0, mark) + 1), text.find("\n", mark)
        opening = text[line:mark].rstrip("#").rfind(MARK)
        if opening >= 0 and not text[mark + len(MARK) : end if end >= 0 else None].strip():
            mark = line + opening  # an earlier mark on the line and no text after this one: it closes
        if rest := _LINE.match(text, mark + len(MARK)):
            yield rest.span(1)
        before = line


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


def _without_asides(line: str) -> str:
    """Return a line of the same length without what stands in parentheses after a word or number."""
    kept, at = [], 0
    while aside := _ASIDE.search(line, at):
        depth, end = 1, len(line)
        for found in _PARENTHESIS.finditer(line, aside.end()):
            depth += 1 if found.group() == "(" else -1
            if depth == 0:
                end = found.end()
                break
        kept += [line[at : aside.start()], MARKUP * (end - aside.start())]
        at = end
    return "".join(kept) + line[at:]


def _sides(line: str, c0: int, c1: int) -> list[Span]:
    """Return the spans between the equals signs outside parentheses of line[c0:c1]."""
    edges, depth = [c0], 0
    for found in re.finditer(rf"[()]|{_EQUALS.pattern}", line[c0:c1]):
        if found.group() in "()":
            depth = max(0, depth + (1 if found.group() == "(" else -1))
        elif depth == 0:
            edges += [c0 + found.start(), c0 + found.end()]
    return list(zip(edges[::2], [*edges[1::2], c1], strict=True))


def _begins(line: str, c0: int, number: Number | None) -> bool:
    """Whether a whole number is the first of line[c0:] but for symbols."""
    return bool(number and number.value is not None and not re.search(r"[^\W_]", line[c0 : number.start]))


def _read_equation(line: str, c0: int, c1: int) -> Number | None:
    """Return the number of line[c0:c1], a phrase or equation; None without one, no value if it is not whole."""
    *others, last = [(side, first_number(line, *side)) for side in _sides(line, c0, c1)]
    numbers = [(side, number) for side, number in others if number and _begins(line, side[0], number)]
    result = last[1] if last[1] and last[1].value is not None else numbers[-1][1] if numbers else None
    if result is None:
        return last[1] or next((number for _, number in others if number), None)
    for (start, end), number in numbers:
        if start > c0 and number.value != result.value and _NEXT_EQUATION.match(line, number.end, end):
            return result._replace(value=None)
    return result


def _read_box(line: str, c0: int, c1: int) -> Number | None:
    """Return the number in a box of a line, of which line[c0:c1] is the content."""
    if _EQUALS.search(line, c0, c1):
        return _read_equation(line, c0, c1)
    after = _EQUALS.search(line, c1)
    return first_number(line, c0, c1, (0, after.start() if after else len(line)))


def _read_line(text: str, plain: str, c0: int, c1: int) -> Number | None:
    """Return the number of a line, which has no value if it is not whole; None for a line that holds no answer."""
    b0, b1 = _boxed(text, c0, c1)
    if _HEADING.match(plain, c0, c1):
        return None
    for line in (_without_asides(plain[c0:c1]), plain[c0:c1]):
        if number := _read_box(line, b0 - c0, b1 - c0) or _read_equation(line, 0, len(line)):
            return number._replace(start=c0 + number.start, end=c0 + number.end)
    return None


def _find_answers(text: str, start: int) -> Iterator[Number]:
    """Yield the numbers after `####`, the last one first."""
    plain = simplify(text)
    for line in _answer_lines(text, start):
        if number := _read_line(text, plain, *line):
            yield number


def find_answer(text: str, start: int = 0) -> Span | None:
    """Return the character span of the final answer in text[start:], with its sign; None without one."""
    number = next(_find_answers(text, start), None)
    return None if number is None or number.value is None else (number.start, number.end)


def runs_on(text: str, thinking: bool = False) -> bool:
    """Whether a response goes on to a further question after an answer: it asks one, or gives another number."""
    found = list(_find_answers(text, answer_start_char(text, thinking)))
    another = len({number.value for number in found}) > 1
    return another or bool(found and _QUESTION.search(text, found[-1].end))


def last_number(text: str, start: int = 0) -> Span | None:
    """Return the character span of the last number in text[start:], the fallback without an answer."""
    return max(((number.start, number.end) for number in find_numbers(simplify(text), start)), default=None)


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


def has_answer(row: Any) -> bool:
    """Whether a generations row has an extracted answer."""
    return isinstance(row.answer, str) and 0 <= row.answer_start < row.answer_end


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
