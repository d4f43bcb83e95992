"""MC dropout along a fixed trajectory: stochastic passes over the same tokens, and how their distributions disagree at
the answer (`eq:bald`).

Nothing is generated again, and nothing of the model changes but dropout: on the attention probabilities of every
attention module (the only dropout that Llama and Qwen3 have; their configuration is read at construction, setting it
later does nothing) and in every nn.Dropout. The masks of kernel `keyed` belong to (example, pass, site), so in
float32 a result does not depend on the batch; `fused` leaves them to the model's own kernel, seeded per batch, for long
trajectories on a GPU: keyed masks need heads x length^2 numbers per site and row.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import Cache

from lib import streams
from lib.generate import models
from lib.generate.bald import Disagreement
from lib.generate.decoding import batches
from lib.generate.models import LanguageModel
from lib.generate.opening import before_question, stacked
from lib.generate.room import by_halves
from lib.params import Dropout
from lib.project import UserError
from lib.store import KEYS
from lib.streams import stream_seed
from lib.tasks import answers

MOST = 2**31  # numbers of a keyed mask of one row: 8,192 tokens of a model with 32 heads


def sites(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Modules that apply dropout when told that they train: attention (by name, as its classes share no base) and
    nn.Dropout."""
    return [m for m in model.modules() if isinstance(m, torch.nn.Dropout) or "Attention" in type(m).__name__]


@contextmanager
def enabled(model: Any, rate: float, kernel: str = "keyed") -> Iterator[None]:
    """Dropout at `rate` on every site, the rest of the model in evaluation mode; put back as it was at the end, also
    after an exception. Keyed masks need the attention probabilities: eager attention."""
    names = ("training", "p", "attention_dropout")
    before = [(site, name, getattr(site, name)) for site in sites(model) for name in names if hasattr(site, name)]
    attention = model.config._attn_implementation
    try:
        if kernel == "keyed" and attention != "eager":
            model.set_attn_implementation("eager")
        for module, name, _ in before:
            setattr(module, name, True if name == "training" else rate)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)


class Masks(TorchFunctionMode):
    """While active, dropout draws each row's mask from a stream of its own: Philox with the key (example, pass), its
    counter starting at the site. Rows are padded on the right; `lengths` are theirs without padding, behind so many
    tokens that a cache has `held`."""

    def __init__(self, keys: Sequence[tuple[int, int]], lengths: Sequence[int], held: int = 0):
        super().__init__()
        self.keys, self.lengths, self.held, self.rows, self.site = keys, lengths, held, len(keys), 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self.drop if func is torch.nn.functional.dropout else func)(*args, **(kwargs or {}))

    def drop(self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if not training or p == 0:
            return x
        if len(x) != self.rows or x.dim() not in (3, 4):
            raise UserError(f"dropout on {tuple(x.shape)} is not by rows; use dropout_kernel: fused")
        keep = np.zeros(x.shape, dtype=bool)
        for row in range(self.rows):
            self.fill(keep[row], row, p)
        self.site += 1
        return (x * torch.from_numpy(keep).to(x.device)).div_(1 - p)

    def fill(self, keep: np.ndarray, row: int, p: float) -> None:
        """Which entries of a row stay: of (heads, L, held + L) probabilities, or of (L, width) values."""
        n = self.lengths[row]
        part = keep[:, :n, : self.held + n] if keep.ndim == 3 else keep[:n]
        stream = np.random.Philox(key=np.array(self.keys[row], np.uint64), counter=[0, 0, self.site, 0])
        part[...] = drawn(stream, part.shape, p)


def drawn(stream: np.random.Philox, shape: Sequence[int], p: float) -> np.ndarray:
    """A mask from a stream: True with probability 1 - p."""
    count = math.prod(shape)
    bits = stream.random_raw(math.ceil(count / 4)).view(np.uint16)[:count]  # 64 bits serve four entries
    return (bits >= round(p * 65536)).reshape(shape)


@contextmanager
def own_stream(seed: int) -> Iterator[None]:
    """The device's own random stream at `seed`, and where it was afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def masked(kernel: str, keys: Sequence[tuple[int, int]], lengths: Sequence[int], held: int = 0) -> Any:
    """While active, dropout draws what it drops for these rows."""
    if kernel == "keyed":
        return Masks(keys, lengths, held)
    return own_stream(stream_seed(0, *map(str, keys)))


@torch.inference_mode()
def forward(lm: LanguageModel, ids: Sequence[list[int]], answer: Sequence[int], keys: Sequence[tuple[int, int]],
            kernel: str, before: Cache | None = None) -> Sequence[torch.Tensor]:  # fmt: skip
    """Float32 logits (m, V) at the last m = answer[i] positions of each row, which predict its answer's tokens. The
    rows go on where `before` ends, which grows.

    Padding stands on the right, where causal attention never looks, so neither mask nor positions are needed; and only
    the wanted positions reach the vocabulary.
    """
    lengths = [len(row) for row in ids]
    padded = torch.zeros(len(ids), max(lengths), dtype=torch.long)
    wanted = torch.zeros_like(padded, dtype=torch.bool)
    for i, row in enumerate(ids):
        padded[i, : len(row)] = torch.tensor(row)
        wanted[i, len(row) - answer[i] : len(row)] = True
    with masked(kernel, keys, lengths, before.get_seq_length() if before else 0):
        logits = lm.model(padded.to(lm.device), logits_to_keep=wanted.to(lm.device), past_key_values=before,
                          use_cache=before is not None).logits  # fmt: skip
    return logits.float().reshape(-1, logits.shape[-1]).split(list(answer))


@torch.inference_mode()
def check(lm: LanguageModel, kernel: str = "keyed") -> dict[str, int]:
    """Sites by class. Raises UserError where two passes do not differ, and so no dropout takes effect."""
    with enabled(lm.model, 0.5, kernel):
        first, second = (forward(lm, [list(range(8))], [8], [(seed, 0)], kernel)[0] for seed in (1, 2))
    if torch.equal(first, second):
        raise UserError(f"model '{lm.name}': dropout takes no effect anywhere in a {type(lm.model).__name__}")
    return dict(Counter(type(module).__name__ for module in sites(lm.model)))


def check_room(lm: LanguageModel, kernel: str, tokens: int) -> None:
    """Raises UserError where the keyed masks of a response of so many tokens, prompt included, are too large: they hold
    a number for each head and pair of tokens, anew at every attention module of every pass."""
    config = lm.model.config.get_text_config()
    entries = config.num_attention_heads * tokens**2
    if kernel == "keyed" and entries > MOST:
        whole = entries * config.num_hidden_layers
        raise UserError(f"model '{lm.name}': the keyed masks of {tokens:,} tokens hold {entries:.2g} numbers at once, "
                        f"{whole:.2g} in a pass; at most {MOST:.2g} are drawn: use dropout_kernel: fused")  # fmt: skip


class Pass(NamedTuple):
    """One stochastic pass over a response."""

    place: int  # in `work`, of what it belongs to
    ids: list[int]  # prompt and response, up to the last but one token of the answer
    answer: int  # tokens of the answer, which the last so many positions predict
    key: tuple[int, int]  # of its masks: the example's seed, number of the pass
    opening: tuple[int, ...] = ()  # those of `ids` whose passes all rows share


def passes_over(lm: LanguageModel, row: pd.Series, place: int, settings: Dropout) -> list[Pass]:
    """The T passes over a generations row."""
    start, end = answers.answer_span(row)
    ids = models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()
    seed = stream_seed(settings.seed, lm.name, row.dataset, row.example_id)
    shared = before_question(lm, row) if settings.dropout_opening == "shared" else ()
    return [Pass(place, ids, end - start, (seed, number), shared) for number in range(settings.dropout_passes)]


@torch.inference_mode()
def openings(lm: LanguageModel, ids: Sequence[int], settings: Dropout) -> list[Cache]:
    """The caches of T passes over what rows begin with, at the rate that is on; none where that is nothing."""
    caches = []
    for number in range(settings.dropout_passes if ids else 0):
        key = (stream_seed(settings.seed, lm.name, "opening"), number)
        with masked(settings.dropout_kernel, [key], [len(ids)]):
            read = lm.model(torch.tensor([ids], device=lm.device), use_cache=True, logits_to_keep=1)
        caches.append(read.past_key_values)
    return caches


def disagreement(lm: LanguageModel, frame: pd.DataFrame, work: Sequence[tuple[int, float]],
                 settings: Dropout) -> pd.DataFrame:  # fmt: skip
    """T passes over rows of a generations frame, `work` as (row number, rate): a dropout frame in the order of `work`,
    without `tuning` and `selected` (columns: lib.schemas)."""
    states = [Disagreement(settings.dropout_top_k, settings.dropout_top_p, settings.dropout_passes) for _ in work]
    for rate in dict.fromkeys(rate for _, rate in work):
        passes: list[Pass] = []
        for place, (row, other) in enumerate(work):
            if other == rate:
                passes += passes_over(lm, frame.iloc[row], place, settings)
        run(lm, passes, states, rate, settings)
    return in_rows(frame, work, states)


def run(lm: LanguageModel, passes: Sequence[Pass], states: Sequence[Any], rate: float, settings: Dropout) -> None:
    """Runs passes with dropout at a rate, and adds each to the state of its place, in the order of their numbers."""
    check_room(lm, settings.dropout_kernel, max(len(p.ids) for p in passes))
    with enabled(lm.model, rate, settings.dropout_kernel):
        for shared in dict.fromkeys(p.opening for p in passes):
            alike = [p for p in passes if p.opening == shared]
            add = partial(add_passes, lm, states=states, kernel=settings.dropout_kernel,
                          before=openings(lm, shared, settings))  # fmt: skip
            for group in batches([len(p.ids) - len(shared) for p in alike], settings.dropout_tokens):
                by_halves([alike[i] for i in group], add, f"model '{lm.name}'")


def in_rows(frame: pd.DataFrame, work: Sequence[tuple[int, float]], states: Sequence[Disagreement]) -> pd.DataFrame:
    """What the states of `work` have added up: a dropout frame."""
    known = frame[KEYS].iloc[[row for row, _ in work]].to_dict("records")
    return pd.DataFrame([{**keys, "rate": rate, **state.row()}
                         for keys, (_, rate), state in zip(known, work, states, strict=True)])  # fmt: skip


def add_passes(lm: LanguageModel, batch: Sequence[Pass], states: Sequence[Any], kernel: str,
               before: Sequence[Cache] = ()) -> None:  # fmt: skip
    """Runs a batch of passes, `before` each what was read by that of its number, and adds it to the state of its place;
    those that are in already are left out."""
    batch = [p for p in batch if p.key[1] >= states[p.place].count]
    if not batch:
        return
    ids, lengths, keys = [p.ids[len(p.opening) :] for p in batch], [p.answer for p in batch], [p.key for p in batch]
    cache = stacked(lm, [before[number] for _, number in keys]) if before else None
    by_place: dict[int, list[torch.Tensor]] = {}
    for done, logits in zip(batch, forward(lm, ids, lengths, keys, kernel, cache), strict=True):
        by_place.setdefault(done.place, []).append(logits)
    for place, logits_of_passes in by_place.items():
        states[place].add(torch.stack(logits_of_passes))


def operations(lm: LanguageModel, frame: pd.DataFrame, settings: Dropout, rate: float,
               passes: Sequence[int] = (1, 2, 4, 8)) -> dict[str, int]:  # fmt: skip
    """Floating-point operations on a frame's rows by number of passes: counted, so alike on every machine."""
    work = [(row, rate) for row in range(len(frame))]
    counted = {}
    for number in passes:
        with FlopCounterMode(display=False) as counter:
            disagreement(lm, frame, work, settings.model_copy(update={"dropout_passes": number}))
        counted[str(number)] = int(counter.get_total_flops())
    return counted


def chosen(frame: pd.DataFrame, count: int, seed: int) -> list[int]:
    """Row numbers of the first `count` examples of each split (0: all) in the dataset's one random order, alike for
    every model, the splits taking turns: unfinished work on fewer is the beginning of that on more."""
    return streams.of_frame(frame, count, seed)


def keys(frame: pd.DataFrame) -> Callable[[tuple[int, float]], tuple[str, float]]:
    """From an item of `disagreement`'s work to what its row is known by: (example_id, rate)."""
    return lambda item: (frame.example_id.iloc[item[0]], item[1])


def tuning(frame: pd.DataFrame, count: int, seed: int) -> list[int]:
    """Row numbers of `count` calibration examples, the first in the dataset's one random order."""
    return sorted(i for i in chosen(frame, count, seed) if frame.split.iloc[i] == "calibration")
