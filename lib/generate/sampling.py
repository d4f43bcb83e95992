"""Sampling: from prompts to token ids.

A step warps the logits (temperature, top-k, top-p, min-p) and inverts the cumulative distribution
at a uniform random number seeded by example and step. So in float32 an example's tokens are
independent of the batch. In bfloat16 kernels sum in a different order for a different batch, so
near-ties can resolve differently (4 and 6 of 200 responses of the demo models).
"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, DynamicCache, DynamicLayer

from lib.models.batching import map_by_length
from lib.models.float32_logits import rounded_logits_on_cpu
from lib.models.loading import LanguageModel, check_finite_logits
from lib.parameter_schemas import Model
from lib.responses.rows import Request

CANDIDATES = (64, 2048)  # numbers of most probable tokens to sort for top-p, before all


class TransformersEngine:
    """Samples responses with transformers, one batch of similar prompts at a time."""

    def __init__(self, lm: LanguageModel, max_batch_tokens: int):
        # prompt and response tokens of a batch
        self.lm, self.max_batch_tokens = lm, max_batch_tokens
        self.facts: dict[str, Any] = {"engine": "transformers"}
        self.responses: dict[str, Any] = {}  # no question has one yet

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of a response to each request, including its end token."""
        lengths = [len(request.prompt_ids) + request.max_new_tokens for request in requests]
        work, what = partial(sample_batch, self.lm), f"model '{self.lm.name}'"
        return map_by_length(work, requests, lengths, self.max_batch_tokens, what)


@torch.inference_mode()
def sample_batch(lm: LanguageModel, requests: Sequence[Request]) -> list[list[int]]:
    """Return the token ids of a response to each request of a batch.

    Padding is on the left, after the shared prefix if the cache keeps all tokens. The rows that
    have ended leave the batch once they are half of it, and at a row's limit, beyond which there
    may be no position.
    """
    prefix = requests[0].prompt_ids[: requests[0].shared_tokens if keeps_all_tokens(lm) else 0]
    rest, limits = (
        [one.prompt_ids[len(prefix) :] for one in requests],
        [one.max_new_tokens for one in requests],
    )
    new = pad_left(rest, lm.eos[0]).to(lm.device)  # any token is padding where the mask is 0
    mask = pad(pad_left([[1] * len(ids) for ids in rest], 0), (len(prefix), 0), value=1).to(
        lm.device
    )
    cache = repeat_row(encode_prefix(lm, prefix), len(requests))
    ends, last = torch.tensor(lm.eos, device=lm.device), torch.tensor(limits, device=lm.device)
    uniforms = uniform_numbers([one.seed for one in requests], max(limits)).to(lm.device)
    tokens = torch.full_like(uniforms, lm.eos[0], dtype=torch.long)
    # sums of each row's largest logits: not finite once one is not
    largest = torch.zeros_like(uniforms[:, 0])
    rows = torch.arange(len(requests), device=lm.device)  # that are left
    ended, step = torch.zeros_like(rows, dtype=torch.bool), 0
    with rounded_logits_on_cpu(lm.model):
        while len(rows):
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new.shape[1] :]
            read = lm.model(
                new,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
                logits_to_keep=1,
            )
            logits = read.logits[:, -1].to(lm.device, torch.float32)
            largest[rows] += logits.amax(-1)  # of padding, which sees no key, some kernels make NaN
            drawn = sample_inverse_cdf(warp_logits(logits, lm.spec), uniforms[rows, step])
            tokens[rows, step] = drawn
            new, mask, step = drawn[:, None], pad(mask, (0, 1), value=1), step + 1
            at_limit = last[rows] == step
            ended = ended | at_limit | torch.isin(drawn, ends)
            if (2 * ended.sum() >= len(rows)) | at_limit.any():
                left: Any = (~ended).nonzero()[:, 0]
                rows, new, mask, ended = rows[left], new[left], mask[left], ended[left]
                cache.reorder_cache(left)
    check_finite_logits(lm, largest.tolist(), [one.example.example_id for one in requests])
    return [
        truncate_at_eos(row[:limit], lm.eos)
        for row, limit in zip(tokens.tolist(), limits, strict=True)
    ]


def uniform_numbers(seeds: Sequence[int], steps: int) -> torch.Tensor:
    """Return (batch, steps) numbers in [0, 1), a row per seed. Philox counts, so longer rows extend
    shorter ones."""
    return torch.from_numpy(
        np.stack([np.random.Generator(np.random.Philox(s)).random(steps) for s in seeds])
    )


def sample_inverse_cdf(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the tokens (batch,) where the cumulative distribution of logits (batch, V) exceeds u
    (batch,).

    The first index whose cumulative mass exceeds u has mass itself, so truncated tokens are never
    drawn. Non-finite logits give the last token; `sample_batch` then raises an error with the row's
    name.
    """
    cumulative = logits.double().softmax(-1).cumsum(-1)
    whole = cumulative[:, -1:].contiguous()
    # last token with mass, for u times the total that rounds to the total
    last = torch.searchsorted(cumulative, whole)
    token = torch.searchsorted(cumulative, u[:, None] * whole, right=True).minimum(last)[:, 0]
    return token.clamp_(max=logits.shape[-1] - 1)


def warp_logits(logits: torch.Tensor, spec: Model) -> torch.Tensor:
    """Apply a model file's temperature, top-k, top-p and min-p to logits (n, V); -inf for truncated
    tokens.

    These are transformers' warpers, in their order. But only the most probable tokens are sorted
    for top-p, unless they have too little mass.
    """
    warped = logits / spec.temperature
    if spec.top_k > 0:
        least = warped.topk(min(spec.top_k, warped.shape[-1])).values[:, -1:]
        warped = warped.masked_fill(warped < least, -torch.inf)
    if spec.top_p < 1.0:
        for count in (*CANDIDATES, warped.shape[-1]):
            values, ids = warped.topk(min(count, warped.shape[-1]))  # falling
            shares = (values - warped.logsumexp(-1, True)).double().exp()
            before = shares.cumsum(-1) - shares
            if (before[:, -1:] >= spec.top_p).all():
                break
        kept = values.masked_fill(before >= spec.top_p, -torch.inf)
        warped = torch.full_like(warped, -torch.inf).scatter(-1, ids, kept)
    if spec.min_p > 0.0:
        shares = warped.softmax(-1)
        warped = warped.masked_fill(shares < spec.min_p * shares.amax(-1, True), -torch.inf)
    return warped


def truncate_at_eos(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return a row up to and including its first end token."""
    end = next((i for i, token in enumerate(row) if token in eos), len(row))
    return row[: end + 1]


# ---- rows of tokens, and caches of what they begin with


def pad_left(rows: Sequence[list[int]], value: int) -> torch.Tensor:
    return pad_sequence(
        list(map(torch.tensor, rows)), batch_first=True, padding_value=value, padding_side="left"
    )


@torch.inference_mode()
def encode_prefix(lm: LanguageModel, ids: Sequence[int], count: int = 1) -> Cache:
    """Return the cache of `count` equal rows of tokens; an empty cache without tokens."""
    cache = DynamicCache(config=lm.model.config)
    if ids:
        lm.model(
            torch.tensor([ids], device=lm.device).expand(count, -1),
            past_key_values=cache,
            logits_to_keep=1,
        )
    return cache


def select_rows(cache: Cache, rows: Sequence[int]) -> Cache:
    """Return a growable cache with these rows of a cache, by the cache's own reordering; `cache` is
    unchanged."""
    selected = copy.copy(cache)
    selected.layers = [copy_layer(layer) for layer in cache.layers]
    order: Any = torch.tensor(rows, dtype=torch.long)
    selected.reorder_cache(order)
    return selected


def copy_layer(layer: Any) -> Any:
    """Return a copy that shares tensors. Layers of convolutions and of linear attention hold theirs
    in dictionaries."""
    copied = copy.copy(layer)
    vars(copied).update(
        {name: dict(held) for name, held in vars(layer).items() if isinstance(held, dict)}
    )
    return copied


def repeat_row(cache: Cache, count: int) -> Cache:
    """Return a copy of a cache with its first row `count` times."""
    return select_rows(cache, [0] * count)


def keeps_all_tokens(lm: LanguageModel) -> bool:
    """Whether the model's cache keeps every token's keys and values. Padding inside a row would
    displace needed tokens in a sliding window, and would enter the state of a convolution or of
    linear attention."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=lm.model.config).layers)
