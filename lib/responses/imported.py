"""Existing responses to a run's questions, with their model or without it.

If the model is available, it scores them like its own responses. Otherwise the tokens' texts and
log-probabilities suffice for the single-pass estimators only. Temperature scaling of logits,
P(True) and MC dropout need the model. A question without a response then becomes a row without an
answer. Its only token is an end token of probability 0, so every confidence is at its minimum. The
file is read by lib.responses.formats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from lib.errors import UserError, nearest
from lib.parameter_schemas import Model
from lib.paths import public_path, relative_path
from lib.responses.formats import Response, read_response_file
from lib.responses.rows import Request, Scores, response_row
from lib.tasks.answers import MARK, find_answer, locate_answer, runs_on
from lib.tasks.datasets import Example
from lib.tasks.thinking import CLOSING_TAG

UNKNOWN_TOKEN = -1  # the id of a token known only by its text
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that replaces a missing response
MISSING = "are missing: rows without an answer, which count as wrong"
RUN_ON = "run on after an answer: the last line with `####` counts"


@dataclass(frozen=True)
class ImportedResponses:
    """The responses of a model's file to a run's questions, empty for questions without one."""

    spec: Model
    dataset: str
    examples: Sequence[Example]
    responses: Mapping[str, Response]  # by example_id

    @classmethod
    def read(cls, spec: Model, dataset: str, examples: Sequence[Example]) -> Self:
        """Read the file.

        Raise UserError for a line that cannot be read whole, if no question has a response, if
        `thinking` is set and no response ends it, or for a text without log-probabilities if the
        model is unavailable.
        """
        path = spec.responses_to(dataset)
        if path is None:
            raise UserError(
                f"'{spec.label}' names no file of `responses`: nothing is to be imported"
            )
        given = read_response_file(path, dataset)
        names = [example.example_id for example in examples]
        responses = {name: given.get(name, Response(name)) for name in names}
        others = [name for name, response in given.items() if not response.empty]
        check_usable(spec, responses, others, relative_path(path))
        return cls(spec, dataset, examples, responses)

    def find_remarks(self) -> dict[str, list[str]]:
        """Return what is unusual about responses, with their example_ids."""
        names_by_remark: dict[str, list[str]] = {}
        for name, response in self.responses.items():
            remarks = [MISSING] if response.empty else []
            remarks += response.remarks
            if runs_on(response.text, self.spec.thinking or response.thought):
                remarks.append(RUN_ON)
            for remark in remarks:
                names_by_remark.setdefault(remark, []).append(name)
        return names_by_remark

    @property
    def facts(self) -> dict[str, Any]:
        """The manifest's facts about the source of the responses."""
        answered = sum(not response.empty for response in self.responses.values())
        facts: dict[str, Any] = {"engine": "file", "responses": answered}
        if not self.spec.at_hand:
            facts["model at hand"] = False
        for remark, names in self.find_remarks().items():
            facts[remark] = len(names)
        return facts

    def describe_coverage(self) -> list[str]:
        """Describe how many questions are answered, and how the other responses are treated."""
        count = len(self.examples)
        answered = self.facts["responses"]
        questions = f"the {count} questions of {self.dataset}"
        if answered < count:
            questions = f"{answered} of {questions}"
        path = public_path(str(self.spec.responses_to(self.dataset)))
        lines = [f"{path} answers {questions}"]
        for remark, names in self.find_remarks().items():
            lines.append(f"{len(names)} of {count} responses, the first to '{names[0]}', {remark}")
        texts = [response.text for response in self.responses.values()]
        if any(texts) and not any(map(find_answer, texts)):
            lines.append(
                f"no response holds an answer, a number after `{MARK}`: "
                "are these texts what the model wrote?"
            )
        return lines

    def to_frame(self, model: str, save_texts: bool = True) -> pd.DataFrame:
        """Return the generations of a model that is unavailable, without logits, by example."""
        keys = {"model": model, "dataset": self.dataset}
        rows = []
        for example in self.examples:
            response = self.responses[example.example_id]
            rows.append(keys | imported_row(self.spec, example, response, save_texts))
        return pd.DataFrame(rows)


def check_usable(
    spec: Model, responses: Mapping[str, Response], others: Sequence[str], where: str
) -> None:
    """Raise UserError if no question is answered, or some without what the run needs of them.

    `others`: the example_ids that the file answers, of these questions or not.
    """
    answered = [response for response in responses.values() if not response.empty]
    count = len(responses)
    if responses and not answered:
        first = next(iter(responses))
        raise UserError(
            f"{where} has no response to {count} of {count} questions, the first '{first}'; "
            f"{nearest(first, others)}"
        )
    silent = [response.example_id for response in answered if not response.pieces]
    if silent and not spec.at_hand:
        raise UserError(
            f"{where}: {len(silent)} of {count} responses, the first to '{silent[0]}', "
            "have no `logprobs`, and the model's file names no `source` that could say them: "
            "leave them out"
        )
    closed = any(response.thought for response in answered)
    complete = any(response.text and response.finish_reason == "stop" for response in answered)
    if spec.thinking and complete and not closed:
        raise UserError(
            f"{where}: no response holds `{CLOSING_TAG}`, or another mark that ends a thinking, so "
            "no answer would be found; remove `thinking: true` from the model's file, or log the "
            "thinking, too"
        )


def imported_row(
    spec: Model, example: Example, response: Response, save_texts: bool
) -> dict[str, Any]:
    """Return one row of that frame. An end token of probability 0 replaces a missing response.

    A log has one log-probability per token and does not tell whether it is raw or that of sampling:
    we use it for both.
    """
    least = np.finfo(np.float32).min
    logprobs = np.clip(response.logprobs or [IMPOSSIBLE], least, 0).astype(np.float32)
    ended = response.ended or not response.pieces
    thinking = spec.thinking or response.thought
    scores: Scores = {
        "located": locate_answer(response.text_pieces, thinking),
        "token_logprobs": logprobs,
        "token_logprobs_sampling": logprobs,
        "finish_reason": response.finish_reason if response.pieces else "stop",
        "eos": int(ended),
        "kept_positions": [],
        "chosen_logit": [],
        "top_logits": [],
        "top_ids": [],
        "tail_curve": [],
    }
    request = Request(example, None, [], 0, 0)
    row = response_row(request, [UNKNOWN_TOKEN] * len(logprobs), scores, save_texts)
    return row | {"prompt_tokens": response.prompt_tokens}
