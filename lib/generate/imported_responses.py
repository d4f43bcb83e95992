"""Existing responses to a run's questions, with their model or without it (the lines: response_files.py).

If the model is available, it scores them like its own responses. Otherwise the tokens' texts and log-probabilities
suffice for the single-pass estimators only. Temperature scaling of logits, P(True) and MC dropout need the model. A
question without a response then becomes a row without an answer. Its only token is an end token of probability 0, so
every confidence is at its minimum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from lib.generate import p_true
from lib.generate.models import LanguageModel, encode
from lib.generate.response_files import Response, read_response_file
from lib.generate.sampling import Request
from lib.generate.teacher_forcing import Scores, response_row
from lib.parameter_schemas import Model
from lib.paths import UserError, nearest, public_path, relative_path
from lib.tasks.answers import MARK, find_answer, locate_answer, runs_on
from lib.tasks.datasets import Example
from lib.tasks.thinking import CLOSING_TAG

UNKNOWN_TOKEN = -1  # the id of a token known only by its text
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that replaces a missing response


@dataclass(frozen=True)
class ImportedResponses:
    """The responses of a model's file to the questions of a run; empty ones for questions without a response."""

    spec: Model
    dataset: str
    examples: Sequence[Example]
    responses: Mapping[str, Response]  # by example_id

    @classmethod
    def read(cls, spec: Model, dataset: str, examples: Sequence[Example]) -> Self:
        """Read the file.

        Raise UserError for a line that cannot be read whole, if no question has a response, if `thinking` is set and
        no response ends it, or for a text without log-probabilities if the model is unavailable.
        """
        if (path := spec.responses_to(dataset)) is None:
            raise UserError(f"'{spec.label}' names no file of `responses`: nothing is to be imported")
        where, given = relative_path(path), read_response_file(path, dataset)
        asked = {name: given.get(name, Response(name)) for name, *_ in examples}
        there, count = [one for one in asked.values() if not one.empty], len(asked)
        if asked and not there:
            others = nearest(first := next(iter(asked)), [name for name in given if not given[name].empty])
            raise UserError(f"{where} has no response to {count} of {count} questions, the first '{first}'; {others}")
        if silent := [] if spec.at_hand else [one.example_id for one in there if not one.pieces]:
            of = f"{where}: {len(silent)} of {count} responses, the first to '{silent[0]}', have no `logprobs`"
            raise UserError(f"{of}, and the model's file names no `source` that could say them: leave them out")
        closed = any(one.thought for one in there)
        if spec.thinking and not closed and any(one.text and one.finish_reason == "stop" for one in there):
            remedy = "remove `thinking: true` from the model's file, or log the thinking, too"
            without = f"no response holds `{CLOSING_TAG}`, or another mark that ends a thinking"
            raise UserError(f"{where}: {without}, so no answer would be found; {remedy}")
        return cls(spec, dataset, examples, asked)

    def find_remarks(self) -> dict[str, list[str]]:
        """Return what is unusual about responses, with their example_ids."""
        found: dict[str, list[str]] = {}
        for name, one in self.responses.items():
            missing = ["are missing: rows without an answer, which count as wrong"] * one.empty
            on = runs_on(one.text, self.spec.thinking or one.thought)
            more = ["run on after an answer: the last line with `####` and a number counts"] * on
            for remark in [*missing, *one.remarks, *more]:
                found.setdefault(remark, []).append(name)
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """The manifest's facts about the source of the responses."""
        facts = {"engine": "file", "responses": sum(not one.empty for one in self.responses.values())}
        counts = {remark: len(names) for remark, names in self.find_remarks().items()}
        return facts | ({} if self.spec.at_hand else {"model at hand": False}) | counts

    def describe_coverage(self) -> list[str]:
        """Describe how many questions the file answers, and how others and unusual responses are treated."""
        count, asked = self.facts["responses"], f"the {len(self.examples)} questions of {self.dataset}"
        answered = asked if count == len(self.examples) else f"{count} of {asked}"
        lines = [f"{public_path(str(self.spec.responses_to(self.dataset)))} answers {answered}"]
        for remark, names in self.find_remarks().items():
            lines.append(f"{len(names)} of {len(self.examples)} responses, the first to '{names[0]}', {remark}")
        texts = [one.text for one in self.responses.values()]
        if any(texts) and not any(map(find_answer, texts)):
            lines.append(f"no response holds an answer, a number after `{MARK}`: are these texts what the model wrote?")
        return lines

    def to_frame(self, model: str, save_texts: bool = True) -> pd.DataFrame:
        """Return a generations frame without logits, for a model that is unavailable, in the order of the examples."""
        keys = {"model": model, "dataset": self.dataset}
        rows = [imported_row(self.spec, one, self.responses[one.example_id], save_texts) for one in self.examples]
        return pd.DataFrame([keys | row for row in rows])


def imported_row(spec: Model, example: Example, response: Response, save_texts: bool) -> dict[str, Any]:
    """Return one row of that frame. An end token of probability 0 replaces a missing response.

    A log has one log-probability per token and does not tell whether it is raw or that of sampling: we use it for both.
    """
    logprobs = np.clip(response.logprobs or [IMPOSSIBLE], np.finfo(np.float32).min, 0).astype(np.float32)
    ended, thinking = response.ended or not response.pieces, spec.thinking or response.thought
    scores: Scores = {
        "located": locate_answer(response.pieces[: len(logprobs) - ended], thinking),
        "token_logprobs": logprobs,
        "token_logprobs_sampling": logprobs,
        "finish_reason": response.finish_reason if response.pieces else "stop",
        "eos": int(ended),
        **dict.fromkeys(("kept_positions", "chosen_logit", "top_logits", "top_ids", "tail_curve"), []),
    }
    row = response_row(Request(example, None, [], 0, 0), [UNKNOWN_TOKEN] * len(logprobs), scores, save_texts)
    return row | {"prompt_tokens": response.prompt_tokens}


# ---- with the model


class FileEngine:
    """An engine that takes the responses from a model's file instead of sampling."""

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example]):
        self.lm, imported = lm, ImportedResponses.read(lm.spec, dataset, examples)
        self.responses, self.facts = imported.responses, imported.facts

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of the response to each request, with its end token.

        A response is cut where it would fill the context, with prompt and query.
        """
        sampled, cut = [], []
        for request in requests:
            ids = response_token_ids(self.lm, self.responses[request.example.example_id])
            room = p_true.room_for_response(self.lm, request.prompt_ids)
            if len(ids) - (ids[-1] in self.lm.eos) > room:
                cut.append(request.example.example_id)
                ids = ids[:room]
            sampled.append(ids)
        if cut:
            of = f"{len(cut)} of {len(requests)} responses, the first to '{cut[0]}'"
            print(f"{of}, do not fit the context of {self.lm.context} with prompt and query: they are cut there")
        return sampled


def response_token_ids(lm: LanguageModel, response: Response) -> list[int]:
    """Return the tokens of a response, encoded with the model's tokenizer if it has only text.

    Its end tokens and padding become one end token. A complete response without an end token gets one. Raise UserError
    for an id outside the vocabulary.
    """
    ids = list(response.token_ids or encode(lm, response.text))
    if wrong := [token for token in ids if not 0 <= token < lm.vocab_size]:
        size = f"the vocabulary of model '{lm.name}' ends at {lm.vocab_size - 1}: drawn by another model?"
        raise UserError(f"the response to '{response.example_id}' holds the token id {wrong[0]}, and {size}")
    body = len(ids)
    while body and ids[body - 1] in {*lm.eos, lm.tokenizer.pad_token_id}:
        body -= 1
    ends = [token for token in ids[body:] if token in lm.eos]
    if not (ends or body) or response.finish_reason == "stop":
        ends.append(lm.eos[0])
    return ids[:body] + ends[:1]
