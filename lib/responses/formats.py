"""Files of existing responses, as JSON lines of two forms: our own, and that of an OpenAI batch.

Our own line has an `example_id` and a `text`, `token_ids` or `logprobs`. A batch line has a
`custom_id` and a `response` with a chat completion. Where a line has log-probabilities, its tokens
are the response, and a text beside them is only compared. Each line is read whole. Otherwise it is
refused with its number and the remedy, because half of a response would silently have another
answer or confidence.
"""

import codecs
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lib.errors import UserError
from lib.files import parse_json, read_bytes
from lib.parameter_schemas import StrictModel, validate
from lib.paths import relative_path
from lib.tasks.thinking import CLOSING, CLOSING_TAG, OPENING

# an end token as text: </s>, <|im_end|>, or nothing
END_MARK = re.compile(rf"(?!{CLOSING.pattern})(<[^<>\s]+>)?")
# a token that is not decoded: its id, its bytes, or a vocabulary's sign for a blank or byte
NOT_DECODED = re.compile(
    r"^token_id:\d+$|^(bytes:)?(\\x[0-9a-f]{2})+$|<0x[0-9A-F]{2}>|[\u0120\u010a\u2581]", re.M
)
# a place inside a word or number, where no stop string has cut a text
INSIDE = re.compile(r"(?<=[^\W_])(\w|[^\w\s]\d)")

# what a response is, by how its finish reason begins at OpenAI, vLLM, SGLang, TGI, llama.cpp,
# Anthropic, Gemini, Cohere
ENDINGS = {
    "stop": "stop|eos|end|complete",
    "length": "length|max|model_?length",
    "unfinished": "none|unfinished|abort|cancel|error|time|other|insufficient",
    "lost": "failed|content_?filter|safety|recitation|refusal|blocklist|prohibited|spii|tool"
    "|function|malformed",
}
# lists of `logprobs`, and whether a server's parser took their tokens out as thinking
PARTS = {"reasoning_content": True, "reasoning": True, "content": False}
# other fields of our own form that may not be ignored
OTHERS = [
    "thinking", "reasoning", "error", "refusal", "tool_calls", "stop_reason", "done_reason",
    "token_logprobs",
]  # fmt: skip
VERDICTS = ("#verify", "#in_situ")  # ends of custom_ids: requests for one token, P(True)
LISTED = 20  # most probable tokens that a server lists: the most that OpenAI's interface allows
LEAST = -87.3  # nats, the least probability of float32; below it are servers' marks: -100, -9999
JUDGED = 10  # tokens; fewer may all be certain, as those of `#### 7` are
LOST = "failed, were withheld or call a tool"
UNFINISHED = "are not finished (their finish reason is null or an error) and count as cut by length"
CUT = "end before their tokens, at a stop string: the tokens after it do not count"
MARKED = (
    f"hold log-probabilities below {LEAST:.0f}, a server's mark (such as -9999) for tokens that it"
    " does not list"
)
Fields = dict[str, Any]  # of a JSON object


@dataclass(frozen=True)
class Response:
    """A response as its line states it; without anything else, an empty one."""

    example_id: str
    text: str = ""  # with the thinking, without an end token; empty if only token ids are known
    token_ids: list[int] = field(default_factory=list)  # with the end token, if any
    pieces: list[str] = field(default_factory=list)  # (n,) the text that each logged token adds
    logprobs: list[float] = field(default_factory=list)  # (n,) their log-probabilities, nats
    listed: dict[str, float] = field(default_factory=dict)  # of a verdict, the most probable, nats
    ended: bool = False  # whether the last piece is an end token
    thought: bool = False  # whether it begins with thinking, as far as the line tells
    finish_reason: str = "stop"  # or length
    remarks: list[str] = field(default_factory=list)  # what is unusual about it, as said of several
    prompt_tokens: int = 0  # as the server counted them; 0 where it does not tell
    cached_tokens: int | None = None  # of these, from the server's cache; None where not told

    @property
    def empty(self) -> bool:
        return not (self.text or self.token_ids or self.pieces)


def read_response_file(path: Path, dataset: str) -> dict[str, Response]:
    """Return the responses of a file to the questions of a dataset, by example_id.

    Raise UserError, with the line number, for a line that cannot be read whole and for a question
    with two responses. An empty response, as of a failed request, may be repeated on another line.
    """
    return parse_response_lines(read_bytes(path), relative_path(path), dataset)


def parse_response_lines(data: bytes, name: str, dataset: str) -> dict[str, Response]:
    """Return the responses of a file's content, as `read_response_file`; `name`: the file's."""
    responses: dict[str, Response] = {}
    for number, text in enumerate(data.split(b"\n"), 1):
        line = parse_line(text, name, number) if text.strip() else None
        if line is None or line.dataset not in (None, dataset):
            continue
        where = f"{name}, line {number}"
        response = build_response(line, where)
        earlier = responses.get(line.example_id)
        if earlier is None or earlier.empty:
            responses[line.example_id] = response
        elif not response.empty:
            raise UserError(f"{where}: '{line.example_id}' has been answered before")
    return responses


def parse_response(data: bytes, file: str, number: int = 1) -> Response:
    """Return the response of a line, such as the answer of a server."""
    return build_response(parse_line(data, file, number), f"{file}, line {number}")


def parse_line(data: bytes, file: str, number: int) -> "ResponseLine":
    """Return the fields of a line, of either form."""
    where = f"{file}, line {number}"
    raw = parse_json(data, file, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where} must be an object: {{"example_id": ..., "text": ...}}')
    fields = unwrap_batch(raw, where) if "custom_id" in raw else drop_other_fields(raw)
    return validate(ResponseLine, fields, where)


# ---- the fields of a line

# any constraint makes pydantic refuse half of a surrogate pair
Whole = Annotated[str, Field(min_length=0)]
Byte = Annotated[int, Field(ge=0, le=255)]
Logprob = Annotated[float, Field(le=1e-3)]  # nats; rounding may raise it above 0


class LoggedToken(StrictModel):
    """What counts of an entry of `logprobs`."""

    token: Whole
    logprob: Logprob
    bytes: list[Byte] | None  # where there are some, they count
    thinking: bool


def list_tokens(value: Any) -> list[Fields]:
    """Return the tokens of `logprobs`: those of its thinking, if that is apart, then the others.

    Raise ValueError for other forms than that of chat completions, and its list alone.
    """
    given = value if isinstance(value, dict) else {"content": value}
    parts = {name: part for name, part in given.items() if part is not None}
    tokens = []
    try:
        if parts.keys() - {*PARTS, "refusal"}:
            raise TypeError
        for name, thinking in PARTS.items():
            for entry in parts.get(name, []):
                token = {"token": entry["token"], "logprob": entry["logprob"]}
                tokens.append(token | {"bytes": entry.get("bytes"), "thinking": thinking})
    except (LookupError, TypeError):
        raise ValueError(
            'is no list [{"token": ..., "logprob": ...}, ...]: '
            "ask /v1/chat/completions, which has it"
        ) from None
    return tokens


def name_ending(value: Any) -> str:
    """Return what a finish reason means, a key of ENDINGS.

    SGLang wraps it. It is empty in an unfinished stream.
    """
    name = value.get("type", value) if isinstance(value, dict) else value or "none"
    plain = str(name).rpartition(".")[2].lower().removeprefix("finish_reason_")
    for ending, starts in ENDINGS.items():
        if re.match(starts, plain):
            return ending
    raise ValueError(
        f"can't be {name!r:.60}: write stop, length, content_filter, tool_calls or null instead"
    )


def as_text(example_id: Any) -> Any:
    """Return a whole number as a text."""
    return str(example_id) if type(example_id) is int else example_id


class ResponseLine(StrictModel):
    """A line in our own form."""

    example_id: Annotated[str, BeforeValidator(as_text)]
    dataset: str | None = None  # lines of other datasets are ignored
    text: Whole | None = None
    reasoning_content: Whole | None = None
    token_ids: list[int] | None = None
    logprobs: Annotated[list[LoggedToken], BeforeValidator(list_tokens)] = []
    finish_reason: Annotated[str, BeforeValidator(name_ending)] = "stop"
    # of a batch line
    prompt_size: int = 0  # tokens of the prompt
    cached_size: int | None = None  # of these, from the server's cache
    listed: dict[Whole, Logprob] = {}  # of a verdict, the most probable tokens


def drop_other_fields(raw: Fields) -> Fields:
    """Return a line without fields of one's own.

    One that may be a part of the response, or a field misspelled, stays and is then refused.
    """
    known = ResponseLine.model_fields
    if raw.keys().isdisjoint(("text", "token_ids", "logprobs")):
        return raw
    kept = {}
    for name, value in raw.items():
        similar = difflib.get_close_matches(name, [*known, *OTHERS], cutoff=0.85)
        if name in known or (value and similar):
            kept[name] = value
    return kept


def unwrap_batch(raw: Fields, where: str) -> Fields:
    """Return a batch line in our own form. A failed request gives no response."""
    name = raw["custom_id"]
    try:
        answer = raw["response"] or {}
        body = answer.get("body", answer)
        if raw.get("error") or not body or answer.get("status_code") not in (200, None):
            return {"example_id": name, "finish_reason": "failed"}
        choices = body["choices"]
        (choice,) = [choices] if isinstance(choices, dict) else choices  # SGLang writes one
        usage = body.get("usage") or {}
        line = {
            "example_id": name,
            "logprobs": choice.get("logprobs"),
            "finish_reason": choice.get("finish_reason"),
            "prompt_size": usage.get("prompt_tokens") or 0,
        }
        if str(name).endswith(VERDICTS):
            return line | read_verdict(choice["logprobs"], usage)
        message = choice["message"]
        thinking = message.get("reasoning_content") or message.get("reasoning")
        return line | {"text": message.get("content"), "reasoning_content": thinking}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{where}: its 'response' is not one chat completion: ask /v1/chat/completions, "
            f"with `n: 1` and `top_logprobs: {LISTED}`"
        ) from None


def read_verdict(logprobs: Fields, usage: Fields) -> Fields:
    """Return the fields of a verdict, whose only token counts.

    llama.cpp also repeats the message that it continued. /v1/completions of vLLM writes arrays.
    """
    if logprobs.get("content"):
        (token,) = logprobs["content"]
        # of tokens with the same text, the most probable counts
        tops = sorted(token["top_logprobs"], key=itemgetter("logprob"))
        listed = {top["token"]: top["logprob"] for top in tops}
    else:
        (text,), (logprob,) = logprobs["tokens"], logprobs["token_logprobs"]
        token = {"token": text, "logprob": logprob}
        (listed,) = logprobs["top_logprobs"]
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return {"logprobs": [token], "listed": listed, "cached_size": cached}


# ---- a response


def build_response(line: ResponseLine, where: str) -> Response:
    """Return the response of a line. Raise UserError if its fields disagree."""
    if line.finish_reason == "lost":
        return Response(line.example_id, remarks=[LOST])
    tokens, text = line.logprobs, line.text or ""
    if line.token_ids and (tokens or text):
        raise UserError(f"{where}: a response is given as 'text', as 'token_ids' or as 'logprobs'")
    stopped = line.finish_reason == "stop"
    pieces = decode(tokens)
    ended = stopped and is_end_token(pieces, text)
    body = pieces[:-1] if ended else pieces
    check_decoded(body, text, where)
    written = "".join(body) if tokens else text
    end = find_end(written, line)
    if end is None:
        raise UserError(
            f"{where}: the tokens of 'logprobs' do not make up its 'text', with any thinking: "
            "leave out the one that is wrong (the text, if tokens halve its characters), "
            "or serve without a parser"
        )
    remarks = [UNFINISHED] if line.finish_reason == "unfinished" else []
    if end < len(written):
        remarks.append(CUT)
        pieces, ended = cut_pieces(body, end), False
    logprobs = [token.logprob for token in tokens[: len(pieces)]]
    if reason := why_no_probabilities(logprobs):
        raise UserError(f"{where}: {reason}")
    if min(logprobs, default=0) < LEAST:
        remarks.append(MARKED)
    apart = line.reasoning_content or any(token.thinking for token in tokens)
    return Response(
        line.example_id,
        text=written[:end],
        token_ids=line.token_ids or [],
        pieces=pieces,
        logprobs=logprobs,
        listed=line.listed,
        ended=ended,
        thought=bool(apart or CLOSING.search(written, 0, end)),
        finish_reason="stop" if stopped else "length",
        remarks=remarks,
        prompt_tokens=line.prompt_size,
        cached_tokens=line.cached_size,
    )


def why_no_probabilities(logprobs: Sequence[float]) -> str:
    """Return why the log-probabilities (n,) of a response's tokens are none; empty if they may be.

    Servers write 0 for every token if they do not compute them, or if a smaller model proposed the
    token. Nothing is said of fewer than JUDGED tokens.
    """
    if len(logprobs) < JUDGED or any(logprobs):
        return ""
    return (
        f"the log-probabilities of all {len(logprobs)} tokens are 0: a server writes this if it "
        "does not compute them, or decodes speculatively: serve without, or give `text` alone"
    )


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
