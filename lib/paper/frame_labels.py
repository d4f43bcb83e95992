"""Tidy frames with the labels of the tables, for reading."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.score.estimators import ESTIMATORS, Estimator, in_declared_order

Labels = Mapping[str, str] | None


def label_rows(frame: pd.DataFrame, models: Labels, datasets: Labels) -> pd.DataFrame:
    """Return a tidy frame with the labels of the tables for models, datasets, estimators and methods.

    Categories have the order of the run, which sorting and pivoting keep. On the answer's tokens `platt` is labeled
    temperature.
    """
    known = {e.name: e.plain for e in in_declared_order(ESTIMATORS.values())}
    estimators = {"base": "base rate"} | known | {"ans": "answer tokens"}
    labels = {"model": models, "source_model": models, "dataset": datasets, "source_dataset": datasets}
    frame = frame.copy()
    if "method" in frame:
        words = {"": "raw"} | {name: how.answer_label for name, how in METHODS.items()}
        of_margins = {name: how.label for name, how in METHODS.items() if "answers" in how.inputs}
        of_answers = ["ans", *(name for name, e in ESTIMATORS.items() if e.needs == "answer")]
        is_answer = frame.get("estimator", pd.Series("ans", frame.index)).isin(of_answers)
        methods = frame["method"].map(words).where(is_answer, frame["method"].map(words | of_margins))
        frame["method"] = categorize(methods, [*words.values(), *of_margins.values()])
    for column, names in (labels | {"estimator": estimators}).items():
        if column in frame and names:
            frame[column] = categorize(frame[column].map(dict(names)), names.values())
    return frame


def categorize(values: pd.Series, order: Iterable[str]) -> pd.Categorical:
    """Return words as categories in this order, without those that are absent."""
    there = set(values)
    return pd.Categorical(values, [word for word in dict.fromkeys(order) if word in there], ordered=True)


def pivot_labeled(
    frame: pd.DataFrame, models: Labels, datasets: Labels, index: Any, columns: Any, values: Any = "value"
) -> pd.DataFrame:
    """Return values of a tidy frame with labels, three decimals, in the order of the run."""
    wide = label_rows(frame, models, datasets).pivot(index=index, columns=columns, values=values)
    return wide.astype(float).round(3)


def estimators_shown(frame: pd.DataFrame) -> list[Estimator]:
    """Return the estimators of a frame, the paper's first."""
    there = set(frame["estimator"])
    declared = in_declared_order(e for e in ESTIMATORS.values() if e.name in there)
    return sorted(declared, key=lambda estimator: estimator.own)
