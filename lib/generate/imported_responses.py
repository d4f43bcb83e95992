"""Existing responses to a run's questions, with their model or without it (the lines: response_files.py).

If the model is available, it scores them like its own responses. Otherwise the tokens' texts and log-probabilities
suffice for the single-pass estimators only. Temperature scaling of logits, P(True) and MC dropout need the model. A
question without a response then becomes a row without an answer. Its only token is an end token of probability 0, so
every confidence is at its minimum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from lib.generate import p_true
from lib.generate.models import LanguageModel, encode
from lib.generate.response_files import LOST, RESERVATIONS, Response, read_response_file
from lib.generate.sampling import Request
from lib.generate.teacher_forcing import Scores, response_row
from lib.models_and_datasets import Model
from lib.paths import UserError, nearest, public_path, relative_path
from lib.tasks.answers import CLOSING_TAG, MARK, find_answer, locate_answer, runs_on
from lib.tasks.datasets import Example

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
        imported = cls(spec, dataset, examples, {name: Response(name) for name, *_ in examples} | given)
        count, asked = len(examples), [imported.responses[name] for name, *_ in examples]
        if asked and all(response.empty for response in asked):
            first, there = asked[0].example_id, [name for name, response in given.items() if not response.empty]
            hint = f"; {nearest(first, there)}" if there else imported.describe_reasons()
            raise UserError(f"{where} has no response to {count} of {count} questions, the first '{first}'{hint}")
        if silent := [] if spec.at_hand else [one for one in asked if not (one.empty or one.pieces)]:
            raise UserError(
                f"{silent[0].where}: {len(silent)} of {count} responses, the first to '{silent[0].example_id}', have "
                "no `logprobs`, and the model's file names no `source` that could say them: leave such lines out"
            )
        closed = any(one.thought or CLOSING_TAG in one.text for one in given.values())
        if spec.thinking and not closed and any(one.text and one.finish_reason == "stop" for one in given.values()):
            raise UserError(
                f"{where}: no response holds `{CLOSING_TAG}`, so no answer would be found; remove `thinking: true` "
                "from the model's file, or log the thinking, too"
            )
        return imported

    @property
    def unanswered(self) -> list[str]:
        """The run's questions that become rows without an answer."""
        return [name for name, *_ in self.examples if self.responses[name].empty]

    def describe_reasons(self) -> str:
        """Describe why questions have no response, in parentheses; empty if nothing is known."""
        reasons = Counter(self.responses[name].ending for name in self.unanswered)
        told = ", ".join(f"{reasons[reason]} {reason}" for reason in LOST if reasons[reason])
        return f" ({told})" if told else ""

    def find_reservations(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the example_ids of the responses with each of RESERVATIONS."""
        found: dict[str, list[str]] = {}
        for name in names:
            response = self.responses[name]
            on = runs_on(response.text, self.spec.thinking or response.thought)
            for kind in [*response.reservations, *["running on"] * on]:
                if kind != "sentinels" or not self.spec.at_hand:  # a model says its own log-probabilities
                    found.setdefault(kind, []).append(name)
        return found

    def describe_coverage(self) -> list[str]:
        """Describe how many questions the file answers, and how others and unusual responses are treated."""
        without, said = self.unanswered, f"the {len(self.examples)} questions of {self.dataset}"
        answered = f"{len(self.examples) - len(without)} of {said}" if without else said
        lines = [f"{public_path(str(self.spec.responses).format(dataset=self.dataset))} answers {answered}"]
        if without:
            first = f"{len(without)} without a response{self.describe_reasons()}, the first '{without[0]}'"
            lines.append(f"{first}: rows without an answer, which count as wrong")
        for kind, names in self.find_reservations(name for name, *_ in self.examples).items():
            of = f"{len(names)} of {len(self.examples) - len(without)} responses, the first to '{names[0]}'"
            lines.append(f"{of}, {RESERVATIONS[kind]}")
        texts = [self.responses[name].text for name, *_ in self.examples]
        if any(texts) and not any(find_answer(text) for text in texts):
            lines.append(f"no response holds an answer, a number after `{MARK}`: are these texts what the model wrote?")
        return lines

    @property
    def facts(self) -> dict[str, Any]:
        """The manifest's facts about the source of the responses."""
        lost = Counter(response.ending for response in self.responses.values() if response.empty)
        facts: dict[str, Any] = {"engine": "file", "responses": len(self.responses) - lost.total()}
        facts |= {} if self.spec.at_hand else {"model at hand": False}
        facts |= {"unanswered": lost.total()} if lost else {}
        facts |= {reason: lost[reason] for reason in LOST if lost[reason]}
        return facts | {kind: len(names) for kind, names in self.find_reservations(self.responses).items()}

    def to_frame(self, model: str, save_texts: bool = True) -> pd.DataFrame:
        """Return a generations frame without logits, for a model that is unavailable, in the order of the examples."""
        keys = {"model": model, "dataset": self.dataset}
        rows = [imported_row(self.spec, one, self.responses[one.example_id], save_texts) for one in self.examples]
        return pd.DataFrame([keys | row for row in rows])


# ---- with the model


class FileEngine:
    """An engine that takes the responses from a model's file instead of sampling.

    A response that does not fit in the model's context is not scored: its row has an end token alone, as that of a
    question without a response. `facts` count these among `requests`.
    """

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example], requests: Sequence[Request] = ()):
        self.lm, imported = lm, ImportedResponses.read(lm.spec, dataset, examples)
        self.responses, self.facts = imported.responses, imported.facts
        if too_long := find_too_long(lm, self.responses, requests):
            self.facts["longer than the context"] = len(too_long)

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of the response to each request, including its end token."""
        too_long = find_too_long(self.lm, self.responses, requests)
        names = [request.example.example_id for request in requests]
        return [
            self.lm.eos[:1] if name in too_long else response_token_ids(self.lm, self.responses[name]) for name in names
        ]


def find_too_long(lm: LanguageModel, responses: Mapping[str, Response], requests: Sequence[Request]) -> list[str]:
    """Return the example_ids of the responses that do not fit in the context, with prompt and in-situ query."""
    room, found = (lm.context or math.inf) - len(p_true.query_ids(lm)), []
    for request in requests:
        ids = response_token_ids(lm, responses[request.example.example_id])
        if len(request.prompt_ids) + len(ids) - (ids[-1] in lm.eos) > room:
            found.append(request.example.example_id)
    return found


def response_token_ids(lm: LanguageModel, response: Response) -> list[int]:
    """Return the tokens of a response, encoded with the model's tokenizer if it has only text.

    Its end tokens and padding become one end token. A complete response without an end token gets one. Raise UserError
    for an id outside the vocabulary.
    """
    ids, last = list(response.token_ids or encode(lm, response.text)), lm.vocab_size - 1
    if wrong := [token for token in ids if not 0 <= token <= last]:
        raise UserError(
            f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the vocabulary of model "
            f"'{lm.name}' ends at {last}: drawn by another model?"
        )
    body = len(ids)
    while body and ids[body - 1] in {*lm.eos, lm.tokenizer.pad_token_id}:
        body -= 1
    ends = [token for token in ids[body:] if token in lm.eos]
    if not (ends or body) or response.finish_reason == "stop":
        ends.append(lm.eos[0])
    return ids[:body] + ends[:1]


# ---- without the model


def imported_row(spec: Model, example: Example, response: Response, save_texts: bool = True) -> dict[str, Any]:
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
    return response_row(Request(example, None, [], 0, 0), [UNKNOWN_TOKEN] * len(logprobs), scores, thinking, save_texts)
