"""A few evaluation questions of each pair, asked again with each other beginning of the prompt: the paper's example, a
few worked ones, nothing."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

import pandas as pd

from lib.params import Demonstration, Generation
from lib.store import KEYS
from lib.tasks.datasets import Example

BEGINNINGS: tuple[Demonstration, ...] = get_args(Generation.model_fields["demonstration"].annotation)
ABLATION_COLUMNS = [*KEYS, "reference", "answer", "boxed", "finish_reason"]


def choose_ablation_rows(
    generations: pd.DataFrame, rows: int, seed: int = 0, before: Iterable[str] = ()
) -> pd.DataFrame:
    """A sample of one pair's evaluation rows: those that a smaller run asked `before`, then the first in the order of
    sha256("seed|dataset|example_id"), alike for every model; in their own order."""
    evaluation, before = generations[generations.split == "evaluation"], set(before)
    order = sorted((row.example_id not in before,
                    hashlib.sha256(f"{seed}|{row.dataset}|{row.example_id}".encode()).hexdigest(), place)
                   for place, row in enumerate(evaluation.itertuples()))  # fmt: skip
    return evaluation.iloc[sorted(place for *_, place in order[:rows])]


def ask_again(arms: Mapping[Demonstration, Callable[[list[Example]], pd.DataFrame]],
              asked: Iterable[tuple[Demonstration, Example]]) -> pd.DataFrame:  # fmt: skip
    """The answers of each arm, by what makes them, to the questions that it is asked."""
    questions: dict[Demonstration, list[Example]] = {}
    for arm, example in asked:
        questions.setdefault(arm, []).append(example)
    return pd.concat([arms[arm](some).assign(demonstration=arm) for arm, some in questions.items()])


def examples_of_rows(generations: pd.DataFrame) -> list[Example]:
    """The questions of a generations frame, to be asked again."""
    return [Example(*row) for row in generations[list(Example._fields)].itertuples(index=False)]


def other_demonstrations(demonstration: Demonstration) -> list[Demonstration]:
    """The beginnings of the prompt that a run did not use."""
    return [other for other in BEGINNINGS if other != demonstration]


def combine_arms(rows: pd.DataFrame, demonstration: Demonstration, asked_again: Mapping[Demonstration, pd.DataFrame]
         ) -> pd.DataFrame:  # fmt: skip
    """Every answer to each question: of the run's own `rows` (`profile`), and of each other beginning."""
    own = rows[ABLATION_COLUMNS].assign(demonstration=demonstration, profile=True)
    parts = [frame[ABLATION_COLUMNS].assign(demonstration=other, profile=False) for other, frame in asked_again.items()]
    return pd.concat([own, *parts], ignore_index=True)
