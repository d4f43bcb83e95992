"""Calibrators on a run's frames: rows by pair and split, every calibrator on its own pair, reliability diagrams."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.calibrate.calibration import METHODS, Answers, Temperature
from lib.score.estimators import KEYS, ans_avg, signals
from lib.score.metrics import reliability_bins

SPLITS = ("calibration", "evaluation")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Rows:
    """One split of a pair: keys, Ans Avg (n,), the answer tokens, correctness (n,)."""

    keys: pd.DataFrame
    confidence: np.ndarray
    answers: Answers
    correct: np.ndarray


Sets = Mapping[Pair, tuple[Rows, Rows]]  # calibration and evaluation rows


def rows_of(frame: pd.DataFrame, **choices: Any) -> Sets:
    """Both splits of every pair of a generations frame, read with the `choices` of `estimators.signals`."""
    read = signals(frame, **choices)
    joined = frame.drop(columns="answer").merge(read, on=KEYS)
    found: dict[Pair, dict[str, Rows]] = {}
    for (*pair, split), part in joined.groupby(KEYS[:3], sort=False):
        raw = np.array([0.0 if x is None else ans_avg(x) for x in part.answer])
        rows = Rows(part[KEYS].reset_index(drop=True), raw, Answers.of(part), part.correct.to_numpy(bool))
        found.setdefault((pair[0], pair[1]), {})[split] = rows
    return {pair: (parts[SPLITS[0]], parts[SPLITS[1]]) for pair, parts in found.items() if len(parts) == 2}


def _fitted(pair: Pair, part: pd.DataFrame, sets: Sets, joint: bool) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Every calibrator of a pair with its predictions for the evaluation rows."""
    for _, group in part.groupby("estimator", sort=False):
        old, new = (group[group.split == split] for split in SPLITS)
        if old.empty or new.empty:
            continue
        for method in METHODS.values():
            for kind in ("confidence", "margin"):
                if kind in method.takes and kind in group and group[kind].notna().all():
                    model = method.make(kind).fit(old[kind], old.correct)
                    yield model, new.assign(method=method.name, confidence=model.predict(new[kind]))
    for method in METHODS.values() if pair in sets else ():
        if "answers" in method.takes:
            old, new = sets[pair]
            scaled = method.make("answers", joint).fit(old.answers, old.correct)
            for name in ("ans_avg", "ans_joint"):
                values = scaled.predict(new.answers, joint=name == "ans_joint")
                rows = new.keys.assign(estimator=name, confidence=values, correct=new.correct, method=method.name)
                yield scaled, rows


def _learned(model: Any) -> tuple[dict[str, float | None], str]:
    """Learned parameters by their name in the tables, and a note where something was out of the ordinary."""
    notes = {"one class only": model.constant_ is not None, "at the bound": getattr(model, "at_bound_", False),
             "separable": getattr(model, "separable_", False)}  # fmt: skip
    names = {"t": "temperature_", "a": "a_", "b": "b_"}
    values = {name: getattr(model, attribute) for name, attribute in names.items() if hasattr(model, attribute)}
    return values, next((note for note, holds in notes.items() if holds), "")


def calibrate(confidence: pd.DataFrame, sets: Sets, joint: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every method on what it takes: confidence of every estimator, the answer's tokens, a `margin` where there is
    one: fitted on calibration rows, applied to evaluation rows.

    Returns the evaluation rows, raw ones (method "") first, and what was learned, tidy: model, dataset, estimator
    ("ans" for t), method, metric (t, a or b), value, reason.
    """
    frames, learned = [confidence[confidence.split == "evaluation"].assign(method="")], {}
    for pair, part in confidence.groupby(["model", "dataset"], sort=False):
        for model, rows in _fitted(pair, part, sets, joint):
            frames.append(rows)
            name = "ans" if isinstance(model, Temperature) else rows.estimator.iloc[0]
            values, reason = _learned(model)
            for metric, value in values.items() or [("", None)] * bool(reason):
                learned[*pair, name, rows.method.iloc[0], metric] = (value, reason)
    columns = ["model", "dataset", "estimator", "method", "metric", "value", "reason"]
    table = pd.DataFrame([(*key, *values) for key, values in learned.items()], columns=columns)
    both = pd.concat(frames, ignore_index=True)
    return both.drop(columns="margin", errors="ignore"), table.astype({"value": "Float64"})


def reliability(
    calibrated: pd.DataFrame, model: str, dataset: str, bins: int = 10, closed: str = "right"
) -> dict[str, pd.DataFrame]:
    """Reliability diagram of Ans Avg on one pair, by method."""
    here = calibrated.query("model == @model and dataset == @dataset and estimator == 'ans_avg'")
    groups = here.groupby("method", sort=False)
    return {how: reliability_bins(part.confidence, part.correct, bins, closed).frame() for how, part in groups}
