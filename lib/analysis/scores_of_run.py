"""The scores of a run for `ResampledScores`: raw, calibrated, and by calibrators of other pairs."""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from lib.analysis.resampled_scores import OWN, ResampledScores, ResampleSettings, Score, ScoredRows
from lib.calibrate.calibration_sets import DataByPair, Pair
from lib.calibrate.calibrators import ANSWER_ESTIMATORS
from lib.calibrate.fit_methods import Fit
from lib.calibrate.refitting import Refits, draw_calibration_counts
from lib.score.baselines import BASE, smoothed_base_rate
from lib.store import PAIR, SCORE_CELL, calibration_rows, evaluation_rows


def collect_scores(
    confidence: pd.DataFrame, sets: DataByPair, fits: Iterable[Fit], settings: ResampleSettings
) -> ResampledScores:
    """Collect every score of a run: raw, calibrated, and Ans Avg by calibrators of other pairs.

    Parameters
    ----------
    confidence : DataFrame
        From `confidence_frame`, of both splits; further scores of evaluation rows may follow.
    sets, fits
        From `calibration_data` and `calibrate`; empty for raw scores alone.
    settings : ResampleSettings
    """
    inputs = CalibratorInputs(sets)
    scores: dict[Pair, dict[Score, ScoredRows]] = {}
    for (model, dataset, estimator, split), rows in confidence.groupby([*SCORE_CELL, "split"]):
        rows = rows.sort_values("example_id")
        pair = (model, dataset)
        inputs.add_rows(pair, estimator, split, rows)
        if split == "evaluation":
            column = ScoredRows(
                rows.example_id.to_numpy(), rows.correct.to_numpy(float), rows.confidence.to_numpy()
            )
            scores.setdefault(pair, {})[Score(estimator)] = column
    for pair, rows in confidence.groupby(PAIR):
        if pair in scores:
            scores[pair][Score(BASE)] = constant_rows(rows, pair, settings)
    for fit in fits:
        calibrated = calibrate_by(fit, list(scores), inputs, settings)
        for target, score, column in calibrated:
            scores[target][score] = column
    return ResampledScores(scores, settings)


def constant_rows(rows: pd.DataFrame, pair: Pair, settings: ResampleSettings) -> ScoredRows:
    """Return the evaluation rows of a pair with the constant that its calibration rows teach."""
    rows = rows.drop_duplicates(["split", "example_id"]).sort_values("example_id")
    learned = calibration_rows(rows).correct.to_numpy(float)
    new = evaluation_rows(rows)
    constant = np.full(len(new), smoothed_base_rate(learned))

    def refit() -> np.ndarray:
        counts = draw_calibration_counts(len(learned), settings.seed, pair, settings.refits)
        constants = (counts @ learned + 1) / (len(learned) + 2)
        return np.repeat(constants[:, None], len(new), axis=1)

    return ScoredRows(
        new.example_id.to_numpy(),
        new.correct.to_numpy(float),
        constant,
        refit if settings.refits else None,
    )


# ---- after a calibrator


class CalibratorInput(NamedTuple):
    """What a calibrator takes of n rows, in the order of example_id: scores or margins (n,), or
    their answer tokens."""

    example_id: np.ndarray
    values: Any
    correct: np.ndarray


class CalibratorInputs:
    """The input of each pair's rows by estimator, split and kind, made once."""

    def __init__(self, sets: DataByPair) -> None:
        self.sets = sets
        self._rows: dict[tuple, pd.DataFrame] = {}
        self._answers: dict[tuple, CalibratorInput | None] = {}

    def add_rows(self, pair: Pair, estimator: str, split: str, rows: pd.DataFrame) -> None:
        """Add the rows of a score, in the order of example_id."""
        self._rows[pair, estimator, split] = rows

    def of(self, pair: Pair, estimator: str, split: str, kind: str) -> CalibratorInput | None:
        """Return the input of a pair's rows; None if there is none."""
        if kind == "answers":
            if (pair, split) not in self._answers:
                self._answers[pair, split] = self._of_answers(pair, split)
            return self._answers[pair, split]
        rows = self._rows.get((pair, estimator, split))
        if rows is None or kind not in rows or rows[kind].isna().any():
            return None
        values = rows[kind].to_numpy(float)
        return CalibratorInput(rows.example_id.to_numpy(), values, rows.correct.to_numpy(float))

    def _of_answers(self, pair: Pair, split: str) -> CalibratorInput | None:
        if pair not in self.sets:
            return None
        part = getattr(self.sets[pair], split)
        if part.answers is None:
            return None
        example_id = part.keys.example_id.to_numpy()
        order = np.argsort(example_id, kind="stable")
        correct = part.correct[order].astype(float)
        return CalibratorInput(example_id[order], part.answers[order], correct)


def calibrate_by(
    fit: Fit, targets: Iterable[Pair], inputs: CalibratorInputs, settings: ResampleSettings
) -> list[tuple[Pair, Score, ScoredRows]]:
    """Return the scores that a calibrator gives: those of its own pair, and Ans Avg of pairs that
    differ in the model or in the dataset alone."""
    made = []
    estimators = ANSWER_ESTIMATORS if fit.estimator == "ans" else [fit.estimator]
    refits = None
    for estimator in estimators:
        old = inputs.of(fit.pair, estimator, "calibration", fit.kind)
        if old is None:
            continue
        if refits is None and settings.refits:
            n = len(old.correct)
            counts = draw_calibration_counts(n, settings.seed, fit.pair, settings.refits)
            refits = Refits(clone(fit.calibrator), old.values, old.correct, counts)
        joint = fit.kind == "answers" and ANSWER_ESTIMATORS[estimator]
        for target in targets:
            is_own = target == fit.pair
            if not is_own and (estimator != "ans_avg" or not one_differs(target, fit.pair)):
                continue
            new = inputs.of(target, estimator, "evaluation", fit.kind)
            if new is None:
                continue
            confidence = fit.calibrator.predict(new.values, joint)
            again = partial(refits.predict, new.values, joint) if refits else None
            column = ScoredRows(new.example_id, new.correct, confidence, again)
            source = OWN if is_own else fit.pair
            made.append((target, Score(estimator, fit.method.name, source), column))
    return made


def one_differs(pair: Pair, other: Pair) -> bool:
    """Return whether two pairs differ in the model or in the dataset alone."""
    return (pair[0] == other[0]) != (pair[1] == other[1])
