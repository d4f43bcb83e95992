"""MC dropout along a fixed response: stochastic passes over its tokens, compared at the answer.

Nothing is generated again. The T passes over one example form one batch of equal length, so there is no padding. Each
pass draws its masks from its own stream (`seeded_dropout`), so results are independent of the batch.

In the paper's scope, `trajectory`, dropout acts on all tokens. In the scope `answer`, beyond the paper, it acts only
where the model reads the answer's tokens. All tokens before are in a cache computed without dropout.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, product
from operator import itemgetter
from typing import Any

import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Cache

from lib import random_streams, store
from lib.generate import models
from lib.generate.bald import dropout_columns
from lib.generate.batching import map_by_length, retry_in_halves_on_oom
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefixes, has_sliding_window, repeat_row, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.params import Dropout, Scope
from lib.random_streams import stream_seed
from lib.row_cache import RowCache
from lib.schemas import DROPOUT
from lib.store import KEYS
from lib.tasks import answers

MAX_LOGITS = 2**26  # logits of all passes in memory, 256 MB: 44 answer tokens of ten passes, vocabulary 152k

# ---- the passes over one response


def seeded_passes(settings: Dropout, rates: Sequence[float], *names: str) -> tuple[Pass, ...]:
    """Return T passes at each rate, with one random stream per (run seed, names, rate, pass)."""
    passes = product(rates, range(settings.dropout_passes))
    return tuple((stream_seed(settings.seed, *names, f"{rate:g}", str(number)), rate) for rate, number in passes)


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the token ids before the question of a generations row, such as worked examples, which all rows share.

    `ids` are the tokens of its prompt and what follows. A token that includes part of the question is excluded. The
    result is empty if the prompt does not contain the question.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    return tuple(os.path.commonprefix([models.encode(lm, before), list(ids)])) if question else ()


def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...] = ()) -> Cache:
    """Return the cache of tokens: one row without dropout, or one row per pass."""
    if not passes:
        return encode_prefixes(lm, [ids])
    with seeded_dropout(lm.model, passes):
        return encode_prefixes(lm, [ids] * len(passes))


def read_tokens(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones predict the
    answer."""
    start, end = answers.answer_span(row)
    return tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start


@torch.inference_mode()
def encode_without_dropout(lm: LanguageModel, rows: Sequence[Any], encode: Callable[..., Cache]) -> list[Cache]:
    """Return, for each generations row, the cache of the tokens before those that predict its answer.

    The rows are one batch, after the tokens that all of them share.
    """
    read = [read_tokens(lm, row) for row in rows]
    shared = os.path.commonprefix([shared_prefix(lm, row, ids) for row, (ids, _) in zip(rows, read, strict=True)])
    prefixes = [ids[len(shared) : -answer] for ids, answer in read]
    together = encode_prefixes(lm, prefixes, encode(shared))
    caches = [select_rows(together, slice(i, i + 1)) for i in range(len(rows))]
    for cache, prefix in zip(caches, prefixes, strict=True):
        if padding := max(map(len, prefixes)) - len(prefix):
            cache.crop(-padding)
    return caches


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel,
    row: Any,
    rates: Sequence[float],
    settings: Dropout,
    encode: Callable[..., Cache],
    clean: Cache | None = None,
) -> Iterator[torch.Tensor]:
    """Return the logits of T stochastic passes at each of R rates over one response, at its answer tokens.

    Parameters
    ----------
    row : of a generations frame
    encode : `encode_shared` of this model, possibly with a cache for the prefix that rows share
    clean : in the scope `answer`, the row's cache from `encode_without_dropout`

    Yields
    ------
    float32 logits (R, T, b, V), one block of answer tokens after another; each block is another forward pass with the
    same
    masks

    Raises
    ------
    UserError if even a single pass exceeds the device's memory
    """
    ids, answer = read_tokens(lm, row)
    passes = seeded_passes(settings, rates, lm.name, row.dataset, row.example_id)
    cache = None
    if clean:
        cache = repeat_row(clean, len(passes))
    elif settings.dropout_prefix == "shared" and (shared := shared_prefix(lm, row, ids)):
        cache = encode(shared, seeded_passes(settings, rates, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, slice(batch[0], batch[-1] + 1))
        rows = new.expand(len(batch), -1)
        with seeded_dropout(lm.model, [passes[i] for i in batch]):
            read = lm.model(rows, past_key_values=before, use_cache=bool(before), logits_to_keep=places)
        return [read.logits.float()]

    at_once = max(1, settings.max_dropout_tokens // len(ids))
    size = max(1, MAX_LOGITS // (len(passes) * lm.vocab_size))
    for places in torch.arange(len(new) - answer, len(new), device=lm.device).split(size):
        parts = []
        for first in range(0, len(passes), at_once):
            batch = range(len(passes))[first : first + at_once]
            parts += retry_in_halves_on_oom(partial(run, places), batch, f"model '{lm.name}'")
        logits = torch.cat(parts) if len(parts) > 1 else parts[0]  # cat of a single part would copy it
        yield logits.unflatten(0, (len(rates), -1))


def pass_probabilities(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> torch.Tensor:
    """Return the float64 probabilities (T, m, V) of `pass_logits`; the dropout frames contain their entropies."""
    encode = partial(encode_shared, lm)
    clean = encode_without_dropout(lm, [row], encode)[0] if scope == "answer" else None
    blocks = pass_logits(lm, row, [rate], settings, encode, clean)
    return torch.cat([logits[0].double().softmax(-1) for logits in blocks], 1).cpu()


def tabulate_passes(lm: LanguageModel, p: torch.Tensor, top: int = 3) -> pd.DataFrame:
    """Return a table of probabilities (T, m, V), with one row per pass and one for their mean.

    Each answer token has one column for each of its `top` most probable tokens by the mean.
    """
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
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and `selected`
    (lib.schemas).

    Parameters
    ----------
    work : (row number, rate) of each row of the result, in order; consecutive rates of the same row form one batch
    """
    rows, encode = list(frame.itertuples(index=False)), lru_cache(maxsize=1)(partial(encode_shared, lm))
    items = [(rows[number], [rate for _, rate in same]) for number, same in groupby(work, key=itemgetter(0))]
    run = partial(run_batch, lm, settings, scope, encode)
    if scope == "trajectory" or lm.model.dtype != torch.float32 or has_sliding_window(lm):
        made = [run([item])[0] for item in items]  # in half precision, the batch affects the last digits
    else:
        lengths = [row.prompt_tokens + len(row.token_ids) for row, _ in items]
        made = map_by_length(run, items, lengths, settings.max_dropout_tokens, f"model '{lm.name}'")
    return pd.DataFrame([row for by_rate in made for row in by_rate])


def run_batch(
    lm: LanguageModel,
    settings: Dropout,
    scope: Scope,
    encode: Callable[..., Cache],
    batch: Sequence[tuple[Any, Sequence[float]]],
) -> list[list[dict[str, Any]]]:
    """Return for each of a batch, a generations row with its rates, the rows of a dropout frame by rate."""
    rows, made = [row for row, _ in batch], []
    clean = encode_without_dropout(lm, rows, encode) if scope == "answer" else [None] * len(rows)
    for (row, rates), before in zip(batch, clean, strict=True):
        logits = pass_logits(lm, row, rates, settings, encode, before)
        by_rate = dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p)
        keys = {name: getattr(row, name) for name in KEYS}
        made.append([keys | {"rate": rate} | columns for rate, columns in zip(rates, by_rate, strict=True)])
    return made


def count_operations(
    lm: LanguageModel, frame: pd.DataFrame, settings: Dropout, rate: float, passes: Sequence[int] = (1, 2, 4, 8)
) -> dict[str, int]:
    """Count the floating-point operations on a frame's rows by number of passes; the counts are equal on every
    machine."""
    counted = {}
    for number in passes:
        with FlopCounterMode(display=False) as counter:
            work = [(row, rate) for row in range(len(frame))]
            mc_dropout_entropies(lm, frame, work, settings.model_copy(update={"dropout_passes": number}))
        counted[str(number)] = int(counter.get_total_flops())
    return counted


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[int]:
    """Return the row numbers of `count` calibration examples, the first in the dataset's fixed random order."""
    return sorted(i for i in random_streams.first_places(frame, count, seed) if frame.split.iloc[i] == "calibration")


# ---- a pair's passes, cached


def facts_in_scope(scope: Scope, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that rows of a scope depend on; `dropout_prefix` matters only in `trajectory`, if it is
    shared."""
    parameters = dict(facts["parameters"])
    if scope == "answer" or parameters.get("dropout_prefix") == "own":
        parameters.pop("dropout_prefix", None)
    return facts | {"parameters": parameters}


def grid_work(scope: Scope, rates: Sequence[float], tuning: Sequence[int]) -> list[tuple[int, float]]:
    """Return the tuning rows at every rate, in the order that encodes least: in `answer`, all rates of a row
    together."""
    if scope == "answer":
        return [(row, rate) for row in tuning for rate in rates]
    return [(row, rate) for rate in rates for row in tuning]


def rest_work(
    frame: pd.DataFrame, scope: Scope, rate: float, dropout_limit: int, tuning: Sequence[int], seed: int
) -> list[tuple[int, float]]:
    """Return the other rows at the selected rate.

    `dropout_limit` (rows per split; 0: all) applies to whole trajectories only. In the scope `answer` a pass covers few
    tokens, so all rows are included.
    """
    rows = random_streams.first_places(frame, dropout_limit if scope == "trajectory" else 0, seed)
    return [(row, rate) for row in rows if row not in tuning]


def run_passes(
    run: str, pair: str, lm: LanguageModel, generations: pd.DataFrame, settings: Dropout, rows_per_shard: int,
    facts: dict[str, Any], scope: Scope, work: Sequence[tuple[int, float]], rate: float | None = None,
) -> tuple[pd.DataFrame, RowCache]:  # fmt: skip
    """Run the passes of a pair as in `mc_dropout_entropies`; return them with the cache of finished rows.

    Parameters
    ----------
    facts : all facts that the passes depend on
    rate : the selected rate; None for the tuning rows, which serve to select it
    """
    facts, ids, known_by = facts_in_scope(scope, facts), generations.example_id, ("example_id", "rate")
    stage, more = (f"__{scope}__tuning", []) if rate is None else (f"__{scope}", [rate])
    cache = RowCache(run, DROPOUT[scope], pair, facts, rows_per_shard, more, known_by, generations, stage)
    make = partial(mc_dropout_entropies, lm, generations, settings=settings, scope=scope)
    frame = cache.map(make, work, key=lambda item: (ids.iloc[item[0]], item[1]))
    return frame.assign(tuning=rate is None), cache


def write_passes(
    run: str, pair: str, scope: Scope, rate: float, grid: tuple[pd.DataFrame, RowCache],
    rest: tuple[pd.DataFrame, RowCache], **facts: Any,
) -> pd.DataFrame:  # fmt: skip
    """Write and return a dropout frame: the tuning rows at all rates and the others at the selected `rate`.

    `facts` go to its manifest.
    """
    frame = pd.concat([grid[0], rest[0]], ignore_index=True)
    frame["selected"] = frame.rate == rate
    cost = rest[1].facts() | {"grid_seconds": grid[1].meter.seconds}
    place = store.frame_path(run, DROPOUT[scope], pair)
    store.write_frame(frame, place, **facts_in_scope(scope, facts), scope=scope, rate=rate, **cost)
    return frame
