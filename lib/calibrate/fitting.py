"""Fit calibrators to a run's frames, one per method and model-dataset pair."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.base_calibrator import Calibrator
from lib.calibrate.calibrators import ANSWER_ESTIMATORS, METHODS, Method
from lib.paths import UserError
from lib.score.estimators import ans_avg
from lib.store import KEYS, PAIR

SPLITS = ("calibration", "evaluation")
LEARNED = [*PAIR, "estimator", "method", "metric", "value", "n", "reason"]
Pair = tuple[str, str]


@dataclass(frozen=True)
class ScoredSplit:
    """One split of a pair, n rows: KEYS, `confidence` (n,) as Ans Avg, answer tokens, and correct (n,).

    `answers` is None if no logits are stored, because the model's weights are not available.
    """

    keys: pd.DataFrame
    confidence: np.ndarray
    answers: AnswerLogits | None
    correct: np.ndarray


class CalibrationData(NamedTuple):
    calibration: ScoredSplit
    evaluation: ScoredSplit


DataByPair = Mapping[Pair, CalibrationData]


def calibration_data(generations: pd.DataFrame, responses: pd.DataFrame) -> DataByPair:
    """Group the calibration and evaluation rows of every model and dataset.

    Parameters
    ----------
    generations : DataFrame
        As 01 stores them, with the answer tokens' logits.
    responses : DataFrame
        As `interpret_responses` returns them.

    Returns
    -------
    dict of (model, dataset) to CalibrationData
        Pairs with both splits.

    Raises
    ------
    UserError
        If no response is left.
    """
    if responses.empty:
        raise UserError(
            "no response has an answer, and `missing: drop` leaves out all others; choose last_number or zero"
        )
    kept = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    joined = generations[[*KEYS, *kept]].merge(responses, on=KEYS)
    data = {}
    for pair, rows in joined.groupby(PAIR, sort=False):
        by_split = dict(list(rows.groupby("split")))
        if len(by_split) == len(SPLITS):
            data[pair] = CalibrationData(*(_scored_split(by_split[split]) for split in SPLITS))
    return data


def _scored_split(part: pd.DataFrame) -> ScoredSplit:
    confidence = np.array([0.0 if logprobs is None else ans_avg(logprobs) for logprobs in part.answer])
    answers = AnswerLogits.of(part, part.span) if part.kept_positions.map(len).any() else None
    return ScoredSplit(part[KEYS].reset_index(drop=True), confidence, answers, part.correct.to_numpy(bool))


def fit_answers(sets: DataByPair) -> dict[Pair, dict[str, Calibrator]]:
    """Fit every method for Ans Avg, pair by pair.

    Returns
    -------
    dict of (model, dataset) to dict of method to Calibrator
        Fitted on the answer tokens if the method takes them, else on Ans Avg.
    """
    return {
        pair: {
            name: method.takes[method.of_answers]().fit(scores, rows.correct)
            for name, method in METHODS.items()
            if (scores := getattr(rows, method.of_answers)) is not None
        }
        for pair, (rows, _) in sets.items()
    }


@dataclass(frozen=True)
class Fit:
    """A calibrator of a pair, its fitting data, and its predictions on the evaluation rows.

    `estimator` is "ans" for a calibrator of answer tokens, which serves both answer estimators. `kind` is its kind of
    input (`Method.takes`).
    """

    pair: Pair
    estimator: str
    method: Method
    kind: str
    calibrator: Calibrator
    fitted_on: Any  # scores (n,), or the answer tokens
    evaluated: pd.DataFrame  # KEYS, estimator, confidence, correct, method


def calibrate(
    confidence: pd.DataFrame,
    sets: DataByPair,
    fitted: Mapping[Pair, Mapping[str, Calibrator]],
) -> tuple[pd.DataFrame, pd.DataFrame, list[Fit]]:
    """Calibrate every estimator by every method.

    Parameters
    ----------
    confidence : DataFrame
        As `confidence_frame` returns it.
    sets : dict
        As `calibration_data` returns it.
    fitted : dict
        As `fit_answers` returns it.

    Returns
    -------
    calibrated : DataFrame
        Evaluation rows with a column `method`; raw scores first (method "").
    learned : DataFrame
        Metric t, a or b of every calibrator, from n calibration rows. A calibrator without numbers but with a note has
        a row with metric "" and the note as `reason`.
    fits : list of Fit
    """
    fits: list[Fit] = []
    for pair, part in confidence.groupby(PAIR, sort=False):
        for _, rows in part.groupby("estimator", sort=False):
            splits = [rows[rows.split == split] for split in SPLITS]
            if all(map(len, splits)):
                fits += _on_scores(pair, splits[0], splits[1])
        if pair in sets:
            fits += _on_answers(pair, *sets[pair], fitted.get(pair, {}))
    raw = confidence[confidence.split == "evaluation"].assign(method="")
    calibrated = pd.concat([raw, *(fit.evaluated for fit in fits)], ignore_index=True)
    learned = pd.DataFrame([row for fit in fits for row in _learned(fit)], columns=LEARNED)
    return calibrated.drop(columns="margin", errors="ignore"), learned.astype({"value": "Float64"}), fits


def _learned(fit: Fit) -> Iterator[tuple]:
    """Yield the rows of LEARNED."""
    calibrator = fit.calibrator
    for metric, value in (calibrator.learned or ({"": None} if calibrator.note else {})).items():
        yield *fit.pair, fit.estimator, fit.method.name, metric, value, calibrator.n_rows_, calibrator.note


def _on_scores(pair: Pair, calibration: pd.DataFrame, evaluation: pd.DataFrame) -> Iterator[Fit]:
    """Fit the methods that take an estimator's confidence, or its margin if every row has one."""
    for method in METHODS.values():
        for kind in [kind for kind in ("confidence", "margin") if kind in method.takes and kind in calibration]:
            scores, new = calibration[kind], evaluation[kind]
            if not (scores.isna().any() or new.isna().any()):
                calibrator = method.takes[kind]().fit(scores.to_numpy(), calibration.correct)
                made = evaluation.assign(method=method.name, confidence=calibrator.predict(new.to_numpy()))
                yield Fit(pair, evaluation.estimator.iloc[0], method, kind, calibrator, scores.to_numpy(), made)


def _on_answers(
    pair: Pair, calibration: ScoredSplit, evaluation: ScoredSplit, fitted: Mapping[str, Calibrator]
) -> Iterator[Fit]:
    """Apply the fitted methods of the answer tokens to both answer estimators."""
    for name, method in METHODS.items():
        if "answers" in method.takes and evaluation.answers is not None:
            rows = evaluation.keys.assign(correct=evaluation.correct, method=name)
            made = [
                rows.assign(estimator=estimator, confidence=fitted[name].predict(evaluation.answers, joint))
                for estimator, joint in ANSWER_ESTIMATORS.items()
            ]
            yield Fit(pair, "ans", method, "answers", fitted[name], calibration.answers, pd.concat(made))


def token_signals(sets: DataByPair) -> pd.DataFrame:
    """Return the estimators' signals of the answer tokens: KEYS, `answer_margin` and `answer_entropy`.

    Each signal is (m,), or None for a row without answer tokens.
    """
    parts = [pd.DataFrame(columns=[*KEYS, "answer_margin", "answer_entropy"])]
    for rows in (rows for pair in sets.values() for rows in pair):
        if (answers := rows.answers) is not None:
            margins, entropies = (
                pd.Series(answers.by_row(values), dtype=object) for values in (answers.margins(), answers.entropies())
            )
            parts.append(rows.keys.assign(answer_margin=margins, answer_entropy=entropies))
    return pd.concat(parts[1:] or parts, ignore_index=True)
