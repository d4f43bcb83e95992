"""The rows and columns of the tables on calibration and transfer: methods with their parameters,
moves between pairs.
"""

import re
from collections.abc import Mapping
from itertools import permutations

import pandas as pd

from lib.analysis.results import Results
from lib.calibrate.calibrators import METHODS
from lib.calibrate.transfer import SOURCE
from lib.paper import cells
from lib.paper.booktabs import escape
from lib.score.estimators import Estimator
from lib.score.metrics import METRICS
from lib.store import PAIR

# other methods use their label
METHOD_HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}


# ---- calibration


def calibrated_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns by method: ECE of each estimator, preceded once by its fitted parameters.

    The parameters of `ans` belong to both estimators of the answer's tokens.
    """
    errors = frame[frame.metric == "ece"]
    fitted = set(zip(errors["method"], errors.estimator, strict=True))
    symbols = fitted_symbols(frame)
    columns: dict[tuple[str, str], tuple] = {}
    for method, how in METHODS.items():
        heading = METHOD_HEADINGS.get(method, how.label)
        for estimator in calibrated_estimators(frame, fitted):
            if (method, estimator.name) not in fitted:
                continue
            learner = estimator.name
            if estimator.needs == "answer" and (method, "ans") in symbols:
                learner = "ans"  # shared by both
            names = symbols.pop((method, learner), None)
            if names is not None:
                text = ",".join(names)
                if len(names) > 1:
                    text = f"({text})"
                label = f"${text}$"
                columns[heading, label] = (method, learner, names)
            columns[heading, estimator.label] = (method, estimator.name, "ece")
    labels = pd.MultiIndex.from_tuples(columns)
    return pd.DataFrame(list(columns.values()), labels, ["method", "estimator", "metric"])


def fitted_symbols(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names of the fitted parameters by method and estimator."""
    parameters = frame[~frame.metric.isin([*METRICS, ""])]
    symbols = {}
    for (method, estimator), part in parameters.groupby(["method", "estimator"]):
        symbols[method, estimator] = tuple(part.metric.unique())
    return symbols


def calibrated_estimators(frame: pd.DataFrame, fitted: set[tuple[str, str]]) -> list[Estimator]:
    """Return the estimators for which some method uses more than the confidence (answer tokens, a
    margin), or all if there are none. `fitted` are methods and estimators."""
    with_more = set()
    for method, estimator in fitted:
        if method and "confidence" not in METHODS[method].inputs:
            with_more.add(estimator)
    every = cells.estimators_of(frame)
    chosen = [estimator for estimator in every if estimator.name in with_more]
    if not chosen:
        return every
    return chosen


def join_parameters(texts: pd.Series, full: bool) -> str:
    """Return the fitted parameters of a cell as one text: 0.53, or (0.61, -1.20), as a formula if
    intervals are formulas (`full`)."""
    if len(texts) == 1 or cells.DASH in set(texts):
        return str(min(texts))  # the dash comes first
    if full:
        return f"$({','.join(texts)})$"
    return f"({', '.join(texts)})"


# ---- transfer


def label_methods() -> dict[str, str]:
    """Return the labels of the methods, by name."""
    return {name: method.label for name, method in METHODS.items()}


def label_transfer_pairs(results: Results, frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the labels of the pairs between which calibrators move, if they have a raw ECE."""
    models, datasets = results.transfer_labels
    families = family_labels(models)
    raw = frame.query("method == '' and metric == 'ece'").dropna(subset="value")
    has_error = set(zip(raw.model, raw.dataset, strict=True))
    labels = {}
    for model, family in families.items():
        for dataset, label in datasets.items():
            if (model, dataset) in has_error:
                labels[model, dataset] = escape(f"{family} / {label}")
    return labels


def transfer_moves(results: Results) -> pd.DataFrame:
    """Return the rows of `tab:calibration_transfer_summary`: all moves that change the dataset or
    the model."""
    models, datasets = results.transfer_labels
    families = family_labels(models)
    moves = []
    for model in models:
        for source, target in permutations(datasets, 2):
            moves.append(("across datasets", model, source, model, target))
    for dataset in datasets:
        for source, target in permutations(models, 2):
            moves.append(("between models", source, dataset, target, dataset))
    labels = []
    for block, source_model, source_dataset, model, dataset in moves:
        source = escape(f"{families[source_model]}: {datasets[source_dataset]}")
        target = escape(f"{families[model]}: {datasets[dataset]}")
        labels.append((block, rf"{source} $\rightarrow$ {target}"))
    names = (None, r"Calibration Source $\rightarrow$ Evaluation Target")
    index = pd.MultiIndex.from_tuples(labels, names=names)
    ends = [move[1:] for move in moves]
    return pd.DataFrame(ends, index, [*SOURCE, *PAIR])


def family_labels(models: Mapping[str, str]) -> dict[str, str]:
    """Return model labels shortened to their first letters (Llama-3.1-8B: Llama), if these are
    unique."""
    families = {}
    for name, label in models.items():
        letters = re.match(r"[^\W\d_]+", label)
        families[name] = letters[0] if letters else label
    is_unique = len(set(families.values())) == len(families) > 1
    return families if is_unique else dict(models)
