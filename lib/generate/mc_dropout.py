"""MC dropout along fixed responses: stochastic passes over each, and how much they disagree at the
answer (lib.generate.entropies).

Nothing is generated again. The passes over one response are one batch of equal length. Each pass
draws its masks from its own stream (`seeded_dropout`), so results are independent of the batch.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch
from transformers import Cache

from lib import store, stored_columns
from lib.errors import MissingSignalError
from lib.generate.entropies import dropout_columns
from lib.generate.sampling import encode_prefix, select_rows
from lib.generate.seeded_dropout import Pass, assert_dropout_active, seeded_dropout
from lib.models.batching import map_by_length
from lib.models.loading import LanguageModel, check_finite_logits, encode
from lib.params import Dropout, DropoutStep, EvaluationChoices
from lib.random_streams import stream_seed
from lib.row_cache import RowCache, digest_responses, measured_facts
from lib.row_order import first_positions, first_rows
from lib.tasks import answers

Work = tuple[str, float]  # example_id and rate of a row of passes
# logits of all passes in memory, 64 MB: 11 answer tokens of ten passes, vocabulary 152k
MAX_LOGITS = 2**24

# ---- the passes over one response


def seeded_passes(settings: Dropout, rate: float, *names: str) -> tuple[Pass, ...]:
    """Return T passes, with one random stream per (run seed, names, rate, pass)."""
    passes = []
    for number in range(settings.dropout_passes):
        seed = stream_seed(settings.seed, *names, f"{rate:g}", str(number))
        passes.append((seed, rate))
    return tuple(passes)


def shared_prefix(lm: LanguageModel, row: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the token ids before the question of a generations row, such as worked examples, which
    all rows share.

    `ids` are the tokens of its prompt and what follows. A token that includes part of the question
    is excluded. The result is empty if the prompt does not contain the question.
    """
    if not row.question or row.question not in row.prompt:
        return ()
    before = row.prompt.rpartition(row.question)[0]
    shared = os.path.commonprefix([encode(lm, before), list(ids)])
    return tuple(shared)


@lru_cache(maxsize=1)  # consecutive rows share it
def encode_shared(lm: LanguageModel, ids: tuple[int, ...], passes: tuple[Pass, ...]) -> Cache:
    """Return the cache of tokens, one row per pass."""
    with seeded_dropout(lm.model, passes):
        return encode_prefix(lm, ids, len(passes))


def encode_opening(
    lm: LanguageModel, row: Any, ids: Sequence[int], rate: float, settings: Dropout
) -> tuple[int, Cache | None]:
    """Return how many of the first token ids all rows share, and their cache; 0 and None if each
    row's passes read all of them (`dropout_prefix`).
    """
    if settings.dropout_prefix != "shared":
        return 0, None
    shared = shared_prefix(lm, row, ids)
    if not shared:
        return 0, None
    passes = seeded_passes(settings, rate, lm.name, "opening")
    return len(shared), encode_shared(lm, shared, passes)


def tokens_to_read(lm: LanguageModel, row: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids that a pass over a generations row reads, and how many of the last ones
    predict the answer.
    """
    start, end = answers.answer_span(row)
    before = row.token_ids[: end - 1].tolist()
    ids = encode(lm, row.prompt) + before
    return tuple(ids), end - start


@torch.inference_mode()
def pass_logits(
    lm: LanguageModel, row: Any, rate: float, settings: Dropout
) -> Iterator[torch.Tensor]:
    """Yield the float32 logits (T, b, V) of T stochastic passes over a generations row, for b
    answer tokens at a time.

    Each block is another forward pass with the same masks. Raise UserError if even a single pass
    exceeds the device's memory, or if logits are not finite.
    """
    ids, n_answer = tokens_to_read(lm, row)
    passes = seeded_passes(settings, rate, lm.name, row.dataset, row.example_id)
    n_shared, cache = encode_opening(lm, row, ids, rate, settings)
    new = torch.tensor(ids[n_shared:], device=lm.device)
    at_once = MAX_LOGITS // (len(passes) * lm.vocab_size)
    predicting = torch.arange(len(new) - n_answer, len(new), device=lm.device)
    numbers = range(len(passes))
    lengths = [len(ids)] * len(passes)
    what = f"model '{lm.name}'"
    for places in predicting.split(max(1, at_once)):
        run = partial(run_passes, lm, new, cache, passes, places)
        by_pass = map_by_length(run, numbers, lengths, settings.max_dropout_tokens, what)
        logits = torch.stack(by_pass)
        largest = float(logits.amax(-1).sum())
        check_finite_logits(lm, [largest], [row.example_id])
        yield logits


def run_passes(
    lm: LanguageModel,
    ids: torch.Tensor,
    cache: Cache | None,
    passes: Sequence[Pass],
    places: torch.Tensor,
    numbers: Sequence[int],
) -> list[torch.Tensor]:
    """Return the float32 logits (b, V) of some passes, by their `numbers`, at b places of the token
    ids, which follow a cache with a row per pass.
    """
    chosen = [passes[number] for number in numbers]
    before = None
    if cache is not None:
        before = select_rows(cache, numbers)
    with seeded_dropout(lm.model, chosen):
        output = lm.model(
            ids.expand(len(numbers), -1),
            past_key_values=before,
            use_cache=before is not None,
            logits_to_keep=places,
        )
    return list(output.logits.float())


def tabulate_passes(lm: LanguageModel, row: Any, rate: float, settings: Dropout) -> pd.DataFrame:
    """Return a table of probabilities of the passes over a generations row: one row per pass and
    one for their mean.

    Each answer token has one column for each of its three most probable tokens by the mean.
    """
    blocks = []
    for logits in pass_logits(lm, row, rate, settings):
        p = logits.double().softmax(-1)
        blocks.append(p.cpu())
    p = torch.cat(blocks, 1)
    mean = p.mean(0, keepdim=True)
    p = torch.cat([p, mean])  # (T + 1, m, V)
    likeliest = mean[0].topk(3).indices.tolist()
    columns = {}
    for position, likely in enumerate(likeliest):
        for token in likely:
            text = repr(lm.tokenizer.decode([token]))
            columns[position, text] = p[:, position, token].tolist()
    index = pd.Index([*range(1, len(p)), "mean"], name="pass")
    frame = pd.DataFrame(columns, index)
    return frame.rename_axis(columns=["answer token", "it could be"])


# ---- a pair's passes (04)


def mc_dropout_entropies(
    lm: LanguageModel, frame: pd.DataFrame, work: Sequence[Work], settings: Dropout
) -> pd.DataFrame:
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and
    `selected` (lib.stored_columns).

    Parameters
    ----------
    work : the rows of the result, in order
    """
    by_id = {row.example_id: row for row in frame.itertuples(index=False)}
    rows = []
    for example_id, rate in work:
        response = by_id[example_id]
        row = {name: getattr(response, name) for name in store.KEYS}
        row["rate"] = rate
        logits = pass_logits(lm, response, rate, settings)
        row |= dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p)
        rows.append(row)
    return pd.DataFrame(rows)


def tuning_rows(frame: pd.DataFrame, count: int, seed: int) -> list[str]:
    """Return the ids of `count` calibration examples, the first in the dataset's fixed random
    order.
    """
    rows = first_rows(frame, count, seed)
    return store.calibration_rows(rows).example_id.tolist()


def grid_work(tuning: Sequence[str], rates: Sequence[float]) -> list[Work]:
    """Return the tuning rows at every rate of the grid."""
    work = []
    for rate in rates:
        work += [(example_id, rate) for example_id in tuning]
    return work


def rest_work(
    frame: pd.DataFrame,
    rate: float,
    dropout_limit: int,
    tuning: Sequence[str],
    seed: int,
    example: str = "",
) -> list[Work]:
    """Return the other rows at the selected rate, with `dropout_limit` rows per split (0: all) and
    the running `example` among them.
    """
    places = first_positions(frame, dropout_limit, seed, always_first=example)
    names = frame.example_id.iloc[places]
    return [(example_id, rate) for example_id in names if example_id not in tuning]


def describe_passes(
    run: str, lm: LanguageModel, dataset: str, settings: DropoutStep
) -> dict[str, Any]:
    """Return a manifest's facts on the passes of a pair, with the modules in which dropout acts.

    Raises
    ------
    MissingSignalError
        If it acts nowhere. Then the run's frame is written, without rows and with this reason.
    """
    pair = f"{lm.name}__{dataset}"
    grid = {"dropout_rates", "n_tuning_examples"}
    facts: dict[str, Any] = {
        "model": lm.spec.model_dump(),
        "loaded": lm.facts,
        "inputs": store.file_checksums([store.find_frame(run, "generations", pair)]),
        "parameters": settings.model_dump(include={*Dropout.model_fields, *grid}),
    }
    try:
        sites = assert_dropout_active(lm)
    except MissingSignalError as reason:
        frame = stored_columns.empty_frame("dropout")
        facts |= {"missing": str(reason), "rate": 0.0, "seconds": 0.0}
        store.write_frame(frame, store.frame_path(run, "dropout", pair), **facts)
        raise
    return facts | {"sites": sites}


@dataclass(frozen=True)
class PairOfPasses:
    """What the passes over a pair's responses need, read and checked once (`prepare_passes`)."""

    run: str
    lm: LanguageModel
    dataset: str
    settings: DropoutStep
    responses: pd.DataFrame  # the rows that the step takes, with their texts
    facts: dict[str, Any]  # as of `describe_passes`

    @property
    def name(self) -> str:
        return f"{self.lm.name}__{self.dataset}"

    @property
    def tuning(self) -> list[str]:
        return tuning_rows(self.responses, self.settings.n_tuning_examples, self.settings.seed)

    def open_cache(self) -> RowCache:
        return RowCache(self.run, "dropout", self.name, self.facts, self.settings.rows_per_shard)

    def run_passes(self, cache: RowCache, work: Sequence[Work]) -> pd.DataFrame:
        make = partial(mc_dropout_entropies, self.lm, self.responses, settings=self.settings)
        return cache.map(make, work, about=digest_responses(self.responses))


def prepare_passes(
    run: str, lm: LanguageModel, dataset: str, responses: pd.DataFrame, settings: DropoutStep
) -> PairOfPasses:
    """Return what the passes over responses, as `read_responses` returns them, need. Raise
    MissingSignalError as `describe_passes`.
    """
    facts = describe_passes(run, lm, dataset, settings)
    return PairOfPasses(run, lm, dataset, settings, responses, facts)


def pass_grid(pair: PairOfPasses) -> pd.DataFrame:
    """Return the passes over a pair's tuning rows at every rate, from which one is selected.

    They are rows of what `pass_pair` stores, which finds them finished.
    """
    grid = grid_work(pair.tuning, pair.settings.dropout_rates)
    return pair.run_passes(pair.open_cache(), grid).assign(tuning=True)


def pass_pair(pair: PairOfPasses, rate: float, choices: EvaluationChoices) -> pd.DataFrame:
    """Run and store a pair's passes: the tuning rows at every rate, the others at the selected one.

    Rows that an earlier process or `pass_grid` has finished are not made again (lib.row_cache).

    Parameters
    ----------
    pair : from `prepare_passes`; its run's folder holds the frame `dropout`
    rate : the selected one
    choices : those under which it was selected, for the manifest
    """
    settings = pair.settings
    tuning = pair.tuning
    grid = grid_work(tuning, settings.dropout_rates)
    rest = rest_work(
        pair.responses, rate, settings.dropout_limit, tuning, settings.seed, settings.example
    )
    cache = pair.open_cache()
    frame = pair.run_passes(cache, grid + rest)
    frame["tuning"] = frame.example_id.isin(tuning)
    frame["selected"] = frame.rate == rate
    facts = pair.facts | {"rate": rate, "chosen_under": choices.model_dump()}
    path = store.frame_path(pair.run, "dropout", pair.name)
    store.write_frame(frame, path, **facts, **measured_facts(cache))
    cache.clear()
    return frame
