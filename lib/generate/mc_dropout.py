"""MC dropout along fixed responses: stochastic passes over each, compared at the answer.

Nothing is generated again. The passes over one response are one batch of equal length. Each pass draws its masks from
its own stream (`seeded_dropout`), so results are independent of the batch.

In the paper's scope, `trajectory`, dropout acts on all tokens. In the scope `answer`, beyond the paper, it acts only
where the model reads the answer's tokens. All tokens before are in a cache computed without dropout.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch
from transformers import Cache

from lib import schemas, store
from lib.generate import models
from lib.generate.bald import dropout_columns
from lib.generate.batching import map_by_length
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.params import Dropout, Scope
from lib.paths import MissingSignal
from lib.random_streams import first_places, first_rows, stream_seed
from lib.row_cache import RowCache
from lib.schemas import DROPOUT
from lib.store import KEYS
from lib.tasks import answers

Work = tuple[str, float]  # example_id and rate of a row of passes
MAX_LOGITS = 2**26  # logits of all passes in memory, 256 MB: 44 answer tokens of ten passes, vocabulary 152k

# ---- the passes over one response


def seeded_passes(settings: Dropout, rate: float, *names: str) -> tuple[Pass, ...]:
    """Return T passes, with one random stream per (run seed, names, rate, pass)."""
    numbers = range(settings.dropout_passes)
    return tuple((stream_seed(settings.seed, *names, f"{rate:g}", str(number)), rate) for number in numbers)


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the token ids before the question of a generations row, such as worked examples, which all rows share.

    `ids` are the tokens of its prompt and what follows. A token that includes part of the question is excluded. The
    result is empty if the prompt does not contain the question.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    return tuple(os.path.commonprefix([models.encode(lm, before), list(ids)])) if question else ()


@lru_cache(maxsize=1)  # consecutive rows share it
def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...] = ()) -> Cache:
    """Return the cache of tokens: one row without dropout, or one row per pass."""
    if not passes:
        return encode_prefix(lm, ids)
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, len(passes))


def read_tokens(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones predict the
    answer."""
    start, end = answers.answer_span(row)
    return tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start


@lru_cache(maxsize=1)  # all rates of a row share it
def encode_without_dropout(lm: LanguageModel, shared: tuple[int, ...], ids: tuple[int, ...]) -> Cache:
    """Return the cache of tokens without dropout, one row. The first of them are `shared` by all responses."""
    return encode_prefix(lm, ids[len(shared) :], before=encode_shared(lm, shared))


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> Iterator[torch.Tensor]:
    """Return the logits of T stochastic passes over one row of a generations frame, at its answer tokens.

    Yields
    ------
    float32 logits (T, b, V), one block of answer tokens after another; each block is another forward pass with the
    same masks

    Raises
    ------
    UserError if even a single pass exceeds the device's memory, or if logits are not finite
    """
    ids, answer = read_tokens(lm, row)
    passes = seeded_passes(settings, rate, lm.name, row.dataset, row.example_id)
    cache = None
    if scope == "answer":
        cache = encode_without_dropout(lm, shared_prefix(lm, row, ids), ids[:-answer])
    elif settings.dropout_prefix == "shared" and (shared := shared_prefix(lm, row, ids)):
        cache = encode_shared(lm, shared, seeded_passes(settings, rate, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, [0] * len(batch) if scope == "answer" else batch)
        rows = new.expand(len(batch), -1)
        with seeded_dropout(lm.model, [passes[i] for i in batch]):
            read = lm.model(rows, past_key_values=before, use_cache=bool(before), logits_to_keep=places)
        return list(read.logits.float())

    numbers, lengths, budget = range(len(passes)), [len(ids)] * len(passes), settings.max_dropout_tokens
    size = max(1, MAX_LOGITS // (len(passes) * lm.vocab_size))
    for places in torch.arange(len(new) - answer, len(new), device=lm.device).split(size):
        logits = torch.stack(map_by_length(partial(run, places), numbers, lengths, budget, f"model '{lm.name}'"))
        models.check_finite_logits(lm, [float(logits.amax(-1).sum())], [row.example_id])
        yield logits


def pass_probabilities(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, scope: Scope = "trajectory"
) -> torch.Tensor:
    """Return the float64 probabilities (T, m, V) of `pass_logits`; the dropout frames contain their entropies."""
    blocks = pass_logits(lm, row, rate, settings, scope)
    return torch.cat([logits.double().softmax(-1) for logits in blocks], 1).cpu()


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
    work: Sequence[Work],
    settings: Dropout,
    scope: Scope = "trajectory",
) -> pd.DataFrame:
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and `selected`
    (lib.schemas).

    Parameters
    ----------
    work : the rows of the result, in order
    """
    rows, made = {row.example_id: row for row in frame.itertuples(index=False)}, []
    for example_id, rate in work:
        logits = pass_logits(lm, rows[example_id], rate, settings, scope)
        keys = {name: getattr(rows[example_id], name) for name in KEYS}
        made.append(keys | {"rate": rate} | dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p))
    return pd.DataFrame(made)


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[str]:
    """Return the ids of `count` calibration examples, the first in the dataset's fixed random order."""
    rows = first_rows(frame, count, seed)
    return rows.example_id[rows.split == "calibration"].tolist()


# ---- a pair's passes, cached


def facts_in_scope(scope: Scope, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that rows of a scope depend on; `dropout_prefix` matters only in `trajectory`, if it is
    shared."""
    parameters = dict(facts["parameters"])
    if scope == "answer" or parameters.get("dropout_prefix") == "own":
        parameters.pop("dropout_prefix", None)
    return facts | {"parameters": parameters}


def grid_work(scope: Scope, rates: Sequence[float], tuning: Sequence[str]) -> list[Work]:
    """Return the tuning rows at every rate, in the order that encodes least: in `answer`, all rates of a row
    together."""
    if scope == "answer":
        return [(example_id, rate) for example_id in tuning for rate in rates]
    return [(example_id, rate) for rate in rates for example_id in tuning]


def rest_work(
    frame: pd.DataFrame, scope: Scope, rate: float, dropout_limit: int, tuning: Sequence[str], seed: int
) -> list[Work]:
    """Return the other rows at the selected rate.

    `dropout_limit` (rows per split; 0: all) applies to whole trajectories only. In the scope `answer` a pass covers few
    tokens, so all rows are included.
    """
    places = first_places(frame, dropout_limit if scope == "trajectory" else 0, seed)
    return [(example_id, rate) for example_id in frame.example_id.iloc[places] if example_id not in tuning]


def open_cache(run: str, pair: str, scope: Scope, facts: dict[str, Any], rows_per_shard: int) -> RowCache:
    """Return the cache of a pair's passes in a scope, one row for each response and rate."""
    return RowCache(run, DROPOUT[scope], pair, facts_in_scope(scope, facts) | {"scope": scope}, rows_per_shard)


@contextmanager
def empty_if_missing(run: str, pair: str, scopes: Sequence[Scope], **facts: Any) -> Iterator[None]:
    """If the body raises MissingSignal, write empty frames with its reason as `missing`, and raise it again."""
    try:
        yield
    except MissingSignal as reason:
        told = facts | {"missing": str(reason), "seconds": 0.0, "grid_seconds": 0.0}
        for scope in scopes:
            none = schemas.empty_frame(DROPOUT[scope])
            write_passes(run, pair, scope, 0.0, none.drop(columns="tuning").assign(tuning=True), none, **told)
        raise


def write_passes(
    run: str, pair: str, scope: Scope, rate: float, tuned: pd.DataFrame, rest: pd.DataFrame, **facts: Any
) -> pd.DataFrame:
    """Write and return a dropout frame: the tuning rows at all rates and the others at the selected `rate`.

    `facts` go to its manifest.
    """
    frame = pd.concat([tuned, rest.assign(tuning=False)], ignore_index=True)
    frame["selected"] = frame.rate == rate
    place = store.frame_path(run, DROPOUT[scope], pair)
    store.write_frame(frame, place, **facts_in_scope(scope, facts), scope=scope, rate=rate)
    return frame
