"""MC dropout along a fixed response: stochastic passes over its tokens, whose distributions disagree at the answer.

Nothing is generated again, and nothing of the model changes but dropout: on the attention weights of every attention
module (the only dropout that Llama and Qwen3 have; their configuration is read at construction, setting it later does
nothing) and in every nn.Dropout. The T passes over one example are one batch of equal length, so there is no padding.
Each pass draws its masks from a stream of its own, so that a result depends on no batch.

In the scope `trajectory`, which is the paper's, dropout acts on all tokens. In the scope `answer`, an extra, it acts
where the answer's tokens are read: a scope is where the cache ends that was filled without dropout.
"""

import inspect
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AttentionInterface, Cache
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from lib import random_streams, store
from lib.earlier_rows import find_earlier_rows
from lib.generate import models
from lib.generate.bald import dropout_columns
from lib.generate.batching import retry_in_halves_on_oom
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefix, select_rows
from lib.params import Dropout, Scope
from lib.paths import UserError
from lib.random_streams import stream_seed
from lib.row_cache import RowCache
from lib.schemas import DROPOUT
from lib.store import KEYS
from lib.tasks import answers

MAX_WEIGHTS = 2**24  # attention weights of a pass and layer at once; of longer responses some queries at a time
QUERIES = 64  # at most at once, as the keys behind a block's last query need no weight
MAX_LOGITS = 2**26  # logits of all passes at once, 256 MB: 44 answer tokens of a vocabulary of 152k
BLOCKWISE = "blockwise_eager"

# ---- dropout, and nothing else


def bernoulli_masks(seeds: Sequence[int], site: int, shape: Sequence[int], rate: float, device: Any) -> torch.Tensor:
    """Masks (passes, *shape), True with probability 1 - rate, in steps of 2**-16.

    Each belongs to its pass's seed and to the `site`, which counts the masks of a pass. They are made of numpy's Philox
    numbers; on a GPU of the device's own, as those of the host would take minutes a response there.
    """
    least, count = round(rate * 65536), math.prod(shape)
    if device.type == "cuda":
        bits = torch.empty(len(seeds), *shape, dtype=torch.int32, device=device)
        for row, seed in zip(bits, seeds, strict=True):
            row.random_(0, 65536, generator=torch.Generator(device).manual_seed(stream_seed(seed, str(site))))
        return bits >= least
    keep = np.empty((len(seeds), count), dtype=bool)
    for row, seed in zip(keep, seeds, strict=True):
        numbers = np.random.Philox(key=seed, counter=[0, 0, site, 0]).random_raw(-(-count // 4))
        np.greater_equal(numbers.view(np.uint16)[:count], least, out=row)  # 64 bits serve four entries
    return torch.from_numpy(keep).view(len(seeds), *shape).to(device)


class SeededDropout:
    """While active, torch's dropout draws the masks of row t of a batch from the stream of pass t.

    It stands in the place of the function that modules call; a TorchFunctionMode would be asked at each operation.
    """

    functional: Any = torch.nn.functional

    def __init__(self, seeds: Sequence[int]):
        self.seeds, self.site, self.replaced = seeds, 0, self.functional.dropout

    def __enter__(self) -> "SeededDropout":
        self.functional.dropout = self.drop
        return self

    def __exit__(self, *_: object) -> None:
        self.functional.dropout = self.replaced

    def drop(self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if not training or p == 0:
            return x
        if len(x) != len(self.seeds) or x.dim() not in (3, 4):
            raise UserError(f"dropout acts on {tuple(x.shape)}, which is not by passes: c_BALD can't be had")
        keep = bernoulli_masks(self.seeds, self.site, x.shape[1:], p, x.device).view(torch.uint8)  # fast to multiply
        self.site += 1
        kept = x.mul_(keep) if x.dim() == 4 else x * keep  # attention weights are nobody else's
        return kept.div_(1 - p)


def blockwise_eager_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor, **more: Any
) -> tuple[torch.Tensor, None]:
    """The model's own eager attention, block by block of queries, each with the keys that its last query sees.

    So half of the weights (passes, heads, queries, keys) are never made, and `MAX_WEIGHTS` of a pass are held at once.
    """
    eager = inspect.unwrap(type(module).forward).__globals__["eager_attention_forward"]
    queries, keys = query.shape[2], key.shape[2]
    size = max(1, min(QUERIES, MAX_WEIGHTS // (query.shape[1] * keys)))
    parts = []
    for first in range(0, queries, size):
        last = min(first + size, queries)
        seen = keys - queries + last
        mask = attention_mask[:, :, first:last, :seen]
        parts.append(eager(module, query[:, :, first:last], key[:, :, :seen], value[:, :, :seen], mask, **more)[0])
    return torch.cat(parts, 1), None


def unpadded_mask(batch_size: int, **more: Any) -> torch.Tensor:
    """The mask of eager attention (1, 1, queries, keys), the same for all passes."""
    return eager_mask(1, **more)


AttentionInterface.register(BLOCKWISE, blockwise_eager_attention)
AttentionMaskInterface.register(BLOCKWISE, unpadded_mask)


def dropout_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Modules that apply dropout when told that they train: attention (by name, as its classes share no base) and
    nn.Dropout."""
    return [m for m in model.modules() if isinstance(m, torch.nn.Dropout) or "Attention" in type(m).__name__]


@contextmanager
def dropout_enabled(model: Any, rate: float) -> Iterator[None]:
    """Dropout at `rate` in every one of `dropout_modules`, the rest of the model in evaluation mode; put back as it was
    at the end, also after an exception. Masks need the attention weights, so attention is eager."""
    names = ("training", "p", "attention_dropout")
    before = [(m, name, getattr(m, name)) for m in dropout_modules(model) for name in names if hasattr(m, name)]
    attention = model.config._attn_implementation
    try:
        model.set_attn_implementation(BLOCKWISE)
        for module, name, _ in before:
            setattr(module, name, True if name == "training" else rate)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        model.set_attn_implementation(attention)


@torch.inference_mode()
def assert_dropout_active(lm: LanguageModel) -> dict[str, int]:
    """Dropout modules by class. Raises UserError where two passes do not differ, and so no dropout takes effect."""
    with dropout_enabled(lm.model, 0.5), SeededDropout([1, 2]):
        logits = lm.model(torch.arange(8, device=lm.device).expand(2, -1), use_cache=False).logits
    if torch.equal(logits[0], logits[1]):
        raise UserError(f"model '{lm.name}': dropout takes no effect anywhere in a {type(lm.model).__name__}")
    return dict(Counter(type(module).__name__ for module in dropout_modules(lm.model)))


# ---- the passes over one response


def pass_seeds(settings: Dropout, rate: float, *names: str) -> list[int]:
    """Seeds of the T passes over what `names` say: a stream for each (run seed, names, rate, pass)."""
    return [stream_seed(settings.seed, *names, f"{rate:g}", str(number)) for number in range(settings.dropout_passes)]


def shared_prefix(lm: LanguageModel, row: pd.Series, ids: Sequence[int]) -> tuple[int, ...]:
    """Token ids of a generations row before its question, as worked examples are: all rows begin with them. `ids` are
    those of its prompt, and what follows.

    None where the question is not found in the prompt. A token that reaches into the question is not among them.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    if not question:
        return ()
    return tuple(os.path.commonprefix([models.encode(lm, before), list(ids)]))


def prefill(
    lm: LanguageModel,
    ids: tuple[int, ...],
    before: Cache | None = None,
    rate: float = 0,
    seeds: tuple[int, ...] = (),
) -> Cache:
    """The cache of tokens: without dropout behind the row of `before`, or as many rows as there are `seeds`."""
    if not seeds:
        return encode_prefix(lm, ids, before)
    with dropout_enabled(lm.model, rate), SeededDropout(seeds):
        return encode_prefix(lm, ids, rows=len(seeds))


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel,
    row: pd.Series,
    rate: float,
    settings: Dropout,
    scope: Scope = "trajectory",
    encode: Callable[..., Cache] | None = None,
) -> Iterator[torch.Tensor]:
    """Logits of T stochastic passes over one response, at the tokens of its answer.

    Parameters
    ----------
    row : of a generations frame
    encode : `prefill` of this model, by default without a memory of what rows and rates have in common

    Yields
    ------
    float32 logits (T, b, V), block after block of answer tokens; another block is another forward over the same masks

    Raises
    ------
    UserError where not even a single pass fits in the device's memory
    """
    encode = encode or partial(prefill, lm)
    start, end = answers.answer_span(row)
    ids, answer = tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start
    seeds = pass_seeds(settings, rate, lm.name, row.dataset, row.example_id)
    together = scope == "answer" or settings.dropout_prefix == "shared"
    shared = shared_prefix(lm, row, ids) if together else ()
    cache, of_pass = None, list(range(len(seeds)))  # the row of the cache that each pass goes on from
    if scope == "answer":
        cache = encode(ids[len(shared) : -answer], encode(shared) if shared else None)
        of_pass = [0] * len(seeds)
    elif shared:
        cache = encode(shared, None, rate, tuple(pass_seeds(settings, rate, lm.name, "opening")))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, numbers: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, [of_pass[number] for number in numbers])
        rows, mine = new.expand(len(numbers), -1), [seeds[number] for number in numbers]
        with dropout_enabled(lm.model, rate), SeededDropout(mine):
            read = lm.model(rows, past_key_values=before, use_cache=before is not None, logits_to_keep=places)
        return [read.logits.float()]

    at_once = max(1, settings.max_dropout_tokens // len(ids))
    size = max(1, MAX_LOGITS // (len(seeds) * lm.model.config.get_text_config().vocab_size))
    for places in torch.arange(len(new) - answer, len(new), device=lm.device).split(size):
        batches = [range(len(seeds))[first : first + at_once] for first in range(0, len(seeds), at_once)]
        found = [retry_in_halves_on_oom(partial(run, places), batch, f"model '{lm.name}'") for batch in batches]
        parts = [logits for batch in found for logits in batch]
        yield torch.cat(parts) if len(parts) > 1 else parts[0]  # of a single one it would be a copy


def pass_probabilities(
    lm: LanguageModel, row: pd.Series, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> torch.Tensor:
    """Float64 probabilities (T, m, V) of `pass_logits`, whose entropies the dropout frames hold."""
    return torch.cat([logits.double().softmax(-1) for logits in pass_logits(lm, row, rate, settings, scope)], 1).cpu()


def tabulate_passes(lm: LanguageModel, p: torch.Tensor, top: int = 3) -> pd.DataFrame:
    """Of probabilities (T, m, V): a row per pass and one for their mean; a column for each answer token and each of its
    `top` most probable tokens by the mean."""
    columns = {}
    for j, mean in enumerate(p.mean(0)):
        for token in mean.topk(top).indices.tolist():
            columns[j, f"{lm.tokenizer.decode([token])!r}"] = [*p[:, j, token].tolist(), float(mean[token])]
    rows = pd.Index([*range(1, len(p) + 1), "mean"], name="pass")
    return pd.DataFrame(columns, rows).rename_axis(columns=["answer token", "it could be"])


# ---- frames of passes


def mc_dropout_entropies(
    lm: LanguageModel,
    frame: pd.DataFrame,
    work: Sequence[tuple[int, float]],
    settings: Dropout,
    scope: Scope = "trajectory",
) -> pd.DataFrame:
    """T passes over rows of a generations frame: a dropout frame without `tuning` and `selected` (lib/schemas.py).

    Parameters
    ----------
    work : (row number, rate) of each row of the result, in order; what neighbors have in common is encoded once
    """
    encode, rows = lru_cache(maxsize=2)(partial(prefill, lm)), []
    for number, rate in work:
        row = frame.iloc[number]
        logits = pass_logits(lm, row, rate, settings, scope, encode)
        columns = dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p)
        rows.append({name: row[name] for name in KEYS} | {"rate": rate, **columns})
    return pd.DataFrame(rows)


def count_operations(
    lm: LanguageModel, frame: pd.DataFrame, settings: Dropout, rate: float, passes: Sequence[int] = (1, 2, 4, 8)
) -> dict[str, int]:
    """Floating-point operations on a frame's rows by number of passes: counted, so the same on every machine."""
    counted = {}
    for number in passes:
        with FlopCounterMode(display=False) as counter:
            work = [(row, rate) for row in range(len(frame))]
            mc_dropout_entropies(lm, frame, work, settings.model_copy(update={"dropout_passes": number}))
        counted[str(number)] = int(counter.get_total_flops())
    return counted


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[int]:
    """Row numbers of `count` calibration examples, the first in the dataset's one random order."""
    return sorted(
        i for i in random_streams.first_places_of_frame(frame, count, seed) if frame.split.iloc[i] == "calibration"
    )


# ---- a pair's passes, kept


def facts_in_scope(scope: Scope, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that rows of a scope depend on: not on `dropout_prefix` but where it is shared, in `trajectory`."""
    parameters = dict(facts["parameters"])
    if scope == "answer" or parameters.get("dropout_prefix") == "own":
        parameters.pop("dropout_prefix", None)
    return facts | {"parameters": parameters}


def grid_work(scope: Scope, rates: Sequence[float], tuning: Sequence[int]) -> list[tuple[int, float]]:
    """The tuning rows at every rate, what is encoded once in a row of its own: in `answer` a row for all its rates."""
    if scope == "answer":
        return [(row, rate) for row in tuning for rate in rates]
    return [(row, rate) for rate in rates for row in tuning]


def rest_work(
    frame: pd.DataFrame, scope: Scope, rate: float, dropout_limit: int, tuning: Sequence[int], seed: int
) -> list[tuple[int, float]]:
    """The other rows at the selected rate. `dropout_limit` (rows per split; 0: all) spares whole trajectories; at the
    answer a pass costs a few tokens, so that every row is read."""
    rows = random_streams.first_places_of_frame(frame, dropout_limit if scope == "trajectory" else 0, seed)
    return [(row, rate) for row in rows if row not in tuning]


def run_passes(
    run: str, pair: str, lm: LanguageModel, generations: pd.DataFrame, settings: Dropout, rows_per_shard: int,
    facts: dict[str, Any], scope: Scope, work: Sequence[tuple[int, float]], rate: float | None = None,
) -> tuple[pd.DataFrame, RowCache]:  # fmt: skip
    """Passes of a pair as `mc_dropout_entropies` has them, with the cache of their finished rows.

    Parameters
    ----------
    facts : all that the passes depend on
    rate : the selected one; None while the tuning rows are passed over, on which it will be selected
    """
    facts, ids, known_by = facts_in_scope(scope, facts), generations.example_id, ("example_id", "rate")
    stage, more = ("__tuning", []) if rate is None else ("", [rate])
    earlier = find_earlier_rows(run, DROPOUT[scope], pair, facts, generations)
    job = f"04_mc_dropout_grid__{pair}__{scope}{stage}"
    cache = RowCache(run, job, facts, rows_per_shard, more, known_by, earlier, generations)
    make = partial(mc_dropout_entropies, lm, generations, settings=settings, scope=scope)
    frame = cache.map(make, work, key=lambda item: (ids.iloc[item[0]], item[1]))
    return frame.assign(tuning=rate is None), cache


def write_passes(
    run: str, pair: str, scope: Scope, rate: float, grid: tuple[pd.DataFrame, RowCache],
    rest: tuple[pd.DataFrame, RowCache], **facts: Any,
) -> pd.DataFrame:  # fmt: skip
    """The tuning rows at all rates, and the others at the selected `rate`: a dropout frame, which is written. `facts`
    are for its manifest."""
    frame = pd.concat([grid[0], rest[0]], ignore_index=True)
    frame["selected"] = frame.rate == rate
    cost = rest[1].facts() | {"grid_seconds": grid[1].meter.seconds}
    place = store.frame_path(run, DROPOUT[scope], pair)
    store.write_frame(frame, place, **facts_in_scope(scope, facts), scope=scope, rate=rate, **cost)
    return frame
