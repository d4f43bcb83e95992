"""Tidy frames with the labels of the tables, for reading."""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.calibrate.calibrators import METHODS
from lib.score.estimators import ESTIMATORS, in_declared_order


def label_rows(
    frame: pd.DataFrame, models: Mapping[str, str] | None, datasets: Mapping[str, str] | None
) -> pd.DataFrame:
    """Return a tidy frame with the labels of the tables for models, datasets, estimators and methods.

    Categories have the order of the run, which sorting and pivoting keep. On the answer's tokens `platt` is labeled
    temperature.
    """
    in_order = {e.name: e.plain for e in in_declared_order(ESTIMATORS.values())}
    estimators = {"base": "base rate"} | in_order | {"ans": "answer tokens"}
    frame = frame.copy()
    if "method" in frame:
        of_answers = ["ans", *(name for name, e in ESTIMATORS.items() if e.needs == "answer")]
        plain = {"": "raw"} | {name: method.answer_label for name, method in METHODS.items()}
        named = plain | {name: method.label.lower().replace("platt", "Platt") for name, method in METHODS.items()}
        is_answer = frame.get("estimator", pd.Series("ans", frame.index)).isin(of_answers)
        words = frame["method"].replace(plain).where(is_answer, frame["method"].replace(named))
        order = [word for word in dict.fromkeys([*plain.values(), *words]) if word in set(words)]
        frame["method"] = pd.Categorical(words, order, ordered=True)
    named_by = {"model": models, "source_model": models, "dataset": datasets, "source_dataset": datasets}
    for column, labels in (named_by | {"estimator": estimators}).items():
        if column in frame and labels:
            here = [label for name, label in labels.items() if name in set(frame[column])]
            frame[column] = pd.Categorical(frame[column].map(dict(labels)), list(dict.fromkeys(here)), ordered=True)
    return frame


def pivot_labeled(
    frame: pd.DataFrame,
    models: Mapping[str, str] | None,
    datasets: Mapping[str, str] | None,
    index: Sequence[str],
    columns: Sequence[str],
    values: Sequence[str] = ("value",),
) -> pd.DataFrame:
    """Return values of a tidy frame with labels, three decimals, in the order of the run."""
    labeled = label_rows(frame, models, datasets).astype(dict.fromkeys(values, float))
    if len(values) == 1:
        return labeled.pivot(index=index, columns=columns, values=values[0]).round(3)
    wide = labeled.pivot(index=index, columns=columns, values=list(values)).round(3)
    return wide.reorder_levels([*range(1, wide.columns.nlevels), 0], axis=1)


def family_labels(models: Mapping[str, str]) -> dict[str, str]:
    """Return model labels shortened to their first letters (Llama-3.1-8B: Llama), if these are unique."""
    labels = dict(models)
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) > 1 else labels
