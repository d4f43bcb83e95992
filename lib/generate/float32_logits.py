"""Float32 logits of a model in half precision.

Rounded to bfloat16, logits between 16 and 32 lie .125 apart: margins tie, and entropies are coarser than what the model
knows. Products of bfloat16 numbers are exact in float32. So only the output layer's product is made again, by a forward
hook: it runs after whatever accelerate does to `forward`, and before the model scales or caps its logits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

WEIGHT_ROWS = 2048  # that a processor holds in float32 at once: 34 MB at 4,096 numbers each
rounding: set[int] = set()  # output layers (by id) whose logits stay rounded for now


def give_float32_logits(model: Any) -> bool:
    """Hook the output layer of a model in half precision; whether that was done. One in float32 is left as it is."""
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear) or layer.weight.dtype not in (torch.bfloat16, torch.float16):
        return False
    layer.register_forward_hook(replace_by_float32)
    return True


def replace_by_float32(layer: torch.nn.Linear, inputs: tuple[torch.Tensor, ...], rounded: torch.Tensor) -> torch.Tensor:
    """The layer's output (..., V) in float32, on the device of the rounded one."""
    if id(layer) in rounding:
        return rounded
    hidden = inputs[0].to(layer.weight.device)  # accelerate's own hook has moved it for the layer alone
    return float32_product(hidden, layer.weight, layer.bias).to(rounded.device)


def float32_product(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Float32 logits (..., V) of hidden states (..., H) and weights (V, H), both in half precision.

    A GPU's matrix units add up in float32 anyway. Elsewhere some rows of the weights are made float32 at a time.
    """
    rows = hidden.reshape(-1, hidden.shape[-1])
    if hidden.is_cuda:
        logits = torch.mm(rows, weight.t(), out_dtype=torch.float32)
    else:
        rows = rows.float()
        logits = torch.cat([torch.mm(rows, part.float().t()) for part in weight.split(WEIGHT_ROWS)], -1)
    return (logits if bias is None else logits + bias.float()).reshape(*hidden.shape[:-1], -1)


@contextmanager
def rounded_logits_on_cpu(model: Any) -> Iterator[None]:
    """While it lasts, a processor leaves logits as they are. Each step of drawing needs those of the whole vocabulary,
    and float32 ones take six times as long there (30 rows of 1,536 numbers, 152,000 tokens: .69 s against .12)."""
    layer = model.get_output_embeddings()
    rounding.update(set() if layer.weight.is_cuda else {id(layer)})
    try:
        yield
    finally:
        rounding.discard(id(layer))
