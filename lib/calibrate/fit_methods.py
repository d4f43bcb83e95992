"""Fit calibrators to a run's frames, one per method and model-dataset pair, apply them to the
pair's own evaluation rows."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import pandas as pd

from lib.calibrate.calibration_sets import DataByPair, Pair, ScoredSplit
from lib.calibrate.calibrators import ANSWER_ESTIMATORS, METHODS, Calibrator, Method
from lib.score.evaluation import RESULT_KEYS
from lib.store import PAIR, calibration_rows, evaluation_rows


class Fit(NamedTuple):
    """A calibrator of a pair.

    `estimator` is "ans" for a calibrator of answer tokens, which serves both answer estimators.
    `kind` is its kind of input (`Method.inputs`).
    """

    pair: Pair
    estimator: str
    method: Method
    kind: str
    calibrator: Calibrator


def calibrate(
    confidence: pd.DataFrame, sets: DataByPair
) -> tuple[pd.DataFrame, pd.DataFrame, list[Fit]]:
    """Calibrate every estimator by every method.

    Parameters
    ----------
    confidence : DataFrame
        As `confidence_frame` returns it.
    sets : dict
        As `calibration_data` returns it.

    Returns
    -------
    calibrated : DataFrame
        Evaluation rows with a column `method`; raw scores first (method "").
    learned : DataFrame
        Metric t, a or b of every calibrator, from n calibration rows. A calibrator without numbers
        but with a note has a row with metric "" and the note as `reason`.
    fits : list of Fit
    """
    made: list[tuple[Fit, pd.DataFrame]] = []
    for pair, part in confidence.groupby(PAIR, sort=False):
        for estimator, rows in part.groupby("estimator", sort=False):
            made += fit_on_scores(pair, estimator, rows)
        if pair in sets:
            made += fit_on_answers(pair, *sets[pair])
    raw, fits = evaluation_rows(confidence).assign(method=""), [fit for fit, _ in made]
    calibrated = pd.concat([raw, *(rows for _, rows in made)], ignore_index=True)
    return calibrated.drop(columns="margin", errors="ignore"), learned_numbers(fits), fits


def fit_on_scores(
    pair: Pair, estimator: str, rows: pd.DataFrame
) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take an estimator's confidence, or its margin if every row has one, with
    its calibrated evaluation rows."""
    calibration, evaluation = calibration_rows(rows), evaluation_rows(rows)
    given = [kind for kind in ("confidence", "margin") if kind in rows and rows[kind].notna().all()]
    for method, kind in product(METHODS.values(), given):
        if kind in method.inputs and len(calibration) and len(evaluation):
            fit = Fit(pair, estimator, method, kind, method.inputs[kind]())
            fit.calibrator.fit(calibration[kind], calibration.correct)
            yield (
                fit,
                evaluation.assign(
                    method=method.name, confidence=fit.calibrator.predict(evaluation[kind])
                ),
            )


def fit_on_answers(
    pair: Pair, old: ScoredSplit, new: ScoredSplit
) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take the answer tokens, for both answer estimators."""
    for method in METHODS.values():
        if "answers" in method.inputs and old.answers is not None and new.answers is not None:
            calibrator = method.inputs["answers"]().fit(old.answers, old.correct)
            scores = {
                name: calibrator.predict(new.answers, joint)
                for name, joint in ANSWER_ESTIMATORS.items()
            }
            rows = new.keys.assign(correct=new.correct, method=method.name)
            calibrated = [
                rows.assign(estimator=name, confidence=values) for name, values in scores.items()
            ]
            yield Fit(pair, "ans", method, "answers", calibrator), pd.concat(calibrated)


def learned_numbers(fits: Iterable[Fit]) -> pd.DataFrame:
    """Return the table `learned` of `calibrate`."""
    rows: list[tuple] = []
    for fit in fits:
        key, note = (*fit.pair, fit.estimator, fit.method.name), fit.calibrator.note_
        numbers = fit.calibrator.learned or ({"": None} if note else {})
        rows += [
            (*key, metric, value, fit.calibrator.n_rows_, note) for metric, value in numbers.items()
        ]
    return pd.DataFrame(rows, columns=[*RESULT_KEYS, "value", "n", "reason"]).astype(
        {"value": "Float64"}
    )
