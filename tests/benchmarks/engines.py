"""Drawing responses of skewed lengths: static batches and vLLM; and scoring them.

    python tests/benchmarks/engines.py [ROWS]      (VLLM_PYTHON names a Python that has vLLM; else it is left out)

Lengths are log-normal between 16 and 1024 tokens and given to every engine alike, of a demo model on one thread:
ratios tell what waiting for the longest row costs. vLLM's seconds are those of drawing, once it is loaded.
"""

import dataclasses
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
from lib.generate import generation, models, sampling, scoring, vllm_engine
from lib.params import Generation
from lib.tasks import datasets

SHORTEST, LONGEST = 16, 1024
DATASET = "demo-medium"


def lengths(rows: int) -> np.ndarray:
    """(rows,) tokens: log-normal around 100, spread by a factor of e."""
    drawn = np.random.default_rng(0).lognormal(np.log(100), 1, rows)
    return drawn.clip(SHORTEST, LONGEST).astype(int)


def sampled(lm, requests, wanted, rows: int) -> tuple[float, list[list[int]]]:
    """Seconds of transformers' batches of so many rows, each as long as its longest row, and the tokens by row."""
    started, tokens = time.perf_counter(), []
    for at in range(0, len(requests), rows):
        part, lengths = requests[at : at + rows], wanted[at : at + rows]
        limited = [dataclasses.replace(one, max_new_tokens=int(max(lengths))) for one in part]
        tokens += [ids[:n] for ids, n in zip(sampling.sample_batch(lm, limited), lengths, strict=True)]
    return time.perf_counter() - started, tokens


def served(lm, requests, wanted) -> float:
    """Seconds of vLLM, between the first request and the last answer."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        engine = vllm_engine.VLLMEngine(lm, requests, lambda: place)
        orders = engine.build_orders
        engine.build_orders = lambda asked: told(orders(asked), wanted)
        engine.run_worker(requests, place / "drawn.jsonl")
        answers = [json.loads(line) for line in (place / "drawn.jsonl").read_text().splitlines()]
        assert sorted(len(answer["token_ids"]) for answer in answers) == sorted(wanted)
        return float(re.findall(r"drawn in ([\d.]+) s", (place / "vllm.log").read_text())[-1])


def told(orders: dict, wanted: np.ndarray) -> dict:
    """The worker's orders, with the lengths that rows are to have."""
    orders["sampling"] |= {"ignore_eos": True, "stop_token_ids": []}
    for request, length in zip(orders["requests"], wanted, strict=True):
        request[-1] = int(length)
    return orders


def main(rows: int = 96) -> None:
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    lm, wanted = models.load_language_model("tiny-llama", params.load_model_config("tiny-llama")), lengths(rows)
    lm.eos, lm.model.generation_config.eos_token_id = [], None
    lm.model.config.max_position_embeddings = 4096
    settings = Generation(demonstration="none", max_new_tokens=LONGEST, max_batch_tokens=32 * 1200)
    examples = datasets.load_examples(params.load_dataset_config(DATASET))[:rows]
    requests = generation.build_requests(lm, DATASET, examples, settings)
    print(f"{rows} rows, {wanted.sum()} tokens, mean {wanted.mean():.0f}, longest {wanted.max()}")
    static, tokens = sampled(lm, requests, wanted, 32)
    started = time.perf_counter()
    scoring.score_responses(lm, requests, tokens, settings)
    found = {"static batches of 32": static, "scoring": time.perf_counter() - started}
    if os.environ.get("VLLM_PYTHON"):
        found["vLLM"] = served(lm, requests, wanted)
    for name, seconds in found.items():
        print(f"{name:24} {seconds:7.1f} s  {wanted.sum() / seconds:7.0f} tokens/s  {seconds / static:5.2f} of static")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
