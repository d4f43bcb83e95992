"""Prompt ablation on a few evaluation questions per model-dataset pair: the paper's example, worked examples or
none."""

import hashlib
from collections.abc import Mapping
from typing import get_args

import numpy as np
import pandas as pd

from lib.params import Demonstration
from lib.store import KEYS
from lib.tasks.datasets import Example

BEGINNINGS: tuple[Demonstration, ...] = get_args(Demonstration)
ABLATION_COLUMNS = [*KEYS, "reference", "answer", "boxed", "finish_reason"]


def choose_ablation_rows(generations: pd.DataFrame, rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a sample of one pair's evaluation rows, in their own order.

    It contains the first in the order of sha256("seed|dataset|example_id"), which is the same for every model.
    """
    evaluation = generations[generations.split == "evaluation"]
    names = [f"{seed}|{row.dataset}|{row.example_id}" for row in evaluation.itertuples()]
    rank = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    return evaluation.iloc[np.sort(np.argsort(rank)[:rows])]


def examples_of_rows(generations: pd.DataFrame) -> list[Example]:
    """Return the questions of a generations frame."""
    return [Example(*row) for row in generations[list(Example._fields)].itertuples(index=False)]


def combine_arms(
    rows: pd.DataFrame, demonstration: Demonstration, asked_again: Mapping[Demonstration, pd.DataFrame]
) -> pd.DataFrame:
    """Return all answers to each question: those of the run's own `rows` (`profile`) and of each other
    demonstration."""
    own = rows[ABLATION_COLUMNS].assign(demonstration=demonstration, profile=True)
    parts = [frame[ABLATION_COLUMNS].assign(demonstration=other, profile=False) for other, frame in asked_again.items()]
    return pd.concat([own, *parts], ignore_index=True)
