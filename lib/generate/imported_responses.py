"""Existing responses as JSON lines: `example_id` and `text`, `token_ids` or `logprobs`.

The log of any inference server can be converted to this format. If the model is available, it scores them like its own
responses. Otherwise the tokens' texts and log-probabilities suffice for the single-pass estimators only. Temperature
scaling of logits, P(True) and MC dropout need the model. A question without a response then becomes a row without an
answer. Its only token is an end token of probability 0, so every confidence is at its minimum.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
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
        """Whether the response is empty."""
        return not (self.text or self.token_ids or self.logprobs)

    @property
    def pieces(self) -> list[str]:
        """The text that each entry of `logprobs` adds; a character split over several entries belongs to the last
        one."""
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


def read_imported(spec: Model, dataset: str, examples: Sequence[Example]) -> dict[str, ImportedResponse]:
    """Return the responses to these examples from a model's file, by example_id; empty ones for questions without a
    response.

    Raises
    ------
    UserError
        A line is invalid; no question has a response; or a text has no log-probabilities and the model is unavailable.
    """
    path, names = spec.responses_to(dataset), [example.example_id for example in examples]
    if path is None:
        raise UserError(f"'{spec.label}' names no file of `responses`: nothing is to be imported")
    where, given = store.relative_path(path), read_response_file(path, dataset)
    found = {name: ImportedResponse(example_id=name) for name in names} | given
    if names and all(found[name].empty for name in names):
        hint = nearest(names[0], [name for name, response in given.items() if not response.empty])
        said = f"no response to {len(names)} of {len(names)} questions, the first '{names[0]}'"
        raise UserError(f"{where} has {said}; {hint}")
    without = unanswered_questions(spec, names, found)
    silent = [name for name in without if not found[name].empty and "logprobs" not in found[name].model_fields_set]
    if silent or len(without) == len(names) > 0:
        first, *_ = silent or without
        raise UserError(
            f"{where}: {len(silent or without)} of {len(names)} responses, the first to '{first}', "
            "have no `logprobs`, and the model's file names no `source` that could say them"
        )
    return found


def unanswered_questions(spec: Model, names: Sequence[str], responses: Mapping[str, ImportedResponse]) -> list[str]:
    """Return the questions that become rows without an answer.

    Their response is missing or empty or, if the model is unavailable, lacks log-probabilities.
    """
    return [name for name in names if responses[name].empty or not (spec.at_hand or responses[name].logprobs)]


def describe_coverage(
    spec: Model, dataset: str, examples: Sequence[Example], responses: Mapping[str, ImportedResponse]
) -> list[str]:
    """Describe how many questions a model's file answers and how the others are treated."""
    without = unanswered_questions(spec, [example.example_id for example in examples], responses)
    said = f"the {len(examples)} questions of {dataset}"
    answered = f"{len(examples) - len(without)} of {said}" if without else said
    lines = [f"{public_path(str(spec.responses).format(dataset=dataset))} answers {answered}"]
    if without:
        first = f"{len(without)} without a response, the first '{without[0]}'"
        lines.append(f"{first}: rows without an answer, which count as wrong")
    return lines


def describe_import(spec: Model, responses: Mapping[str, ImportedResponse]) -> dict[str, Any]:
    """Return the manifest's facts about the source of the responses."""
    lost = len(unanswered_questions(spec, list(responses), responses))
    facts: dict[str, Any] = {"engine": "file", "responses": len(responses) - lost}
    return facts | ({} if spec.at_hand else {"model at hand": False}) | ({"unanswered": lost} if lost else {})


# ---- with the model


class FileEngine:
    """An engine that takes the responses from a model's file instead of sampling."""

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example]):
        self.lm, self.responses = lm, read_imported(lm.spec, dataset, examples)
        self.facts = describe_import(lm.spec, self.responses)

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


def import_responses(
    name: str,
    spec: Model,
    dataset: str,
    examples: Sequence[Example],
    responses: Mapping[str, ImportedResponse],
    save_texts: bool = True,
) -> pd.DataFrame:
    """Return a generations frame without logits for a model that is unavailable, in the order of `examples`."""
    rows = [imported_row(spec, example, responses[example.example_id], save_texts) for example in examples]
    return pd.DataFrame([{"model": name, "dataset": dataset} | row for row in rows])


def imported_row(spec: Model, example: Example, response: ImportedResponse, save_texts: bool = True) -> dict[str, Any]:
    """Return one row of that frame. An end token of probability 0 replaces a missing response.

    A log has one log-probability per token and does not tell whether it is raw or that of sampling: we use it for both.
    """
    logprobs = np.minimum(np.array(response.stated or [IMPOSSIBLE], np.float32), 0)
    ended = response.ended or not response.logprobs
    scores: Scores = {
        "located": answers.locate_answer_in_texts(response.pieces[: len(logprobs) - ended], spec.thinking),
        "token_logprobs": logprobs,
        "token_logprobs_sampling": logprobs,
        "finish_reason": response.finish_reason if response.logprobs else "stop",
        "eos": int(ended),
        **dict.fromkeys(("kept_positions", "chosen_logit", "top_logits", "top_ids", "tail_curve"), []),
    }
    return response_row(
        Request(example, None, [], 0, 0), [UNKNOWN_TOKEN] * len(logprobs), scores, spec.thinking, save_texts
    )
