"""The input of tables and claims: a tidy frame per table, from a run or, in the same columns, from
the paper.

A run also has frames that the paper shows only as pictures (`running_mean`, `entropies`,
`learning`) or in words (`tokens`, `passes`, `ablation`, `cost`...); the paper's results lack them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from lib.analysis.resampled_scores import ResampledScores
from lib.store import SCORE_CELL

QUANTITIES = ["value", "low", "high", "relative"]
NUMBER_KEY = [
    "table",
    *SCORE_CELL,
    "metric",
    "method",
    "source_model",
    "source_dataset",
    "rate",
    "bins",
]

TABLES_OF_ERRORS = ("result_estimation", "insitu_ptrue", "result_isotonic", "result_calibration")


class MissingFrameError(KeyError):
    """Results lack the frame of this name."""


@dataclass(frozen=True)
class Results:
    """All results of a run or of the paper.

    `models` and `datasets` are {name: label}, also for `tab:bin_ablation` (`bin_labels`) and the
    transfer tables (`transfer_labels`). `frames` are by the label of the table (without `tab:`);
    `settings` has a record per model. `scores` are what claims compare row by row.
    """

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    bin_labels: Mapping[str, str]
    transfer_labels: tuple[Mapping[str, str], Mapping[str, str]]
    settings: Sequence[Any]
    frames: Mapping[str, pd.DataFrame] = field(repr=False)
    title: str = ""  # printed below every table
    # by dataset: source, rows by split
    questions: Mapping[str, tuple[Any, int, int]] = field(default_factory=dict)
    # of a run: printed numbers have no rows
    scores: ResampledScores | None = field(default=None, repr=False)
    # whether all questions share dropout masks (`dropout_prefix: shared`)
    shared_masks: bool = False

    def has_frame(self, name: str) -> bool:
        return name in self.frames and not self.frames[name].empty

    def frame(self, name: str, **equal: str) -> pd.DataFrame:
        """Return the rows of a frame whose columns equal these values. Raise MissingFrameError if
        it is missing or empty."""
        if not self.has_frame(name):
            raise MissingFrameError(name)
        frame = self.frames[name]
        return frame[(frame[list(equal)] == list(equal.values())).all(axis=1)]

    @cached_property
    def printed_errors(self) -> dict[tuple[str, ...], float]:
        """The ECE of tables by (table, model, dataset, estimator, method); method "" of raw
        scores."""
        errors: dict[tuple[str, ...], float] = {}
        for table in TABLES_OF_ERRORS:
            if not self.has_frame(table):
                continue
            rows = self.frame(table, metric="ece").reindex(columns=[*SCORE_CELL, "method", "value"])
            rows = rows.astype({"method": object, "value": float}).fillna({"method": ""})
            for *key, value in rows.itertuples(index=False):
                errors.setdefault((table, *key), value)
        return errors

    @property
    def hardest_dataset(self) -> str:
        """The dataset with the lowest accuracy, averaged over models."""
        accuracy = self.frame("result_estimation", metric="acc").astype({"value": float})
        return str(accuracy.groupby("dataset", sort=False)["value"].mean().idxmin())


def as_sentence(title: str) -> str:
    """Return a run's title as it is printed below its tables."""
    return f"{title.strip().rstrip('.')}." if title.strip() else ""
