"""Thirty architectures: what a run stores of a response is what plain forward passes say, without cache or batch."""

import architectures
import numpy as np
import pytest
from architectures import plain_logits, respond

from lib.generate import models, p_true, preflight, sampling

pytestmark = pytest.mark.slow
NAMES = [*architectures.ATTENTION, *architectures.STATEFUL]


@pytest.fixture(params=NAMES)
def lm(request):
    return architectures.random(request.param)


def test_a_run_stores_what_plain_passes_say(lm):
    """Of tokens that were drawn in a batch: log-probabilities, the verdict in situ, and that of the standard prompt."""
    frame, options = respond(lm, 4, max_new_tokens=40), list(p_true.option_tokens(lm).values())
    for row, asked in zip(frame.itertuples(), p_true.verify_responses(lm, frame).itertuples(), strict=True):
        prompt, response = models.encode(lm, row.prompt), row.token_ids.tolist()
        logprobs = plain_logits(lm, prompt + response)[len(prompt) - 1 : -1].log_softmax(-1)
        np.testing.assert_allclose(row.token_logprobs, logprobs[range(len(response)), response], atol=5e-5)
        continued = prompt + response[: len(response) - row.eos] + p_true.query_ids(lm)
        np.testing.assert_allclose(row.in_situ_logits, plain_logits(lm, continued)[-1][options], atol=1e-4)
        standard = plain_logits(lm, models.encode(lm, asked.standard_prompt))[-1][options]
        np.testing.assert_allclose(asked.standard_logits, standard, atol=1e-4)


def test_rows_of_a_batch_are_those_drawn_alone(lm):
    requests = architectures.requests(lm, 5, max_new_tokens=30)
    assert sampling.sample_batch(lm, requests) == [sampling.sample_batch(lm, [one])[0] for one in requests]


def test_check_says_that_it_can_run_and_dropout_acts(lm):
    ((level, _),) = preflight.check_kind(lm)
    assert level == "ok"
