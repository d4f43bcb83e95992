"""Float32 logits of a model in half precision.

In bfloat16, logits between 16 and 32 have steps of .125: margins tie, and entropies are too coarse.
Products of bfloat16 numbers are exact in float32. So a forward hook repeats only the product of the
output layer. It runs after accelerate's changes to `forward`, and before the model scales or caps
its logits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

WEIGHT_ROWS = 2048  # converted to float32 at a time on a CPU: 34 MB at 4,096 numbers each
rounding: set[int] = set()  # output layers (by id) whose logits remain rounded for now


def give_float32_logits(model: Any) -> bool:
    """Hook the output layer of a model in half precision, and return whether it was hooked. Leave a
    float32 layer as it is."""
    layer = model.get_output_embeddings()
    half = (torch.bfloat16, torch.float16)
    if not isinstance(layer, torch.nn.Linear) or layer.weight.dtype not in half:
        return False
    layer.register_forward_hook(replace_by_float32)
    return True


def replace_by_float32(
    layer: torch.nn.Linear, inputs: tuple[torch.Tensor, ...], rounded: torch.Tensor
) -> torch.Tensor:
    """Return the layer's output (..., V) in float32, on the device of the rounded output."""
    if id(layer) in rounding:
        return rounded
    hidden = inputs[0].to(layer.weight.device)  # accelerate's own hook moved it for the layer alone
    return float32_product(hidden, layer.weight, layer.bias).to(rounded.device)


def float32_product(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return float32 logits (..., V) of hidden states (..., H) and weights (V, H), both in half
    precision.

    A GPU's matrix units accumulate in float32 anyway. Elsewhere the weights are converted to
    float32 in parts.
    """
    rows = hidden.reshape(-1, hidden.shape[-1])
    if hidden.is_cuda:
        logits = torch.mm(rows, weight.t(), out_dtype=torch.float32)
    else:
        rows = rows.float()
        parts = [torch.mm(rows, part.float().t()) for part in weight.split(WEIGHT_ROWS)]
        logits = torch.cat(parts, -1)
    if bias is not None:
        logits = logits + bias.float()
    return logits.reshape(*hidden.shape[:-1], -1)


@contextmanager
def rounded_logits_on_cpu(model: Any) -> Iterator[None]:
    """Inside this context a CPU leaves logits rounded. Each sampling step needs the logits of the
    whole vocabulary. Float32 takes six times as long on a CPU (30 rows of 1,536 numbers, 152,000
    tokens: .69 s instead of .12 s)."""
    layer = model.get_output_embeddings()
    if not layer.weight.is_cuda:
        rounding.add(id(layer))
    try:
        yield
    finally:
        rounding.discard(id(layer))
