"""MC dropout along fixed responses: stochastic passes over each, compared at the answer.

Nothing is generated again. The passes over one response are one batch of equal length. Each pass draws its masks from
its own stream (`seeded_dropout`), so results are independent of the batch.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch
from transformers import Cache

from lib import store, stored_columns
from lib.generate import models
from lib.generate.bald import dropout_columns
from lib.generate.batching import map_by_length
from lib.generate.models import LanguageModel
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.params import Dropout
from lib.paths import MissingSignal
from lib.random_streams import first_positions, first_rows, stream_seed
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
def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...]) -> Cache:
    """Return the cache of tokens, one row per pass."""
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, len(passes))


def read_tokens(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones predict the
    answer."""
    start, end = answers.answer_span(row)
    return tuple(models.encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start


@torch.inference_mode()
def pass_logits(lm: LanguageModel, row: Any, rate: float, settings: Dropout) -> Iterator[torch.Tensor]:
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
    if settings.dropout_prefix == "shared" and (shared := shared_prefix(lm, row, ids)):
        cache = encode_shared(lm, shared, seeded_passes(settings, rate, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before = cache and select_rows(cache, batch)
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


def pass_probabilities(lm: LanguageModel, row: Any, rate: float, settings: Dropout) -> torch.Tensor:
    """Return the float64 probabilities (T, m, V) of `pass_logits`; the dropout frames contain their entropies."""
    blocks = pass_logits(lm, row, rate, settings)
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
    lm: LanguageModel, frame: pd.DataFrame, work: Sequence[Work], settings: Dropout
) -> pd.DataFrame:
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and `selected`
    (lib.stored_columns).

    Parameters
    ----------
    work : the rows of the result, in order
    """
    rows, made = {row.example_id: row for row in frame.itertuples(index=False)}, []
    for example_id, rate in work:
        logits = pass_logits(lm, rows[example_id], rate, settings)
        keys = {name: getattr(rows[example_id], name) for name in KEYS}
        made.append(keys | {"rate": rate} | dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p))
    return pd.DataFrame(made)


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[str]:
    """Return the ids of `count` calibration examples, the first in the dataset's fixed random order."""
    rows = first_rows(frame, count, seed)
    return rows.example_id[rows.split == "calibration"].tolist()


# ---- a pair's passes


def grid_work(rates: Sequence[float], tuning: Sequence[str]) -> list[Work]:
    """Return the tuning rows at every rate."""
    return [(example_id, rate) for rate in rates for example_id in tuning]


def rest_work(frame: pd.DataFrame, rate: float, dropout_limit: int, tuning: Sequence[str], seed: int) -> list[Work]:
    """Return the other rows at the selected rate, with `dropout_limit` rows per split (0: all)."""
    places = first_positions(frame, dropout_limit, seed)
    return [(example_id, rate) for example_id in frame.example_id.iloc[places] if example_id not in tuning]


@contextmanager
def empty_if_missing(run: str, pair: str, **facts: Any) -> Iterator[None]:
    """If the body raises MissingSignal, write an empty frame with its reason as `missing`, and raise it again."""
    try:
        yield
    except MissingSignal as reason:
        told, none = facts | {"missing": str(reason), "seconds": 0.0}, stored_columns.empty_frame("dropout")
        write_passes(run, pair, 0.0, none.drop(columns="tuning").assign(tuning=True), none, **told)
        raise


def write_passes(
    run: str, pair: str, rate: float, tuned: pd.DataFrame, rest: pd.DataFrame, **facts: Any
) -> pd.DataFrame:
    """Write and return a dropout frame: the tuning rows at all rates and the others at the selected `rate`.

    `facts` go to its manifest.
    """
    frame = pd.concat([tuned, rest.assign(tuning=False)], ignore_index=True)
    frame["selected"] = frame.rate == rate
    store.write_frame(frame, store.frame_path(run, "dropout", pair), **facts, rate=rate)
    return frame
