"""Stored responses of four tokens, whose probabilities are known."""

import numpy as np


def respond(example_id="a", probabilities=(0.5, 0.8, 0.9, 0.4), answer="7", **other):
    """A row of a generations frame: the third token holds the (right) answer, the last one ends
    the response."""
    row = {
        "model": "m",
        "dataset": "d",
        "split": "evaluation",
        "example_id": example_id,
        "reference": "7",
        "answer": answer,
        "answer_start": 2,
        "answer_end": 3,
        "last_number_start": -1,
        "last_number_end": -1,
        "token_logprobs": np.log(probabilities).astype(np.float32),
        "token_logprobs_sampling": np.log(np.sqrt(probabilities)).astype(np.float32),
        "thinking_end": 0,
        "eos": 1,
        "finish_reason": "stop",
    }
    return row | other


def respond_without_answer(example_id="a", **other):
    """The same row, in which no token holds an answer."""
    return respond(example_id, answer=None, answer_start=-1, answer_end=-1, **other)
