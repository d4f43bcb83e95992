"""MC dropout in situ, which is not in the paper: the trajectory is encoded once, without dropout, and dropout acts only
where the answer's tokens are read.

The paper's passes (dropout.py) are T over the whole trajectory; here they are T over the positions that predict the
answer's tokens, each on a repeat of one cache, for all rates. What comes out has the same form, and is another signal:
how much the reading of a fixed reasoning wavers, not the reasoning. Masks belong to (example, pass, site) here, too: m
queries against all n keys of a row, wherever the batch's padding puts them. A cache that forgets (sliding windows)
serves as well, since nothing in it stands behind padding.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch

from lib.generate import dropout
from lib.generate.bald import Disagreement
from lib.generate.decoding import batches, forgets
from lib.generate.dropout import Masks, Pass
from lib.generate.models import LanguageModel
from lib.params import Dropout
from lib.streams import stream_seed


class AnswerMasks(Masks):
    """As `Masks`, for queries that continue a cache: `keys_at` says where each row's n keys stand among `total` places,
    its queries first among them last."""

    def __init__(self, keys: Sequence[tuple[int, int]], queries: Sequence[int], keys_at: Sequence[torch.Tensor],
                 total: int):  # fmt: skip
        super().__init__(keys, queries)
        self.keys_at, self.total = keys_at, total

    def fill(self, keep: torch.Tensor, row: int, p: float) -> None:
        m, n = self.lengths[row], len(self.keys_at[row])
        if keep.dim() == 2:
            keep[:m] = self.drawn((m, keep.shape[-1]), row, p)
        else:
            at = self.keys_at[row] - (self.total - keep.shape[-1])  # a layer that forgets holds the last places only
            keep[:, :m, at[at >= 0]] = self.drawn((len(keep), m, n), row, p)[..., at >= 0]


class Encoded(NamedTuple):
    """Tokens that were read without dropout: their cache, and which of its places hold one (rows, P)."""

    cache: Any
    mask: torch.Tensor

    def times(self, number: int) -> "Encoded":
        """Each row so many times. What is made of it leaves this one as it is: a cache grows by copies."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]
        cache.batch_repeat_interleave(number)
        return Encoded(cache, self.mask.repeat_interleave(number, 0))


@torch.inference_mode()
def opening(lm: LanguageModel, prefixes: Sequence[list[int]]) -> Encoded | None:
    """The tokens that several rows begin with, as worked examples are, encoded once. None where there are none, or
    where a cache forgets and could not be continued around padding."""
    if len(prefixes) < 2 or forgets(lm):
        return None
    shared = len(os.path.commonprefix(list(prefixes))[: min(map(len, prefixes)) - 1])
    return follow(lm, None, [prefixes[0][:shared]])[0] if shared else None


def follow(lm: LanguageModel, before: Encoded | None, ids: Sequence[list[int]], left: bool = True
           ) -> tuple[Encoded, torch.Tensor]:  # fmt: skip
    """Reads rows of tokens after what was read `before`, which is used up: what is read then, and the logits of the
    last token (rows, 1, V) or, of rows padded on the right (not `left`), of every one."""
    new = lm.tokenizer.pad({"input_ids": list(ids)}, padding_side="left" if left else "right", return_tensors="pt")
    new = new.to(lm.device)
    # padding on the right may count as read: nothing follows it, and no query looks ahead
    mask = new.attention_mask if left else torch.ones_like(new.attention_mask)
    mask = mask if before is None else torch.cat([before.mask, mask], 1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new.input_ids.shape[1] :]
    out = lm.model(new.input_ids, attention_mask=mask, position_ids=positions, use_cache=True,
                   past_key_values=before and before.cache, logits_to_keep=int(left))  # fmt: skip
    return Encoded(out.past_key_values, mask), out.logits


@torch.inference_mode()
def encoded(lm: LanguageModel, prefixes: Sequence[list[int]], first: Encoded | None) -> Encoded:
    """Rows of tokens, all of which begin with those of `first`, padded on the left behind these."""
    shared = 0 if first is None else first.mask.shape[1]
    return follow(lm, first and first.times(len(prefixes)), [ids[shared:] for ids in prefixes])[0]


@torch.inference_mode()
def reading(lm: LanguageModel, before: Encoded, passes: Sequence[Pass], kernel: str) -> torch.Tensor:
    """Float32 logits (passes, most m, V), of which a pass's first m predict its answer: one pass over each row of
    `before`, which is used up."""
    queries, keys = [p.ids[-p.answer :] for p in passes], [p.key for p in passes]
    held, most = before.mask.shape[1], max(map(len, queries))
    keys_at = [torch.cat([mask.nonzero()[:, 0], held + torch.arange(len(query))])
               for mask, query in zip(before.mask.cpu(), queries, strict=True)]  # fmt: skip
    masks: Any = dropout.own_stream(stream_seed(0, *map(str, keys)))
    if kernel == "keyed":
        masks = AnswerMasks(keys, [len(query) for query in queries], keys_at, held + most)
    with masks:
        return follow(lm, before, queries, left=False)[1].float()


def add_passes(lm: LanguageModel, before: Encoded, passes: Sequence[Sequence[Pass]], states: Sequence[Disagreement],
               kernel: str, batch_tokens: int) -> None:  # fmt: skip
    """Adds the T passes over each row (rows of T) to its state, as many at once as the cache may be repeated."""
    at_once = max(1, batch_tokens // before.mask.numel())
    for first in range(0, len(passes[0]), at_once):
        some = [of_row[first : first + at_once] for of_row in passes]
        logits = reading(lm, before.times(len(some[0])), [one for of_row in some for one in of_row], kernel)
        for state, of_row, found in zip(states, some, logits.split(len(some[0])), strict=True):
            state.add(found[:, : of_row[0].answer])


def grouped(work: Sequence[tuple[int, float]], lengths: dict[int, int], budget: int
            ) -> Iterator[tuple[list[int], list[float]]]:  # fmt: skip
    """Rows of one batch, and the rates at which all of them are read."""
    rates: dict[int, list[float]] = {}
    for row, rate in dict.fromkeys(work):
        rates.setdefault(row, []).append(rate)
    for alike in dict.fromkeys(map(tuple, rates.values())):
        rows = [row for row in rates if tuple(rates[row]) == alike]
        for group in batches([lengths[row] for row in rows], budget):
            yield [rows[i] for i in group], list(alike)


def disagreement(lm: LanguageModel, frame: pd.DataFrame, work: Sequence[tuple[int, float]], settings: Dropout,
                 batch_tokens: int = 32768) -> pd.DataFrame:  # fmt: skip
    """As `dropout.disagreement`, with dropout at the answer only. A row is encoded once for all its rates in `work`;
    the repeated cache holds at most `batch_tokens` tokens, or one row."""
    passes = {row: dropout.passes_over(lm, frame.iloc[row], row, settings) for row in dict.fromkeys(r for r, _ in work)}
    prefixes = {row: of_row[0].ids[: -of_row[0].answer] for row, of_row in passes.items()}
    states = {item: Disagreement(settings.dropout_top_k, settings.dropout_top_p) for item in work}
    lengths = {row: len(of_row[0].ids) for row, of_row in passes.items()}
    first = opening(lm, list(prefixes.values()))
    for rows, rates in grouped(work, lengths, max(1, batch_tokens // settings.dropout_passes)):
        before = encoded(lm, [prefixes[row] for row in rows], first)
        for rate in rates:
            of_rate = [states[row, rate] for row in rows]
            with dropout.enabled(lm.model, rate, settings.dropout_kernel):
                add_passes(lm, before, [passes[row] for row in rows], of_rate, settings.dropout_kernel, batch_tokens)
    return dropout.in_rows(frame, work, [states[item] for item in work])
