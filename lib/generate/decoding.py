"""Decoding: from a distribution to a token, and from prompts to a batch of responses.

`generate` runs greedily over our own processors: the first notes the raw logits of the step, the warpers
(temperature, top-k, top-p, min-p) follow, and the last samples by inverting the cumulative distribution at a uniform
number that belongs to (example, step). So in float32 an example's tokens do not depend on the batch it is in; in
bfloat16, where kernels sum in another order for another batch, near ties may fall otherwise (3 of 200 demo responses).
One step's logits are all that is ever held: `output_logits=True` would hold batch x length x vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from lib.generate import padding, token_logits
from lib.generate.head import Head
from lib.generate.models import LanguageModel, check_finite
from lib.generate.token_logits import Kept, Ring, TokenLogits, of_tokens
from lib.params import Generation, Model

FEW = 8  # rows below which a batch is decoded to its end as it is


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


class Finite(LogitsProcessor):
    """Refuses rows whose logits are not finite after the prefill: UserError, with their names."""

    def __init__(self, lm: LanguageModel, names: Sequence[str]):
        self.lm, self.names, self.looked = lm, names, False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not self.looked:
            check_finite(self.lm, scores.float().logsumexp(-1).tolist(), self.names)
        self.looked = True
        return scores


class Sample(LogitsProcessor):
    """Last in the chain: draws each row's token and gathers what is kept of it; then leaves it the only choice.

    Log-probabilities are (batch, steps): `logprobs` of the raw distribution, `sampling` of the warped one. `rows` are
    the places in the batch of those that are still decoded, `ended` (rows,) says which of these have written one of the
    tokens `eos`. What the host has to know of a step comes in one piece, for which it waits once. Of numbers the
    logits are kept; of a `head` that rounds nothing what it was given, for few of them are in an answer, and where
    drawing rounds (without a GPU) that of every token: `logprobs` are then rounded ones.
    """

    def __init__(self, note: Note, seeds: Sequence[int], number_like: torch.Tensor, settings: Generation,
                 eos: Sequence[int] = (), head: Head | None = None):  # fmt: skip
        self.note, self.step, self.settings, self.head = note, 0, settings, head
        batch, steps, device = len(seeds), settings.max_new_tokens, number_like.device
        ending = torch.isin(torch.arange(len(number_like), device=device), torch.tensor(list(eos), device=device))
        self.kinds = torch.stack([number_like, ending])  # (2, V)
        # all that outlives a step is allocated here, see Ring
        self.uniforms = uniforms(seeds, steps).to(device)
        self.logprobs, self.sampling = torch.zeros(2, batch, steps, device=device)
        token = torch.zeros(1, dtype=torch.long, device=device)
        logits = torch.zeros(1, len(number_like), device=device)
        self.every = head is not None and not head.weight.is_cuda  # all tokens are kept
        kinds = (head.weight[:1],) if head else of_tokens(logits, token, settings)
        self.ring = Ring(batch, kinds, steps if self.every else token_logits.RING)
        self.go_on(list(range(batch)))

    def go_on(self, rows: list[int]) -> None:
        """From now on these rows alone are decoded."""
        self.rows, self.ended = rows, [False] * len(rows)
        self.places = torch.tensor(rows, device=self.uniforms.device)

    def kept(self, row: int) -> dict[int, Kept]:
        """What is kept of the response at a place in the batch, by position."""
        return {position: values[0] if self.head else TokenLogits(*values)
                for position, values in self.ring.row(row).items()}  # fmt: skip

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raw, token = self.note.raw, invert(scores, self.uniforms[self.places, self.step])
        # log_softmax, not z_y - logsumexp(z): that cancels digits where logits are large
        self.logprobs[self.places, self.step] = entry(raw.log_softmax(-1), token)
        self.sampling[self.places, self.step] = entry(scores.float().log_softmax(-1), token)
        numbers, ending = self.kinds[:, token].tolist()
        kept = [i for i, number in enumerate(numbers) if (number or self.every) and not self.ended[i]]
        if kept:
            at = torch.tensor(kept, device=raw.device)
            values = (self.head.hidden[at, -1],) if self.head else of_tokens(raw[at], token[at], self.settings)
            self.ring.keep([self.rows[i] for i in kept], self.step, values)
        self.ended = [before or now for before, now in zip(self.ended, ending, strict=True)]
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(-1, token[:, None], 0.0)


class Dwindled(StoppingCriteria):
    """Stops a batch when no row goes on, or, of FEW rows or more, at most half of them do, as `sample` knows."""

    def __init__(self, sample: Sample):
        self.sample = sample

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        ended = self.sample.ended
        going = len(ended) - sum(ended)
        stop = going == 0 or (len(ended) >= FEW and 2 * going <= len(ended))
        return torch.full((len(ended),), stop, device=input_ids.device)


@dataclass
class Batch:
    """A decoded batch while its cache is alive. Left-padded prompts (batch, P), responses by row without padding."""

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    responses: list[list[int]]
    logprobs: torch.Tensor  # (batch, steps), float32, steps past a row's end are meaningless
    sampling: torch.Tensor
    kept: list[dict[int, Kept]]  # by row and position
    cache: Any = field(repr=False)  # lacks the last sampled token
    names: list[str] = field(default_factory=list)  # of the rows, for messages

    def free(self) -> None:
        """Lets go of the cache: the next batch needs its room."""
        self.cache = None


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


def forgets(lm: LanguageModel) -> bool:
    """Whether the model's cache forgets (sliding windows), so that it cannot be continued around masked tokens."""
    return any(getattr(layer, "is_sliding", False) for layer in DynamicCache(config=lm.model.config).layers)


def decode(lm: LanguageModel, prompt_ids: list[list[int]], seeds: Sequence[int], settings: Generation) -> Batch:
    """Sampled responses to a batch of prompts, under the model file's decoding settings, all in one cache."""
    ((_, batch),) = rounds(lm, prompt_ids, seeds, settings, dwindle=False)
    return batch


@torch.inference_mode()
def rounds(lm: LanguageModel, prompt_ids: list[list[int]], seeds: Sequence[int], settings: Generation,
           shared: int = 0, dwindle: bool = True, names: Sequence[str] = ()
           ) -> Iterator[tuple[list[int], Batch]]:  # fmt: skip
    """As `decode`, but whenever half of the rows have ended, these are handed over (their places, and a batch of them)
    and the others go on by themselves: a batch else runs to its longest response with rows that do nothing.

    The first `shared` tokens, alike in all prompts, are encoded once. Beside the caches that were handed over, and not
    freed since, that of the rows that go on is alive, and none other. Raises UserError where logits after the prefill
    are not finite, with the row's name.
    """
    names = list(names) or [str(i) for i in range(len(prompt_ids))]
    dwindle = dwindle and not forgets(lm)
    ids, mask, cache = beginning(lm, prompt_ids, 0 if forgets(lm) else shared)
    note, prompt = Note(), ids.shape[1]
    sample = Sample(note, seeds, lm.number_like, settings, lm.eos, lm.head)
    lengths = [len(row) for row in prompt_ids]
    chain = LogitsProcessorList([Finite(lm, names), note, *warpers(lm.spec), sample])
    while len(ids):
        padded = min(lengths[row] for row in sample.rows) < prompt
        with padding.known(padded), lm.head.rounding() if lm.head else nullcontext():
            out = lm.model.generate(
                input_ids=ids, attention_mask=mask, past_key_values=cache, logits_processor=chain,
                stopping_criteria=StoppingCriteriaList([Dwindled(sample)] if dwindle else []),
                generation_config=GenerationConfig(
                    do_sample=False, max_new_tokens=settings.max_new_tokens - sample.step, eos_token_id=lm.eos,
                    pad_token_id=lm.tokenizer.pad_token_id, return_dict_in_generate=True))  # fmt: skip
        whole = not dwindle or sample.step >= settings.max_new_tokens or all(sample.ended)
        over = torch.tensor([whole or ended for ended in sample.ended], device=ids.device)
        done, cache, sequences = sample.places[over], out.past_key_values, out.sequences
        del out  # which holds the cache, too
        part, cache = (cache, None) if whole else parted(cache, over)
        places = done.tolist()
        tokens = [cut(row, lm.eos) for row in sequences[over, prompt:].tolist()]
        batch = Batch(
            ids[over, :prompt], mask[over, :prompt], tokens, sample.logprobs[done], sample.sampling[done],
            [sample.kept(i) for i in places], part, [names[i] for i in places])  # fmt: skip
        del part  # the batch alone holds it, until it is freed
        sample.go_on(sample.places[~over].tolist())
        ids = sequences[~over]
        mask = torch.cat([mask[~over, :prompt], torch.ones_like(ids[:, prompt:])], 1)
        yield places, batch


def beginning(lm: LanguageModel, prompt_ids: list[list[int]], shared: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Prompts (batch, P) and their mask, padded on the left or, where the first `shared` tokens are alike, after these,
    of which the cache comes along."""
    padded = lm.tokenizer.pad({"input_ids": [ids[shared:] for ids in prompt_ids]}, return_tensors="pt").to(lm.device)
    if not shared:
        return padded.input_ids, padded.attention_mask, None
    first = torch.tensor([prompt_ids[0][:shared]], device=lm.device)
    cache = lm.model(first, use_cache=True, logits_to_keep=1).past_key_values
    cache.batch_repeat_interleave(len(prompt_ids))
    ids = torch.cat([first.expand(len(prompt_ids), -1), padded.input_ids], 1)
    mask = torch.cat([torch.ones_like(ids[:, :shared]), padded.attention_mask], 1)
    return ids, mask, cache


def parted(cache: Any, rows: torch.Tensor) -> tuple[Any, Any]:
    """A cache of some `rows` (batch,), and the given one, left with the others. A layer at a time, so that no more
    than one layer is held twice."""
    part, others = DynamicCache(), (~rows).nonzero()[:, 0]
    for i, layer in enumerate(cache.layers):
        place = layer.keys.device  # of several, where a model is spread
        part.update(layer.keys[rows.to(place)], layer.values[rows.to(place)], i)
        layer.batch_select_indices(others.to(place))
    return part, cache


def cut(row: list[int], eos: list[int]) -> list[int]:
    """A row up to its first end token, that token included."""
    for i, token in enumerate(row):
        if token in eos:
            return row[: i + 1]
    return row
