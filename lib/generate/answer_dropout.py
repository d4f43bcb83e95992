"""MC dropout in situ, which is not in the paper: the trajectory is encoded once, without dropout, and dropout acts only
where the answer's tokens are read.

The paper's passes (dropout.py) are T over the whole trajectory; here they are T over the positions that predict the
answer's tokens, side by side behind one cache, which serves all rates. What comes out has the same form, and is another
signal: how much the reading of a fixed reasoning wavers, not the reasoning. Masks belong to (example, pass) here, too:
m queries against all n keys of a row, wherever the batch puts them.
"""

import copy
import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from lib.generate import dropout
from lib.generate.bald import Disagreement
from lib.generate.decoding import batches, forgets
from lib.generate.dropout import Masks, Pass, drawn
from lib.generate.models import LanguageModel
from lib.generate.room import by_halves
from lib.params import Dropout
from lib.streams import stream_seed

MOST = 2**28  # logits of passes and rows that are read side by side: 1 GB in float32


class Encoded(NamedTuple):
    """Tokens that were read without dropout: their cache, and which of its places hold one (rows, P)."""

    cache: Any
    mask: torch.Tensor

    def times(self, number: int) -> "Encoded":
        """Each row so many times. What is read after it leaves this one as it is: a cache grows by copies."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]
        cache.batch_repeat_interleave(number)
        return Encoded(cache, self.mask.repeat_interleave(number, 0))


@torch.inference_mode()
def encoded(lm: LanguageModel, prefixes: Sequence[list[int]], first: Encoded | None = None) -> Encoded:
    """Rows of tokens, padded on the left, behind `first` where all begin with its one row."""
    shared = 0 if first is None else first.mask.shape[1]
    before = first and first.times(len(prefixes))
    new = lm.tokenizer.pad({"input_ids": [ids[shared:] for ids in prefixes]}, return_tensors="pt").to(lm.device)
    mask = new.attention_mask if before is None else torch.cat([before.mask, new.attention_mask], 1)
    out = lm.model(new.input_ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, shared:],
                   past_key_values=before and before.cache, use_cache=True, logits_to_keep=1)  # fmt: skip
    return Encoded(out.past_key_values, mask)


def opening(lm: LanguageModel, prefixes: Sequence[list[int]]) -> Encoded | None:
    """The tokens that several rows begin with, as worked examples are, encoded once. None where there are none, or
    where a cache forgets and can't be continued around padding."""
    if len(prefixes) < 2 or forgets(lm):
        return None
    shared = len(os.path.commonprefix(list(prefixes))[: min(map(len, prefixes)) - 1])
    return encoded(lm, [prefixes[0][:shared]]) if shared else None


class AnswerMasks(Masks):
    """As `Masks`, for rows of passes that stand side by side behind what was read `before` (rows, P), each in `width`
    places, its m queries first. A pass draws from one stream, site after site, for its queries and all their keys."""

    def __init__(self, rows: Sequence[Sequence[Pass]], before: np.ndarray, width: int):
        super().__init__([one.key for passes in rows for one in passes], [passes[0].answer for passes in rows])
        self.rows, self.side, self.width, self.held = len(rows), len(rows[0]), width, before.shape[1]
        self.streams = [np.random.Philox(key=np.array(key, np.uint64)) for key in self.keys]
        self.runs = [runs(row) for row in before]

    def fill(self, keep: np.ndarray, row: int, p: float) -> None:
        m = self.lengths[row]
        for number in range(self.side):
            stream, first = self.streams[row * self.side + number], number * self.width
            queries = keep[..., first : first + m, :]  # (heads, m, places) or (m, width)
            if keep.ndim == 2:
                queries[...] = drawn(stream, queries.shape, p)
            else:
                own = (self.held + first, self.held + first + m)
                self.place(queries, [*self.runs[row], own], stream, p)

    def place(self, queries: np.ndarray, at: Sequence[tuple[int, int]], stream: np.random.Philox, p: float) -> None:
        """A mask for a pass's queries and their n keys, which stand `at` runs of places. A layer that forgets holds
        the last places only."""
        mask = drawn(stream, (*queries.shape[:2], sum(end - start for start, end in at)), p)
        gone = self.held + self.side * self.width - queries.shape[-1]
        for start, end in at:
            lost = max(0, gone - start)
            queries[..., start + lost - gone : end - gone] = mask[..., lost : end - start]
            mask = mask[..., end - start :]


def runs(row: np.ndarray) -> list[tuple[int, int]]:
    """Where a row of 0 and 1 is 1: (start, end) of each run."""
    edges = np.flatnonzero(np.diff(row, prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def side_by_side(mask: torch.Tensor, side: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """What is added to attention (rows, 1, side * width, P + side * width): each pass sees what its row has read
    before, and itself up to where it is; a single one needs no more than which places are read."""
    if side == 1:
        return torch.cat([mask, mask.new_ones(len(mask), width)], 1)
    own = torch.block_diag(*[torch.ones(width, width).tril()] * side).to(mask)
    seen = torch.cat([mask[:, None].expand(-1, len(own), -1), own.expand(len(mask), -1, -1)], -1)
    return torch.zeros_like(seen, dtype=dtype).masked_fill(seen == 0, torch.finfo(dtype).min)[:, None]


@torch.inference_mode()
def reading(lm: LanguageModel, before: Encoded, rows: Sequence[Sequence[Pass]], kernel: str) -> torch.Tensor:
    """Float32 logits (rows, passes, most m, V) of passes behind each row of `before`, whose first m predict the
    answer. `before` is left as it is."""
    side, width = len(rows[0]), max(passes[0].answer for passes in rows)
    queries = torch.zeros(len(rows), width, dtype=torch.long)
    for i, (one, *_) in enumerate(rows):
        queries[i, : one.answer] = torch.tensor(one.ids[-one.answer :])
    positions = before.mask.sum(1, keepdim=True) + torch.arange(width, device=lm.device)
    masks: Any = dropout.own_stream(stream_seed(0, *[str(one.key) for passes in rows for one in passes]))
    if kernel == "keyed":
        masks = AnswerMasks(rows, before.mask.cpu().numpy(), width)
    with masks:
        logits = lm.model(queries.repeat(1, side).to(lm.device), position_ids=positions.repeat(1, side),
                          attention_mask=side_by_side(before.mask, side, width, lm.model.dtype),
                          past_key_values=before.times(1).cache).logits  # fmt: skip
    return logits.float().unflatten(1, (side, width))


def add_passes(lm: LanguageModel, before: Encoded, rows: Sequence[Sequence[Pass]], states: Sequence[Disagreement],
               kernel: str) -> None:  # fmt: skip
    """Adds the T passes over each row to its state: all side by side, or as many as MOST logits allow, or one after the
    other where attention can't be told what a pass sees: sliding windows, flash attention. Those that are in already
    are left out."""
    alone = forgets(lm) or "flash" in lm.model.config._attn_implementation
    logits_of_pass = len(rows) * max(passes[0].answer for passes in rows) * lm.model.config.get_text_config().vocab_size
    side = 1 if alone else min(len(rows[0]), max(1, MOST // logits_of_pass))
    for first in range(min(state.count for state in states), len(rows[0]), side):
        some = [passes[first : first + side] for passes in rows]
        for state, passes, logits in zip(states, some, reading(lm, before, some, kernel), strict=True):
            if state.count == first:
                state.add(logits[:, : passes[0].answer])


def grouped(work: Sequence[tuple[int, float]], lengths: dict[int, int], tokens: int
            ) -> Iterator[tuple[list[int], list[float]]]:  # fmt: skip
    """Rows of one batch, and the rates at which all of them are read."""
    rates: dict[int, list[float]] = {}
    for row, rate in dict.fromkeys(work):
        rates.setdefault(row, []).append(rate)
    for alike in dict.fromkeys(map(tuple, rates.values())):
        rows = [row for row in rates if tuple(rates[row]) == alike]
        for group in batches([lengths[row] for row in rows], tokens):
            yield [rows[i] for i in group], list(alike)


def disagreement(lm: LanguageModel, frame: pd.DataFrame, work: Sequence[tuple[int, float]],
                 settings: Dropout) -> pd.DataFrame:  # fmt: skip
    """As `dropout.disagreement`, with dropout at the answer only. A row is encoded once for all its rates in `work`;
    at most `dropout_tokens` tokens and MOST logits, or one row, are read at once: an endless number has hundreds."""
    passes = {row: dropout.passes_over(lm, frame.iloc[row], row, settings) for row in dict.fromkeys(r for r, _ in work)}
    prefixes = {row: one.ids[: -one.answer] for row, (one, *_) in passes.items()}
    states = {item: Disagreement(settings.dropout_top_k, settings.dropout_top_p, settings.dropout_passes)
              for item in work}  # fmt: skip
    places = settings.dropout_tokens * lm.model.config.get_text_config().vocab_size / MOST  # of an answer token
    lengths = {row: max(len(one.ids), math.ceil(one.answer * places)) for row, (one, *_) in passes.items()}
    first = opening(lm, list(prefixes.values()))

    def read(rows: list[int], rates: Sequence[float]) -> None:
        before = encoded(lm, [prefixes[row] for row in rows], first)
        for rate in rates:
            of_rate = [states[row, rate] for row in rows]
            with dropout.enabled(lm.model, rate, settings.dropout_kernel):
                add_passes(lm, before, [passes[row] for row in rows], of_rate, settings.dropout_kernel)

    for group, rates in grouped(work, lengths, settings.dropout_tokens):
        by_halves(group, partial(read, rates=rates), f"model '{lm.name}'")
    return dropout.in_rows(frame, work, [states[item] for item in work])
