"""Estimate the peak memory of a model: its weights, and the caches and logits of the rows that it decodes together."""

from typing import Any, NamedTuple

import psutil

SAMPLING_BYTES = 44  # peak bytes per vocabulary entry to sample a token: logits, float32, float64, sorted
SPARE = 1.1  # memory for weights, in multiples of their size


class Place(NamedTuple):
    """Where a model runs: its name in messages, and its free memory in bytes."""

    name: str
    memory: float


def find_place(on_gpu: bool, gpus: int = 1) -> Place:
    """Return the processor, the first visible GPU, or `gpus` GPUs like it together."""
    if not on_gpu:
        return Place("CPU", psutil.virtual_memory().available)
    import torch

    memory = torch.cuda.mem_get_info()[0]
    return Place(f"all {gpus} GPUs", gpus * memory) if gpus > 1 else Place(torch.cuda.get_device_name(), memory)


def cache_numbers_per_token(network: Any) -> int:
    """Return how many numbers one token takes in the cache: a key and a value per layer and key-value head."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 0)  # none in a model of states alone
    width = getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)
    return 2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or heads) * width


def bytes_per_token(network: Any, number_bytes: int, longest: int) -> float:
    """Return decoding's bytes per token: its cache, one layer's copy while the cache grows, its share of sampling.

    `longest`: tokens of prompt and response at most.
    """
    config = network.config.get_text_config()
    cache = cache_numbers_per_token(network) * number_bytes
    return cache * (1 + 1 / config.num_hidden_layers) + SAMPLING_BYTES * config.vocab_size / longest


def check_memory(network: Any, number_bytes: int, batch_tokens: int, longest: int, place: Place) -> tuple[str, str]:
    """Compare the memory that weights and decoding need with what is free. Return a level and a line."""
    weights = SPARE * network.num_parameters() * number_bytes
    token = bytes_per_token(network, number_bytes, longest)
    need, rows = weights + token * max(batch_tokens, longest), max(1, batch_tokens // longest)
    size = f"{network.num_parameters() / 1e9:.2g} billion parameters"
    text = f"{size}, up to {need / 1e9:.2g} GB with {rows} rows at once"
    if need <= place.memory:
        return "ok", text
    room = int((place.memory - weights) / token)
    remedy = f"max_batch_tokens {room} would fit" if room > 0 else "too little for the weights alone"
    return "wrong", f"{text}: {place.name} has {place.memory / 1e9:.0f} GB free; {remedy}"
