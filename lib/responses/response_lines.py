"""The fields of a line of a file of responses, in our own form or in that of an OpenAI batch.

Our own line has an `example_id` and a `text`, `token_ids` or `logprobs`. A batch line has a
`custom_id` and a `response` with a chat completion.
"""

import difflib
import re
from operator import itemgetter
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lib.errors import UserError
from lib.files import parse_json
from lib.parameter_schemas import StrictModel, validate
from lib.responses.responses_api import as_chat_completion

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
TOKEN_LISTS = {"reasoning_content": True, "reasoning": True, "content": False}
# other fields of our own form that may not be ignored
OTHER_FIELDS = [
    "thinking", "reasoning", "error", "refusal", "tool_calls", "stop_reason", "done_reason",
    "token_logprobs",
]  # fmt: skip
VERDICT_ENDS = ("#verify", "#in_situ")  # ends of custom_ids: requests for one token, P(True)
LISTED = 20  # most probable tokens that a server lists: the most that OpenAI's interface allows
Fields = dict[str, Any]  # of a JSON object

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
    lists = {name: entries for name, entries in given.items() if entries is not None}
    tokens = []
    try:
        for name, thinking in TOKEN_LISTS.items():
            for entry in lists.pop(name, []):
                token = {"token": entry["token"], "logprob": entry["logprob"]}
                tokens.append(token | {"bytes": entry.get("bytes"), "thinking": thinking})
        if lists.keys() <= {"refusal"}:
            return tokens
    except (LookupError, TypeError):
        pass
    raise ValueError(
        'is no list [{"token": ..., "logprob": ...}, ...]: ask /v1/chat/completions, which has it'
    )


def name_ending(value: Any) -> str:
    """Return what a finish reason means, a key of ENDINGS.

    SGLang wraps it. It is empty in an unfinished stream.
    """
    name = value or "none"
    if isinstance(value, dict):
        name = value.get("type", value)
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


def parse_line(data: bytes, file: str, number: int) -> ResponseLine:
    """Return the fields of a line, of either form."""
    where = f"{file}, line {number}"
    raw = parse_json(data, file, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where} must be an object: {{"example_id": ..., "text": ...}}')
    fields = unwrap_batch(raw, where) if "custom_id" in raw else drop_other_fields(raw)
    return validate(ResponseLine, fields, where)


def drop_other_fields(raw: Fields) -> Fields:
    """Return a line without fields of one's own.

    One that may be a part of the response, or a field misspelled, stays and is then refused.
    """
    known = ResponseLine.model_fields
    if raw.keys().isdisjoint(("text", "token_ids", "logprobs")):
        return raw
    refused = [*known, *OTHER_FIELDS]
    fields = {}
    for name, value in raw.items():
        similar = difflib.get_close_matches(name, refused, cutoff=0.85)
        if name in known or (value and similar):
            fields[name] = value
    return fields


def unwrap_batch(raw: Fields, where: str) -> Fields:
    """Return a batch line in our own form. A failed request gives no response."""
    name = raw["custom_id"]
    is_verdict = str(name).endswith(VERDICT_ENDS)
    try:
        answer = raw["response"] or {}
        body = answer.get("body", answer)
        refused = answer.get("status_code") not in (200, None)
        if raw.get("error") or refused or not body:
            return {"example_id": name, "finish_reason": "failed"}
        return {"example_id": name} | read_completion(body, is_verdict)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{where}: its 'response' is not one chat completion: ask /v1/chat/completions, "
            f"with `n: 1` and `top_logprobs: {LISTED}`"
        ) from None


def read_completion(body: Fields, is_verdict: bool) -> Fields:
    """Return the fields of a chat completion with one choice, or of a response of the Responses
    API."""
    body = as_chat_completion(body)
    choices = body["choices"]
    if isinstance(choices, dict):  # SGLang writes one
        choices = [choices]
    (choice,) = choices
    usage = body.get("usage") or {}
    fields = {
        "finish_reason": choice.get("finish_reason"),
        "prompt_size": usage.get("prompt_tokens") or 0,
    }
    if is_verdict:
        return fields | read_verdict(choice["logprobs"], usage)
    message = choice["message"]
    return fields | {
        "logprobs": choice.get("logprobs"),
        "text": message.get("content"),
        "reasoning_content": message.get("reasoning_content") or message.get("reasoning"),
    }


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
        (text,) = logprobs["tokens"]
        (logprob,) = logprobs["token_logprobs"]
        (listed,) = logprobs["top_logprobs"]
        token = {"token": text, "logprob": logprob}
    details = usage.get("prompt_tokens_details") or {}
    return {"logprobs": [token], "listed": listed, "cached_size": details.get("cached_tokens")}
