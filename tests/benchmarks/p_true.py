"""Seconds of P(True), in situ on the live cache against the standard prompt, in one process. Run by hand:

    python tests/benchmarks/p_true.py

First the demo models on their own questions; then random weights at lengths as in the paper, where a standard prompt
has some 400 tokens and a trajectory, full prompt before it, 600.
"""

import dataclasses
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib import params
from lib.generate import decoding, models, p_true, responses
from lib.generate.decoding import Batch
from lib.generate.models import LanguageModel
from lib.tasks import datasets, prompts

SETTINGS = params.Generation(demonstration=False, max_new_tokens=200)
REPEATS = 5


def best(work) -> float:
    """Seconds of the quickest of some repetitions."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def report(name: str, in_situ: float, standard: float, query: int, tokens: float) -> None:
    print(
        f"{name}: in situ {in_situ:.3f} s, standard {standard:.3f} s, ratio {in_situ / standard:.2f}; "
        f"tokens {query} and {tokens:.0f}, saved {1 - query / tokens:.1%}"
    )


def demo(name: str, dataset: str, rows: int = 32) -> None:
    lm = models.load(name, params.load_model(name))
    examples = datasets.load_examples(params.load_dataset(dataset))[:rows]
    ids = [models.encode(lm, responses.prompt_text(lm, e.question, demonstration="none")) for e in examples]
    batch = decoding.decode(lm, ids, range(rows), SETTINGS)
    texts = [lm.tokenizer.decode([t for t in response if t not in lm.eos]) for response in batch.responses]
    asked = [
        models.encode(lm, p_true.standard_prompt(lm, e.question, text, params.Verification()))
        for e, text in zip(examples, texts, strict=True)
    ]
    in_situ, standard = best(lambda: p_true.live(lm, batch)), best(lambda: p_true.encoded(lm, asked))
    query = len(models.encode(lm, prompts.QUERY))
    report(f"{name} {dataset}", in_situ, standard, query, sum(map(len, asked)) / rows)


@torch.inference_mode()
def paper(rows: int = 8, prompt: int = 380, response: int = 220, standard: int = 400) -> None:
    """Random weights of a larger Llama; the cache is filled by one forward pass in place of generation."""
    torch.manual_seed(0)
    tiny = models.load("tiny-llama", params.load_model("tiny-llama"))
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tiny.tokenizer),
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
        )
    ).eval()
    lm: LanguageModel = dataclasses.replace(tiny, model=model)
    ids = torch.randint(300, (rows, prompt + response))
    cache = model(ids[:, :-1], logits_to_keep=1).past_key_values
    mask, unused = torch.ones(rows, prompt, dtype=torch.long), torch.empty(0)
    batch = Batch(ids[:, :prompt], mask, ids[:, prompt:].tolist(), unused, unused, [], cache)
    asked = torch.randint(300, (rows, standard)).tolist()
    report(
        "lengths of the paper",
        best(lambda: p_true.live(lm, batch)),
        best(lambda: p_true.encoded(lm, asked)),
        len(models.encode(lm, prompts.QUERY)),
        standard,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in ("tiny-llama", "tiny-qwen"):
        for dataset in ("demo-easy", "demo-medium", "demo-hard"):
            demo(name, dataset)
    paper()
