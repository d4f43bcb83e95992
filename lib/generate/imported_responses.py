"""Responses that somebody already has, as JSON lines: `example_id` and `text`, `token_ids` or `logprobs`.

Any inference server's log can be turned into that. A model that is at hand scores them as if it had drawn them. Of one
that is not, tokens as text and their log-probabilities give the single-pass estimators, and no more: no logits of other
tokens (temperature), no P(True), no passes with dropout. A question without a response is then a row without an answer:
an end token alone, of probability 0, so that no estimator trusts it.
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
from lib.validation import Strict, validate

END_MARK = re.compile(r"<[^<>\s]+>")  # an end token as text: </s>, <|im_end|>
UNKNOWN_TOKEN = -1  # the id of a token that is known by its text alone
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that stands for a response that is not there
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # as JSON can spell it


class ImportedToken(Strict):
    """One entry of `logprobs`; what servers write beside these is passed over."""

    model_config = ConfigDict(extra="ignore")

    token: str
    logprob: float = Field(le=1e-3)  # nats; rounding may lift it above 0
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # of a token that is part of a character


def unwrap_logprobs(value: Any) -> Any:
    """The tokens of `logprobs`, which chat completions wrap once more; None where there are none."""
    return (value["content"] if isinstance(value, dict) and "content" in value else value) or None


class ImportedResponse(Strict):
    """A line: `text`, `token_ids` (its end token too where it wrote one), or `logprobs`, which stand for the text.
    Their log-probabilities are used where the model is not at hand. With none of these, nothing was answered."""

    example_id: str
    dataset: str | None = None  # lines of other datasets are passed over
    text: str | None = None
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None  # passed over: who knows the ids has the model, which says its own
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
        """Whether nothing was answered."""
        return not (self.text or self.token_ids or self.logprobs)

    @property
    def pieces(self) -> list[str]:
        """The text that each entry of `logprobs` adds; a character whose bytes are spread over several belongs to the
        last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(bytes(one.bytes)) if one.bytes else one.token for one in self.logprobs or ()]

    @property
    def stated(self) -> list[float]:
        """The log-probability of each entry of `logprobs`."""
        return [one.logprob for one in self.logprobs or ()]

    @property
    def ended(self) -> bool:
        """Whether the last entry of `logprobs` is an end token: servers write it as its mark, or as nothing, or leave
        it out."""
        if not self.logprobs or self.finish_reason != "stop":
            return False
        last = self.pieces[-1]
        return not last or (END_MARK.fullmatch(last) is not None and not (self.text or "").endswith(last))

    @property
    def written(self) -> str:
        """The text, without an end token."""
        return "".join(self.pieces[: len(self.logprobs) - self.ended]) if self.logprobs else self.text or ""


def read_response_file(path: Path, dataset: str) -> dict[str, ImportedResponse]:
    """The responses of a file to the questions of a dataset, by example_id. Raises UserError, with the line's number,
    for one that is none, and for a question that is answered twice."""
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
    if raw.get("finish_reason") == "content_filter":  # withheld, whatever is left of it
        raw = {name: raw[name] for name in ("example_id", "dataset") if name in raw}
    return validate(ImportedResponse, raw, f"{where}, line {number}")


def read_imported(spec: Model, dataset: str, examples: Sequence[Example]) -> dict[str, ImportedResponse]:
    """The responses in a model's file to these examples, by example_id, an empty one to a question without a response.

    Raises
    ------
    UserError
        A line is none; no question is answered; or a text has no log-probabilities, and the model is not at hand.
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
    """The questions that become rows without an answer: those without a response, with an empty one, or, where the
    model is not at hand, with one of which the server said no log-probabilities."""
    return [name for name in names if responses[name].empty or not (spec.at_hand or responses[name].logprobs)]


def describe_coverage(
    spec: Model, dataset: str, examples: Sequence[Example], responses: Mapping[str, ImportedResponse]
) -> list[str]:
    """How many questions a model's file answers and, where some are left, what becomes of these."""
    without = unanswered_questions(spec, [example.example_id for example in examples], responses)
    said = f"the {len(examples)} questions of {dataset}"
    answered = f"{len(examples) - len(without)} of {said}" if without else said
    lines = [f"{public_path(str(spec.responses).format(dataset=dataset))} answers {answered}"]
    if without:
        first = f"{len(without)} without a response, the first '{without[0]}'"
        lines.append(f"{first}: rows without an answer, which count as wrong")
    return lines


def describe_import(spec: Model, responses: Mapping[str, ImportedResponse]) -> dict[str, Any]:
    """What the manifest says of where they come from."""
    lost = len(unanswered_questions(spec, list(responses), responses))
    facts: dict[str, Any] = {"engine": "file", "responses": len(responses) - lost}
    return facts | ({} if spec.at_hand else {"model at hand": False}) | ({"unanswered": lost} if lost else {})


# ---- of a model that is at hand


class FileEngine:
    """Takes the responses that a model's file names, in the place of drawing any."""

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example]):
        self.lm, self.responses = lm, read_imported(lm.spec, dataset, examples)
        self.facts = describe_import(lm.spec, self.responses)

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids of the response to each request, its end token included."""
        return [response_token_ids(self.lm, self.responses[request.example.example_id]) for request in requests]


def response_token_ids(lm: LanguageModel, response: ImportedResponse) -> list[int]:
    """The tokens of a response, as the model's tokenizer writes a text that is given without them; an end token is
    added where it ended by itself and none is there. Raises UserError for an id that the vocabulary does not have."""
    ids, last = list(response.token_ids or encode(lm, response.written)), lm.vocab_size - 1
    if wrong := [token for token in ids if not 0 <= token <= last]:
        raise UserError(
            f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the vocabulary of model "
            f"'{lm.name}' ends at {last}: drawn by another model?"
        )
    if not ids or (response.finish_reason == "stop" and ids[-1] not in lm.eos):
        ids.append(lm.eos[0])
    return ids


# ---- of a model that is not at hand


def import_responses(
    name: str,
    spec: Model,
    dataset: str,
    examples: Sequence[Example],
    responses: Mapping[str, ImportedResponse],
    save_texts: bool = True,
) -> pd.DataFrame:
    """A generations frame of a model that is not at hand, in the order of `examples`, without logits."""
    rows = [imported_row(spec, example, responses[example.example_id], save_texts) for example in examples]
    return pd.DataFrame([{"model": name, "dataset": dataset} | row for row in rows])


def imported_row(spec: Model, example: Example, response: ImportedResponse, save_texts: bool = True) -> dict[str, Any]:
    """One line of that frame. Where there is no response, an end token of probability 0 stands for it.

    The one log-probability that a log holds of a token stands as the model's own and as that when sampling: it does
    not say which it is.
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
