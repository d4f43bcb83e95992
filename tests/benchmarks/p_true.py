"""Seconds of P(True), in situ on a live cache against the standard prompt, in one process. Run by hand:

    python tests/benchmarks/p_true.py

First the demo models on their own questions; then random weights at lengths as in the paper, where a standard prompt
has some 400 tokens and a trajectory, full prompt before it, 600.
"""

import dataclasses
import time
from types import SimpleNamespace

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib import params
from lib.generate import generation, models, p_true
from lib.generate.models import LanguageModel
from lib.tasks import datasets

SETTINGS = params.Generation(demonstration="none", max_new_tokens=200)
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


def timed(name: str, lm: LanguageModel, rows: list, asked: list[list[int]]) -> None:
    """In situ row by row, each behind a cache that holds its trajectory; the fresh prompts row by row, too."""
    in_situ = sum(min(p_true.ask_in_situ_on_cache(lm, row)[0]["seconds"] for _ in range(REPEATS)) for row in rows)
    standard = best(lambda: [p_true.encode_and_ask(lm, [ids], [""]) for ids in asked])
    report(name, in_situ, standard, len(p_true.query_ids(lm)), sum(map(len, asked)) / len(asked))


def demo(name: str, dataset: str, rows: int = 32) -> None:
    lm = models.load_language_model(name, params.load_model_config(name))
    examples = datasets.load_examples(params.load_dataset_config(dataset))[:rows]
    answered = list(generation.generate_responses(lm, dataset, examples, SETTINGS).itertuples())
    texts = [p_true.standard_prompt(lm, row.question, row.text, params.Verification()) for row in answered]
    timed(f"{name} {dataset}", lm, answered, [models.encode(lm, text) for text in texts])


def paper(rows: int = 8, trajectory: int = 600, standard: int = 400) -> None:
    """Random weights of a larger Llama, and random tokens."""
    torch.manual_seed(0)
    tiny = models.load_language_model("tiny-llama", params.load_model_config("tiny-llama"))
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
    answered = [SimpleNamespace(prompt="", token_ids=torch.randint(300, (trajectory,)).tolist(), eos=0)] * rows
    timed("lengths of the paper", lm, answered, torch.randint(300, (rows, standard)).tolist())


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in ("tiny-llama", "tiny-qwen"):
        for dataset in ("demo-easy", "demo-medium", "demo-hard"):
            demo(name, dataset)
    paper()
