"""What one model would cost on this machine: bytes, and a range of hours. Rough by nature; every assumption is here.

Decoding goes step by step, a token for each row of a batch. A step reads all weights and the rows' caches, and its
layers are launched one after the other: at few rows, as thinking models are decoded, the launches bound it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import psutil

from lib import params

TOKENS = {False: 300, True: 4000}  # mean length of a response, without and with thinking
AFTER_EXAMPLES = 100  # after few worked examples, which it takes after
LONGEST = 1.3, 2  # times the mean, to which a batch runs at least and at most: to its longest response
ANSWER = 4  # tokens of an answer
QUERY, VERIFY = 35, 150  # tokens of P(True)'s query; of its own prompt, beside the response
# Seconds to launch a layer, at least and at most: on a GPU the 32 to 36 layers of an 8B model take some 25 to 40 ms in
# eager transformers, whatever the batch; on a CPU 0.3 ms a layer were measured.
LAUNCH = {True: (0.7e-3, 1.1e-3), False: (0.2e-3, 0.6e-3)}
PASSED = 4096  # tokens of a timed pass
TIMED = 4e9  # parameters up to which a model on disk is timed: that takes some twenty seconds, most of it loading
DRAWING = 44  # bytes that drawing a token holds at once for each of the vocabulary: logits, float32, float64, sorted
# Of the peak, in passes over whole sequences: on a GPU by experience, on two cores as measured at 1.5 billion weights.
UTILIZED = {True: 1 / 3, False: 0.9}
SERVED = 256  # rows that vLLM has at once, if their caches fit beside the weights
SLOWER = 2  # times as long as arithmetic says a step takes at most, of vLLM and of a model that was timed
OF_PAIR = 4  # notebooks that run a model on a dataset: 01, 03, 04, 04b
OTHER_WAYS = 2  # demonstrations other than the run's, in which 04b asks
LOADING = {True: 20, False: 3}  # seconds before a notebook has its model, what it works live, and its figures
STARTING = 100  # seconds in which vLLM starts, in 01 and in 04b
WITH_DROPOUT = 1.5  # times a plain pass that one with dropout takes, masks drawn and all
PARTS = {"01": ("draw", "rescore"), "03": ("verify",), "04": ("dropout",), "04b": ("ablation",)}  # by notebook
Range = tuple[float, float]


@dataclass(frozen=True)
class Device:
    """What a job would get: free memory (bytes), bandwidth (bytes/s), operations (per second), bytes of a number."""

    cuda: bool
    name: str
    memory: float
    bandwidth: float
    operations: float
    bytes: int


def measure_device(threads: int) -> Device:
    """This machine's GPU, else so many threads of its CPU, also in what is timed later; by a copy and a product."""
    import torch

    torch.set_num_threads(threads)
    cuda = torch.cuda.is_available()
    place, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    memory = torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available
    block = torch.ones(64_000_000, dtype=dtype, device=place)
    side = 4096 if cuda else 1024
    square = torch.ones(side, side, dtype=dtype, device=place)
    moved = 2 * block.numel() * block.element_size()
    return Device(
        cuda=cuda,
        name=torch.cuda.get_device_name() if cuda else "CPU",
        memory=memory,
        bandwidth=moved / seconds(lambda: block.clone()),
        operations=2 * side**3 / seconds(lambda: square @ square),
        bytes=block.element_size(),
    )


def bfloat16_seconds() -> float:
    """Seconds of a product in bfloat16 on this processor, in those of one in float32: of one as in a layer of some
    billion parameters. With matrix units (AMX) they are a third to a fifth, without them twice as many."""
    import torch

    times = []
    for dtype in (torch.bfloat16, torch.float32):
        rows, weights = torch.ones(64, 1536, dtype=dtype), torch.ones(8960, 1536, dtype=dtype)
        times.append(seconds(lambda rows=rows, weights=weights: torch.nn.functional.linear(rows, weights)))
    return times[0] / times[1]


def in_precision(device: Device, spec: params.Model) -> Device:
    """The device as it is for a model that it runs in half precision; float32 was measured on a processor."""
    import torch

    from lib.generate import models

    if device.cuda or models.loading_dtype(spec) == torch.float32:
        return device
    return replace(device, operations=device.operations / bfloat16_seconds(), bytes=2)


def seconds(work: Callable[[], object]) -> float:
    """The fastest of five, the first thrown away."""
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
    """A network: parameters, layers, bytes of cache for one token, vocabulary."""

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
    """Numbers that one token takes in a network's cache: a key and a value in every layer, for each head that has its
    own."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width


@dataclass(frozen=True)
class Work:
    """What is asked of a model: rows in all and at once, tokens of a prompt, of a mean and of the longest response."""

    rows: int
    batch: int
    budget: int  # tokens held at once, as the profile says
    prompt: int
    tokens: int
    longest: int  # prompt and response
    shared: int = 0  # tokens that all prompts begin with, encoded once
    passes: int = 0  # of dropout, over a row each
    once: int = 0  # of the tokens that all prompts begin with, those that passes read once for all rows
    at_answer: int = 0  # tokens that the passes at the answer only read, and those before them
    left_out: int = 0  # tokens of a mean response that its own prompt of P(True) does not show: the thinking
    served: bool = False  # drawn by vLLM: rows come and go
    jobs: int = 0  # notebooks that run it
    again: float = 0  # share of the rows that 04b asks again, in other ways

    @property
    def middle(self) -> float:
        """Tokens in a row's cache in the middle of its batch's decoding."""
        return self.prompt + min(LONGEST[1] * self.tokens, self.longest - self.prompt) / 2

    @staticmethod
    def of(values: dict, spec: params.Model, prompt: int, shared: int = 0, written: float | None = None) -> "Work":
        """`written`: mean tokens of responses that are there already; else by experience."""
        splits = [size for name in values["datasets"] for size in sizes(params.load_dataset_config(name))]
        rows = [min(size, values["limit"] or size) for size in splits]
        whole = sum(min(count, values["dropout_limit"] or count) for count in rows)  # trajectories passed over
        grid = values["n_tuning_examples"] * (len(values["dropout_rates"]) - 1) * len(values["datasets"])
        new_tokens = spec.max_new_tokens or values["max_new_tokens"]
        usual = AFTER_EXAMPLES if values["demonstration"] == "few" else TOKENS[spec.thinking]
        mean = min(round(written or usual), new_tokens)
        at_answer = sum(rows) * (prompt - shared + mean) + values["dropout_passes"] * (sum(rows) + grid) * ANSWER
        return Work(
            rows=sum(rows),
            batch=max(1, values["max_batch_tokens"] // (prompt + new_tokens)),
            budget=values["max_batch_tokens"],
            prompt=prompt,
            tokens=mean,
            longest=prompt + new_tokens,
            shared=shared,
            passes=values["dropout_passes"] * (whole + grid) * ("trajectory" in values["dropout_scope"]),
            once=shared * (values["dropout_prefix"] == "shared"),
            at_answer=at_answer * ("answer" in values["dropout_scope"]),
            left_out=(mean - min(mean, TOKENS[False])) * (spec.thinking and not values["ptrue_includes_thinking"]),
            served=values["engine"] == "vllm" and not spec.responses,
            jobs=OF_PAIR * len(values["datasets"]),
            again=OTHER_WAYS * values["ablation_limit"] * len(values["datasets"]) / sum(rows),
        )


def sizes(dataset: params.Dataset) -> tuple[int, int]:
    """Rows of its two splits."""
    return dataset.calibration, dataset.evaluation


def token_bytes(size: Size, work: Work) -> float:
    """Bytes that decoding holds for each token of its budget: its cell of the one cache that is alive; of the layer at
    work also the copy by which it grows; its part in drawing a row's token."""
    return size.cell * (1 + 1 / size.layers) + DRAWING * size.vocabulary / work.longest


def needed(size: Size, work: Work, number_bytes: int) -> float:
    """Bytes that weights and decoding hold at most, in numbers of so many bytes."""
    return 1.1 * size.weights * number_bytes + token_bytes(size, work) * max(work.budget, work.longest)


def step_seconds(size: Size, work: Work, device: Device) -> Range:
    """Least and most seconds of a step of all rows at once.

    At least: weights and caches are read once, or multiplied, or the layers are launched, whichever is slowest. At
    most: the caches are also copied as they grow (read and written), and slow launches hide behind nothing. vLLM has
    rows of all lengths in a step, and recorded graphs spare the launches.
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
    """Rows of a batch; of vLLM those whose caches fit beside the weights."""
    if not work.served:
        return work.batch
    from lib.generate.vllm_engine import GPU_SHARE

    row = size.cell * (work.prompt + work.tokens / 2)
    room = (GPU_SHARE if device.cuda else 1) * device.memory - size.weights * device.bytes
    return max(1, min(SERVED, work.rows, int(room / row)))


def time_model(folder: str, work: Work, device: Device) -> tuple[Range, float]:
    """Least and most seconds of a step of a local model, and seconds a token of a pass over whole sequences. It is
    timed with caches whose rows are alike; drawing and keeping tokens may take as long again."""
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    place, dtype = "cuda" if device.cuda else "cpu", torch.bfloat16 if device.bytes == 2 else torch.float32
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=False).to(place)
    small, length = network.num_parameters() < 1e7, int(work.prompt + work.tokens)
    one = torch.ones((1, int(work.middle)), dtype=torch.long, device=place)
    whole = torch.ones((max(1, PASSED // length) if small else 1, length), dtype=torch.long, device=place)
    with torch.inference_mode():
        cache = network(one, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(work.batch)
        last = torch.ones((work.batch, 1), dtype=torch.long, device=place)
        step = seconds(lambda: network(last, past_key_values=cache, use_cache=True))
        passed = seconds(lambda: network(whole, use_cache=False, logits_to_keep=1))
    return (step, SLOWER * step if small else step), passed / whole.numel()


def estimate_hours(
    size: Size, work: Work, device: Device, timed: tuple[Range, float] | None = None
) -> dict[str, Range]:
    """Least and most hours of a model, by part: draw, rescore, verify, dropout, ablation and loads.

    Parameters
    ----------
    timed
        What `time_model` measured; else seconds of a step and of a token are reckoned.
    """
    token = 2 * size.weights / (device.operations * UTILIZED[device.cuda])
    step, token = timed or (step_seconds(size, work, device), token)
    batches = work.rows / rows_at_once(size, work, device)
    longest = (1, 1) if work.served else LONGEST  # rows of vLLM wait for no other
    steps = [min(factor * work.tokens, work.longest - work.prompt) for factor in longest]
    prompts = work.rows * (work.prompt - work.shared) * token
    rescored = prompts + work.rows * work.tokens * token
    drawn = [batches * count * each + prompts for count, each in zip(steps, step, strict=True)]
    dropout = work.passes * (work.prompt - work.once + work.tokens) * WITH_DROPOUT + work.at_answer
    parts = {
        "draw": drawn,
        "rescore": [rescored] * 2,
        "verify": [work.rows * (QUERY + VERIFY + work.tokens - work.left_out) * token] * 2,
        "dropout": [dropout * token] * 2,
        "ablation": [work.again * (one + rescored) for one in drawn],
        "loads": [work.jobs * (LOADING[device.cuda] + STARTING * work.served * 2 / OF_PAIR)] * 2,
    }
    return {name: (low / 3600, high / 3600) for name, (low, high) in parts.items()}


def sum_hours(parts: Iterable[Range]) -> Range:
    low, high = map(sum, zip(*parts, strict=True))
    return low, high
