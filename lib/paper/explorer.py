"""The interactive part of a page: choose a pair, a score and the number of bins, and see its
reliability; read responses token by token.

`explorer_data` is what explorer.js draws, `explorer_markup` the part of the page that holds it. The
page runs SCRIPT, and its content security policy names `policy_hash` of all that it runs. Words
reach the page as text alone.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from lib.calibrate.calibration_sets import Pair
from lib.errors import show_hidden
from lib.paper.booktabs import TEMPLATES
from lib.paper.cells import format_3dp, label_method
from lib.score.baselines import BASE
from lib.score.estimators import ESTIMATORS, in_column_order
from lib.score.metrics import auroc, brier, ece
from lib.score.reliability import bin_index
from lib.store import PAIR, evaluation_rows

SCRIPT = Path(__file__).with_name("explorer.js").read_text(encoding="utf-8")
MOST_BINS = 50  # that a reader can choose
DIGITS = 4  # of a confidence, and more where they decide its bin or the third decimal of the ECE
ALL_DIGITS = 16


@dataclass(frozen=True)
class Explorer:
    """The data of `explorer_data`: JSON for the page, a line for each pair in a notebook."""

    data: dict[str, Any]

    def _repr_json_(self) -> dict[str, Any]:
        return self.data

    def _repr_html_(self) -> str:
        rows = []
        for pair in self.data["pairs"]:
            counts = (len(pair["right"]), len(pair["scores"]), len(pair["responses"]))
            rows.append((pair["label"], *counts))
        columns = ["pair", "evaluation rows", "scores", "responses to read"]
        return pd.DataFrame(rows, columns=columns).to_html(index=False)


def explorer_data(
    scores: pd.DataFrame,
    labels: Mapping[Pair, str],
    n_bins: int = 10,
    responses: Mapping[Pair, Sequence[dict[str, Any]]] | None = None,
    first: Pair | None = None,
) -> dict[str, Any]:
    """Return what the page draws.

    Parameters
    ----------
    scores : DataFrame
        A row per evaluation response and score: model, dataset, example_id, split, estimator,
        method ("" is raw), confidence in [0, 1], correct. Rows of other splits are left out.
    labels : {(model, dataset): label}
        The pairs, in the order of the page.
    n_bins : int
        The number of bins at first, with which the ECE has the decimals of the run's tables.
    responses : {(model, dataset): views}, optional
        From `lib.paper.explorer_responses.responses_to_read`.
    first : (model, dataset), optional
        The pair that the page begins with.

    Examples
    --------
    >>> scores = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.25, 0.98765]})
    >>> scores = scores.assign(model="m", dataset="d", split="evaluation", method="")
    >>> scores = scores.assign(estimator="seq_avg", correct=[False, True])
    >>> (pair,) = explorer_data(scores, {("m", "d"): "M, D"})["pairs"]
    >>> pair["label"], pair["right"], pair["scores"][0]["confidence"]
    ('M, D', '01', [2500, 9876])
    """
    scores = evaluation_rows(scores)
    by_pair = dict(iter(scores.groupby(PAIR)))
    pairs = []
    for pair, label in labels.items():
        if pair in by_pair:
            views = responses.get(pair, ()) if responses else ()
            pairs.append(describe_pair(by_pair[pair], label, n_bins, views))
    names = [pair for pair in labels if pair in by_pair]
    start = names.index(first) if first in names else 0
    return {"bins": n_bins, "most_bins": MOST_BINS, "first": start, "pairs": pairs}


def describe_pair(
    scores: pd.DataFrame, label: str, n_bins: int, views: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the rows of a pair: which are right, their confidence by each score, and those that
    can be read, by their row."""
    correct = scores.drop_duplicates("example_id").set_index("example_id").correct.sort_index()
    row_of = {example: row for row, example in enumerate(correct.index)}
    columns = []
    for estimator in order_estimators(scores.estimator):
        of_estimator = scores[scores.estimator == estimator]
        for method, part in of_estimator.groupby("method", sort=False):
            column = part.set_index("example_id").reindex(correct.index)
            columns.append(describe_score(column, estimator, str(method), n_bins))
    read = []
    for view in views:
        read.append(view | {"row": row_of[view["example_id"]]})
    return {
        "label": show_hidden(label),
        "right": "".join("1" if is_right else "0" for is_right in correct),
        "scores": columns,
        "responses": read,
    }


def order_estimators(names: pd.Series) -> list[str]:
    """Return the estimators that occur, the declared ones first and the constant last."""
    present = list(dict.fromkeys(names))
    declared = [estimator.name for estimator in in_column_order(ESTIMATORS.values())]
    known = [name for name in declared if name in present]
    others = [name for name in present if name not in declared and name != BASE]
    constant = [BASE] if BASE in present else []
    return known + others + constant


def describe_score(
    column: pd.DataFrame, estimator: str, method: str, n_bins: int
) -> dict[str, Any]:
    """Return a score: its labels, the confidence of every row in units of 10^-4 (null where it has
    none), and what does not depend on bins."""
    has_score = column.confidence.notna()
    confidence = column.confidence[has_score].to_numpy(float)
    correct = column.correct[has_score].to_numpy(float)
    units: list[float | None] = [None] * len(column)
    shortened = shorten_confidences(confidence, correct, n_bins)
    for row, value in zip(np.flatnonzero(has_score), shortened, strict=True):
        unit = round(float(value) * 10**DIGITS, ALL_DIGITS - DIGITS)
        units[row] = int(unit) if unit == int(unit) else unit
    ranking = float(auroc(confidence, correct))
    return {
        "estimator": label_estimator(estimator),
        "method": label_method(method, estimator),
        "confidence": units,
        "auroc": None if np.isnan(ranking) else round(ranking, 6),
        "brier": round(float(brier(confidence, correct)), 6),
    }


def label_estimator(name: str) -> str:
    """Return the name of an estimator as words; a name of the user's own stays as it is."""
    if name == BASE:
        return "a constant"
    return ESTIMATORS[name].plain if name in ESTIMATORS else show_hidden(name)


def shorten_confidences(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> np.ndarray:
    """Return scores with DIGITS decimals, and with more only where they decide something.

    Every row stays in its bin, for each number of bins that a reader can choose, and the ECE with
    `n_bins` keeps its third decimal.
    """
    wanted = format_3dp(ece(confidence, correct, n_bins))
    for digits in range(DIGITS, ALL_DIGITS + 1):
        short = np.round(confidence, digits)
        for further in range(digits + 1, ALL_DIGITS + 1):
            moved = is_moved(short, confidence)
            if not moved.any():
                break
            short[moved] = np.round(confidence[moved], further)
        if format_3dp(ece(short, correct, n_bins)) == wanted:
            break
    return short


def is_moved(short: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return which shortened scores are in another bin, for any number of bins."""
    moved = np.zeros(len(confidence), dtype=bool)
    for n_bins in range(1, MOST_BINS + 1):
        moved |= bin_index(short, n_bins) != bin_index(confidence, n_bins)
    return moved


# ---- on a page


def explorer_markup(data: Mapping[str, Any]) -> Markup:
    """Return the part of a page that SCRIPT fills, with its data. A page holds it once."""
    # a spelling such as </script> must not end the element that holds it
    text = json.dumps(data, separators=(",", ":")).replace("<", r"\u003c")
    page = TEMPLATES.get_template("explorer.html.jinja").render(data=Markup(text))  # noqa: S704
    return Markup(page)  # noqa: S704  escaped by the template


def policy_hash(script: str) -> str:
    """Return the source in a content security policy that allows this script and no other."""
    checksum = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(checksum).decode()}'"
