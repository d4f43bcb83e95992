"""A request to a model, and the row that is stored of its response."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.tasks.datasets import Example


@dataclass(frozen=True)
class Request:
    """An example as a request to the model."""

    example: Example
    prompt: str | None  # None if unknown
    prompt_ids: list[int]
    seed: int  # of the response's random stream
    max_new_tokens: int
    shared_tokens: int = 0  # at the beginning of all prompts, encoded once


Scores = dict[str, Any]  # columns of the generations frame


def response_row(
    request: Request, token_ids: Sequence[int], scores: Scores, save_texts: bool
) -> dict[str, Any]:
    """Return one row of the generations frame; `scores` are columns plus the position of the answer
    (`located`)."""
    scores = dict(scores)
    located = scores.pop("located")
    texts = {
        "text": located["text"],
        "prompt": request.prompt,
        "question": request.example.question,
    }
    return {
        **request.example._asdict(),
        **located,
        **(texts if save_texts else dict.fromkeys(texts)),
        "prompt_tokens": len(request.prompt_ids),
        "token_ids": np.array(token_ids, np.int32),
        **scores,
    }
