"""Existing responses as JSON lines: `example_id` and `text`, `token_ids` or `logprobs`.

The log of any inference server can be converted to this format. If the model is available, it scores them like its own
responses. Otherwise the tokens' texts and log-probabilities suffice for the single-pass estimators only. Temperature
scaling of logits, P(True) and MC dropout need the model. A question without a response then becomes a row without an
answer. Its only token is an end token of probability 0, so every confidence is at its minimum.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lib import store
from lib.configs import Model
from lib.generate.models import LanguageModel, encode
from lib.generate.sampling import Request
from lib.generate.scoring import Scores, response_row
from lib.paths import UserError, nearest, parse_json, public_path, read_bytes
from lib.tasks import answers
from lib.tasks.datasets import Example
from lib.tasks.source_rows import HALF_CHARACTER
from lib.validation import Strict, validate

END_MARK = re.compile(r"<[^<>\s]+>")  # an end token as text: </s>, <|im_end|>
UNKNOWN_TOKEN = -1  # the id of a token known only by its text
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that replaces a missing response


class ImportedToken(Strict):
    """One entry of `logprobs`; other fields that servers write are ignored."""

    model_config = ConfigDict(extra="ignore")

    token: str
    logprob: float = Field(le=1e-3)  # nats; rounding may raise it above 0
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # of a token that is part of a character


def unwrap_logprobs(value: Any) -> Any:
    """Return the tokens of `logprobs`, which chat completions wrap in an object; None if there are none."""
    return (value["content"] if isinstance(value, dict) and "content" in value else value) or None


class ImportedResponse(Strict):
    """A line: `text`, `token_ids` (with the end token, if any), or `logprobs`, which replace the text.

    Log-probabilities are used only if the model is unavailable. Without any of the three, the response is empty.
    """

    example_id: str
    dataset: str | None = None  # lines of other datasets are ignored
    text: str | None = None
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None  # ignored: token ids need the model, which computes its own
    logprobs: Annotated[list[ImportedToken] | None, BeforeValidator(unwrap_logprobs)] = None
    finish_reason: Literal["stop", "length"] = "stop"

    @model_validator(mode="after")
    def _tokens_or_text(self) -> Self:
        if self.token_ids is not None and (self.logprobs or self.text is not None):
            raise ValueError("a response is given as 'text' or as 'token_ids', one of them, or as 'logprobs'")
        if self.logprobs and self.text is not None and self.text.strip() != self.written.strip():
            raise ValueError("the tokens of 'logprobs' do not make up its 'text'")
        if HALF_CHARACTER.search(self.written):
            raise ValueError("its text holds half of a character")
        return self

    @property
    def empty(self) -> bool:
        return not (self.text or self.token_ids or self.logprobs)

    @property
    def pieces(self) -> list[str]:
        """The text that each entry of `logprobs` adds; a character split over entries belongs to the last one."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(bytes(one.bytes)) if one.bytes else one.token for one in self.logprobs or ()]

    @property
    def stated(self) -> list[float]:
        """The log-probability of each entry of `logprobs`."""
        return [one.logprob for one in self.logprobs or ()]

    @property
    def ended(self) -> bool:
        """Whether the last entry of `logprobs` is an end token: servers write its name or an empty text, or omit it."""
        if not self.logprobs or self.finish_reason != "stop":
            return False
        last = self.pieces[-1]
        return not last or (END_MARK.fullmatch(last) is not None and not (self.text or "").endswith(last))

    @property
    def written(self) -> str:
        """The text, without an end token."""
        return "".join(self.pieces[: len(self.logprobs) - self.ended]) if self.logprobs else self.text or ""


def read_response_file(path: Path, dataset: str) -> dict[str, ImportedResponse]:
    """Return the responses of a file to the questions of a dataset, by example_id.

    Raise UserError, with the line number, for an invalid line and for a question with two responses.
    """
    found: dict[str, ImportedResponse] = {}
    where = store.relative_path(path)
    for number, line in enumerate(read_bytes(path, where).split(b"\n"), 1):
        response = parse_response(line, where, number) if line.strip() else None
        if response is None or response.dataset not in (None, dataset):
            continue
        if response.example_id in found:
            raise UserError(f"{where}, line {number}: '{response.example_id}' has been answered before")
        found[response.example_id] = response
    return found


def parse_response(line: bytes, where: str, number: int) -> ImportedResponse:
    raw = parse_json(line, where, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where}, line {number} must be an object: {{"example_id": ..., "text": ...}}')
    if raw.get("finish_reason") == "content_filter":  # withheld, even if part of it remains
        raw = {name: raw[name] for name in ("example_id", "dataset") if name in raw}
    return validate(ImportedResponse, raw, f"{where}, line {number}")


@dataclass(frozen=True)
class ImportedResponses:
    """The responses of a model's file to the questions of a run; empty ones for questions without a response."""

    spec: Model
    dataset: str
    examples: Sequence[Example]
    responses: Mapping[str, ImportedResponse]  # by example_id

    @classmethod
    def read(cls, spec: Model, dataset: str, examples: Sequence[Example]) -> Self:
        """Read the file.

        Raise UserError for an invalid line, if no question has a response, or for a text without log-probabilities if
        the model is unavailable.
        """
        if (path := spec.responses_to(dataset)) is None:
            raise UserError(f"'{spec.label}' names no file of `responses`: nothing is to be imported")
        where, given = store.relative_path(path), read_response_file(path, dataset)
        found = {name: ImportedResponse(example_id=name) for name, *_ in examples} | given
        count, imported = len(examples), cls(spec, dataset, examples, found)
        if examples and all(found[example.example_id].empty for example in examples):
            first = examples[0].example_id
            hint = nearest(first, [name for name, response in given.items() if not response.empty])
            raise UserError(f"{where} has no response to {count} of {count} questions, the first '{first}'; {hint}")
        without = imported.unanswered
        silent = [name for name in without if not found[name].empty and "logprobs" not in found[name].model_fields_set]
        if silent or (examples and len(without) == count):
            raise UserError(
                f"{where}: {len(silent or without)} of {count} responses, the first to '{(silent or without)[0]}', "
                "have no `logprobs`, and the model's file names no `source` that could say them"
            )
        return imported

    def lacks_answer(self, name: str) -> bool:
        """Whether a question becomes a row without an answer: its response is missing or empty or, if the model is
        unavailable, lacks log-probabilities."""
        response = self.responses[name]
        return response.empty or not (self.spec.at_hand or response.logprobs)

    @property
    def unanswered(self) -> list[str]:
        """The run's questions that become rows without an answer."""
        return [name for name, *_ in self.examples if self.lacks_answer(name)]

    def describe_coverage(self) -> list[str]:
        """Describe how many questions the file answers and how the others are treated."""
        without, said = self.unanswered, f"the {len(self.examples)} questions of {self.dataset}"
        answered = f"{len(self.examples) - len(without)} of {said}" if without else said
        lines = [f"{public_path(str(self.spec.responses).format(dataset=self.dataset))} answers {answered}"]
        if without:
            first = f"{len(without)} without a response, the first '{without[0]}'"
            lines.append(f"{first}: rows without an answer, which count as wrong")
        return lines

    @property
    def facts(self) -> dict[str, Any]:
        """The manifest's facts about the source of the responses."""
        lost = sum(map(self.lacks_answer, self.responses))
        facts: dict[str, Any] = {"engine": "file", "responses": len(self.responses) - lost}
        return facts | ({} if self.spec.at_hand else {"model at hand": False}) | ({"unanswered": lost} if lost else {})

    def to_frame(self, model: str, save_texts: bool = True) -> pd.DataFrame:
        """Return a generations frame without logits, for a model that is unavailable, in the order of the examples."""
        keys = {"model": model, "dataset": self.dataset}
        rows = [imported_row(self.spec, one, self.responses[one.example_id], save_texts) for one in self.examples]
        return pd.DataFrame([keys | row for row in rows])


# ---- with the model


class FileEngine:
    """An engine that takes the responses from a model's file instead of sampling."""

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example]):
        self.lm, imported = lm, ImportedResponses.read(lm.spec, dataset, examples)
        self.responses, self.facts = imported.responses, imported.facts

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of the response to each request, including its end token."""
        return [response_token_ids(self.lm, self.responses[request.example.example_id]) for request in requests]


def response_token_ids(lm: LanguageModel, response: ImportedResponse) -> list[int]:
    """Return the tokens of a response, encoded with the model's tokenizer if it has only text.

    A complete response without an end token gets one. Raise UserError for an id outside the vocabulary.
    """
    ids, last = list(response.token_ids or encode(lm, response.written)), lm.vocab_size - 1
    if wrong := [token for token in ids if not 0 <= token <= last]:
        raise UserError(
            f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the vocabulary of model "
            f"'{lm.name}' ends at {last}: drawn by another model?"
        )
    if not ids or (response.finish_reason == "stop" and ids[-1] not in lm.eos):
        ids.append(lm.eos[0])
    return ids


# ---- without the model


def imported_row(spec: Model, example: Example, response: ImportedResponse, save_texts: bool = True) -> dict[str, Any]:
    """Return one row of that frame. An end token of probability 0 replaces a missing response.

    A log has one log-probability per token and does not tell whether it is raw or that of sampling: we use it for both.
    """
    logprobs = np.minimum(np.array(response.stated or [IMPOSSIBLE], np.float32), 0)
    ended = response.ended or not response.logprobs
    scores: Scores = {
        "located": answers.locate_answer(response.pieces[: len(logprobs) - ended], spec.thinking),
        "token_logprobs": logprobs,
        "token_logprobs_sampling": logprobs,
        "finish_reason": response.finish_reason if response.logprobs else "stop",
        "eos": int(ended),
        **dict.fromkeys(("kept_positions", "chosen_logit", "top_logits", "top_ids", "tail_curve"), []),
    }
    return response_row(
        Request(example, None, [], 0, 0), [UNKNOWN_TOKEN] * len(logprobs), scores, spec.thinking, save_texts
    )
