"""Responses of a model that is not at hand: a generations frame of what a server's log itself holds.

Tokens as text and their log-probabilities give the single-pass estimators, and no more: a model that can't be asked
has no logits of other tokens (temperature), no P(True), no passes with dropout. A question without a response is a row
without an answer: an end token alone, of probability 0, so that no estimator trusts it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib import store
from lib.generate import drawn
from lib.generate.drawn import Response
from lib.params import Model
from lib.project import UserError, public_path
from lib.tasks import answers
from lib.tasks.datasets import Example, hash_words

UNKNOWN = -1  # the id of a token that is known by its text alone
IMPOSSIBLE = -100.0  # log-probability (nats) of the end token that stands for a response that is not there


def read(spec: Model, dataset: str, examples: Sequence[Example]) -> dict[str, Response]:
    """The responses in a model's file to these examples, by example_id, an empty one to a question without a response.
    Raises UserError for a line that is none, where no question is answered, and for a text without log-probabilities
    where the model is not at hand."""
    path = spec.responses_to(dataset)
    if path is None:
        raise UserError(f"'{spec.label}' names no file of `responses`: nothing is to be imported")
    names = [example.example_id for example in examples]
    found = drawn.filled(drawn.read(path, dataset), names, path)
    without = unanswered(spec, names, found)
    silent = [name for name in without if not found[name].empty and "logprobs" not in found[name].model_fields_set]
    if len(without) == len(names):
        silent = without
    if silent:
        raise UserError(f"{store.relative_path(path)}: {len(silent)} of {len(names)} responses, the first to "
                        f"'{silent[0]}', have no `logprobs`, and the model's file names no `source` that could say "
                        "them")  # fmt: skip
    return found


def unanswered(spec: Model, names: Sequence[str], responses: Mapping[str, Response]) -> list[str]:
    """The questions that become rows without an answer: those without a response, with an empty one, or, where the
    model is not at hand, with one of which the server said no log-probabilities."""
    return [name for name in names if responses[name].empty or not (spec.at_hand or responses[name].logprobs)]


def told(spec: Model, dataset: str, examples: Sequence[Example], responses: Mapping[str, Response]) -> list[str]:
    """How many questions a model's file answers and, where some are left, what becomes of these."""
    without = unanswered(spec, [example.example_id for example in examples], responses)
    file, count = public_path(str(spec.responses).format(dataset=dataset)), len(examples)
    many = f"{count - len(without)} of the {count}" if without else f"the {count}"
    lines = [f"{file} answers {many} questions of {dataset}"]
    if without:
        first = f"{len(without)} without a response, the first '{without[0]}'"
        lines.append(f"{first}: rows without an answer, which count as wrong")
    return lines


def frame(name: str, spec: Model, dataset: str, examples: Sequence[Example], responses: Mapping[str, Response],
          keep_texts: bool = True) -> pd.DataFrame:  # fmt: skip
    """A generations frame in the order of `examples`, without logits. The one log-probability that a log holds of a
    token stands as the model's own and as that when sampling: it does not say which it is."""
    rows = [row(spec, example, responses[example.example_id], keep_texts) for example in examples]
    table = pd.DataFrame(rows)
    table.insert(0, "model", name)
    table.insert(1, "dataset", dataset)
    return table


def row(spec: Model, example: Example, response: Response, keep_texts: bool = True) -> dict[str, Any]:
    """One line of the frame (columns: lib.schemas)."""
    there = bool(response.logprobs)
    logprobs = np.array([entry.logprob for entry in response.logprobs or ()] or [IMPOSSIBLE], np.float32)
    ended = response.ended or not there
    body = response.pieces[: len(logprobs) - ended]
    located = answers.locate_answer_in_texts(body, spec.thinking)
    text = located.pop("text")
    return {
        "text": text if keep_texts else None, "prompt": None, "question": example.question if keep_texts else None,
        **answers.find_alternative_answers(text, spec.thinking), "words": hash_words(example.question),
        "split": example.split, "example_id": example.example_id, "reference": example.reference,
        "prompt_tokens": 0, "token_ids": np.full(len(logprobs), UNKNOWN, np.int32),
        "token_logprobs": np.minimum(logprobs, 0), "token_logprobs_sampling": np.minimum(logprobs, 0), **located,
        "finish_reason": response.finish_reason if there else "stop", "eos": int(ended), "seed": 0,
        "kept_positions": np.zeros(0, np.int32), "reencoded": 0,
        "chosen_logit": np.zeros(0, np.float32), "top_logits": [], "top_ids": [], "tail_curve": [],
    }  # fmt: skip


def facts(spec: Model, responses: Mapping[str, Response]) -> dict[str, Any]:
    """What the manifest says of where they come from."""
    lost = len(unanswered(spec, list(responses), responses))
    known = {"engine": "file", "responses": len(responses) - lost, "model at hand": spec.at_hand}
    return known | ({"unanswered": lost} if lost else {})
