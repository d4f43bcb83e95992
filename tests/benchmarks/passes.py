"""Time and memory of stochastic passes. Run by hand:

    python tests/benchmarks/passes.py

Time: T = 10 passes over the same batch of a demo model's responses, against as many plain forwards of that batch and
against the model's built-in dropout (eager, and sdpa as loaded); and seconds a row of a shipped run with dropout along
the whole trajectory, and at the answer only (on two shared cores 57 ms against 7; 4.5 each at three rates, which share
the row's encoding). Memory: peak resident size of a pass batch with the answer's positions only, against one with all
logits [rows, L, V], in processes of their own.

Where a shard of 04 spends its time (cProfile, tiny-qwen on demo-hard, one thread, 4096 tokens at once): linear layers
24%, masks 19% (a quarter of that Philox itself), multiplications 12% (scaling, norms, rotations), attention's two
products 9%, additions 8%, softmax 6%; sorts, cumulative sums and entropies of the disagreement 4%. Tried, with the same
bytes and no gain beyond the noise: masks of floats instead of booleans (a tenth of the masks' time), attention
in place, attention row by row within the cache, an allocator that returns nothing to the system. Batches of 1024 tokens
are 7% faster, and change the last bits. Two threads give the same bytes, at more processor time.
"""

import resource
import subprocess
import sys
import time
from contextlib import nullcontext

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib import params, store
from lib.generate import dropout, models
from lib.generate.models import LanguageModel
from lib.generate.scopes import MADE_BY
from lib.params import Dropout
from lib.project import SHIPPED

RATE, PASSES = 0.1, 10


def seconds(work, repeats: int = 5) -> float:
    """Processor seconds of the quickest of some repetitions, so that other programs do not count."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@torch.inference_mode()
def speed(name: str, length: int, rows: int = 20) -> None:
    lm = models.load(name, params.load_model(name))
    ids = [torch.randint(5, 300, (length - 2 * i,)).tolist() for i in range(rows)]
    keys, answer = [(i, 0) for i in range(rows)], [3] * rows

    def forward(kernel: str):
        return dropout.forward(lm, ids, answer, keys, kernel)

    dropout.own_stream, stream = lambda seed: nullcontext(), dropout.own_stream  # plain: not even a seed is set
    plain = seconds(lambda: forward("plain")) * PASSES
    dropout.own_stream = stream
    with dropout.enabled(lm.model, RATE):
        keyed = seconds(lambda: forward("keyed")) * PASSES
        eager = seconds(lambda: forward("fused")) * PASSES
    with dropout.enabled(lm.model, RATE, "fused"):
        fused = seconds(lambda: forward("fused")) * PASSES
    print(
        f"{name}, {rows} rows of up to {length} tokens, {PASSES} passes: plain {plain:.2f} s, keyed {keyed:.2f} s "
        f"({keyed / plain:.2f} times), built-in eager {eager:.2f} s, built-in sdpa {fused:.2f} s"
    )


def scopes(name: str, rows: int = 60) -> None:
    lm = models.load(name, params.load_model(name))
    frame = store.read(SHIPPED / "generations" / f"{name}__demo-medium.parquet")
    of_row = {}
    for scope, rates in ("trajectory", (RATE,)), ("answer", (RATE,)), ("answer, at three rates", (0.1, 0.15, 0.2)):
        work = [(row, rate) for row in range(rows) for rate in rates]
        make = MADE_BY[scope.split(",")[0]]
        of_row[scope] = 1e3 * seconds(lambda make=make, work=work: make(lm, frame, work, Dropout()), 2) / len(work)
    said = ", ".join(f"{scope} {took:.1f} ms" for scope, took in of_row.items())
    print(f"{name}, {PASSES} passes over a response of demo-medium, masks and disagreement included: {said}")


def peak(way: str) -> float:
    """Peak resident memory in MB of a process that runs 10 passes over 256 tokens, vocabulary 32,000."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32_000,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).eval()
    lm = LanguageModel("random", params.load_model("tiny-llama"), model, None, [], {})
    ids = torch.randint(32_000, (PASSES, 256)).tolist()
    if way != "loaded":
        with dropout.enabled(model, RATE):
            dropout.forward(lm, ids, [4 if way == "ours" else 256] * PASSES, [(0, t) for t in range(PASSES)], "keyed")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 2:
        print(peak(sys.argv[1]))
    else:
        for name in ("tiny-llama", "tiny-qwen"):
            for length in (100, 150, 220):
                speed(name, length)
            scopes(name)
        peaks = {}
        for way in ("loaded", "ours", "full"):
            out = subprocess.run([sys.executable, __file__, way], capture_output=True, text=True, check=True)
            peaks[way] = float(out.stdout.split()[-1])
        print("extra MB over the loaded model:", {way: round(peaks[way] - peaks["loaded"]) for way in ("ours", "full")})
