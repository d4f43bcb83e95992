"""The last product, from hidden states to logits: in float32 where the rest of a model is in half precision.

Rounded to bfloat16, logits between 16 and 32 lie .125 apart: margins tie, and entropies are coarser than what the model
knows. Products of bfloat16 numbers are exact in float32, so that this rounding alone is left out; hidden states stay
what they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch

CHUNK = 2048  # rows of the weights that a processor holds in float32 at once: 34 MB at 4,096 numbers each


class Head(torch.nn.Linear):
    """A model's last layer, which gives float32 logits (..., V). `hidden` (..., H) is what it was last given."""

    rounds = False  # gives rounded ones where others are dear, see `rounding`
    last = True  # its logits are the model's, which neither scales nor caps them afterwards
    hidden: torch.Tensor

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.hidden = hidden
        if self.rounds and not hidden.is_cuda:
            return super().forward(hidden)
        return product(hidden, self.weight, self.bias)

    @contextmanager
    def rounding(self) -> Iterator[None]:
        """While it lasts, logits are rounded where there is no GPU: of a whole vocabulary, step by step, float32 ones
        take six times as long there (30 rows of 1,536 numbers, 152,000 tokens: .69 s against .12)."""
        self.rounds = True
        try:
            yield
        finally:
            self.rounds = False


def product(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Float32 logits (..., V) of hidden states (..., H), both in half precision: on a GPU the matrix units' own sums,
    elsewhere a float32 product of some rows of the weights (V, H) at a time."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    if hidden.is_cuda:
        logits = torch.mm(rows, weight.t(), out_dtype=torch.float32)
    else:
        rows = rows.float()
        logits = torch.cat([torch.mm(rows, part.float().t()) for part in weight.split(CHUNK)], -1)
    return (logits if bias is None else logits + bias.float()).reshape(*hidden.shape[:-1], -1)


def exact(model: Any) -> bool:
    """Have the last layer of a model in half precision give float32 logits; whether that is so. One in float32 is left
    as it is. A few tokens are read, to see whether the model scales or caps logits afterwards."""
    layer = model.get_output_embeddings()
    linear = type(layer) is torch.nn.Linear
    if not linear or layer.weight.dtype not in (torch.bfloat16, torch.float16):
        return False
    layer.__class__ = Head
    if hasattr(layer, "_old_forward"):  # accelerate hooks a model that is spread over GPUs: its hook calls this
        layer._old_forward = MethodType(Head.forward, layer)
    with torch.inference_mode():
        logits = model(torch.arange(8, device=model.device)[None]).logits
        layer.last = torch.equal(logits, layer(layer.hidden))
    return True
