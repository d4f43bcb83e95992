"""Files of existing responses, as JSON lines of two forms (lib.responses.response_lines).

Where a line has log-probabilities, its tokens are the response, and a text beside them is only
compared. Each line is read whole. Otherwise it is refused with its number and the remedy, because
half of a response would silently have another answer or confidence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lib.errors import UserError
from lib.files import read_lines
from lib.paths import relative_path
from lib.responses.logged_tokens import LoggedText, read_text
from lib.responses.response_lines import ResponseLine, parse_line
from lib.tasks.thinking import CLOSING

LEAST = -87.3  # nats, the least probability of float32; below it are servers' marks: -100, -9999
JUDGED = 10  # tokens; fewer may all be certain, as those of `#### 7` are
LOST = "failed, were withheld or call a tool"
UNFINISHED = "are not finished (their finish reason is null or an error) and count as cut by length"
CUT = "end before their tokens, at a stop string: the tokens after it do not count"
MARKED = (
    f"hold log-probabilities below {LEAST:.0f}, a server's mark (such as -9999) for tokens that it"
    " does not list"
)


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

    @property
    def text_pieces(self) -> list[str]:
        """The pieces without an end token."""
        return self.pieces[:-1] if self.ended else self.pieces


def read_response_file(path: Path, dataset: str) -> dict[str, Response]:
    """Return the responses of a file to the questions of a dataset, by example_id.

    Raise UserError, with the line number, for a line that cannot be read whole and for a question
    with two responses. An empty response, as of a failed request, may be repeated on another line.
    """
    return parse_response_lines(read_lines(path), relative_path(path), dataset)


def parse_response_lines(lines: Iterable[bytes], name: str, dataset: str) -> dict[str, Response]:
    """Return the responses of a file's lines, as `read_response_file`; `name`: the file's."""
    responses: dict[str, Response] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        line = parse_line(text, name, number)
        if line.dataset not in (None, dataset):
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


# ---- a response


def build_response(line: ResponseLine, where: str) -> Response:
    """Return the response of a line. Raise UserError if its fields disagree."""
    if line.finish_reason == "lost":
        return Response(line.example_id, remarks=[LOST])
    if line.token_ids and (line.logprobs or line.text):
        raise UserError(f"{where}: a response is given as 'text', as 'token_ids' or as 'logprobs'")
    logged = read_text(line, where)
    tokens = line.logprobs[: len(logged.pieces)]
    logprobs = [token.logprob for token in tokens]
    reason = why_no_probabilities(logprobs)
    if reason:
        raise UserError(f"{where}: {reason}")
    return Response(
        line.example_id,
        text=logged.text,
        token_ids=line.token_ids or [],
        pieces=logged.pieces,
        logprobs=logprobs,
        listed=line.listed,
        ended=logged.ended,
        thought=has_thought(line, logged.text),
        finish_reason="stop" if line.finish_reason == "stop" else "length",
        remarks=remarks_of_response(line, logged, logprobs),
        prompt_tokens=line.prompt_size,
        cached_tokens=line.cached_size,
    )


def has_thought(line: ResponseLine, text: str) -> bool:
    """Whether a response begins with thinking: listed apart, or closed in its text."""
    listed_apart = any(token.thinking for token in line.logprobs)
    return bool(line.reasoning_content or listed_apart or CLOSING.search(text))


def remarks_of_response(
    line: ResponseLine, logged: LoggedText, logprobs: Sequence[float]
) -> list[str]:
    """Return what is unusual about a response."""
    remarks = []
    if line.finish_reason == "unfinished":
        remarks.append(UNFINISHED)
    if logged.cut:
        remarks.append(CUT)
    if min(logprobs, default=0) < LEAST:
        remarks.append(MARKED)
    return remarks


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
