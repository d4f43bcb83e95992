"""On which GPUs a model lies: on one, or, where that is too small for its weights, its layers spread over several.

All that is no layer stays on the first GPU, where inputs and outputs are, too; accelerate carries what goes from layer
to layer, and each layer keeps its part of a cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

FULL = 0.9  # of the bytes of a GPU, those that weights may take where it is alone
SHARED = 0.6  # of those of several, for caches lie beside the weights


def cards(weights: float, memory: Sequence[float]) -> int:
    """How many GPUs, with so many bytes each, a model takes whose weights are so many bytes: 1 where they fit, else the
    fewest that leave room for caches; 0 where all are too small."""
    if memory and weights <= FULL * memory[0]:
        return 1
    enough = (count for count in range(2, len(memory) + 1) if weights <= SHARED * sum(memory[:count]))
    return next(enough, 0)


def cache_numbers(network: Any) -> int:
    """Numbers that one token takes in a network's cache: a key and a value in every layer, for each head that has its
    own."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width


def spread(network: Any, count: int) -> dict[str, int]:
    """The device of each module, as accelerate reads it: layers in `count` equal parts, in order; the rest on 0."""
    lists = [name for name, module in network.named_modules() if isinstance(module, torch.nn.ModuleList)]
    layers = max(lists, key=lambda name: sum(p.numel() for p in network.get_submodule(name).parameters()))
    depth = len(network.get_submodule(layers))
    placed = {f"{layers}.{i}": i * count // depth for i in range(depth)}
    tensors = [*network.state_dict(), *dict(network.named_buffers())]
    owners = [name.rpartition(".")[0] for name in tensors if not name.startswith(f"{layers}.")]
    return placed | dict.fromkeys(owners, 0)


def device_map(source: str, revision: str | None, dtype: torch.dtype) -> dict[str, Any]:
    """What `from_pretrained` is told of the GPUs that this process sees; nothing where it sees none. One that is too
    small by itself is tried all the same: loading says what it lacks."""
    if not torch.cuda.is_available():
        return {}
    if torch.cuda.device_count() > 1:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
            network = AutoModelForCausalLM.from_config(config, dtype=dtype)
        free = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
        weights = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
        if (count := cards(weights, free)) > 1:
            return {"device_map": spread(network, count)}
    return {"device_map": "cuda"}  # not by way of a copy in the host's memory
