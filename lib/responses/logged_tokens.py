"""The text of a response by its tokens. A text beside them is only compared."""

import codecs
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from lib.errors import UserError
from lib.responses.response_lines import LoggedToken, ResponseLine
from lib.tasks.thinking import CLOSING, CLOSING_TAG, OPENING

# an end token as text: </s>, <|im_end|>, or nothing
END_MARK = re.compile(rf"(?!{CLOSING.pattern})(<[^<>\s]+>)?")
# a token that is not decoded: its id, its bytes, or a vocabulary's sign for a blank or byte
NOT_DECODED = re.compile(
    r"^token_id:\d+$|^(bytes:)?(\\x[0-9a-f]{2})+$|<0x[0-9A-F]{2}>|[\u0120\u010a\u2581]", re.M
)
# a place inside a word or number, where no stop string has cut a text
INSIDE = re.compile(r"(?<=[^\W_])(\w|[^\w\s]\d)")


class LoggedText(NamedTuple):
    """The text of a line, and how its tokens make it up."""

    text: str  # with the thinking, without an end token
    pieces: list[str]  # (n,) the text that each token adds
    ended: bool  # whether the last piece is an end token
    cut: bool  # whether tokens after the text were left out


def read_text(line: ResponseLine, where: str) -> LoggedText:
    """Return the text of a line, that of its tokens if it has some.

    Raise UserError if these are not decoded, or are not those of the text beside them.
    """
    text = line.text or ""
    pieces = restore_hidden_mark(decode(line.logprobs), line)
    ended = line.finish_reason == "stop" and is_end_token(pieces, text)
    body = pieces[:-1] if ended else pieces
    check_decoded(body, text, where)
    written = "".join(body) if line.logprobs else text
    end = find_text_end(written, line)
    if end is None:
        raise UserError(
            f"{where}: the tokens of 'logprobs' do not make up its 'text', with any thinking: "
            "leave out the one that is wrong (the text, if tokens halve its characters), "
            "or serve without a parser"
        )
    if end < len(written):
        return LoggedText(written[:end], cut_pieces(body, end), ended=False, cut=True)
    return LoggedText(written, pieces, ended, cut=False)


def decode(tokens: Sequence[LoggedToken]) -> list[str]:
    """Return the text that each token adds; a character in several tokens belongs to the last one.

    A thinking that is listed apart ends with the mark that the server's parser took out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in tokens:
        data = bytes(token.bytes or token.token.encode())
        piece = decoder.decode(data, final=token is tokens[-1])
        pieces.append(sys.intern(piece))  # of many responses, each text once in memory
    thinking = [token for token in tokens if token.thinking]
    is_part = 0 < len(thinking) < len(tokens)
    if is_part and not CLOSING.search("".join(pieces)):
        pieces[len(thinking) - 1] += CLOSING_TAG
    return pieces


def restore_hidden_mark(pieces: list[str], line: ResponseLine) -> list[str]:
    """Return the pieces with the mark that ends a thinking, where a server lists that token with an
    empty text: its thinking and its text, in this order, are then all that the tokens make up."""
    written = "".join(pieces)
    thinking = (line.reasoning_content or "").strip()
    text = (line.text or "").strip()
    if not thinking or not text or CLOSING.search(written):
        return pieces
    count = len(pieces) - 1 if is_end_token(pieces, text) else len(pieces)
    length = 0
    for place in range(1, count):
        length += len(pieces[place - 1])
        before = written[:length].strip()
        if len(before) > len(thinking):
            break
        if before == thinking and "".join(pieces[place:count]).strip() == text:
            marked = list(pieces)
            marked[place - 1] += CLOSING_TAG
            return marked
    return pieces


def is_end_token(pieces: Sequence[str], text: str) -> bool:
    """Whether the last piece is an end token, which the text leaves out."""
    if not pieces or not END_MARK.fullmatch(pieces[-1]):
        return False
    return pieces[-1] == "" or not text.endswith(pieces[-1])


def check_decoded(pieces: Sequence[str], text: str, where: str) -> None:
    """Raise UserError for a token that is not decoded. A text with a blank is, and is compared."""
    mark = NOT_DECODED.search("\n".join([*pieces, text]))
    if mark and not re.search(r"\s", text):
        raise UserError(
            f"{where}: {mark[0]!r} is a token's id, bytes or sign, not its text: "
            "log tokens as their text"
        )


def find_text_end(written: str, line: ResponseLine) -> int | None:
    """Return where a response ends by the text beside it; None if it is not that text.

    Blanks at both ends aside, the text is the whole response, or what follows its thinking, or its
    beginning: a server that stopped at a string cuts the text there, and not the tokens.
    """
    text = (line.text or "").lstrip()
    thinking, *answers = CLOSING.split(written, maxsplit=1)  # no answer without a closing mark
    if line.reasoning_content:
        without_mark = re.sub(rf"^\s*({OPENING.pattern})", "", thinking)
        is_thinking = without_mark.strip() == line.reasoning_content.strip()
        is_answer = "".join(answers).strip() == text.rstrip()
        return len(written) if is_thinking and is_answer else None
    wholes = [part.strip() for part in (written, *answers)]
    if line.text is None or text.rstrip() in wholes:
        return len(written)
    beginning = re.match(rf"\s*{re.escape(text)}", written)
    if not beginning or not text or line.finish_reason != "stop":
        return None
    end = beginning.end()
    return None if INSIDE.match(written, end) else end


def cut_pieces(pieces: Sequence[str], end: int) -> list[str]:
    """Return the pieces that begin before a character, the last one up to it."""
    remaining = []
    for piece in pieces:
        if end > 0:
            remaining.append(piece[:end])
        end -= len(piece)
    return remaining
