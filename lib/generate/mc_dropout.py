"""MC dropout along fixed responses: stochastic passes over each, and how much they disagree at the
answer (`eq:bald`).

Nothing is generated again. The passes over one response are one batch of equal length. Each pass
draws its masks from its own stream (`seeded_dropout`), so results are independent of the batch.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch
from transformers import Cache

from lib import store, stored_columns
from lib.errors import MissingSignal
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, seeded_dropout
from lib.models.batching import map_by_length
from lib.models.loading import LanguageModel, check_finite_logits, encode
from lib.params import Dropout
from lib.random_streams import stream_seed
from lib.row_order import first_positions, first_rows
from lib.tasks import answers

Work = tuple[str, float]  # example_id and rate of a row of passes
# logits of all passes in memory, 64 MB: 11 answer tokens of ten passes, vocabulary 152k
MAX_LOGITS = 2**24

# ---- the passes over one response


def seeded_passes(settings: Dropout, rate: float, *names: str) -> tuple[Pass, ...]:
    """Return T passes, with one random stream per (run seed, names, rate, pass)."""
    numbers = range(settings.dropout_passes)
    return tuple(
        (stream_seed(settings.seed, *names, f"{rate:g}", str(number)), rate) for number in numbers
    )


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the token ids before the question of a generations row, such as worked examples, which
    all rows share.

    `ids` are the tokens of its prompt and what follows. A token that includes part of the question
    is excluded. The result is empty if the prompt does not contain the question.
    """
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    return tuple(os.path.commonprefix([encode(lm, before), list(ids)])) if question else ()


@lru_cache(maxsize=1)  # consecutive rows share it
def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...]) -> Cache:
    """Return the cache of tokens, one row per pass."""
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, len(passes))


def tokens_to_read(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones
    predict the answer."""
    start, end = answers.answer_span(row)
    return tuple(encode(lm, row.prompt) + row.token_ids[: end - 1].tolist()), end - start


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout
) -> Iterator[torch.Tensor]:
    """Yield the float32 logits (T, b, V) of T stochastic passes over a generations row, for b
    answer tokens at a time.

    Each block is another forward pass with the same masks. Raise UserError if even a single pass
    exceeds the device's memory, or if logits are not finite.
    """
    ids, answer = tokens_to_read(lm, row)
    passes = seeded_passes(settings, rate, lm.name, row.dataset, row.example_id)
    cache = None
    if settings.dropout_prefix == "shared" and (shared := shared_prefix(lm, row, ids)):
        cache = encode_shared(lm, shared, seeded_passes(settings, rate, lm.name, "opening"))
    new = torch.tensor(ids[cache.get_seq_length() if cache else 0 :], device=lm.device)

    def run(places: torch.Tensor, batch: Sequence[int]) -> list[torch.Tensor]:
        before, rows = cache and select_rows(cache, batch), new.expand(len(batch), -1)
        with seeded_dropout(lm.model, [passes[i] for i in batch]):
            read = lm.model(
                rows, past_key_values=before, use_cache=bool(before), logits_to_keep=places
            )
        return list(read.logits.float())

    numbers, lengths, budget = (
        range(len(passes)),
        [len(ids)] * len(passes),
        settings.max_dropout_tokens,
    )
    at_once = max(1, MAX_LOGITS // (len(passes) * lm.vocab_size))
    for places in torch.arange(len(new) - answer, len(new), device=lm.device).split(at_once):
        logits = torch.stack(
            map_by_length(partial(run, places), numbers, lengths, budget, f"model '{lm.name}'")
        )
        check_finite_logits(lm, [float(logits.amax(-1).sum())], [row.example_id])
        yield logits


def tabulate_passes(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout, top: int = 3
) -> pd.DataFrame:
    """Return a table of probabilities of the passes over a generations row: one row per pass and
    one for their mean.

    Each answer token has one column for each of its `top` most probable tokens by the mean.
    """
    p = torch.cat(
        [logits.double().softmax(-1).cpu() for logits in pass_logits(lm, row, rate, settings)], 1
    )
    p = torch.cat([p, p.mean(0, keepdim=True)])  # (T + 1, m, V)
    shown = [
        (j, token) for j, mean in enumerate(p[-1]) for token in mean.topk(top).indices.tolist()
    ]
    columns = {
        (j, repr(lm.tokenizer.decode([token]))): p[:, j, token].tolist() for j, token in shown
    }
    index = pd.Index([*range(1, len(p)), "mean"], name="pass")
    return pd.DataFrame(columns, index).rename_axis(columns=["answer token", "it could be"])


# ---- BALD, in float64
# Float32 probabilities of 128k tokens sum to 1 only within about 1e-5. Some libraries then apply a second softmax,
# after which every disagreement vanishes. So we apply a float64 softmax to float32 logits.


def bald_terms(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both terms of `eq:bald` after 1..T passes; their difference is BALD.

    Parameters
    ----------
    p : float64 probabilities (T, m, V) of T passes at m answer tokens

    Returns
    -------
    predictive, conditional : entropy of the mean of the first t passes, mean of their entropies;
        (T, m) each, nats
    """
    t = torch.arange(1, len(p) + 1, device=p.device)[:, None]
    predictive = torch.special.entr(p.cumsum(0) / t[..., None]).sum(-1)
    conditional = torch.special.entr(p).sum(-1).cumsum(0) / t
    return predictive, conditional


def effective_supports(p: torch.Tensor, top_k: int, top_p: float) -> dict[str, torch.Tensor]:
    """Return the sizes (T, m) of the union of the first t passes' top-k and top-p sets
    (`app:bald`), by column.

    A top-p set is the smallest set whose mass exceeds p. Tokens that tie with its last token are
    included.
    """
    falling = p.sort(-1, descending=True).values
    before = falling.cumsum(-1) - falling
    all_k = torch.full(p.shape[:-1], min(top_k, p.shape[-1]), device=p.device)
    sizes = {"top_k": all_k, "top_p": (before <= top_p).sum(-1)}
    least = {name: falling.gather(-1, size[..., None] - 1) for name, size in sizes.items()}
    return {
        name: ((p >= last).cumsum(0) > 0).sum(-1, dtype=torch.int32) for name, last in least.items()
    }


def dropout_columns(
    logits: Iterable[torch.Tensor], top_k: int = 10, top_p: float = 0.95
) -> dict[str, Any]:
    """Return the columns of a dropout frame for the passes over one response.

    Parameters
    ----------
    logits : float32 logits (T, b, V) of T passes, in blocks of answer tokens, m in total

    Returns
    -------
    by column, a list of T arrays (m,); columns `half_...` have 2 arrays, one for
    each half of the passes; and `top_changed` (m,)
    """
    parts = [_columns(block.double().softmax(-1), top_k, top_p) for block in logits]
    joined = {
        name: torch.cat([part[name] for part in parts], -1).cpu().numpy() for name in parts[0]
    }
    return {name: values if values.ndim == 1 else list(values) for name, values in joined.items()}


def _columns(p: torch.Tensor, top_k: int, top_p: float) -> dict[str, torch.Tensor]:
    predictive, conditional = bald_terms(p)
    top, half = p.argmax(-1), len(p) // 2
    halves = p[: 2 * half].unflatten(0, (2 if half else 0, half or 1))
    return {
        "predictive": predictive,
        "conditional": conditional,
        **effective_supports(p, top_k, top_p),
        "top_changed": (top != top[0]).any(0),
        "half_predictive": torch.special.entr(halves.mean(1)).sum(-1),
        "half_conditional": torch.special.entr(halves).sum(-1).mean(1),
    }


# ---- a pair's passes


def mc_dropout_entropies(
    lm: LanguageModel, frame: pd.DataFrame, work: Sequence[Work], settings: Dropout
) -> pd.DataFrame:
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and
    `selected` (lib.stored_columns).

    Parameters
    ----------
    work : the rows of the result, in order
    """
    rows, made = {row.example_id: row for row in frame.itertuples(index=False)}, []
    for example_id, rate in work:
        logits = pass_logits(lm, rows[example_id], rate, settings)
        keys = {name: getattr(rows[example_id], name) for name in store.KEYS}
        made.append(
            keys
            | {"rate": rate}
            | dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p)
        )
    return pd.DataFrame(made)


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[str]:
    """Return the ids of `count` calibration examples, the first in the dataset's fixed random
    order."""
    rows = first_rows(frame, count, seed)
    return store.calibration_rows(rows).example_id.tolist()


def rest_work(
    frame: pd.DataFrame,
    rate: float,
    dropout_limit: int,
    tuning: Sequence[str],
    seed: int,
    example: str = "",
) -> list[Work]:
    """Return the other rows at the selected rate, with `dropout_limit` rows per split (0: all) and
    the running `example` among them."""
    places = first_positions(frame, dropout_limit, seed, always_first=example)
    return [
        (example_id, rate)
        for example_id in frame.example_id.iloc[places]
        if example_id not in tuning
    ]


@contextmanager
def empty_if_missing(run: str, pair: str, **facts: Any) -> Iterator[None]:
    """If the body raises MissingSignal, write an empty frame with its reason as `missing`, and
    raise it again."""
    try:
        yield
    except MissingSignal as reason:
        none = stored_columns.empty_frame("dropout").assign(tuning=True)
        write_passes(run, pair, 0.0, none, none, **facts, missing=str(reason), seconds=0.0)
        raise


def write_passes(
    run: str, pair: str, rate: float, tuned: pd.DataFrame, rest: pd.DataFrame, **facts: Any
) -> pd.DataFrame:
    """Write and return a dropout frame: the tuning rows at all rates and the others at the selected
    `rate`.

    `facts` go to its manifest.
    """
    frame = pd.concat([tuned, rest.assign(tuning=False)], ignore_index=True)
    frame["selected"] = frame.rate == rate
    store.write_frame(frame, store.frame_path(run, "dropout", pair), **facts, rate=rate)
    return frame
