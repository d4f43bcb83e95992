"""Responses that somebody already has, as JSON lines: `example_id` and `text`, `token_ids` or `logprobs`.

Any inference server's log can be turned into that. `dataset`, `finish_reason` and `token_logprobs` stand there where
they are known. A model that is at hand scores them as if it had drawn them. Of one that is not, tokens as text and
their log-probabilities give the single-pass estimators, and no more: no logits of other tokens (temperature), no
P(True), no passes with dropout. A question without a response is then a row without an answer: an end token alone, of
probability 0, so that no estimator trusts it.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lib import store
from lib.generate.models import LanguageModel, encode
from lib.generate.sampling import Request
from lib.params import Model, Strict, explain_validation_error
from lib.project import UserError, nearest, parse_json, public_path, read_bytes
from lib.tasks import answers
from lib.tasks.datasets import Example, hash_words

END_MARK = re.compile(r"<[^<>\s]+>")  # an end token as text: </s>, <|im_end|>
UNKNOWN_TOKEN = -1  # the id of a token that is known by its text alone
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that stands for a response that is not there
CONTENT = ("text", "token_ids", "token_logprobs", "logprobs", "finish_reason")


def check_surrogates(text: str) -> str:
    """A text that can be written. Raises ValueError for half of a surrogate pair, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds {text[error.start]!a}, half of a character") from None
    return text


class ImportedToken(Strict):
    """One entry of `logprobs`; what servers write beside these is passed over."""

    model_config = ConfigDict(extra="ignore")

    token: str
    logprob: float = Field(le=1e-3)  # nats; rounding may lift it above 0
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None  # of a token that is part of a character

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not self.bytes:
            check_surrogates(self.token)
        return self


def unwrap_logprobs(value: Any) -> Any:
    """The tokens of `logprobs`, which chat completions wrap once more; None where there are none."""
    value = value["content"] if isinstance(value, dict) and "content" in value else value
    return None if value == [] else value


class ImportedResponse(Strict):
    """A line. Token ids are the response's, its end token too where it wrote one; log-probabilities are those of
    whoever drew it (nats), and compared with the model's own; they are used where that is not at hand. `logprobs` are
    the tokens as servers write them, and stand for the text. A line without any of these is a response without an
    answer, and so is one that a filter withheld, whatever is left of it."""

    example_id: str
    dataset: str | None = None  # lines of other datasets are passed over
    text: Annotated[str, AfterValidator(check_surrogates)] | None = None
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None
    logprobs: Annotated[list[ImportedToken] | None, BeforeValidator(unwrap_logprobs)] = None
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
        mark = not last or END_MARK.fullmatch(last) is not None
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


def read_response_file(path: Path, dataset: str) -> dict[str, ImportedResponse]:
    """The responses of a file to the questions of a dataset, by example_id. Raises UserError, with the line's number,
    for one that is none, and for a question that is answered twice."""
    found: dict[str, ImportedResponse] = {}
    for where, response in parse_lines(path):
        if response.dataset not in (None, dataset):
            continue
        if response.example_id in found:
            raise UserError(f"{where}: '{response.example_id}' has been answered before")
        found[response.example_id] = response
    return found


def parse_lines(path: Path) -> Iterator[tuple[str, ImportedResponse]]:
    """Each response of a file, with its place for messages."""
    where = store.relative_path(path)
    for number, line in enumerate(read_bytes(path, where).split(b"\n"), 1):
        if line.strip():
            yield f"{where}, line {number}", parse_response(line, where, number)


def parse_response(line: bytes, where: str, number: int) -> ImportedResponse:
    raw = parse_json(line, where, number)
    if not isinstance(raw, dict):
        raise UserError(f'{where}, line {number} must be an object: {{"example_id": ..., "text": ...}}')
    try:
        return ImportedResponse.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain_validation_error(error, ImportedResponse, f"{where}, line {number}")) from None


def response_token_ids(lm: LanguageModel, response: ImportedResponse) -> list[int]:
    """The tokens of a response, as the model's tokenizer writes a text that is given without them; an end token is
    added where it ended by itself and none is there. Raises UserError for an id that the vocabulary does not have."""
    ids = list(response.token_ids or encode(lm, response.written))
    size = lm.vocab_size
    wrong = [token for token in ids if not 0 <= token < size]
    if wrong:
        raise UserError(f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the vocabulary of "
                        f"model '{lm.name}' ends at {size - 1}: drawn by another model?")  # fmt: skip
    if not ids or (response.finish_reason == "stop" and ids[-1] not in lm.eos):
        ids.append(lm.eos[0])
    return ids


def fill_missing_responses(
    responses: Mapping[str, ImportedResponse], wanted: list[str], path: Path
) -> dict[str, ImportedResponse]:
    """The responses, and an empty one to each question that has none. Raises UserError where all are so."""
    answered = {name for name, response in responses.items() if not response.empty}
    if wanted and not answered & set(wanted):
        where, hint = store.relative_path(path), nearest(wanted[0], answered)
        count = f"{len(wanted)} of {len(wanted)}"
        raise UserError(f"{where} has no response to {count} questions, the first '{wanted[0]}'; {hint}")
    return {name: ImportedResponse(example_id=name) for name in wanted} | dict(responses)


def logprob_discrepancy(frame: pd.DataFrame, stated: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """How far the log-probabilities of whoever drew the responses, by example_id, are from the model's own (nats), for
    the manifest: another model, another prompt or half precision show here. Empty where none were given."""
    gaps = []
    for row in frame.itertuples():
        given = stated.get(row.example_id, ())
        if len(given) and len(given) in (len(row.token_logprobs), len(row.token_logprobs) - row.eos):  # the same tokens
            gaps.append(np.abs(np.subtract(given, row.token_logprobs[: len(given)])))
    if not gaps:
        return {}
    all_gaps = np.concatenate(gaps)
    return {"logprobs_off": {"largest": float(all_gaps.max()), "mean": float(all_gaps.mean()), "rows": len(gaps)}}


def write_responses(generations: pd.DataFrame, path: Path, tokenizer: Any = None) -> Path:
    """The responses of a generations frame as such a file: token ids, or, with the model's tokenizer, what is of use
    without the model, too: tokens as text."""
    lines = []
    for row in generations.itertuples():
        logprobs = row.token_logprobs.tolist()
        tokens: dict[str, Any] = {"token_ids": row.token_ids.tolist(), "token_logprobs": logprobs}
        if tokenizer is not None:
            pairs = zip(answers.token_texts(tokenizer, row.token_ids), logprobs, strict=True)
            tokens = {"logprobs": [{"token": text, "logprob": value} for text, value in pairs]}
        line = {"example_id": row.example_id, "dataset": row.dataset, **tokens, "finish_reason": row.finish_reason}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    store.write_atomically(path, lambda scratch: scratch.write_text("".join(lines), encoding="utf-8"))
    return path


# ---- of a model that is at hand


class FileEngine:
    """Takes the responses that a model's file names, in the place of drawing any."""

    def __init__(self, lm: LanguageModel, dataset: str, names: list[str], path: Path):
        self.lm = lm
        self.responses = fill_missing_responses(read_response_file(path, dataset), names, path)
        self.stated_logprobs = {name: response.stated for name, response in self.responses.items()}
        lost = sum(response.empty for response in self.responses.values())
        self.facts: dict[str, Any] = {"engine": "file", "responses": len(self.responses) - lost}
        if lost:
            self.facts["unanswered"] = lost

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids of the response to each request, its end token included."""
        return [response_token_ids(self.lm, self.responses[request.example.example_id]) for request in requests]


# ---- of a model that is not


def read_imported(spec: Model, dataset: str, examples: Sequence[Example]) -> dict[str, ImportedResponse]:
    """The responses in a model's file to these examples, by example_id, an empty one to a question without a response.
    Raises UserError for a line that is none, where no question is answered, and for a text without log-probabilities
    where the model is not at hand."""
    path = spec.responses_to(dataset)
    if path is None:
        raise UserError(f"'{spec.label}' names no file of `responses`: nothing is to be imported")
    names = [example.example_id for example in examples]
    found = fill_missing_responses(read_response_file(path, dataset), names, path)
    without = unanswered_questions(spec, names, found)
    silent = [name for name in without if not found[name].empty and "logprobs" not in found[name].model_fields_set]
    if len(without) == len(names):
        silent = without
    if silent:
        raise UserError(
            f"{store.relative_path(path)}: {len(silent)} of {len(names)} responses, the first to '{silent[0]}', "
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
    file, count = public_path(str(spec.responses).format(dataset=dataset)), len(examples)
    many = f"{count - len(without)} of the {count}" if without else f"the {count}"
    lines = [f"{file} answers {many} questions of {dataset}"]
    if without:
        first = f"{len(without)} without a response, the first '{without[0]}'"
        lines.append(f"{first}: rows without an answer, which count as wrong")
    return lines


def import_responses(
    name: str,
    spec: Model,
    dataset: str,
    examples: Sequence[Example],
    responses: Mapping[str, ImportedResponse],
    save_texts: bool = True,
) -> pd.DataFrame:
    """A generations frame in the order of `examples`, without logits. The one log-probability that a log holds of a
    token stands as the model's own and as that when sampling: it does not say which it is."""
    rows = [imported_row(spec, example, responses[example.example_id], save_texts) for example in examples]
    table = pd.DataFrame(rows)
    table.insert(0, "model", name)
    table.insert(1, "dataset", dataset)
    return table


def imported_row(spec: Model, example: Example, response: ImportedResponse, save_texts: bool = True) -> dict[str, Any]:
    """One line of the frame (columns: lib.schemas)."""
    there = bool(response.logprobs)
    logprobs = np.array([entry.logprob for entry in response.logprobs or ()] or [IMPOSSIBLE], np.float32)
    ended = response.ended or not there
    body = response.pieces[: len(logprobs) - ended]
    located = answers.locate_answer_in_texts(body, spec.thinking)
    text = located.pop("text")
    return {
        "text": text if save_texts else None, "prompt": None, "question": example.question if save_texts else None,
        **answers.find_alternative_answers(text, spec.thinking), "words": hash_words(example.question),
        "split": example.split, "example_id": example.example_id, "reference": example.reference,
        "prompt_tokens": 0, "token_ids": np.full(len(logprobs), UNKNOWN_TOKEN, np.int32),
        "token_logprobs": np.minimum(logprobs, 0), "token_logprobs_sampling": np.minimum(logprobs, 0), **located,
        "finish_reason": response.finish_reason if there else "stop", "eos": int(ended), "seed": 0,
        "kept_positions": np.zeros(0, np.int32), "reencoded": 0,
        "chosen_logit": np.zeros(0, np.float32), "top_logits": [], "top_ids": [], "tail_curve": [],
    }  # fmt: skip


def describe_import(spec: Model, responses: Mapping[str, ImportedResponse]) -> dict[str, Any]:
    """What the manifest says of where they come from."""
    lost = len(unanswered_questions(spec, list(responses), responses))
    known = {"engine": "file", "responses": len(responses) - lost, "model at hand": spec.at_hand}
    return known | ({"unanswered": lost} if lost else {})
