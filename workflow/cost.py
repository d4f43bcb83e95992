"""Estimate one model's memory and hours on this machine. The estimate is rough; every assumption is in this module.

Each decoding step adds one token per row of a batch. A step reads all weights and the rows' caches and launches its
layers one after the other. With few rows, as for thinking models, the launches limit its speed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psutil

from lib import params

TOKENS = {False: 300, True: 4000}  # mean length of a response, without and with thinking
AFTER_EXAMPLES = 100  # mean length after few-shot examples, which a response imitates
LONGEST = 1.3, 2  # least and most length of a batch's longest response, in multiples of the mean
ANSWER = 4  # tokens of an answer
QUERY, VERIFY = 35, 150  # tokens of P(True)'s query; of its own prompt without the response
# Least and most seconds to launch a layer. On a GPU, the 32 to 36 layers of an 8B model take about 25 to 40 ms in eager
# transformers at any batch size. On a CPU, 0.3 ms per layer was measured.
LAUNCH = {True: (0.7e-3, 1.1e-3), False: (0.2e-3, 0.6e-3)}
DRAWING = 44  # peak bytes per vocabulary entry to sample a token: logits, float32, float64, sorted
# Share of the peak speed in full forward passes: on a GPU by experience, on a CPU measured with a 1.5B model.
UTILIZED = {True: 1 / 3, False: 0.9}
SERVED = 256  # rows that vLLM decodes together, if their caches fit in memory with the weights
SLOWER = 2  # upper bound of a step's time with vLLM, in multiples of the computed one
OF_PAIR = 4  # notebooks that run a model on a dataset: 01, 03, 04, 04b
OTHER_WAYS = 2  # demonstrations that 04b tries besides the run's
LOADING = {True: 20, False: 3}  # seconds of a notebook to load its model, run its live example and draw its figures
STARTING = 100  # seconds to start vLLM, in 01 and in 04b
WITH_DROPOUT = 1.5  # cost of a pass with dropout in multiples of a plain pass, masks included
PARTS = {"01": ("draw", "rescore"), "03": ("verify",), "04": ("dropout",), "04b": ("ablation",)}  # by notebook
Range = tuple[float, float]


@dataclass(frozen=True)
class Device:
    """A job's device: free memory (bytes), bandwidth (bytes/s), operations (per second), bytes per number."""

    cuda: bool
    name: str
    memory: float
    bandwidth: float
    operations: float
    bytes: int


def measure_device(threads: int) -> Device:
    """Measure the GPU, else `threads` threads of the CPU (also used later), by a copy and a matrix product."""
    import torch

    torch.set_num_threads(threads)
    cuda = torch.cuda.is_available()
    dtype = torch.bfloat16 if cuda else torch.float32
    block = torch.ones(64_000_000, dtype=dtype, device="cuda" if cuda else "cpu")
    return Device(
        cuda=cuda,
        name=torch.cuda.get_device_name() if cuda else "CPU",
        memory=torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available,
        bandwidth=2 * block.nbytes / time_fastest(block.clone),
        operations=measure_operations(dtype),
        bytes=block.element_size(),
    )


def measure_operations(dtype: Any) -> float:
    """Return the operations per second of a matrix product."""
    import torch

    side, place = (4096, "cuda") if torch.cuda.is_available() else (1024, "cpu")
    square = torch.ones((side, side), dtype=dtype, device=place)
    return 2 * side**3 / time_fastest(lambda: square @ square)


def adjust_to_precision(device: Device, spec: params.Model) -> Device:
    """Return the device's figures for a model's precision: on a CPU they were measured in float32."""
    import torch

    from lib.generate import models

    dtype = models.loading_dtype(spec)
    if device.cuda or dtype == torch.float32:
        return device
    return replace(device, operations=measure_operations(dtype), bytes=2)


def time_fastest(work: Callable[[], object]) -> float:
    """Return the fastest of five timings, after a warm-up."""
    import torch

    times = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


@dataclass(frozen=True)
class Size:
    """A network's size: parameters, layers, cache bytes per token, vocabulary."""

    weights: int
    layers: int
    cell: int
    vocabulary: int = 0

    @staticmethod
    def of(network: Any, number_bytes: int) -> "Size":
        config = network.config.get_text_config()
        return Size(
            weights=sum(parameter.numel() for parameter in network.parameters()),
            layers=config.num_hidden_layers,
            cell=cache_numbers_per_token(network) * number_bytes,
            vocabulary=config.vocab_size,
        )


def cache_numbers_per_token(network: Any) -> int:
    """Return how many numbers one token takes in the cache: a key and a value per layer and key-value head."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width


@dataclass(frozen=True)
class Work:
    """A model's work: rows in total and per batch, and the tokens of prompts and responses."""

    rows: int
    batch: int
    budget: int  # tokens in memory per batch: the profile's max_batch_tokens
    prompt: int
    tokens: int
    longest: int  # prompt and response
    passed: Mapping[str, float]  # tokens of full forward passes, by part
    shared: int = 0  # tokens of the prompts' common prefix, encoded once
    served: bool = False  # generated by vLLM, in continuous batches
    jobs: int = 0  # notebooks that run the model
    again: float = 0  # share of the rows that 04b repeats with other prompts

    @property
    def middle(self) -> float:
        """Return the tokens in a row's cache halfway through its batch's decoding."""
        return self.prompt + min(LONGEST[1] * self.tokens, self.longest - self.prompt) / 2

    @staticmethod
    def of(values: dict, spec: params.Model, prompt: int, shared: int = 0) -> "Work":
        datasets = [params.load_dataset_config(name) for name in values["datasets"]]
        splits = [size for spec in datasets for size in (spec.calibration, spec.evaluation)]
        rows = [min(size, values["limit"] or size) for size in splits]
        new_tokens = spec.max_new_tokens or values["max_new_tokens"]
        usual = AFTER_EXAMPLES if values["demonstration"] == "few" else TOKENS[spec.thinking]
        mean = min(usual, new_tokens)
        hidden = max(mean - TOKENS[False], 0) * (spec.thinking and not values["ptrue_includes_thinking"])
        return Work(
            rows=sum(rows),
            batch=max(1, values["max_batch_tokens"] // (prompt + new_tokens)),
            budget=values["max_batch_tokens"],
            prompt=prompt,
            tokens=mean,
            longest=prompt + new_tokens,
            passed={
                "rescore": sum(rows) * (prompt - shared + mean),
                "verify": sum(rows) * (QUERY + VERIFY + mean - hidden),
                "dropout": dropout_tokens(values, rows, prompt, shared, mean),
            },
            shared=shared,
            served=values["engine"] == "vllm" and not spec.responses,
            jobs=OF_PAIR * len(datasets),
            again=OTHER_WAYS * values["ablation_limit"] * len(datasets) / sum(rows),
        )


def dropout_tokens(values: dict, rows: list[int], prompt: int, shared: int, mean: int) -> float:
    """Return the passes of 04 in equivalent tokens without dropout: over trajectories, and at the answer alone.

    Trajectory passes cover some rows and the grid of rates. Answer passes encode the text before the answer once.
    """
    passes, tokens = values["dropout_passes"], 0.0
    grid = values["n_tuning_examples"] * (len(values["dropout_rates"]) - 1) * len(values["datasets"])
    if "trajectory" in values["dropout_scope"]:
        whole = sum(min(count, values["dropout_limit"] or count) for count in rows)
        read = prompt - shared * (values["dropout_prefix"] == "shared") + mean
        tokens += passes * (whole + grid) * read * WITH_DROPOUT
    if "answer" in values["dropout_scope"]:
        tokens += sum(rows) * (prompt - shared + mean) + passes * (sum(rows) + grid) * ANSWER
    return tokens


def token_bytes(size: Size, work: Work) -> float:
    """Return decoding's bytes per token: its cache, one layer's copy while the cache grows, its share of sampling."""
    return size.cell * (1 + 1 / size.layers) + DRAWING * size.vocabulary / work.longest


def needed_memory(size: Size, work: Work, number_bytes: int) -> float:
    """Return the peak bytes of weights and decoding, with `number_bytes` per number."""
    return 1.1 * size.weights * number_bytes + token_bytes(size, work) * max(work.budget, work.longest)


def step_seconds(size: Size, work: Work, device: Device) -> Range:
    """Return the least and most seconds of one step of a batch.

    The lower bound is the slowest of three: reading weights and caches once, arithmetic, launching the layers. For the
    upper bound, caches are also copied as they grow, and slow launches overlap with nothing. vLLM mixes rows of all
    lengths in a step, and its recorded graphs avoid the launches.
    """
    batch = rows_at_once(size, work, device)
    length = work.prompt + work.tokens / 2 if work.served else work.middle
    weights, caches = size.weights * device.bytes, batch * length * size.cell
    arithmetic = 2 * size.weights * batch / device.operations
    read = max((weights + caches) / device.bandwidth, arithmetic)
    if work.served:
        return read, SLOWER * read
    quick, slow = (size.layers * launch for launch in LAUNCH[device.cuda])
    return max(read, quick), max((weights + 3 * caches) / device.bandwidth, arithmetic) + slow


def rows_at_once(size: Size, work: Work, device: Device) -> int:
    """Return the rows of a batch; for vLLM, as many as have caches that fit in memory with the weights."""
    if not work.served:
        return work.batch
    from lib.generate.vllm_engine import GPU_SHARE

    row = size.cell * (work.prompt + work.tokens / 2)
    room = (GPU_SHARE if device.cuda else 1) * device.memory - size.weights * device.bytes
    return max(1, min(SERVED, work.rows, int(room / row)))


def estimate_hours(size: Size, work: Work, device: Device) -> dict[str, Range]:
    """Return a model's least and most hours by part: draw, rescore, verify, dropout, ablation and loads."""
    step, token = step_seconds(size, work, device), 2 * size.weights / (device.operations * UTILIZED[device.cuda])
    batches, room = work.rows / rows_at_once(size, work, device), work.longest - work.prompt
    longest = (1, 1) if work.served else LONGEST  # vLLM's rows do not wait for each other
    prompts = work.rows * (work.prompt - work.shared) * token
    passed = {name: count * token for name, count in work.passed.items()}
    loads = work.jobs * (LOADING[device.cuda] + STARTING * work.served * 2 / OF_PAIR)

    def parts(times: float, seconds: float) -> dict[str, float]:
        drawn = batches * min(times * work.tokens, room) * seconds + prompts
        return {"draw": drawn, **passed, "ablation": work.again * (drawn + passed["rescore"]), "loads": loads}

    low, high = (parts(*one) for one in zip(longest, step, strict=True))
    return {name: (low[name] / 3600, high[name] / 3600) for name in low}


def sum_hours(parts: Iterable[Range]) -> Range:
    low, high = map(sum, zip(*parts, strict=True))
    return low, high


def format_hours(hours: Range) -> str:
    low, high = (f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in hours)
    return low if low == high else f"{low} to {high}"
