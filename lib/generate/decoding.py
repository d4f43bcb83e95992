"""Decoding: from a distribution to a token, and from prompts to a batch of responses.

`generate` runs greedily over our own processors: the first notes the raw logits of the step, the warpers
(temperature, top-k, top-p, min-p) follow, and the last samples by inverting the cumulative distribution at a uniform
number that belongs to (example, step). So an example's tokens do not depend on the batch it is in, and one step's
logits are all that is ever held: `output_logits=True` would hold batch x length x vocabulary.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lib.generate.models import LanguageModel
from lib.generate.token_logits import Ring, TokenLogits
from lib.params import Generation, Model


def settings_for(spec: Model, settings: Generation) -> Generation:
    """The run's settings, with the `max_new_tokens` of the model's file where that says one (thinking models do)."""
    if spec.max_new_tokens is None:
        return settings
    return settings.model_copy(update={"max_new_tokens": spec.max_new_tokens})


def warpers(spec: Model) -> list[LogitsProcessor]:
    """The decoding settings as transformers' own processors, in its order; a setting that is off adds none."""
    chain: list[LogitsProcessor] = []
    if spec.temperature != 1.0:
        chain.append(transformers.TemperatureLogitsWarper(spec.temperature))
    if spec.top_k > 0:
        chain.append(transformers.TopKLogitsWarper(spec.top_k))
    if spec.top_p < 1.0:
        chain.append(transformers.TopPLogitsWarper(spec.top_p))
    if spec.min_p > 0.0:
        chain.append(transformers.MinPLogitsWarper(spec.min_p))
    return chain


def stream_seed(seed: int, *who: str) -> int:
    """Seed of a random stream, from the run's seed and names (model, dataset, example): 63 bits."""
    return int.from_bytes(hashlib.sha256("|".join([str(seed), *who]).encode()).digest()[:8], "big") >> 1


def uniforms(seeds: Sequence[int], steps: int) -> torch.Tensor:
    """(batch, steps) numbers in [0, 1), a row per seed. Philox counts, so a longer row begins with the shorter one."""
    return torch.from_numpy(np.stack([np.random.Generator(np.random.Philox(s)).random(steps) for s in seeds]))


def invert(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Tokens (batch,) where the cumulative distribution of logits (batch, V) passes u (batch,).

    The first index whose cumulative mass exceeds u has mass of its own, so a truncated token is never drawn.
    """
    cumulative = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)[:, 0]


def entry(values: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """(batch,) the entry of each row of values (batch, V) at its token (batch,)."""
    return values.gather(-1, token[:, None])[:, 0]


class Note(LogitsProcessor):
    """First in the chain: notes the step's raw logits, and changes nothing."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.raw = scores.float()
        return scores


class Sample(LogitsProcessor):
    """Last in the chain: draws each row's token and gathers what is kept of it; then leaves it the only choice.

    Log-probabilities are (batch, steps): `logprobs` of the raw distribution, `sampling` of the warped one.
    """

    def __init__(self, note: Note, seeds: Sequence[int], number_like: torch.Tensor, settings: Generation):
        self.note, self.number_like, self.step = note, number_like, 0
        batch, steps, device = len(seeds), settings.max_new_tokens, number_like.device
        # all that outlives a step is allocated here, see Ring
        self.uniforms = uniforms(seeds, steps).to(device)
        self.logprobs, self.sampling = torch.zeros(2, batch, steps, device=device)
        self.ring = Ring(batch, len(number_like), settings, device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raw, token = self.note.raw, invert(scores, self.uniforms[:, self.step])
        # log_softmax, not z_y - logsumexp(z): that cancels digits where logits are large
        self.logprobs[:, self.step] = entry(raw.log_softmax(-1), token)
        self.sampling[:, self.step] = entry(scores.float().log_softmax(-1), token)
        rows = self.number_like[token].nonzero()[:, 0]
        if len(rows):
            self.ring.keep(rows, self.step, raw[rows], entry(raw, token)[rows])
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(-1, token[:, None], 0.0)


@dataclass
class Batch:
    """A decoded batch while its cache is alive. Left-padded prompts (batch, P), responses by row without padding."""

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    responses: list[list[int]]
    logprobs: torch.Tensor  # (batch, steps), float32, steps past a row's end are meaningless
    sampling: torch.Tensor
    kept: list[dict[int, TokenLogits]]  # by row and position
    cache: Any = field(repr=False)  # lacks the last sampled token


def batches(lengths: Sequence[int], tokens: int, growth: int = 0) -> list[list[int]]:
    """Indices of sequences by batch, in order of length: at most `tokens` tokens in a batch when each sequence grows
    by `growth`, or a single sequence."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    groups: list[list[int]] = []
    for i in order:
        rows = tokens // (lengths[i] + growth)
        if groups and len(groups[-1]) < rows:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


@torch.inference_mode()
def decode(lm: LanguageModel, prompt_ids: list[list[int]], seeds: Sequence[int], settings: Generation) -> Batch:
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
    return Batch(padded.input_ids, padded.attention_mask, [cut(row, lm.eos) for row in rows], sample.logprobs,
                 sample.sampling, [sample.ring.row(i) for i in range(len(rows))], out.past_key_values)  # fmt: skip


def cut(row: list[int], eos: list[int]) -> list[int]:
    """A row up to its first end token, that token included."""
    for i, token in enumerate(row):
        if token in eos:
            return row[: i + 1]
    return row
