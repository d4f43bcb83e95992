"""The scores of a run for `ResampledScores`: raw, calibrated, and by calibrators of other pairs."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from lib.analysis.resampled_scores import OWN, ResampledScores, ResampleSettings, Score, ScoredRows
from lib.calibrate.calibration_sets import DataByPair, Pair, ScoredSplit
from lib.calibrate.calibrator_base import Predict
from lib.calibrate.calibrators import ANSWER_ESTIMATORS
from lib.calibrate.fit_methods import Fit
from lib.calibrate.refitting import draw_calibration_counts, predict_by_each, refit
from lib.calibrate.transfer import are_neighbors
from lib.score.baselines import BASE, smoothed_base_rate
from lib.store import PAIR, SCORE_CELL, calibration_rows, evaluation_rows


def collect_scores(
    confidence: pd.DataFrame,
    sets: DataByPair,
    fits: Iterable[Fit],
    settings: ResampleSettings,
    moved: Collection[Pair] | None = None,
) -> ResampledScores:
    """Collect every score of a run: raw, calibrated, and Ans Avg by calibrators of other pairs.

    Parameters
    ----------
    confidence : DataFrame
        From `confidence_frame`, of both splits; further scores of evaluation rows may follow.
    sets, fits
        From `calibration_data` and `calibrate`; empty for raw scores alone.
    settings : ResampleSettings
    moved : pairs among which calibrators of Ans Avg are applied to other pairs; all by default
    """
    if moved is None:
        moved = list(evaluation_rows(confidence).groupby(PAIR).groups)
    inputs = CalibratorInputs(sets, moved)
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
        targets = [fit.pair]
        if fit.serves_ans_avg and fit.pair in moved:
            others = [pair for pair in moved if pair != fit.pair]
            targets += [pair for pair in others if are_neighbors(pair, fit.pair)]
        for target, score, column in calibrate_by(fit, targets, inputs, settings):
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
        constants = smoothed_base_rate(learned, counts)
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
    """The input of each pair's rows by estimator, split and kind."""

    def __init__(self, sets: DataByPair, kept: Collection[Pair]) -> None:
        """`kept`: pairs of which the answer tokens serve several calibrators."""
        self.sets = sets
        self.kept = kept
        self._rows: dict[tuple, pd.DataFrame] = {}
        self._answers: dict[tuple, CalibratorInput | None] = {}

    def add_rows(self, pair: Pair, estimator: str, split: str, rows: pd.DataFrame) -> None:
        """Add the rows of a score, in the order of example_id."""
        self._rows[pair, estimator, split] = rows

    def of(self, pair: Pair, estimator: str, split: str, kind: str) -> CalibratorInput | None:
        """Return the input of a pair's rows; None if there is none."""
        if kind == "answers":
            return self._of_answers(pair, split)
        rows = self._rows.get((pair, estimator, split))
        if rows is None or kind not in rows or rows[kind].isna().any():
            return None
        values = rows[kind].to_numpy(float)
        return CalibratorInput(rows.example_id.to_numpy(), values, rows.correct.to_numpy(float))

    def need(self, pair: Pair, estimator: str, split: str, kind: str) -> CalibratorInput:
        """Return the input of a pair's rows as `of`; raise KeyError if there is none."""
        rows = self.of(pair, estimator, split, kind)
        if rows is None:
            raise KeyError((pair, estimator, split, kind))
        return rows

    def _of_answers(self, pair: Pair, split: str) -> CalibratorInput | None:
        if (pair, split) in self._answers:
            return self._answers[pair, split]
        answers = None
        if pair in self.sets:
            answers = answers_in_order(getattr(self.sets[pair], split))
        if pair in self.kept and split == "evaluation":
            self._answers[pair, split] = answers
        return answers


def answers_in_order(part: ScoredSplit) -> CalibratorInput | None:
    """Return the answer tokens of one split of a pair; None without stored logits."""
    if part.answers is None:
        return None
    example_id = part.keys.example_id.to_numpy()
    order = np.argsort(example_id, kind="stable")
    correct = part.correct[order].astype(float)
    return CalibratorInput(example_id[order], part.answers[order], correct)


def calibrate_by(
    fit: Fit, targets: Collection[Pair], inputs: CalibratorInputs, settings: ResampleSettings
) -> Iterator[tuple[Pair, Score, ScoredRows]]:
    """Yield the scores that a calibrator gives: all of its own pair, and Ans Avg of the other
    targets."""
    estimators = ANSWER_ESTIMATORS if fit.estimator == "ans" else [fit.estimator]
    refits: Callable[[], list[Predict]] = partial(refit_calibrator, fit, inputs, settings)
    if fit.kind == "answers" or len(targets) > 1:
        refits = cache(refits)  # they serve several scores
    for estimator in estimators:
        joint = fit.kind == "answers" and ANSWER_ESTIMATORS[estimator]
        for target in targets:
            is_own = target == fit.pair
            new = inputs.of(target, estimator, "evaluation", fit.kind)
            if new is None or not (is_own or estimator == "ans_avg"):
                continue
            confidence = fit.calibrator.predict(new.values, joint)
            again = None
            if settings.refits:
                read_new = partial(inputs.need, target, estimator, "evaluation", fit.kind)
                again = partial(predict_again, refits, read_new, joint)
            column = ScoredRows(new.example_id, new.correct, confidence, again)
            source = OWN if is_own else fit.pair
            yield target, Score(estimator, fit.method.name, source), column


def refit_calibrator(
    fit: Fit, inputs: CalibratorInputs, settings: ResampleSettings
) -> list[Predict]:
    """Fit a calibrator again to resamples of its calibration rows."""
    estimator = "ans_avg" if fit.estimator == "ans" else fit.estimator
    old = inputs.need(fit.pair, estimator, "calibration", fit.kind)
    counts = draw_calibration_counts(len(old.correct), settings.seed, fit.pair, settings.refits)
    return refit(clone(fit.calibrator), old.values, old.correct, counts)


def predict_again(
    refits: Callable[[], list[Predict]], read_new: Callable[[], CalibratorInput], joint: bool
) -> np.ndarray:
    """Return the scores of a target's rows by each refit, (refits, n)."""
    return predict_by_each(refits(), read_new().values, joint)
