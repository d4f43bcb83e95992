"""MC dropout along a fixed response: stochastic passes over its tokens, whose distributions disagree at the answer.

Nothing is generated again. The T passes over one example are one batch of equal length, so there is no padding. Each
pass draws its masks from a stream of its own (`seeded_dropout`), so that a result depends on no batch.

In the scope `trajectory`, which is the paper's, dropout acts on all tokens. In the scope `answer`, an extra, it acts
where the answer's tokens are read: a scope is where the cache ends that was filled without dropout.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, product
from typing import Any

import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Cache

from lib import random_streams, store
from lib.earlier_rows import find_earlier_rows
from lib.generate import models
from lib.generate.bald import dropout_columns
from lib.generate.batching import retry_in_halves_on_oom
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.params import Dropout, Scope
from lib.random_streams import stream_seed
from lib.row_cache import RowCache
from lib.schemas import DROPOUT
from lib.store import KEYS
from lib.tasks import answers

MAX_LOGITS = 2**26  # logits of all passes at once, 256 MB: 44 answer tokens of ten passes, of a vocabulary of 152k

# ---- the passes over one response


def seeded_passes(settings: Dropout, rates: Sequence[float], *names: str) -> tuple[Pass, ...]:
    """T passes at each rate over what `names` say: a random stream for each (run seed, names, rate, pass)."""
    passes = product(rates, range(settings.dropout_passes))
    return tuple((stream_seed(settings.seed, *names, f"{rate:g}", str(number)), rate) for rate, number in passes)


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Token ids of a generations row before its question, as worked examples are: all rows begin with them. `ids` are
    those of its prompt, and what follows.

    None where the question is not found in the prompt. A token that reaches into the question is not among them.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    return tuple(os.path.commonprefix([models.encode(lm, before), list(ids)])) if question else ()


def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...] = ()) -> Cache:
    """The cache of tokens: without dropout, or a row for each of the passes."""
    if not passes:
        return encode_prefix(lm, ids)
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, rows=len(passes))


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel,
    row: Any,
    rates: Sequence[float],
    settings: Dropout,
    scope: Scope,
    encode: Callable[..., Cache],
) -> Iterator[torch.Tensor]:
    """Logits of T stochastic passes at each of R rates over one response, at the tokens of its answer.

    Parameters
    ----------
    row : of a generations frame
    encode : `encode_shared` of this model, which may remember what rows have in common

    Yields
    ------
    float32 logits (R, T, b, V), block after block of answer tokens; another block is another forward over the same
    masks

    Raises
    ------
    UserError where not even a single pass fits in the device's memory
    """
    start, end = answers.answer_span(row)
    ids, answer = tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start
    passes = seeded_passes(settings, rates, lm.name, row.dataset, row.example_id)
    shared = shared_prefix(lm, row, ids) if scope == "answer" or settings.dropout_prefix == "shared" else ()
    cache = None
    if scope == "answer":
        cache = encode_prefix(lm, ids[len(shared) : -answer], encode(shared))
    elif shared:
        cache = encode(shared, seeded_passes(settings, rates, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, [0] * len(batch) if scope == "answer" else batch)
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
        logits = torch.cat(parts) if len(parts) > 1 else parts[0]  # of a single one it would be a copy
        yield logits.unflatten(0, (len(rates), -1))


def pass_probabilities(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> torch.Tensor:
    """Float64 probabilities (T, m, V) of `pass_logits`, whose entropies the dropout frames hold."""
    blocks = pass_logits(lm, row, [rate], settings, scope, partial(encode_shared, lm))
    return torch.cat([logits[0].double().softmax(-1) for logits in blocks], 1).cpu()


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
    work : (row number, rate) of each row of the result, in order; rates of a row that follow each other are one batch
    """
    encode, rows, made = lru_cache(maxsize=1)(partial(encode_shared, lm)), list(frame.itertuples(index=False)), []
    for number, neighbors in groupby(work, key=lambda item: item[0]):
        row, rates = rows[number], [rate for _, rate in neighbors]
        logits = pass_logits(lm, row, rates, settings, scope, encode)
        by_rate = dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p)
        keys = {name: getattr(row, name) for name in KEYS}
        made += [keys | {"rate": rate} | columns for rate, columns in zip(rates, by_rate, strict=True)]
    return pd.DataFrame(made)


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
