"""Fit calibrators to a run's frames, one per method and model-dataset pair, apply them to the
pair's own evaluation rows."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pandas as pd

from lib.calibrate.calibration_sets import CalibrationData, DataByPair, Pair
from lib.calibrate.calibrator_base import Calibrator
from lib.calibrate.calibrators import ANSWER_ESTIMATORS, METHODS, Method
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

    @property
    def serves_ans_avg(self) -> bool:
        """Whether it calibrates Ans Avg."""
        return self.estimator in ("ans", "ans_avg")


class CalibratedScores(NamedTuple):
    """What `calibrate` returns.

    `scores` are evaluation rows with a column `method`, raw ones first (method ""). `learned` has
    metric t, a or b of every calibrator, from n calibration rows; a calibrator without numbers but
    with a note has a row with metric "" and the note as `reason`.
    """

    scores: pd.DataFrame
    learned: pd.DataFrame
    fits: list[Fit]


def calibrate(confidence: pd.DataFrame, sets: DataByPair) -> CalibratedScores:
    """Calibrate every estimator by every method.

    Parameters
    ----------
    confidence : as `confidence_frame` returns it
    sets : as `calibration_data` returns them

    Examples
    --------
    >>> splits = ["calibration", "calibration", "evaluation"]
    >>> confidence = pd.DataFrame({
    ...     "model": "m", "dataset": "d", "example_id": ["a", "b", "c"], "split": splits,
    ...     "estimator": "seq_avg", "confidence": [0.2, 0.8, 0.9], "correct": [False, True, True],
    ... })
    >>> calibrate(confidence, {}).scores[["method", "confidence"]].to_numpy().tolist()
    [['', 0.9], ['isotonic', 1.0]]
    """
    parts = [evaluation_rows(confidence).assign(method="")]
    fits = []
    for pair, part in confidence.groupby(PAIR, sort=False):
        for estimator, rows in part.groupby("estimator", sort=False):
            for fit, calibrated in _fit_on_scores(pair, estimator, rows):
                fits.append(fit)
                parts.append(calibrated)
        if pair in sets:
            for fit, calibrated in _fit_on_answers(pair, sets[pair]):
                fits.append(fit)
                parts.append(calibrated)
    scores = pd.concat(parts, ignore_index=True).drop(columns="margin", errors="ignore")
    return CalibratedScores(scores, _learned_numbers(fits), fits)


def _fit_on_scores(
    pair: Pair, estimator: str, rows: pd.DataFrame
) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take an estimator's confidence, or its margin if every row has one, with
    its calibrated evaluation rows."""
    calibration = calibration_rows(rows)
    evaluation = evaluation_rows(rows)
    if calibration.empty or evaluation.empty:
        return
    for method in METHODS.values():
        for kind, calibrator in method.inputs.items():
            if kind not in rows or rows[kind].isna().any():
                continue
            fitted = calibrator().fit(calibration[kind], calibration.correct)
            confidence = fitted.predict(evaluation[kind])
            calibrated = evaluation.assign(method=method.name, confidence=confidence)
            yield Fit(pair, estimator, method, kind, fitted), calibrated


def _fit_on_answers(pair: Pair, data: CalibrationData) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take the answer tokens, for both answer estimators."""
    old, new = data
    if old.answers is None or new.answers is None:
        return
    new_answers = new.answers.without_caches()
    for method in METHODS.values():
        if "answers" not in method.inputs:
            continue
        calibrator = method.inputs["answers"]().fit(old.answers, old.correct)
        rows = new.keys.assign(correct=new.correct, method=method.name)
        parts = []
        for estimator, joint in ANSWER_ESTIMATORS.items():
            confidence = calibrator.predict(new_answers, joint)
            parts.append(rows.assign(estimator=estimator, confidence=confidence))
        yield Fit(pair, "ans", method, "answers", calibrator), pd.concat(parts)


def _learned_numbers(fits: Iterable[Fit]) -> pd.DataFrame:
    """Return the table `learned` of `CalibratedScores`."""
    rows: list[tuple] = []
    for fit in fits:
        key = (*fit.pair, fit.estimator, fit.method.name)
        counted = (fit.calibrator.n_rows_, fit.calibrator.note_)
        learned = fit.calibrator.learned
        for metric, value in learned.items():
            rows.append((*key, metric, value, *counted))
        if not learned and fit.calibrator.note_:
            rows.append((*key, "", None, *counted))
    frame = pd.DataFrame(rows, columns=[*RESULT_KEYS, "value", "n", "reason"])
    return frame.astype({"value": "Float64"})
