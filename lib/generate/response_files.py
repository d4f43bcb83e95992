"""Files of existing responses, as JSON lines of two forms: our own, and that of an OpenAI batch.

Our own line has an `example_id` and a `text`, `token_ids` or `logprobs`. A batch line has a `custom_id` and a
`response` with a chat completion. Each line is read whole. Otherwise it is refused with its number and the remedy,
because half of a response would silently have another answer or confidence.
"""

import codecs
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lib.files import parse_json, read_bytes
from lib.parameter_schemas import Strict, validate
from lib.paths import UserError, relative_path
from lib.tasks.answers import text_offsets
from lib.tasks.thinking import CLOSING, CLOSING_TAG, OPENING

# an end token as text: </s>, <|im_end|>, or nothing
END_MARK = re.compile(rf"(?!{CLOSING.pattern})(<[^<>\s]+>)?")
# a token that is not decoded: its id, its bytes, or a vocabulary's sign for a blank, line break or byte
NOT_DECODED = re.compile(r"^token_id:\d+$|^(bytes:)?(\\x[0-9a-f]{2})+$|<0x[0-9A-F]{2}>|[\u0120\u010a\u2581]", re.M)
HALF = "\ufffd"  # a token that is part of a character decodes to it

# what a response is, by how its finish reason begins at OpenAI, vLLM, SGLang, TGI, llama.cpp, Anthropic, Gemini, Cohere
ENDINGS = {
    "stop": "stop|eos|end|complete",
    "length": "length|max|model_?length",
    "unfinished": "none|unfinished|abort|cancel|error|time|other|insufficient",
    "lost": "failed|content_?filter|safety|recitation|refusal|blocklist|prohibited|spii|tool|function|malformed",
}
# other fields that may not be ignored
OTHERS = ["thinking", "reasoning", "error", "refusal", "tool_calls", "stop_reason", "done_reason", "token_logprobs"]
VERDICTS = ("#verify", "#in_situ")  # ends of custom_ids: requests for one token, in both forms of P(True)
LISTED = 20  # most probable tokens that a server lists: the most that OpenAI's interface allows
LEAST = -87.3  # nats, the least probability of float32; below it are a server's marks: -100, -9999
JUDGED = 10  # tokens; fewer may all be certain, as those of `#### 7` are
LOST = "failed, were withheld or call a tool"
UNFINISHED = "are not finished (their finish reason is null or an error) and count as cut by length"
CUT = "end before their tokens, at a stop string: the tokens after it do not count"
MARKED = f"hold log-probabilities below {LEAST:.0f}, a server's mark (such as -9999) for tokens that it does not list"


@dataclass(frozen=True)
class Response:
    """A response as its line states it; without anything else, an empty one."""

    example_id: str
    text: str = ""  # with the thinking, without an end token; empty if only token ids are known
    token_ids: list[int] = field(default_factory=list)  # with the end token, if any
    pieces: list[str] = field(default_factory=list)  # (n,) the text that each logged token adds
    logprobs: list[float] = field(default_factory=list)  # (n,) their log-probabilities, nats
    listed: dict[str, float] = field(default_factory=dict)  # of a verdict, the most probable tokens' texts, nats
    ended: bool = False  # whether the last piece is an end token
    thought: bool = False  # whether it begins with thinking, as far as the line tells
    finish_reason: str = "stop"  # or length
    remarks: list[str] = field(default_factory=list)  # what is unusual about it, as said of several
    prompt_tokens: int = 0  # as the server counted them; 0 where it does not tell
    cached_tokens: int | None = None  # of these, from the server's cache; None where it does not tell

    @property
    def empty(self) -> bool:
        return not (self.text or self.token_ids or self.pieces)


def read_response_file(path: Path, dataset: str) -> dict[str, Response]:
    """Return the responses of a file to the questions of a dataset, by example_id.

    Raise UserError, with the line number, for a line that cannot be read whole and for a question with two responses.
    An empty response, as of a failed request, may be repeated on another line.
    """
    return parse_response_lines(read_bytes(path), relative_path(path), dataset)


def parse_response_lines(data: bytes, name: str, dataset: str) -> dict[str, Response]:
    """Return the responses of the content of a file, as `read_response_file`; `name`: the file's, for messages."""
    found: dict[str, Response] = {}
    for number, text in enumerate(data.split(b"\n"), 1):
        line = parse_line(text, name, number) if text.strip() else None
        if line and line.dataset in (None, dataset):
            response = build_response(line, where := f"{name}, line {number}")
            if response.example_id not in found or found[response.example_id].empty:
                found[response.example_id] = response
            elif not response.empty:
                raise UserError(f"{where}: '{response.example_id}' has been answered before")
    return found


def parse_response(data: bytes, file: str, number: int = 1) -> Response:
    """Return the response of a line, such as the answer of a server."""
    return build_response(parse_line(data, file, number), f"{file}, line {number}")


def parse_line(data: bytes, file: str, number: int) -> "ResponseLine":
    """Return the fields of a line, of either form."""
    where, raw = f"{file}, line {number}", parse_json(data, file, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where} must be an object: {{"example_id": ..., "text": ...}}')
    return validate(ResponseLine, unwrap_batch(raw, where) if "custom_id" in raw else drop_other_fields(raw), where)


# ---- the fields of a line

Whole = Annotated[str, Field(min_length=0)]  # any constraint makes pydantic refuse half of a surrogate pair


class LoggedToken(Strict, extra="ignore"):
    """One entry of `logprobs`; other fields that servers write are ignored."""

    token: Whole
    logprob: Annotated[float, Field(le=1e-3)]  # nats; rounding may raise it above 0
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # where there are some, they count


def sort_tokens(value: Any) -> Any:
    """Return `logprobs` by what they are of: the `content`, or the `reasoning` that a server's parser took out of it.

    Raise ValueError for other forms than that of chat completions, and its list alone.
    """
    given = value if isinstance(value, dict) else {"content": value}
    parts = {name.removesuffix("_content"): part for name, part in given.items() if part is not None}
    entries = [entry for part in parts.values() for entry in (part if isinstance(part, list) else [part])]
    whole = all(isinstance(entry, dict) and {"token", "logprob"} <= entry.keys() for entry in entries)
    if not whole or parts.keys() - {"content", "reasoning", "refusal"}:
        raise ValueError('is no list [{"token": ..., "logprob": ...}, ...]: ask /v1/chat/completions, which has it')
    return parts


def name_ending(value: Any) -> str:
    """Return what a finish reason means, a key of ENDINGS. SGLang wraps it; it is empty in an unfinished stream."""
    name = value.get("type", value) if isinstance(value, dict) else value or "none"
    plain = str(name).rpartition(".")[2].lower().removeprefix("finish_reason_")
    if found := [ending for ending, names in ENDINGS.items() if re.match(names, plain)]:
        return found[0]
    raise ValueError(f"can't be {name!r:.60}: write stop, length, content_filter, tool_calls or null instead")


class ResponseLine(Strict):
    """A line in our own form."""

    example_id: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
    dataset: str | None = None  # lines of other datasets are ignored
    text: Whole | None = None
    reasoning_content: Whole | None = None
    token_ids: list[int] | None = None
    logprobs: Annotated[dict[str, list[LoggedToken]], BeforeValidator(sort_tokens)] = {}
    finish_reason: Annotated[str, BeforeValidator(name_ending)] = "stop"
    # of a batch line
    prompt_size: int = 0  # tokens of the prompt
    cached_size: int | None = None  # of these, from the server's cache
    listed: list[LoggedToken] = []  # of a verdict, the most probable tokens


def drop_other_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a line without fields of one's own, unless one may be a part of the response, or misspelled."""
    known = ResponseLine.model_fields
    if not {"text", "token_ids", "logprobs"} & raw.keys():
        return raw
    near = {name: difflib.get_close_matches(name, [*known, *OTHERS], 1, 0.85) for name in raw}
    return {name: value for name, value in raw.items() if name in known or (value and near[name])}


def unwrap_batch(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a batch line in our own form. A failed request gives no response.

    In a verdict, the token alone counts: llama.cpp also repeats the message that it continued.
    """
    line = {"example_id": raw["custom_id"]}
    try:
        answer = {} if raw.get("error") else raw["response"] or {}
        body = answer.get("body", answer)
        if not body or answer.get("status_code") not in (200, None):
            return line | {"finish_reason": "failed"}
        (choice,) = [body["choices"]] if isinstance(body["choices"], dict) else body["choices"]  # SGLang writes one
        usage, logprobs = body.get("usage") or {}, choice.get("logprobs") or {}
        line |= {"finish_reason": choice.get("finish_reason"), "prompt_size": usage.get("prompt_tokens") or 0}
        if str(line["example_id"]).endswith(VERDICTS):
            (token,) = logprobs.get("content") or wrap_arrays(**logprobs)
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            return line | {"logprobs": [token], "listed": token["top_logprobs"], "cached_size": cached}
        message = choice["message"]
        thinking = message.get("reasoning_content") or message.get("reasoning")
        return line | {"text": message.get("content"), "reasoning_content": thinking, "logprobs": logprobs}
    except (LookupError, TypeError, ValueError, AttributeError):
        remedy = f"ask /v1/chat/completions, with `n: 1` and `top_logprobs: {LISTED}`"
        raise UserError(f"{where}: its 'response' is not one chat completion: {remedy}") from None


def wrap_arrays(tokens: list, token_logprobs: list, top_logprobs: list, **_: Any) -> list[dict[str, Any]]:
    """Return the tokens of /v1/completions, of which vLLM writes arrays, as chat completions list them."""
    listed = [[{"token": text, "logprob": value} for text, value in tops.items()] for tops in top_logprobs]
    columns = zip(tokens, token_logprobs, listed, strict=True)
    return [dict(zip(("token", "logprob", "top_logprobs"), one, strict=True)) for one in columns]


# ---- a response


def build_response(line: ResponseLine, where: str) -> Response:
    """Return the response of a line. Raise UserError if its fields do not tell the same."""
    if line.finish_reason == "lost":
        return Response(line.example_id, remarks=[LOST])
    thinking, text, stopped = line.logprobs.get("reasoning", []), line.text or "", line.finish_reason == "stop"
    tokens = [*thinking, *line.logprobs.get("content", [])]
    if line.token_ids is not None and (tokens or line.text is not None):
        raise UserError(f"{where}: a response is given as 'text', as 'token_ids' or as 'logprobs'")
    pieces = decode(tokens)
    last = pieces[-1] if pieces else "no token"
    ended = stopped and END_MARK.fullmatch(last) is not None and not (last and text.endswith(last))
    body = pieces[: len(pieces) - ended]
    if (mark := NOT_DECODED.search("\n".join([*body, text]))) and not re.search(r"\s", text):
        raise UserError(f"{where}: {mark[0]!r} is a token's id, bytes or sign, not its text: log tokens as their text")
    if 0 < len(thinking) < len(tokens) and not CLOSING.search("".join(body)):
        body[len(thinking) - 1] += CLOSING_TAG  # which the server's parser removed
    checked = line.reasoning_content or (tokens and line.text is not None)
    if (kept := align(body, line.reasoning_content or "", text, stopped) if checked else body) is None:
        remedy = "leave out the one that is wrong, or serve without a parser"
        raise UserError(f"{where}: the tokens of 'logprobs' do not make up its 'text', with any thinking: {remedy}")
    told = kept if (cut := len(kept) < len(body)) else kept + pieces[len(body) :]
    logprobs = [one.logprob for one in tokens[: len(told)]]
    if why := why_no_probabilities(logprobs):
        raise UserError(f"{where}: {why}")
    unfinished, marked = line.finish_reason == "unfinished", min(logprobs, default=0) < LEAST
    return Response(
        line.example_id,
        text="".join(kept) if tokens else text,
        token_ids=line.token_ids or [],
        pieces=told,
        logprobs=logprobs,
        listed={decode([one])[0]: one.logprob for one in sorted(line.listed, key=lambda one: one.logprob)},
        ended=ended and not cut,
        thought=bool(thinking or line.reasoning_content or CLOSING.search("".join([*kept, text]))),
        finish_reason="stop" if stopped else "length",
        remarks=[UNFINISHED] * unfinished + [CUT] * cut + [MARKED] * marked,
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
    reason = "a server writes this if it does not compute them, or decodes speculatively"
    remedy = "serve without, or give `text` alone"
    return f"the log-probabilities of all {len(logprobs)} tokens are 0: {reason}: {remedy}"


def decode(tokens: Sequence[LoggedToken]) -> list[str]:
    """Return the text that each token adds; a character split over tokens belongs to the last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    data = [bytes(one.bytes) if one.bytes else one.token.encode() for one in tokens]
    return [decoder.decode(one, final=place == len(data)) for place, one in enumerate(data, 1)]


def align(pieces: list[str], thinking: str, text: str, stopped: bool) -> list[str] | None:
    """Return the pieces that make up a text after a thinking, which may be left out; None if they do not.

    Blanks at its ends may be stripped, and halves of characters (U+FFFD, or an empty piece) are completed from it. A
    server that stopped at a string cuts the text there and not the tokens: a token counts if it begins inside the text.
    """
    if "".join(pieces).strip() == text.strip() and not thinking:
        return pieces
    closing = f"(?:{CLOSING.pattern})"
    before = f"(?s:.*?{closing})?"
    if thinking:
        tag = closing + "?" * (not text)  # of a thinking that may not have ended
        before = rf"(?:{OPENING.pattern})?\s*{re.escape(thinking.strip())}\s*{tag}"
    pattern, runs = rf"\s*{before}\s*{re.escape(text.lstrip())}", re.compile("[^\0-\x7f]+")
    for filled in (pieces, [piece or HALF for piece in pieces]):
        joined, exact = "".join(filled), pattern
        if HALF in joined:  # between the same ASCII, one half or more stand for a character
            exact = runs.sub(lambda run: f"([^\0-\x7f]{{{len(run[0])},{4 * len(run[0])}}})", pattern)
        if found := re.match(exact, joined):
            break
    else:
        return None
    rest = joined[found.end() :]
    cut = bool(rest.replace(HALF, "").strip())
    inside = text[-1:].isalnum() and re.match(r"\w|[^\w\s]\d", rest)  # of a word or number
    if cut and (inside or not text or not stopped):
        return None
    characters = [*joined[: found.end()], *("" if one == HALF else one for one in rest)]
    for place, run in zip(range(1, (found.lastindex or 0) + 1), runs.findall(pattern), strict=False):
        begin, end = found.span(place)
        characters[begin:end] = [""] * (end - begin - len(run)) + list(run)
    last, spans = found.end() if cut else len(joined), text_offsets(filled)
    return ["".join(characters[begin : min(end, last)]) for begin, end in spans if begin < last or not cut]
