"""Why a server gave no answer: its own first words, in whatever shape it wrote them, and what to
do."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from lib.errors import UserError

PASSING = (0, 408, 409, 425, 429)  # statuses, and those from 500; 0: no answer
OF_THE_SERVER = (0, 401, 402, 429, 503, 529)  # it can answer nothing now
LONGEST_WAIT = 60  # seconds for which a server may ask
REMEDIES = {
    **dict.fromkeys((301, 302, 303, 307, 308), "--url must be where it redirects to"),
    401: "set OPENAI_API_KEY to its key",
    402: "the same command goes on once the account has credit",
    403: "the key may not be allowed to ask this",
    404: "check --url, and the model's name there (--model-name)",
    413: "it is too long for this server",
    429: "the same command goes on later, with a smaller --concurrent",
    503: "the same command goes on once the server is ready",
}
Body = dict[str, Any]


class ServerError(UserError):
    """Why a server gave no answer: its own words, then what to do.

    Attributes
    ----------
    status : int
        Of HTTP; 0 where none came.
    reason : str
        The server's own first words.
    wait : float
        Seconds after which the server wants to be asked again; 0 where it does not tell.
    passes : bool
        Whether it may pass by itself.
    """

    def __init__(self, reason: str, status: int = 0, remedy: str = "", wait: float = 0):
        self.status = status
        self.reason = reason
        self.wait = wait
        self.passes = status in PASSING or status >= 500
        parts = [f"{status} {reason}" if status else reason]
        if wait > LONGEST_WAIT:
            parts.append(f"asks to wait {wait:.0f} s")
        remedy = remedy or REMEDIES.get(status, "")
        if remedy:
            parts.append(remedy)
        super().__init__(": ".join(parts))

    @property
    def is_of_the_server(self) -> bool:
        """Whether no other request would be answered now, either."""
        return self.status in OF_THE_SERVER


def read_wait(headers: Mapping[str, str]) -> float:
    """Return the seconds after which a server wants to be asked again; 0 where it does not tell."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * unit
    return 0


def describe_error(data: bytes, status: int) -> str:
    """Return the server's own first words of an answer that is an error."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        words = describe_text(data)
    else:
        words = find_message(content)
    if words:
        return words
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def find_message(content: Any) -> str:
    """Return the message in an error of any shape; as JSON if it has none."""
    if isinstance(content, str):
        return first_words(content)
    if isinstance(content, list) and content:
        return find_message(content[0])
    if not isinstance(content, dict):
        return ""
    for name in ("error", "message", "msg", "detail", "errors"):
        inside = content.get(name)
        words = find_message(inside) if inside else ""
        if words:
            return add_details(words, content)
    return first_words(json.dumps(content)) if content else ""


def add_details(words: str, error: Body) -> str:
    """Return a message with the field that it is about, or the words of the provider behind a
    gateway."""
    place = error.get("loc")
    if isinstance(place, list):
        return f"{words}: {'.'.join(map(str, place))}"
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        return f"{words}: {first_words(str(metadata['raw']))}"
    return words


def first_words(text: str) -> str:
    return " ".join(text.split())[:160]


def describe_text(data: bytes) -> str:
    """Return the first words of a text that is no JSON, or the title of a page."""
    text = data.decode(errors="replace")
    if not re.match(r"\s*<", text):
        return first_words(text)
    title = re.search(r"<title[^>]*>(.*?)</title>", text, flags=re.S | re.I)
    words = title[1] if title else re.sub(r"<[^>]*>", " ", text)
    return f"a page of HTML: {first_words(words)!r}"


def explain_text(data: bytes) -> tuple[str, int, str]:
    """Return reason, status and remedy of an answer that is no JSON."""
    if data.lstrip().startswith((b"data:", b"event:", b":")):
        return "it answers in a stream", 200, "write `request: {stream: false}`"
    words = describe_text(data)
    return f"not JSON: {words}", 200, "is --url the address of its interface?"


def find_error_inside(answer: Body) -> tuple[str, int] | None:
    """Return reason and status of an error in an answer with status 200, as gateways send it."""
    choices = answer.get("choices")
    error = answer.get("error")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        error = choices[0].get("error")
    if error:
        code = error.get("code") if isinstance(error, dict) else None
        is_status = str(code).isdigit()
        return find_message(error), int(str(code)) if is_status else 502
    if "choices" in answer and not choices:
        return f"its answer has no choices ({json.dumps(choices)})", 502
    return None


def find_named_field(reason: str, body: Body) -> str:
    """Return the field of a body that a reason names first; empty if it names none."""
    if "prefill" in reason.lower():
        return "continue_final_message"
    places = {}
    for name in body:
        place = reason.find("chat_template" if name == "chat_template_kwargs" else name)
        if place >= 0 and name not in ("model", "messages", "prompt"):
            places[name] = place
    return min(places, key=lambda name: (places[name], -len(name)), default="")


def write_without(name: str, reason: str, body: Body) -> str:
    """Return the line of the model's file that leaves a field out, or gives it another name."""
    if name == "continue_final_message":
        return "P(True) in situ stays empty, unless it is asked by text: `thinking: true`"
    if name == "max_tokens" and "max_completion_tokens" in reason:
        limit = body["max_tokens"]
        return f"write `request: {{max_tokens: null, max_completion_tokens: {limit}}}`"
    return f"write `request: {{{name}: null}}`"
