"""Files of existing responses, as JSON lines of two forms: our own, and that of an OpenAI batch.

Our own line has an `example_id` and a `text`, `token_ids` or `logprobs`. A batch line has a `custom_id` and a
`response` with a chat completion; OpenAI, vLLM and SGLang write it. Each line is read whole. Otherwise it is refused
with its number and the remedy, because half of a response would silently have another answer or confidence.
"""

import codecs
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from lib.parameter_types import Strict, validate
from lib.paths import UserError, parse_json, read_bytes, relative_path
from lib.tasks.answers import CLOSING_TAG, text_offsets
from lib.tasks.datasets import HALF_CHARACTER

END_MARK = re.compile(r"<(?!/think>)[^<>\s]+>")  # an end token as text: </s>, <|im_end|>
RAW_MARK = re.compile("[\u0120\u010a\u2581]|<0x[0-9A-F]{2}>")  # vocabularies write a blank or line break like this
ASCII = re.compile("([\x00-\x7f])")
HALF = "\ufffd"  # a token that is part of a character decodes to it
ENTRY = '{"token": ..., "logprob": ...}'

# what a response is, by the finish reason of OpenAI, vLLM, SGLang, TGI, llama.cpp, Ollama, Anthropic, Gemini, Cohere
ENDINGS = {
    "stop": "stop eos eos_token eos_id end_id end_turn stop_sequence stop_string stop_str stop_token stop_word "
    "stop_words word complete endoftext finish",
    "length": "length limit max_tokens max_length max_output_tokens max_new_tokens token_limit model_length "
    "model_context_window_exceeded repetition",
    "unfinished": "unfinished not_finished abort aborted cancelled error timeout timed_out time_limit other "
    "unspecified insufficient_system_resource",
    "withheld": "withheld content_filter content_filtered safety recitation refusal blocklist prohibited_content spii "
    "guardrail_intervened error_toxic",
    "tool call": "tool_calls tool_call tool_use function_call malformed_function_call",
    "failed": "failed",
}
KINDS = {name.replace("_", ""): kind for kind, names in ENDINGS.items() for name in names.split()}
LOST = ("withheld", "tool call", "failed")  # then there is no response, even if part of it remains
# other fields that may not be ignored
PARTS = ["thinking", "reasoning", "error", "refusal", "tool_calls", "stop_reason", "done_reason", "token_logprobs"]
# below the least probability of float32, log-probabilities are a server's marks: -100, -9999
LEAST = float(np.log(np.finfo(np.float32).tiny))
RESERVATIONS = {  # responses that are read, but
    "unfinished": "are not finished (their finish reason is null or an error) and count as cut by length",
    "cut at a stop string": "end before their tokens, at a stop string: the tokens after it do not count",
    "sentinels": f"hold log-probabilities below {LEAST:.0f}, a server's mark (such as -9999) for tokens outside those "
    "that it lists: they count as probability 0, and Seq Joint is then 0, too",
    "running on": "run on after an answer: the last line with `####` and a number counts",
}


@dataclass(frozen=True)
class Response:
    """A response as its line states it; without anything else, an empty one."""

    example_id: str
    where: str = ""  # the line, in messages
    text: str = ""  # without an end token; empty if only token ids are known
    token_ids: list[int] = field(default_factory=list)  # with the end token, if any
    pieces: list[str] = field(default_factory=list)  # (n,) the text that each logged token adds
    logprobs: list[float] = field(default_factory=list)  # (n,) their log-probabilities, nats
    ended: bool = False  # whether the last piece is an end token
    thought: bool = False  # whether the server took the thinking out of the text
    ending: str = "stop"  # a key of ENDINGS
    dropped: int = 0  # tokens after the text, from a stop string on

    @property
    def empty(self) -> bool:
        return not (self.text or self.token_ids or self.pieces)

    @property
    def reservations(self) -> list[str]:
        """What is unusual about it, keys of RESERVATIONS."""
        found = {
            "unfinished": self.ending == "unfinished" and not self.empty,
            "cut at a stop string": self.dropped,
            "sentinels": min(self.logprobs, default=0.0) < LEAST,
        }
        return [name for name, there in found.items() if there]

    @property
    def finish_reason(self) -> str:
        """`stop`, or `length` for one that is not finished."""
        return "length" if self.ending in ("length", "unfinished") else "stop"


def read_response_file(path: Path, dataset: str) -> dict[str, Response]:
    """Return the responses of a file to the questions of a dataset, by example_id.

    Raise UserError, with the line number, for a line that cannot be read whole and for a question with two responses.
    A failed request may be repeated on another line.
    """
    found: dict[str, Response] = {}
    name = relative_path(path)
    for number, data in enumerate(read_bytes(path, name).split(b"\n"), 1):
        response = parse_response(data, name, number, dataset) if data.strip() else None
        if response is None:
            continue
        earlier = found.get(response.example_id)
        if earlier and "failed" not in (earlier.ending, response.ending):
            raise UserError(f"{response.where}: '{response.example_id}' has been answered before")
        if earlier is None or response.ending != "failed":
            found[response.example_id] = response
    return found


def parse_response(data: bytes, file: str, number: int, dataset: str = "") -> Response | None:
    """Return the response of a line, or None if the line is of another dataset."""
    where = f"{file}, line {number}"
    raw = parse_json(data, file, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where} must be an object: {{"example_id": ..., "text": ...}}')
    try:
        line = validate(ResponseLine, unwrap_batch(raw) if "custom_id" in raw else drop_unread(raw), where)
        response = build_response(line, where)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    return response if line.dataset in (None, dataset) else None


# ---- the fields of a line


def check_whole(text: str) -> str:
    """Raise ValueError for a text that holds an unpaired surrogate, which no tokenizer or file can."""
    if HALF_CHARACTER.search(text):
        raise ValueError("holds half of a character")
    return text


Whole = Annotated[str, AfterValidator(check_whole)]


class LoggedToken(Strict):
    """One entry of `logprobs`; other fields that servers write are ignored."""

    model_config = ConfigDict(extra="ignore")

    token: Whole
    logprob: float  # nats
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # where there are some, they count

    @model_validator(mode="after")
    def _is_token(self) -> Self:
        if re.fullmatch(r"token_id:\d+", self.token):
            raise ValueError(f"is the id '{self.token}' and no text: serve without --return-tokens-as-token-ids")
        if not self.bytes and re.fullmatch(r"(bytes:)?(\\x[0-9a-f]{2})+", self.token):
            raise ValueError(f"is bytes written as the text '{self.token}': log 'bytes', too")
        if self.logprob > 1e-3:  # rounding may raise it above 0
            raise ValueError(f"has the logprob {self.logprob:.4g}, a probability? Its logarithm is at most 0")
        return self


class LoggedTokens(Strict):
    """`logprobs` of a chat completion. The thinking stands apart where a server's parser took it out of the text."""

    content: list[LoggedToken] = []
    reasoning_content: list[LoggedToken] = []
    refusal: list[LoggedToken] = []


def wrap_tokens(value: Any) -> Any:
    """Return `logprobs` as chat completions wrap them. Raise ValueError for other forms, with the remedy."""
    value = value if isinstance(value, dict) else {"content": value}
    parts = {"reasoning_content" if name == "reasoning" else name: part for name, part in value.items()}
    parts = {name: part for name, part in parts.items() if part is not None}
    if "token_logprobs" in parts or "tokens" in parts:
        raise ValueError(f"holds arrays, as of /v1/completions: ask /v1/chat/completions, or write [{ENTRY}, ...]")
    if other := sorted(parts.keys() - LoggedTokens.model_fields.keys()):
        raise ValueError(f"holds '{other[0]}', which is not read: write [{ENTRY}, ...]")
    for part in parts.values():
        for entry in part if isinstance(part, list) else [part]:
            if not isinstance(entry, dict) or not {"token", "logprob"} <= entry.keys():
                raise ValueError(f"holds {entry!r:.40} where {ENTRY} is meant")
    return parts


def name_ending(value: Any) -> str:
    """Return what a finish reason means, a key of ENDINGS. SGLang wraps it; it is empty in an unfinished stream."""
    name = value.get("type", value) if isinstance(value, dict) else value
    plain = str(name).rpartition(".")[2].lower().removeprefix("finish_reason_")
    kind = "unfinished" if name in (None, "") else KINDS.get(re.sub(r"[_\W]", "", plain))
    if kind is None:
        raise ValueError(f"can't be {name!r:.60}: write stop, length, content_filter, tool_calls or null instead")
    return kind


class ResponseLine(Strict):
    """A line in our own form."""

    example_id: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
    dataset: str | None = None  # lines of other datasets are ignored
    text: Whole | None = None
    reasoning_content: Whole | None = None
    token_ids: list[int] | None = None
    logprobs: Annotated[LoggedTokens, BeforeValidator(wrap_tokens)] = LoggedTokens()
    finish_reason: Annotated[str, BeforeValidator(name_ending)] = "stop"


def drop_unread(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a line without its other fields, unless one may be a part of the response, or misspelled."""
    if raw.get("text") is None and not raw.get("token_ids") and not raw.get("logprobs"):
        return raw
    known = ResponseLine.model_fields
    told = [name for name, value in raw.items() if value and difflib.get_close_matches(name, [*known, *PARTS], 1, 0.85)]
    return {name: value for name, value in raw.items() if name in known or name in told}


def unwrap_batch(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a batch line in our own form. A failed request gives no response."""
    line, answer = {"example_id": raw["custom_id"]}, raw.get("response")
    if "response" not in raw and not raw.get("error"):
        raise ValueError("has a 'custom_id' and no 'response': is this the file of requests?")
    answer = answer if isinstance(answer, dict) else {}
    body = answer.get("body", answer)
    if raw.get("error") or not body or answer.get("status_code") not in (200, None):
        return line | {"finish_reason": "failed"}
    try:
        (choice,) = [body["choices"]] if isinstance(body["choices"], dict) else body["choices"]  # SGLang writes one
        message, reason = choice["message"], choice.get("finish_reason")
        reason = "tool_calls" if message.get("tool_calls") else "refusal" if message.get("refusal") else reason
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ValueError("'response.body' is not one chat completion: ask /v1/chat/completions, with `n: 1`") from None
    thinking = message.get("reasoning_content") or message.get("reasoning")
    told = {"text": message.get("content"), "reasoning_content": thinking, "logprobs": choice.get("logprobs")}
    return line | told | {"finish_reason": reason}


# ---- a response


def build_response(line: ResponseLine, where: str) -> Response:
    """Return the response of a line. Raise ValueError if its fields do not tell the same."""
    ending = "withheld" if line.logprobs.refusal else line.finish_reason
    if ending in LOST:
        return Response(line.example_id, where, ending=ending)
    thought, said = line.logprobs.reasoning_content, line.logprobs.content
    if line.token_ids is not None and (thought or said or line.text is not None):
        raise ValueError("a response is given as 'text' or as 'token_ids', one of them, or as 'logprobs'")
    thinking, pieces = decode(thought), decode(said)
    check_characters("".join(thinking + pieces[: len(pieces) - is_end(pieces)]) or line.text or "", line.text)
    text = line.text or None if line.reasoning_content and not thinking else line.text  # empty if it never ended
    if not thinking and text is not None:
        thinking, pieces = split_thinking(pieces, text)
    check_thinking(line.reasoning_content or "", pieces if text is None and not thinking else thinking)
    ended = ending == "stop" and is_end(pieces) and not (pieces[-1] and (text or "").endswith(pieces[-1]))
    body = pieces[: len(pieces) - ended]
    kept = body if text is None or not (thinking or pieces) else match_text(body, text, ending == "stop")
    if thinking and kept and CLOSING_TAG not in "".join(thinking + kept):
        thinking[-1] += CLOSING_TAG  # which the parser removed
    dropped = len(body) - len(kept)
    told = [*thinking, *kept, *([] if dropped else pieces[len(body) :])]
    return Response(
        line.example_id,
        where,
        text="".join(thinking + kept) if told else text or "",
        token_ids=line.token_ids or [],
        pieces=told,
        logprobs=[one.logprob for one in [*thought, *said][: len(told)]],
        ended=ended and not dropped,
        thought=bool(line.reasoning_content or thinking),
        ending=ending,
        dropped=dropped,
    )


def check_thinking(text: str, pieces: list[str]) -> None:
    """Raise ValueError if tokens do not hold the thinking. They may hold halves of its other characters than ASCII."""
    text, joined = text.strip(), "".join(pieces)
    if HALF in joined or "" in pieces:
        text, joined = ("".join(ASCII.findall(one)) for one in (text, joined))
    if text not in joined:
        raise ValueError("its thinking ('reasoning_content') has no log-probabilities: serve it without a parser")


def split_thinking(pieces: list[str], text: str) -> tuple[list[str], list[str]]:
    """Return the tokens up to the end of the thinking, if it was taken out of the text, and the others."""
    before, tag, _ = "".join(pieces).partition(CLOSING_TAG)
    end = len(before + tag) if tag and CLOSING_TAG not in text else 0
    count = sum(start < end for start, _ in text_offsets(pieces))
    return pieces[:count], pieces[count:]


def decode(tokens: Sequence[LoggedToken]) -> list[str]:
    """Return the text that each token adds; a character split over tokens belongs to the last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    data = [bytes(one.bytes) if one.bytes else one.token.encode() for one in tokens]
    return [decoder.decode(one, final=place == len(data)) for place, one in enumerate(data, 1)]


def is_end(pieces: Sequence[str]) -> bool:
    """Whether the last piece may be an end token: servers write its name or an empty text, or omit it."""
    return bool(pieces) and (not pieces[-1] or END_MARK.fullmatch(pieces[-1]) is not None)


def check_characters(written: str, text: str | None) -> None:
    """Raise ValueError for characters that no text has. A text with blanks may have those of a vocabulary."""
    if (mark := RAW_MARK.search(written)) and not (text and mark[0] in text and re.search(r"\s", text)):
        raise ValueError(f"{mark[0]!r} is a vocabulary's mark for a blank or byte: log tokens decoded, or add 'text'")


def match_text(pieces: list[str], text: str, stopped: bool) -> list[str]:
    """Return the pieces that make up a text. Raise ValueError if they do not.

    Blanks at its ends may be stripped, and halves of characters (U+FFFD) are completed from it. A server that stopped
    at a string cuts the text there and not the tokens: a token counts if it begins inside the text.
    """
    joined, wanted = "".join(pieces), text.lstrip()
    lead = joined[: len(joined) - len(joined.lstrip())]
    if joined.strip() != wanted.strip():
        joined = "".join(pieces := complete_characters(pieces, lead + wanted))
    if joined.strip() == wanted.strip():
        return pieces
    end = len(lead + wanted)
    inside = wanted[-1:].isalnum() and re.match(r"\w|[^\w\s]\d", joined[end:])  # of a word or number
    if stopped and wanted and joined[:end].endswith(wanted) and not inside:
        spans = text_offsets(pieces)
        return [piece[: end - start] for piece, (start, _) in zip(pieces, spans, strict=True) if start < end]
    raise ValueError("the tokens of 'logprobs' do not make up its 'text': leave out the one that is wrong")


def complete_characters(pieces: list[str], text: str) -> list[str]:
    """Fill what tokens hold of characters in part, as U+FFFD or as an empty text, from a text with the same ASCII."""
    filled, characters = [piece or HALF for piece in pieces], []
    for ours, told in zip_longest(ASCII.split("".join(filled)), ASCII.split(text), fillvalue=""):
        head, *others = ours.split(HALF)
        tail = others[-1] if others else ours
        within = len(head) + len(tail) <= len(told) <= len(ours)
        if others and within and told.startswith(head) and told.endswith(tail):
            inside = [""] * (len(ours) - len(head) - len(tail))
            inside[-1] = told[len(head) : len(told) - len(tail)]
            characters += [*head, *inside, *tail]
        else:
            characters += ours
    return ["".join(characters[start:end]) for start, end in text_offsets(filled)]
