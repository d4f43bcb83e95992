"""Drawing responses of skewed lengths: static batches, batches that hand over ended rows, vLLM; and rescoring them.

    python tests/benchmarks/engines.py [ROWS]      (VLLM_PYTHON names a Python that has vLLM; else it is left out)

Lengths are log-normal between 16 and 1024 tokens and given to every engine alike, of a demo model on one thread:
ratios tell what waiting for the longest row costs. vLLM's seconds are those of drawing, once it is loaded.
"""

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lib import params
from lib.generate import decoding, engines, models, rescoring, responses
from lib.params import Generation
from lib.tasks import datasets

SHORTEST, LONGEST = 16, 1024
DATASET = "demo-medium"


def lengths(rows: int) -> np.ndarray:
    """(rows,) tokens: log-normal around 100, spread by a factor of e."""
    drawn = np.random.default_rng(0).lognormal(np.log(100), 1, rows)
    return drawn.clip(SHORTEST, LONGEST).astype(int)


def decoded(lm, requests, wanted, settings, dwindle: bool) -> tuple[float, dict[int, list[int]]]:
    """Seconds of decoding in batches of our own, a row ending where it is told to, and the tokens by row."""
    started, tokens = time.perf_counter(), {}
    rows = settings.batch_tokens // (settings.max_new_tokens + max(len(one.prompt_ids) for one in requests))
    for at in range(0, len(requests), rows):
        part = range(at, min(at + rows, len(requests)))
        settings = settings.model_copy(update={"max_new_tokens": int(max(wanted[i] for i in part))})
        call = decoding.Sample.__call__
        decoding.Sample.__call__ = ending(call, [wanted[i] for i in part])
        ids, seeds = [requests[i].prompt_ids for i in part], [requests[i].seed for i in part]
        for done, batch in decoding.rounds(lm, ids, seeds, settings, dwindle=dwindle):
            tokens |= {part[i]: row[: wanted[part[i]]] for i, row in zip(done, batch.responses, strict=True)}
            batch.free()
        decoding.Sample.__call__ = call
    return time.perf_counter() - started, tokens


def ending(call, wanted: list[int]):
    """The sampler's step, after which a row has ended where its length says so."""

    def step(self, input_ids, scores):
        chosen = call(self, input_ids, scores)
        self.ended = [bool(self.step >= wanted[row]) for row in self.rows]
        return chosen

    return step


def served(lm, requests, wanted, settings) -> float:
    """Seconds of vLLM, between the first request and the last answer."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = engines.Vllm(lm, DATASET, settings, [one.example for one in requests], lambda: place)
        orders = source.orders
        source.orders = lambda asked: told(orders(asked), wanted)
        source.draw(requests, place / "drawn.jsonl")
        answers = [json.loads(line) for line in (place / "drawn.jsonl").read_text().splitlines()]
        assert sorted(len(answer["token_ids"]) for answer in answers) == sorted(wanted)
        return float(re.findall(r"drawn in ([\d.]+) s", (place / "vllm.log").read_text())[-1])


def told(orders: dict, wanted: np.ndarray) -> dict:
    """The worker's orders, with the lengths that rows are to have."""
    orders["sampling"] |= {"ignore_eos": True, "stop_token_ids": []}
    for request, length in zip(orders["requests"], wanted, strict=True):
        request["max_tokens"] = int(length)
    return orders


def main(rows: int = 96) -> None:
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    lm, wanted = models.load("tiny-llama", params.load_model("tiny-llama")), lengths(rows)
    lm.eos, lm.model.generation_config.eos_token_id = [], None
    lm.model.config.max_position_embeddings = 4096
    settings = Generation(demonstration="none", max_new_tokens=LONGEST, batch_tokens=32 * 1200)
    examples = datasets.load_examples(params.load_dataset(DATASET))[:rows]
    requests = [responses.request(lm, DATASET, example, settings) for example in examples]
    print(f"{rows} rows, {wanted.sum()} tokens, mean {wanted.mean():.0f}, longest {wanted.max()}")
    static, _ = decoded(lm, requests, wanted, settings, dwindle=False)
    handed, tokens = decoded(lm, requests, wanted, settings, dwindle=True)
    started = time.perf_counter()
    for i, request in enumerate(requests):
        rescoring.rescored(lm, request, tokens[i], settings)
    again = time.perf_counter() - started
    found = {"static batches of 32": static, "handing over ended rows": handed, "rescoring": again}
    if os.environ.get("VLLM_PYTHON"):
        found["vLLM"] = served(lm, requests, wanted, settings)
    for name, seconds in found.items():
        print(f"{name:24} {seconds:7.1f} s  {wanted.sum() / seconds:7.0f} tokens/s  {seconds / static:5.2f} of static")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
