"""Responses that somebody has drawn already, as JSON lines: `example_id` and `text`, `token_ids` or `logprobs`.

Any inference server's log can be turned into that. `dataset`, `finish_reason` and `token_logprobs` stand there where
they are known.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lib import store
from lib.generate import models
from lib.generate.models import LanguageModel
from lib.params import Strict, explain_validation_error
from lib.project import UserError, nearest, parse_json, read_bytes
from lib.tasks.answers import token_texts

END = re.compile(r"<[^<>\s]+>")  # an end token as text: </s>, <|im_end|>
CONTENT = ("text", "token_ids", "token_logprobs", "logprobs", "finish_reason")


def whole(text: str) -> str:
    """A text that can be written. Raises ValueError for half of a surrogate pair, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds {text[error.start]!a}, half of a character") from None
    return text


class Token(Strict):
    """One entry of `logprobs`; what servers write beside these is passed over."""

    model_config = ConfigDict(extra="ignore")

    token: str
    logprob: float = Field(le=1e-3)  # nats; rounding may lift it above 0
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # of a token that is part of a character

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not self.bytes:
            whole(self.token)
        return self


def entries(value: Any) -> Any:
    """The tokens of `logprobs`, which chat completions wrap once more; None where there are none."""
    value = value["content"] if isinstance(value, dict) and "content" in value else value
    return None if value == [] else value


class Response(Strict):
    """A line. Token ids are the response's, its end token too where it wrote one; log-probabilities are those of
    whoever drew it (nats), and compared with the model's own; they are used where that is not at hand. `logprobs` are
    the tokens as servers write them, and stand for the text. A line without any of these is a response without an
    answer, and so is one that a filter withheld, whatever is left of it."""

    example_id: str
    dataset: str | None = None  # lines of other datasets are passed over
    text: Annotated[str, AfterValidator(whole)] | None = None
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None
    logprobs: Annotated[list[Token] | None, BeforeValidator(entries)] = None
    finish_reason: Literal["stop", "length"] = "stop"

    @model_validator(mode="before")
    @classmethod
    def _withheld(cls, line: Any) -> Any:
        if isinstance(line, dict) and line.get("finish_reason") == "content_filter":
            return {name: value for name, value in line.items() if name not in CONTENT}
        return line

    @model_validator(mode="after")
    def _tokens_or_text(self) -> Self:
        given = [self.token_ids, self.logprobs] if self.logprobs else [self.text, self.token_ids]
        if sum(one is not None for one in given) > 1:
            raise ValueError("a response is given as 'text' or as 'token_ids', one of them, or as 'logprobs'")
        if self.token_logprobs is not None and len(self.token_logprobs) != len(self.token_ids or ()):
            raise ValueError("'token_logprobs' must be as many as 'token_ids'")
        if self.logprobs and self.text is not None and self.text.strip() != self.written.strip():
            raise ValueError("the tokens of 'logprobs' do not make up its 'text'")
        return self

    @property
    def empty(self) -> bool:
        """Whether nothing was answered."""
        return not (self.text or self.token_ids or self.logprobs)

    @property
    def pieces(self) -> list[str]:
        """The text that each entry of `logprobs` adds; a character whose bytes are spread over several belongs to the
        last of them."""
        decoder, texts = codecs.getincrementaldecoder("utf-8")("replace"), []
        for entry in self.logprobs or ():
            texts.append(decoder.decode(bytes(entry.bytes)) if entry.bytes else entry.token)
        return texts

    @property
    def ended(self) -> bool:
        """Whether the last entry of `logprobs` is an end token: servers write it as its mark, or as nothing, or leave
        it out."""
        if not self.logprobs:
            return False
        last = self.pieces[-1]
        mark = not last or END.fullmatch(last) is not None
        return self.finish_reason == "stop" and mark and (self.text is None or not self.text.endswith(last or "\0"))

    @property
    def written(self) -> str:
        """The text, without an end token."""
        if not self.logprobs:
            return self.text or ""
        return "".join(self.pieces[: len(self.logprobs) - self.ended])

    @property
    def stated(self) -> list[float]:
        """The log-probabilities of whoever drew it, by token; empty where none are given."""
        return self.token_logprobs or [entry.logprob for entry in self.logprobs or ()]


def read(path: Path, dataset: str) -> dict[str, Response]:
    """The responses of a file to the questions of a dataset, by example_id. Raises UserError, with the line's number,
    for one that is none, and for a question that is answered twice."""
    found: dict[str, Response] = {}
    for where, response in lines(path):
        if response.dataset not in (None, dataset):
            continue
        if response.example_id in found:
            raise UserError(f"{where}: '{response.example_id}' has been answered before")
        found[response.example_id] = response
    return found


def lines(path: Path) -> Iterator[tuple[str, Response]]:
    """Each response of a file, with its place for messages."""
    where = store.relative_path(path)
    for number, line in enumerate(read_bytes(path, where).split(b"\n"), 1):
        if line.strip():
            yield f"{where}, line {number}", parsed(line, where, number)


def parsed(line: bytes, where: str, number: int) -> Response:
    raw = parse_json(line, where, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where}, line {number} must be an object: {{"example_id": ..., "text": ...}}')
    try:
        return Response.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain_validation_error(error, Response, f"{where}, line {number}")) from None


def token_ids(lm: LanguageModel, response: Response) -> list[int]:
    """The tokens of a response, as the model's tokenizer writes a text that is given without them; an end token is
    added where it ended by itself and none is there. Raises UserError for an id that the vocabulary does not have."""
    ids = list(response.token_ids or models.encode(lm, response.written))
    size = len(lm.number_like)
    wrong = [token for token in ids if not 0 <= token < size]
    if wrong:
        raise UserError(f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the vocabulary of "
                        f"model '{lm.name}' ends at {size - 1}: drawn by another model?")  # fmt: skip
    if not ids or (response.finish_reason == "stop" and ids[-1] not in lm.eos):
        ids.append(lm.eos[0])
    return ids


def lacking(responses: Mapping[str, Response], wanted: list[str], path: Path) -> None:
    """Raises UserError where questions have no response."""
    absent = [name for name in wanted if name not in responses]
    if absent:
        count, first = f"{len(absent)} of {len(wanted)}", absent[0]
        where = store.relative_path(path)
        hint = nearest(first, responses)
        raise UserError(f"{where} has no response to {count} questions, the first '{first}'; {hint}")


def filled(responses: Mapping[str, Response], wanted: list[str], path: Path) -> dict[str, Response]:
    """The responses, and an empty one to each question that has none. Raises UserError where all are so."""
    answered = {name: response for name, response in responses.items() if not response.empty}
    if not answered.keys() & set(wanted):
        lacking(answered, wanted, path)
    return {name: Response(example_id=name) for name in wanted} | dict(responses)


def distance(frame: pd.DataFrame, responses: Mapping[str, Response]) -> dict[str, Any]:
    """How far the log-probabilities of whoever drew the responses are from the model's own (nats), for the manifest:
    another model, another prompt or half precision show here. Empty where none were given."""
    gaps = []
    for row in frame[frame.example_id.isin(responses.keys())].itertuples():
        given = responses[row.example_id].stated
        if given and len(given) in (len(row.token_logprobs), len(row.token_logprobs) - row.eos):  # the same tokens
            gaps.append(np.abs(np.subtract(given, row.token_logprobs[: len(given)])))
    if not gaps:
        return {}
    all_gaps = np.concatenate(gaps)
    return {"logprobs_off": {"largest": float(all_gaps.max()), "mean": float(all_gaps.mean()), "rows": len(gaps)}}


def write(generations: pd.DataFrame, path: Path, tokenizer: Any = None) -> Path:
    """The responses of a generations frame as such a file: token ids, or, with the model's tokenizer, what is of use
    without the model, too: tokens as text."""
    rows = ({"example_id": row.example_id, "dataset": row.dataset, **tokens_of(row, tokenizer),
             "finish_reason": row.finish_reason} for row in generations.itertuples())  # fmt: skip
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    store.write_atomically(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))
    return path


def tokens_of(row: Any, tokenizer: Any) -> dict[str, Any]:
    """The tokens of a generations row as a line holds them."""
    logprobs = row.token_logprobs.tolist()
    if tokenizer is None:
        return {"token_ids": row.token_ids.tolist(), "token_logprobs": logprobs}
    texts = token_texts(tokenizer, row.token_ids)
    return {"logprobs": [{"token": text, "logprob": value} for text, value in zip(texts, logprobs, strict=True)]}
