"""The stochastic passes over one fixed response, as one batch of equal length, and the key-value caches of the
preceding tokens.

Nothing is generated again. Each pass draws its masks from its own stream (`seeded_dropout`), so results are independent
of the batch.

In the paper's scope, `trajectory`, dropout acts on all tokens. In the scope `answer`, beyond the paper, it acts only
where the model reads the answer's tokens. All tokens before are in a cache computed without dropout.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from transformers import Cache

from lib.generate import models
from lib.generate.batching import map_by_length
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.params import Dropout, Scope
from lib.random_streams import stream_seed
from lib.tasks import answers

MAX_LOGITS = 2**26  # logits of all passes in memory, 256 MB: 44 answer tokens of ten passes, vocabulary 152k


def seeded_passes(settings: Dropout, rate: float, *names: str) -> tuple[Pass, ...]:
    """Return T passes, with one random stream per (run seed, names, rate, pass)."""
    numbers = range(settings.dropout_passes)
    return tuple((stream_seed(settings.seed, *names, f"{rate:g}", str(number)), rate) for number in numbers)


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the token ids before the question of a generations row, such as worked examples, which all rows share.

    `ids` are the tokens of its prompt and what follows. A token that includes part of the question is excluded. The
    result is empty if the prompt does not contain the question.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    return tuple(os.path.commonprefix([models.encode(lm, before), list(ids)])) if question else ()


@lru_cache(maxsize=1)  # consecutive rows share it
def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...] = ()) -> Cache:
    """Return the cache of tokens: one row without dropout, or one row per pass."""
    if not passes:
        return encode_prefix(lm, ids)
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, len(passes))


def read_tokens(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones predict the
    answer."""
    start, end = answers.answer_span(row)
    return tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start


@lru_cache(maxsize=1)  # all rates of a row share it
def encode_without_dropout(lm: LanguageModel, shared: tuple[int, ...], ids: tuple[int, ...]) -> Cache:
    """Return the cache of tokens without dropout, one row. The first of them are `shared` by all responses."""
    return encode_prefix(lm, ids[len(shared) :], before=encode_shared(lm, shared))


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> Iterator[torch.Tensor]:
    """Return the logits of T stochastic passes over one row of a generations frame, at its answer tokens.

    Yields
    ------
    float32 logits (T, b, V), one block of answer tokens after another; each block is another forward pass with the
    same masks

    Raises
    ------
    UserError if even a single pass exceeds the device's memory
    """
    ids, answer = read_tokens(lm, row)
    passes = seeded_passes(settings, rate, lm.name, row.dataset, row.example_id)
    shared, cache = shared_prefix(lm, row, ids), None
    if scope == "answer":
        cache = encode_without_dropout(lm, shared, ids[:-answer])
    elif settings.dropout_prefix == "shared" and shared:
        cache = encode_shared(lm, shared, seeded_passes(settings, rate, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, [0] * len(batch) if scope == "answer" else batch)
        rows = new.expand(len(batch), -1)
        with seeded_dropout(lm.model, [passes[i] for i in batch]):
            read = lm.model(rows, past_key_values=before, use_cache=bool(before), logits_to_keep=places)
        return list(read.logits.float())

    numbers, lengths, budget = range(len(passes)), [len(ids)] * len(passes), settings.max_dropout_tokens
    size = max(1, MAX_LOGITS // (len(passes) * lm.vocab_size))
    for places in torch.arange(len(new) - answer, len(new), device=lm.device).split(size):
        yield torch.stack(map_by_length(partial(run, places), numbers, lengths, budget, f"model '{lm.name}'"))
