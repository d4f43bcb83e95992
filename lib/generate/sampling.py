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
        self.lm = lm
        self.max_batch_tokens = max_batch_tokens  # of prompts and responses
        self.facts: dict[str, Any] = {"engine": "transformers"}
        self.responses: dict[str, Any] = {}  # no question has one yet

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of a response to each request, including its end token."""
        lengths = [len(request.prompt_ids) + request.max_new_tokens for request in requests]
        sample = partial(sample_batch, self.lm)
        what = f"model '{self.lm.name}'"
        return map_by_length(sample, requests, lengths, self.max_batch_tokens, what)


@torch.inference_mode()
def sample_batch(lm: LanguageModel, requests: Sequence[Request]) -> list[list[int]]:
    """Return the token ids of a response to each request of a batch."""
    batch = Batch(lm, requests)
    with rounded_logits_on_cpu(lm.model):
        while len(batch.rows):
            batch.step()
    names = [request.example.example_id for request in requests]
    check_finite_logits(lm, batch.largest.tolist(), names)
    responses = []
    for request, tokens in zip(requests, batch.tokens.tolist(), strict=True):
        responses.append(truncate_at_eos(tokens[: request.max_new_tokens], lm.eos))
    return responses


class Batch:
    """Responses that are sampled together, a token of each at every step.

    Padding is on the left, after the shared prefix if the cache keeps all tokens. The rows that
    have ended leave the batch once they are half of it, and at a row's limit, beyond which there
    may be no position.
    """

    def __init__(self, lm: LanguageModel, requests: Sequence[Request]):
        shared = requests[0].shared_tokens if keeps_all_tokens(lm) else 0
        prefix = requests[0].prompt_ids[:shared]
        rest = [request.prompt_ids[len(prefix) :] for request in requests]
        ones = [[1] * len(ids) for ids in rest]
        unpadded = pad_left(ones, 0)
        limits = [request.max_new_tokens for request in requests]
        seeds = [request.seed for request in requests]
        uniforms = uniform_numbers(seeds, max(limits))
        self.lm = lm
        self.ends = torch.tensor(lm.eos, device=lm.device)
        # of all requests
        self.limits = torch.tensor(limits, device=lm.device)
        self.uniforms = uniforms.to(lm.device)
        self.tokens = torch.full_like(self.uniforms, lm.eos[0], dtype=torch.long)
        # sums of each row's largest logits: not finite once one is not
        self.largest = torch.zeros_like(self.uniforms[:, 0])
        # of the rows that are left: which these are, what they read next, and what they have read
        self.rows = torch.arange(len(requests), device=lm.device)
        self.ended = torch.zeros_like(self.rows, dtype=torch.bool)
        self.new = pad_left(rest, lm.eos[0]).to(lm.device)  # the mask is 0 where tokens are padding
        self.mask = pad(unpadded, (len(prefix), 0), value=1).to(lm.device)
        self.cache = repeat_row(encode_prefix(lm, prefix), len(requests))
        self.steps = 0

    def step(self) -> None:
        """Sample the next token of every row that is left."""
        logits = self.read()
        # of padding, which sees no key, some kernels make NaN
        self.largest[self.rows] += logits.amax(-1)
        uniforms = self.uniforms[self.rows, self.steps]
        warped = warp_logits(logits, self.lm.spec)
        tokens = sample_inverse_cdf(warped, uniforms)
        self.tokens[self.rows, self.steps] = tokens
        self.new = tokens[:, None]
        self.mask = pad(self.mask, (0, 1), value=1)
        self.steps += 1
        at_limit = self.limits[self.rows] == self.steps
        at_end = torch.isin(tokens, self.ends)
        self.ended = self.ended | at_limit | at_end
        half_ended = 2 * self.ended.sum() >= len(self.rows)
        if half_ended | at_limit.any():
            self.keep(~self.ended)

    def read(self) -> torch.Tensor:
        """Read the new tokens, and return the float32 logits (rows, V) of the next ones."""
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        n_new = self.new.shape[1]
        output = self.lm.model(
            self.new,
            attention_mask=self.mask,
            position_ids=positions[:, -n_new:],
            past_key_values=self.cache,
            logits_to_keep=1,
        )
        return output.logits[:, -1].to(self.lm.device, torch.float32)

    def keep(self, left: torch.Tensor) -> None:
        """Leave only some rows (a mask) in the batch."""
        order: Any = left.nonzero()[:, 0]
        self.rows = self.rows[order]
        self.ended = self.ended[order]
        self.new = self.new[order]
        self.mask = self.mask[order]
        self.cache.reorder_cache(order)


def uniform_numbers(seeds: Sequence[int], steps: int) -> torch.Tensor:
    """Return (batch, steps) numbers in [0, 1), a row per seed. Philox counts, so longer rows extend
    shorter ones.
    """
    rows = []
    for seed in seeds:
        generator = np.random.Generator(np.random.Philox(seed))
        rows.append(generator.random(steps))
    return torch.from_numpy(np.stack(rows))


def sample_inverse_cdf(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the tokens (batch,) where the cumulative distribution of logits (batch, V) exceeds u
    (batch,).

    The first index whose cumulative mass exceeds u has mass itself, so truncated tokens are never
    drawn. Non-finite logits give the last token; `sample_batch` then raises an error with the row's
    name.
    """
    probabilities = logits.double().softmax(-1)
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    tokens = torch.searchsorted(cumulative, u[:, None] * total, right=True)
    # last token with mass, for u times the total that rounds to the total
    last = torch.searchsorted(cumulative, total)
    tokens = tokens.minimum(last)[:, 0]
    return tokens.clamp_(max=logits.shape[-1] - 1)


def warp_logits(logits: torch.Tensor, spec: Model) -> torch.Tensor:
    """Apply a model file's temperature, top-k, top-p and min-p to logits (n, V); -inf for truncated
    tokens.

    These are transformers' warpers, in their order. But only the most probable tokens are sorted
    for top-p, unless they have too little mass.
    """
    warped = logits / spec.temperature
    if spec.top_k > 0:
        most_probable = min(spec.top_k, warped.shape[-1])
        falling = warped.topk(most_probable).values
        least = falling[:, -1:]
        warped = warped.masked_fill(warped < least, -torch.inf)
    if spec.top_p < 1.0:
        warped = truncate_to_nucleus(warped, spec.top_p)
    if spec.min_p > 0.0:
        shares = warped.softmax(-1)
        least = spec.min_p * shares.amax(-1, True)
        warped = warped.masked_fill(shares < least, -torch.inf)
    return warped


def truncate_to_nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return logits (n, V), -inf for tokens that follow more probable ones of mass `top_p`."""
    vocabulary = logits.shape[-1]
    for count in (*CANDIDATES, vocabulary):
        values, ids = logits.topk(min(count, vocabulary))  # falling
        shares = (values - logits.logsumexp(-1, True)).double().exp()
        before = shares.cumsum(-1) - shares
        if (before[:, -1:] >= top_p).all():
            break
    nucleus = values.masked_fill(before >= top_p, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter(-1, ids, nucleus)


def truncate_at_eos(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return a row up to and including its first end token."""
    for place, token in enumerate(row):
        if token in eos:
            return row[: place + 1]
    return row


# ---- rows of tokens, and caches of what they begin with


def pad_left(rows: Sequence[list[int]], value: int) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side="left")


@torch.inference_mode()
def encode_prefix(lm: LanguageModel, ids: Sequence[int], count: int = 1) -> Cache:
    """Return the cache of `count` equal rows of tokens; an empty cache without tokens."""
    cache = DynamicCache(config=lm.model.config)
    if ids:
        row = torch.tensor([ids], device=lm.device)
        lm.model(row.expand(count, -1), past_key_values=cache, logits_to_keep=1)
    return cache


def select_rows(cache: Cache, rows: Sequence[int]) -> Cache:
    """Return a growable cache with these rows of a cache, by the cache's own reordering; `cache` is
    unchanged.
    """
    selected = copy.copy(cache)
    selected.layers = [copy_layer(layer) for layer in cache.layers]
    order: Any = torch.tensor(rows, dtype=torch.long)
    selected.reorder_cache(order)
    return selected


def copy_layer(layer: Any) -> Any:
    """Return a copy that shares tensors. Layers of convolutions and of linear attention hold theirs
    in dictionaries.
    """
    copied = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            setattr(copied, name, dict(value))
    return copied


def repeat_row(cache: Cache, count: int) -> Cache:
    """Return a copy of a cache with its first row `count` times."""
    return select_rows(cache, [0] * count)


def keeps_all_tokens(lm: LanguageModel) -> bool:
    """Whether the model's cache keeps every token's keys and values. Padding inside a row would
    displace needed tokens in a sliding window, and would enter the state of a convolution or of
    linear attention.
    """
    cache = DynamicCache(config=lm.model.config)
    return all(type(layer) is DynamicLayer for layer in cache.layers)
