"""Responses of a model to questions: a row each, with the probability of every token (columns: lib.store)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.generate import models
from lib.generate.decoding import Batch, batches, decode, stream_seed
from lib.generate.models import LanguageModel
from lib.generate.token_logits import encode_again
from lib.params import Generation
from lib.tasks import answers, prompts
from lib.tasks.datasets import Example


@dataclass(frozen=True)
class Request:
    """An example as the model is asked it."""

    example: Example
    prompt: str
    prompt_ids: list[int]
    seed: int  # of the response's random stream


def prompt_text(lm: LanguageModel, question: str, demonstration: bool) -> str:
    """The solving prompt as the model reads it (`fig:prompt_example`)."""
    return models.render(lm, prompts.solve(question, lm.spec.system_prompt, demonstration))


def request(lm: LanguageModel, dataset: str, example: Example, settings: Generation) -> Request:
    text = prompt_text(lm, example.question, settings.demonstration)
    seed = stream_seed(settings.seed, lm.name, dataset, example.example_id)
    return Request(example, text, models.encode(lm, text), seed)


def respond(lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation,
            alive: Callable[[LanguageModel, Batch], list[dict[str, Any]]] | None = None) -> pd.DataFrame:  # fmt: skip
    """Responses of a model to examples: a generations frame, in the order of `examples`. What `alive` makes of each
    batch while its cache is alive, a dictionary per row, becomes further columns."""
    requests = [request(lm, dataset, example, settings) for example in examples]
    lengths = [len(r.prompt_ids) for r in requests]
    rows: dict[int, dict[str, Any]] = {}
    for group in batches(lengths, settings.batch_tokens, settings.max_new_tokens):
        asked = [requests[i] for i in group]
        batch = decode(lm, [r.prompt_ids for r in asked], [r.seed for r in asked], settings)
        further = alive(lm, batch) if alive else [{} for _ in group]
        for place, i in enumerate(group):
            rows[i] = row(lm, requests[i], batch, place, settings) | further[place]
    frame = pd.DataFrame([rows[i] for i in range(len(examples))])
    frame.insert(0, "model", lm.name)
    frame.insert(1, "dataset", dataset)
    return frame


def row(lm: LanguageModel, asked: Request, batch: Batch, place: int, settings: Generation) -> dict[str, Any]:
    """One line of the generations frame (columns: lib.store), of the response at `place` in a batch."""
    ids, kept = batch.responses[place], batch.kept[place]
    ended = bool(ids) and ids[-1] in lm.eos
    body = ids[:-1] if ended else ids
    located = answers.locate(lm.tokenizer, body, lm.spec.thinking)
    positions = answer_positions(located, max(len(body), 1))  # of a response that ends at once, its end token
    lacking = [position for position in positions if position not in kept]  # a last token that is no number, say
    kept = kept | encode_again(lm, asked.prompt_ids, ids, lacking, settings)
    logits = [kept[position] for position in positions]
    return {
        "prompt": asked.prompt, "split": asked.example.split, "example_id": asked.example.example_id,
        "question": asked.example.question, "reference": asked.example.reference,
        "prompt_tokens": len(asked.prompt_ids), "token_ids": np.array(ids, np.int32),
        "token_logprobs": batch.logprobs[place, : len(ids)].cpu().numpy(),
        "token_logprobs_sampling": batch.sampling[place, : len(ids)].cpu().numpy(), **located,
        "finish_reason": "stop" if ended else "length", "eos": int(ended), "seed": asked.seed,
        "kept_positions": np.array(positions, np.int32), "reencoded": len(lacking),
        "chosen_logit": np.array([float(z.chosen) for z in logits], np.float32),
        "top_logits": [z.top.cpu().numpy().astype(np.float32) for z in logits],
        "top_ids": [z.top_ids.cpu().numpy().astype(np.int32) for z in logits],
        "tail_curve": [z.tail_curve.cpu().numpy().astype(np.float32) for z in logits],
    }  # fmt: skip


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Every token that some answer-span policy may choose: the answer's, the last number's, the last one."""
    positions = {length - 1}
    for name in ("answer", "last_number"):
        start, end = located[f"{name}_start"], located[f"{name}_end"]
        if start >= 0:
            positions |= set(range(start, end))
    return sorted(positions)


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """A generations row token by token: text, probability (own and when sampling), what it is part of."""
    texts = answers.token_texts(lm.tokenizer, response.token_ids)
    part = np.full(len(texts), "", dtype=object)
    part[response.answer_start : response.answer_end] = "answer"  # -1 and -1, hence none, where there is no answer
    part[: response.thinking_end] = "thinking"
    if response.eos:
        part[-1] = "end"
    return pd.DataFrame({"token": [repr(text) for text in texts], "id": response.token_ids, "part": part,
                         "probability": np.exp(response.token_logprobs).round(6),
                         "when sampling": np.exp(response.token_logprobs_sampling).round(6)})  # fmt: skip
