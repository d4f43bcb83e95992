"""Batched responses of a model to questions: a row each, with the probability of every token.

Prompts are padded on the left and batched by a token budget; `lib.sampling` draws the tokens and keeps what of their
distributions confidence needs, while `generate` runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import GenerationConfig, LogitsProcessorList

from lib.generate import models
from lib.generate.models import LanguageModel
from lib.generate.sampling import Note, Sample, Settings, compress, stream_seed, warpers
from lib.tasks import answers, prompts
from lib.tasks.questions import Example


@dataclass
class Batch:
    """A decoded batch while its cache is alive. Left-padded prompts (batch, P), responses by row without padding."""

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    responses: list[list[int]]
    logprobs: torch.Tensor  # (batch, steps), float32, steps past a row's end are meaningless
    sampling: torch.Tensor
    kept: list[dict[int, tuple[torch.Tensor, ...]]]
    cache: Any = field(repr=False)  # lacks the last sampled token


@torch.inference_mode()
def decode(lm: LanguageModel, prompt_ids: list[list[int]], seeds: Sequence[int], settings: Settings) -> Batch:
    """Sampled responses to a batch of prompts, under the model file's decoding settings."""
    padded = lm.tokenizer.pad({"input_ids": prompt_ids}, return_tensors="pt").to(lm.device)
    note = Note()
    sample = Sample(note, seeds, lm.number_like, settings)
    out = lm.model.generate(
        input_ids=padded.input_ids, attention_mask=padded.attention_mask,
        logits_processor=LogitsProcessorList([note, *warpers(lm.spec), sample]),
        generation_config=GenerationConfig(
            do_sample=False, max_new_tokens=settings.max_new_tokens, eos_token_id=lm.eos,
            pad_token_id=lm.tokenizer.pad_token_id, return_dict_in_generate=True))  # fmt: skip
    rows = out.sequences[:, padded.input_ids.shape[1] :].tolist()
    return Batch(padded.input_ids, padded.attention_mask, [cut(row, lm.eos) for row in rows],
                 sample.logprobs, sample.sampling, sample.kept,
                 out.past_key_values)  # fmt: skip


def cut(row: list[int], eos: list[int]) -> list[int]:
    """A row up to its first end token, that token included."""
    return next((row[: i + 1] for i, token in enumerate(row) if token in eos), row)


@torch.inference_mode()
def logits_at(lm: LanguageModel, prompt: list[int], response: list[int], positions: list[int]) -> torch.Tensor:
    """Raw float32 logits (n, V) that predict the response's tokens at `positions`, by one full forward pass."""
    ids = torch.tensor([prompt + response], device=lm.device)
    where = torch.tensor([len(prompt) + p - 1 for p in positions], device=lm.device)
    return lm.model(ids, logits_to_keep=where).logits[0].float()


def complete(lm: LanguageModel, prompt: list[int], response: list[int], wanted: list[int],
             kept: dict[int, tuple[torch.Tensor, ...]], settings: Settings) -> int:  # fmt: skip
    """Adds to `kept` the wanted positions that it lacks (a last token that is no number, say); returns how many."""
    lacking = [p for p in wanted if p not in kept]
    if lacking:
        logits = logits_at(lm, prompt, response, lacking)
        parts = compress(logits, settings.top_logits, settings.curve_nodes)
        for i, p in enumerate(lacking):
            kept[p] = (logits[i, response[p]], *(part[i] for part in parts))
    return len(lacking)


def wanted_positions(found: dict[str, Any], length: int) -> list[int]:
    """Every token that some answer-span policy may choose: the answer's, the last number's, the last one."""
    spans = [(found[f"{name}_start"], found[f"{name}_end"]) for name in ("answer", "last_number")]
    return sorted({p for a, b in spans if a >= 0 for p in range(a, b)} | ({length - 1} if length else set()))


def row(lm: LanguageModel, example: Example, prompt: list[int], seed: int, batch: Batch, i: int,
        settings: Settings) -> dict[str, Any]:  # fmt: skip
    """One line of the generations frame (columns as in README)."""
    ids = batch.responses[i]
    ended = bool(ids) and ids[-1] in lm.eos
    body = ids[:-1] if ended else ids
    found = answers.locate(lm.tokenizer, body, lm.spec.thinking)
    wanted = wanted_positions(found, max(len(body), 1))  # of a response that ends at once, its end token
    reencoded = complete(lm, prompt, ids, wanted, batch.kept[i], settings)
    parts = [batch.kept[i][p] for p in wanted]
    return {
        "split": example.split, "example_id": example.example_id, "question": example.question,
        "reference": example.reference, "prompt_tokens": len(prompt), "token_ids": np.array(ids, np.int32),
        "token_logprobs": batch.logprobs[i, : len(ids)].cpu().numpy(),
        "token_logprobs_sampling": batch.sampling[i, : len(ids)].cpu().numpy(), **found,
        "finish_reason": "stop" if ended else "length", "eos": int(ended), "seed": seed,
        "kept_positions": np.array(wanted, np.int32), "reencoded": reencoded,
        "chosen_logit": np.array([float(p[0]) for p in parts], np.float32),
        "top_logits": [p[1].cpu().numpy().astype(np.float32) for p in parts],
        "top_ids": [p[2].cpu().numpy().astype(np.int32) for p in parts],
        "tail_curve": [p[3].cpu().numpy().astype(np.float32) for p in parts],
    }  # fmt: skip


def batches(lengths: Sequence[int], settings: Settings) -> list[list[int]]:
    """Indices of examples by batch: alike in prompt length, at most `batch_tokens` tokens when all run to the end."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    groups: list[list[int]] = []
    for i in order:
        room = settings.batch_tokens // (lengths[i] + settings.max_new_tokens)
        if groups and len(groups[-1]) < max(1, room):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def prompt_text(lm: LanguageModel, question: str, demonstration: bool) -> str:
    """The solving prompt as the model reads it."""
    return models.render(lm, prompts.solve(question, lm.spec.system_prompt, demonstration))


def respond(lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Settings,
            alive: Callable[[LanguageModel, Batch], list[dict[str, Any]]] | None = None) -> pd.DataFrame:  # fmt: skip
    """Responses of a model to examples: a generations frame, in the order of `examples`. What `alive` makes of each
    batch while its cache is alive, a dictionary per row, becomes further columns."""
    texts = [prompt_text(lm, e.question, settings.demonstration) for e in examples]
    ids = [models.encode(lm, text) for text in texts]
    seeds = [stream_seed(settings.seed, lm.name, dataset, e.example_id) for e in examples]
    rows: dict[int, dict[str, Any]] = {}
    for group in batches([len(p) for p in ids], settings):
        batch = decode(lm, [ids[i] for i in group], [seeds[i] for i in group], settings)
        more = alive(lm, batch) if alive else [{}] * len(group)
        for at, i in enumerate(group):
            rows[i] = {"prompt": texts[i], **row(lm, examples[i], ids[i], seeds[i], batch, at, settings), **more[at]}
    frame = pd.DataFrame([rows[i] for i in range(len(examples))])
    frame.insert(0, "model", lm.name)
    frame.insert(1, "dataset", dataset)
    return frame


def microscope(lm: LanguageModel, one: Any) -> pd.DataFrame:
    """A generations row token by token: text, probability (own and when sampling), what it is part of."""
    texts = answers.token_texts(lm.tokenizer, one.token_ids)
    part = ["thinking" if i < one.thinking_end else "answer" if one.answer_start <= i < one.answer_end else
            "end" if one.eos and i == len(texts) - 1 else "" for i in range(len(texts))]  # fmt: skip
    return pd.DataFrame({"token": [repr(t) for t in texts], "id": one.token_ids, "part": part,
                         "probability": np.exp(one.token_logprobs).round(6),
                         "when sampling": np.exp(one.token_logprobs_sampling).round(6)})  # fmt: skip
