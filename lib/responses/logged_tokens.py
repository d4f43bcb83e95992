"""The text of a response by its tokens, and whether the text beside them is the same."""

import codecs
import re
from collections.abc import Sequence

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


def decode(tokens: Sequence[LoggedToken]) -> list[str]:
    """Return the text that each token adds; a character in several tokens belongs to the last one.

    A thinking that is listed apart ends with the mark that the server's parser took out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in tokens:
        data = bytes(token.bytes or token.token.encode())
        pieces.append(decoder.decode(data, final=token is tokens[-1]))
    thinking = sum(token.thinking for token in tokens)
    if 0 < thinking < len(tokens) and not CLOSING.search("".join(pieces)):
        pieces[thinking - 1] += CLOSING_TAG
    return pieces


def is_end_token(pieces: Sequence[str], text: str) -> bool:
    """Whether the last piece is an end token, which the text leaves out."""
    last = pieces[-1] if pieces else "none"
    return bool(END_MARK.fullmatch(last)) and not (last and text.endswith(last))


def check_decoded(pieces: Sequence[str], text: str, where: str) -> None:
    """Raise UserError for a token that is not decoded. A text with a blank is, and is compared."""
    mark = NOT_DECODED.search("\n".join([*pieces, text]))
    if mark and not re.search(r"\s", text):
        raise UserError(
            f"{where}: {mark[0]!r} is a token's id, bytes or sign, not its text: "
            "log tokens as their text"
        )


def find_end(written: str, line: ResponseLine) -> int | None:
    """Return where a response ends by the text beside it; None if it is not that text.

    Blanks at both ends aside, the text is the whole response, or what follows its thinking, or its
    beginning: a server that stopped at a string cuts the text there, and not the tokens.
    """
    thinking, *answer = CLOSING.split(written, maxsplit=1)
    text = (line.text or "").lstrip()
    if line.reasoning_content:
        thinking = re.sub(rf"^\s*({OPENING.pattern})", "", thinking)
        same = thinking.strip() == line.reasoning_content.strip()
        return len(written) if same and "".join(answer).strip() == text.rstrip() else None
    whole = [part.strip() for part in (written, *answer)]
    if line.text is None or text.rstrip() in whole:
        return len(written)
    cut = re.match(rf"\s*{re.escape(text)}", written)
    if cut and text and line.finish_reason == "stop" and not INSIDE.match(written, cut.end()):
        return cut.end()
    return None


def cut_pieces(pieces: Sequence[str], end: int) -> list[str]:
    """Return the pieces that begin before a character, the last one up to it."""
    kept = []
    for piece in pieces:
        if end > 0:
            kept.append(piece[:end])
        end -= len(piece)
    return kept
