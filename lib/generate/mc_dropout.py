"""MC dropout along fixed responses: frames of stochastic passes, compared at the answer (`dropout_passes`)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from lib import random_streams, store
from lib.generate.bald import dropout_columns
from lib.generate.dropout_passes import pass_logits
from lib.generate.models import LanguageModel
from lib.params import Dropout, Scope
from lib.row_cache import RowCache
from lib.schemas import DROPOUT
from lib.store import KEYS

# ---- the distributions of one response


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
    work: Sequence[tuple[int, float]],
    settings: Dropout,
    scope: Scope = "trajectory",
) -> pd.DataFrame:
    """Run T passes over rows of a generations frame; return a dropout frame without `tuning` and `selected`
    (lib.schemas).

    Parameters
    ----------
    work : (row number, rate) of each row of the result, in order
    """
    rows, made = list(frame.itertuples(index=False)), []
    for number, rate in work:
        logits = pass_logits(lm, rows[number], rate, settings, scope)
        keys = {name: getattr(rows[number], name) for name in KEYS}
        made.append(keys | {"rate": rate} | dropout_columns(logits, settings.dropout_top_k, settings.dropout_top_p))
    return pd.DataFrame(made)


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


def open_cache(
    run: str, pair: str, scope: Scope, facts: dict[str, Any], generations: pd.DataFrame, rows_per_shard: int
) -> RowCache:
    """Return the cache of a pair's passes in a scope, one row for each response and rate."""
    known_by, facts = ("example_id", "rate"), facts_in_scope(scope, facts)
    return RowCache(run, DROPOUT[scope], pair, facts, rows_per_shard, [scope], known_by, generations)


def run_passes(
    cache: RowCache,
    lm: LanguageModel,
    generations: pd.DataFrame,
    work: Sequence[tuple[int, float]],
    settings: Dropout,
    scope: Scope,
) -> pd.DataFrame:
    """Return the rows of `mc_dropout_entropies`, computed unless they are in the cache."""
    ids = generations.example_id
    make = partial(mc_dropout_entropies, lm, generations, settings=settings, scope=scope)
    return cache.map(make, work, key=lambda item: (ids.iloc[item[0]], item[1]))


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
