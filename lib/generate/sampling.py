"""Sampling: from prompts to token ids.

transformers' `generate` decodes greedily after our logits processor. It warps a step's logits (temperature, top-k,
top-p, min-p) and inverts the cumulative distribution at a uniform random number seeded by example and step. So in
float32 an example's tokens are independent of the batch. In bfloat16 kernels sum in a different order for a different
batch, so near-ties can resolve differently (4 and 6 of 200 responses of the demo models).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.functional import pad
from transformers import (
    Cache,
    DynamicCache,
    DynamicLayer,
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from lib.generate.batching import map_by_length
from lib.generate.float32_logits import rounded_logits_on_cpu
from lib.generate.models import LanguageModel, check_finite_logits
from lib.models_and_datasets import Model
from lib.tasks.datasets import Example

CANDIDATES = 2048  # number of most probable tokens to sort for top-p
TIED = 64  # logits that may tie with the last of the top k; transformers keeps all of them


@dataclass(frozen=True)
class Request:
    """An example as a request to the model."""

    example: Example
    prompt: str | None  # None if unknown
    prompt_ids: list[int]
    seed: int  # of the response's random stream
    max_new_tokens: int
    shared_tokens: int = 0  # at the beginning of all prompts, encoded once


class TransformersEngine:
    """Samples responses with transformers, one batch of similar prompts at a time."""

    def __init__(self, lm: LanguageModel, max_batch_tokens: int):
        self.lm, self.max_batch_tokens = lm, max_batch_tokens  # prompt and response tokens of a batch
        self.facts: dict[str, Any] = {"engine": "transformers"}
        self.responses: dict[str, Any] = {}  # no question has one yet

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of a response to each request, including its end token."""
        sampled: dict[int, list[int]] = {}
        # prompts with one limit share a batch, so that truncation is independent of the other rows
        for limit in sorted({request.max_new_tokens for request in requests}, reverse=True):
            places = [i for i, request in enumerate(requests) if request.max_new_tokens == limit]
            asked, lengths = [requests[i] for i in places], [len(requests[i].prompt_ids) + limit for i in places]
            work, what = partial(sample_batch, self.lm), f"model '{self.lm.name}'"
            sampled |= zip(places, map_by_length(work, asked, lengths, self.max_batch_tokens, what), strict=True)
        return [sampled[i] for i in range(len(requests))]


@torch.inference_mode()
def sample_batch(lm: LanguageModel, requests: Sequence[Request]) -> list[list[int]]:
    """Return the token ids of a response to each request of a batch with one `max_new_tokens`.

    `generate` requires padding on the left. We put it after the shared prefix, if the cache keeps all tokens.
    It also runs until the longest response ends. So it stops when half of the rows have ended, and the others go on.
    """
    prefix = requests[0].prompt_ids[: requests[0].shared_tokens if keeps_all_tokens(lm) else 0]
    rest = lm.tokenizer.pad({"input_ids": [one.prompt_ids[len(prefix) :] for one in requests]}, return_tensors="pt")
    first = torch.tensor([prefix] * len(requests), dtype=torch.long)
    ids = torch.cat([first, rest.input_ids], 1).to(lm.device)
    mask = torch.cat([torch.ones_like(first), rest.attention_mask], 1).to(lm.device)
    cache = repeat_row(encode_prefix(lm, prefix), len(requests))
    start, steps = ids.shape[1], requests[0].max_new_tokens
    uniforms = uniform_numbers([one.seed for one in requests], steps)
    sampled: dict[int, list[int]] = {}
    rows = list(range(len(requests)))
    with rounded_logits_on_cpu(lm.model):
        while rows:
            done = ids.shape[1] - start
            sampler = SeededSampler(lm.spec, uniforms[rows, done:])
            ids = lm.model.generate(
                input_ids=ids,
                attention_mask=mask,
                past_key_values=cache,
                # greedy: with do_sample, transformers would apply its own warpers after the sampler
                logits_processor=LogitsProcessorList([sampler]),
                stopping_criteria=StoppingCriteriaList([HalfEnded(lm.eos)]),
                generation_config=GenerationConfig(
                    do_sample=False,
                    max_new_tokens=steps - done,
                    eos_token_id=lm.eos,
                    pad_token_id=lm.tokenizer.pad_token_id,
                ),
            )
            check_finite_logits(lm, sampler.largest.tolist(), [requests[row].example.example_id for row in rows])
            sampled |= zip(rows, (truncate_at_eos(row, lm.eos) for row in ids[:, start:].tolist()), strict=True)
            going = [i for i, row in enumerate(rows) if len(sampled[row]) < steps and sampled[row][-1] not in lm.eos]
            rows, left = [rows[i] for i in going], torch.tensor(going, dtype=torch.long)
            ids, cache = ids[left], select_rows(cache, left)
            mask = pad(mask[left], (0, ids.shape[1] - mask.shape[1]), value=1)
    return [sampled[i] for i in range(len(requests))]


class HalfEnded(EosTokenCriteria):
    """Stops all rows of a batch once half of them have ended."""

    ended: torch.Tensor | bool = False

    def __call__(self, input_ids: Any, scores: Any, *more: Any, **kwargs: Any) -> Any:
        self.ended = super().__call__(input_ids, scores, *more, **kwargs) | self.ended  # (batch,)
        return (2 * self.ended.sum() >= len(self.ended)).expand(len(self.ended))


class SeededSampler(LogitsProcessor):
    """Draws each row's token from its own Philox stream, and masks all other tokens."""

    def __init__(self, spec: Model, uniforms: torch.Tensor):
        self.spec, self.uniforms, self.step = spec, uniforms, 0  # (batch, steps)
        self.largest = torch.zeros(len(uniforms))  # sums of each row's largest logits: not finite once one is not

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.uniforms, self.largest = self.uniforms.to(scores.device), self.largest.to(scores.device)  # once
        self.largest += scores.amax(-1)  # of padding, which sees no key, some kernels make NaN
        token = sample_inverse_cdf(warp_logits(scores, self.spec), self.uniforms[:, self.step])
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(-1, token[:, None], 0.0)


def uniform_numbers(seeds: Sequence[int], steps: int) -> torch.Tensor:
    """Return (batch, steps) numbers in [0, 1), a row per seed. Philox counts, so longer rows extend shorter ones."""
    return torch.from_numpy(np.stack([np.random.Generator(np.random.Philox(s)).random(steps) for s in seeds]))


def sample_inverse_cdf(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the tokens (batch,) where the cumulative distribution of logits (batch, V) exceeds u (batch,).

    The first index whose cumulative mass exceeds u has mass itself, so truncated tokens are never drawn. Non-finite
    logits give the last token; `sample_batch` then raises an error with the row's name.
    """
    cumulative = logits.double().softmax(-1).cumsum(-1)
    whole = cumulative[:, -1:].contiguous()
    last = torch.searchsorted(cumulative, whole)  # last token with mass, for u times the total that rounds to the total
    token = torch.searchsorted(cumulative, u[:, None] * whole, right=True).minimum(last)[:, 0]
    return token.clamp_(max=logits.shape[-1] - 1)


def warp_logits(logits: torch.Tensor, spec: Model) -> torch.Tensor:
    """Apply a model file's temperature, top-k, top-p and min-p to logits (n, V); -inf for truncated tokens.

    Equal to transformers' own warpers in their order, which sort the whole vocabulary for top-p. Here only the most
    probable tokens are sorted, unless their mass is too small.
    """
    count = 2 * spec.top_k + TIED if spec.top_k > 0 else min(CANDIDATES, logits.shape[-1] // 4)
    if count >= logits.shape[-1] or (spec.top_k < 1 and spec.top_p == 1.0):
        return apply_warpers(logits, spec)
    values, ids = logits.topk(count, dim=-1)  # largest first
    if spec.top_k < 1:
        mass = ((values - logits.max(-1, True).values) / spec.temperature).exp()
        shares = mass / ((logits - logits.max(-1, True).values) / spec.temperature).exp().sum(-1, True)
        before = shares.cumsum(-1) - shares
        if bool((before[:, -1] < spec.top_p).any()):
            return apply_warpers(logits, spec)
        values = values.masked_fill(before >= spec.top_p, -torch.inf)
        spec = spec.model_copy(update={"top_p": 1.0})
    return torch.full_like(logits, -torch.inf).scatter(-1, ids, apply_warpers(values, spec))


def apply_warpers(logits: torch.Tensor, spec: Model) -> torch.Tensor:
    """Apply transformers' own warpers; settings that are off add none."""
    ids: Any = None  # these warpers ignore them
    if spec.temperature != 1.0:
        logits = transformers.TemperatureLogitsWarper(spec.temperature)(ids, logits)
    if spec.top_k > 0:
        logits = transformers.TopKLogitsWarper(spec.top_k)(ids, logits)
    if spec.top_p < 1.0:
        logits = transformers.TopPLogitsWarper(spec.top_p)(ids, logits)
    if spec.min_p > 0.0:
        logits = transformers.MinPLogitsWarper(spec.min_p)(ids, logits)
    return logits


@torch.inference_mode()
def encode_prefix(lm: LanguageModel, ids: Sequence[int], count: int = 1, before: Cache | None = None) -> Cache:
    """Return the cache of `count` equal rows of tokens, after the row of `before`; an empty cache without tokens."""
    cache = DynamicCache(config=lm.model.config) if before is None else repeat_row(before, count)
    if ids:
        lm.model(torch.tensor([ids], device=lm.device).expand(count, -1), past_key_values=cache, logits_to_keep=1)
    return cache


def select_rows(cache: Cache, rows: Sequence[int] | torch.Tensor) -> Cache:
    """Return a growable cache with these rows of a cache, by the cache's own reordering; `cache` is unchanged."""
    selected = copy.copy(cache)
    selected.layers = [copy_layer(layer) for layer in cache.layers]
    order: Any = torch.as_tensor(rows, dtype=torch.long)
    selected.reorder_cache(order)
    return selected


def copy_layer(layer: Any) -> Any:
    """Return a copy that shares tensors. Layers of convolutions and of linear attention hold theirs in dictionaries."""
    copied = copy.copy(layer)
    vars(copied).update({name: dict(held) for name, held in vars(layer).items() if isinstance(held, dict)})
    return copied


def repeat_row(cache: Cache, count: int) -> Cache:
    """Return a growable cache with the first row of a cache `count` times; `cache` is unchanged."""
    return select_rows(cache, [0] * count)


def keeps_all_tokens(lm: LanguageModel) -> bool:
    """Whether the model's cache keeps every token's keys and values. Padding inside a row would displace needed tokens
    in a sliding window, and would enter the state of a convolution or of linear attention."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=lm.model.config).layers)


def truncate_at_eos(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return a row up to and including its first end token."""
    end = next((i for i, token in enumerate(row) if token in eos), len(row))
    return row[: end + 1]
