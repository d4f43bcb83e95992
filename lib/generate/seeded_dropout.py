"""Dropout with masks that are seeded by pass, and nothing else changed: in float32 results are
independent of the batch.

Dropout acts on the attention weights of every attention module and in every nn.Dropout. Llama and
Qwen3 have only the former; they read their configuration at construction, so setting it later has
no effect.
"""

import copy
import inspect
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from lib.errors import MissingSignalError, UserError, first_line
from lib.models.loading import LanguageModel
from lib.random_streams import stream_seed

# attention weights of a pass and layer in memory; longer responses use smaller blocks of queries
MAX_WEIGHTS = 2**24
QUERIES = 64  # maximum size of a block, as the keys after a block's last query need no weight
BLOCKWISE = "blockwise_eager"
Pass = tuple[int, float]  # seed of its random stream, rate of its dropout
functional: Any = torch.nn.functional


def bernoulli_masks(passes: Sequence[Pass], site: int, shape: Sequence[int]) -> torch.Tensor:
    """Return masks (passes, *shape), True with probability 1 - rate, in steps of 2**-16.

    Each is seeded by its pass and the `site`, which counts the masks of a pass. The random numbers
    are numpy's Philox.
    """
    count = math.prod(shape)
    words = math.ceil(count / 4)  # of 64 bits, which serve four entries each
    keep = np.empty((len(passes), count), dtype=bool)
    for row, (seed, rate) in zip(keep, passes, strict=True):
        generator = np.random.Philox(key=seed, counter=[0, 0, site, 0])
        numbers = generator.random_raw(words).view(np.uint16)[:count]
        np.greater_equal(numbers, round(rate * 65536), out=row)
    return torch.from_numpy(keep).view(len(passes), *shape)


def masks_on_gpu(passes: Sequence[Pass], site: int, x: torch.Tensor) -> torch.Tensor:
    """Return the same for `x` from the GPU's own random numbers, because the CPU would need minutes
    per response.

    The numbers of a mask of more than some 100,000 entries depend on the GPU model.
    """
    bits = torch.empty_like(x, dtype=torch.int32)
    for row, (seed, _) in zip(bits, passes, strict=True):
        generator = torch.Generator(row.device)
        generator.manual_seed(stream_seed(seed, str(site)))
        row.random_(0, 65536, generator=generator)
    thresholds = tuple(round(rate * 65536) for _, rate in passes)
    return bits >= by_pass(thresholds, x.dim(), x.device)


@lru_cache(maxsize=64)  # every copy to a GPU waits for it
def by_pass(values: tuple[float, ...], dimensions: int, device: torch.device) -> torch.Tensor:
    """Return values of the passes as a tensor (passes, 1, ...)."""
    ones = [1] * (dimensions - 1)
    return torch.tensor(values, device=device).view(-1, *ones)


class SeededDropout:
    """Replaces torch's dropout: each row of a batch is one pass."""

    def __init__(self, passes: Sequence[Pass]):
        self.passes = passes
        self.site = 0  # counts the masks of a pass

    def __call__(
        self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training:
            return x
        if len(x) != len(self.passes) or x.dim() not in (3, 4):
            raise UserError(
                f"dropout acts on {tuple(x.shape)}, which is not by passes: c_BALD can't be had"
            )
        if x.is_cuda:
            keep = masks_on_gpu(self.passes, self.site, x)
        else:
            masks = bernoulli_masks(self.passes, self.site, x.shape[1:])
            keep = masks.to(x.device)
        self.site += 1
        keep = keep.view(torch.uint8)  # fast to multiply
        # nothing else uses the attention weights
        masked = x.mul_(keep) if x.dim() == 4 else x * keep
        shares = tuple(1 - rate for _, rate in self.passes)
        return masked.div_(by_pass(shares, x.dim(), x.device))


@contextmanager
def seeded_dropout(model: Any, passes: Sequence[Pass]) -> Iterator[SeededDropout]:
    """Apply `SeededDropout` in all `dropout_modules`, with the rest of the model in evaluation
    mode.

    At the end the model is restored, also after an exception. Masks need the attention weights, so
    attention is eager.
    """
    modules = dropout_modules(model)
    attention = model.config._attn_implementation
    dropout = functional.dropout
    try:
        model.config._attn_implementation = BLOCKWISE
        functional.dropout = SeededDropout(passes)  # a TorchFunctionMode would slow every operation
        for module in modules:
            module.training = True
        yield functional.dropout
    finally:
        for module in modules:
            module.training = False
        model.config._attn_implementation = attention
        functional.dropout = dropout


def blockwise_eager_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the model's own eager attention in blocks of queries, each with the keys that its
    last query sees.

    So half of the weights (passes, heads, queries, keys) are never computed, and at most
    `MAX_WEIGHTS` of a pass are in memory. Keys and values that a group of heads shares are repeated
    once for all blocks.
    """
    eager = inspect.unwrap(type(module).forward).__globals__["eager_attention_forward"]
    groups = getattr(module, "num_key_value_groups", 1)
    if groups > 1:
        module = copy.copy(module)  # with groups of one head, so that it does not repeat them again
        module.num_key_value_groups = 1
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    queries = query.shape[2]
    keys = key.shape[2]
    size = max(1, min(QUERIES, MAX_WEIGHTS // (query.shape[1] * keys)))
    parts = []
    for first in range(0, queries, size):
        last = min(first + size, queries)
        seen = keys - queries + last
        mask = attention_mask[:, :, first:last, :seen]
        block = query[:, :, first:last]
        keys_seen = key[:, :, :seen]
        values_seen = value[:, :, :seen]
        parts.append(eager(module, block, keys_seen, values_seen, mask, **more)[0])
    return torch.cat(parts, 1), None


def unpadded_mask(batch_size: int, **more: Any) -> torch.Tensor:
    """Return the mask of eager attention (1, 1, queries, keys), equal for all passes."""
    return eager_mask(1, **more)


AttentionInterface.register(BLOCKWISE, blockwise_eager_attention)
AttentionMaskInterface.register(BLOCKWISE, unpadded_mask)


def dropout_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that apply dropout in training mode: attention (by name, as the classes
    share no base) and nn.Dropout.
    """
    modules = []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) or "Attention" in type(module).__name__:
            modules.append(module)
    return modules


def count_dropout_modules(model: torch.nn.Module) -> dict[str, int]:
    """Return the number of dropout modules by class."""
    kinds = [type(module).__name__ for module in dropout_modules(model)]
    return dict(Counter(kinds))


@torch.inference_mode()
def assert_dropout_active(lm: LanguageModel) -> dict[str, int]:
    """Return the number of dropout modules by class.

    Raise MissingSignalError if two passes are equal (dropout has no effect), or if the network
    can't make them.
    """
    kind = type(lm.model).__name__
    try:
        with seeded_dropout(lm.model, [(1, 0.5), (2, 0.5)]):
            ids = torch.arange(8, device=lm.device).expand(2, -1)
            logits = lm.model(ids, use_cache=False).logits
    except Exception as error:  # of the network's own code
        raise MissingSignalError(
            f"passes with dropout fail in a {kind} ({first_line(error):.150})"
        ) from error
    if torch.equal(logits[0], logits[1]):
        raise MissingSignalError(f"dropout takes no effect anywhere in a {kind}")
    return count_dropout_modules(lm.model)
