"""Time and memory of stochastic passes. Run by hand:

    python tests/benchmarks/passes.py

Time: T = 10 passes over each of a demo model's responses along the whole trajectory, and at the answer only, masks and
disagreement included, in processor seconds per 100 rows; beside as many plain forwards of the same shapes. Memory: peak
resident size of a process that passes over a response whose answer is a number of 500 digits, of a vocabulary of 152k.
"""

import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lib import params, store
from lib.generate import mc_dropout, models
from lib.generate.models import LanguageModel
from lib.params import Dropout
from lib.paths import ROOT, SHIPPED
from lib.tasks.answers import answer_span

RATE, PASSES = 0.1, 10


def seconds(work, repeats: int = 3) -> float:
    """Processor seconds of the quickest of some repetitions, so that other programs do not count."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@torch.inference_mode()
def plain(lm: LanguageModel, frame: pd.DataFrame) -> None:
    for row in frame.itertuples():
        ids = models.encode(lm, row.prompt) + row.token_ids[: answer_span(row)[1] - 1].tolist()
        lm.model(torch.tensor([ids]).expand(PASSES, -1), use_cache=False, logits_to_keep=3)


def speed(name: str, rows: int = 60) -> None:
    lm = models.load_language_model(name, params.load_model_config(name))
    frame = store.read_frame(SHIPPED / "generations" / f"{name}__demo-medium.parquet").head(rows)
    took = {"plain forwards": 100 / rows * seconds(lambda: plain(lm, frame))}
    for scope, rates in ("trajectory", (RATE,)), ("answer", (RATE,)), ("answer, at three rates", (0.1, 0.15, 0.2)):
        work, kind = [(row, rate) for row in range(rows) for rate in rates], scope.split(",")[0]
        of = seconds(lambda work=work, kind=kind: mc_dropout.mc_dropout_entropies(lm, frame, work, Dropout(), kind))
        took[scope] = 100 / len(work) * of
    print(f"{name}, seconds per 100 rows of {PASSES} passes: {', '.join(f'{k} {v:.2f}' for k, v in took.items())}")


def peak(scope: str) -> float:
    """Peak resident memory in MB of a process that has a model of 152k tokens pass over 500 digits."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=151_936,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).eval()
    lm = LanguageModel("random", params.load_model_config("tiny-llama"), model, tokenizer, [], {})
    row = pd.Series(
        {
            "model": "m",
            "dataset": "d",
            "split": "evaluation",
            "example_id": "e",
            "prompt": "How many? ",
            "question": "How",
            "answer": "7",
            "answer_start": 5,
            "answer_end": 505,
            "token_ids": np.full(505, 300),
        }
    )
    if scope != "loaded":
        mc_dropout.mc_dropout_entropies(lm, row.to_frame().T, [(0, RATE)], Dropout(), scope)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 2:
        print(peak(sys.argv[1]))
    else:
        for name in ("tiny-llama", "tiny-qwen"):
            speed(name)
        for scope in ("loaded", "trajectory", "answer"):
            out = subprocess.run([sys.executable, __file__, scope], capture_output=True, text=True, check=True)
            print(f"{scope}: peak {float(out.stdout.split()[-1]):.0f} MB")
