"""A pair's passes in one scope, trajectory or answer: what an earlier run left, the rest in shards, and their cost."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib import store
from lib.generate import answer_dropout, dropout
from lib.generate.models import LanguageModel
from lib.params import Dropout, Scope
from lib.row_cache import RowCache, find_earlier_rows
from lib.schemas import DROPOUT

MADE_BY = {"trajectory": dropout.disagreement, "answer": answer_dropout.disagreement}


def rows_per_split(scope: Scope, dropout_rows: int) -> int:
    """Rows per split (0: all) that are passed over in a scope: `dropout_rows` spares whole trajectories; at the answer
    a pass costs a few tokens, so that every row is read."""
    return dropout_rows if scope == "trajectory" else 0


def telling(scope: Scope, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that rows of a scope hang on: `dropout_opening` is a parameter of theirs where it is shared, and a pass
    reads what stands before the answer."""
    parameters = dict(facts["parameters"])
    if scope == "answer" or parameters.get("dropout_opening") == "own":
        parameters.pop("dropout_opening", None)
    return facts | {"parameters": parameters}


class Passes:
    """T passes over each response of a generations frame, at whatever rate, with dropout in one `scope`. `facts` are
    all that the passes depend on, and go into the manifest."""

    def __init__(self, scope: Scope, run: str, pair: str, lm: LanguageModel, generations: pd.DataFrame,
                 settings: Dropout, shard_rows: int, facts: dict[str, Any]):  # fmt: skip
        self.scope, self.lm, self.generations, self.settings = scope, lm, generations, settings
        self.run, self.pair, self.shard_rows, self.facts = run, pair, shard_rows, telling(scope, facts)
        self.before = find_earlier_rows(run, DROPOUT[scope], pair, self.facts, generations)
        self.caches: list[RowCache] = []

    def _made(self, part: str, work: list[tuple[int, float]], *facts: Any) -> tuple[pd.DataFrame, RowCache]:
        job = f"04_mc_dropout_grid__{self.pair}__{self.scope}{part}"
        cache = RowCache(self.run, job, self.facts, self.shard_rows, facts,
                         known_by=("example_id", "rate"), earlier=self.before)  # fmt: skip
        self.caches.append(cache)
        frame = cache.map(lambda some: MADE_BY[self.scope](self.lm, self.generations, some, self.settings),
                          work, key=dropout.keys(self.generations))  # fmt: skip
        return frame, cache

    def grid(self, rates: Sequence[float], tuning: Sequence[int]) -> pd.DataFrame:
        """The tuning rows at every rate."""
        work = [(row, rate) for rate in rates for row in tuning]
        if self.scope == "answer":  # a row is encoded once for all its rates
            work = [(row, rate) for row in tuning for rate in rates]
        frame, self.grid_cache = self._made("__tuning", work)
        self.tuning, self.tuned = set(tuning), frame.assign(tuning=True)
        return self.tuned

    def finish(self, rate: float, rows: Sequence[int], **facts: Any) -> pd.DataFrame:
        """The tuning rows, and the others of `rows` at the selected rate: the whole frame, which is kept (`facts`: more
        for its manifest)."""
        frame, cache = self._made("", [(row, rate) for row in rows if row not in self.tuning], rate)
        frame = pd.concat([self.tuned, frame.assign(tuning=False)], ignore_index=True)
        frame["selected"] = frame.rate == rate
        cost = cache.facts() | {"grid_seconds": self.grid_cache.meter.seconds}
        store.write(frame, store.place(self.run, DROPOUT[self.scope], self.pair), **self.facts,
                    scope=self.scope, rate=rate, **cost, **facts)  # fmt: skip
        return frame

    def clear(self) -> None:
        """Forget the shards, once nothing that needs them can fail."""
        for cache in self.caches:
            cache.clear()
