"""Fit calibrators to a run's frames, one per method and model-dataset pair, and apply them.

They are applied to the pair's own evaluation rows, or to those of other pairs (`tab:calibration_transfer_full`)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import ANSWER_ESTIMATORS, METHODS, Calibrator, Method
from lib.paths import UserError
from lib.score.bootstrap import RESULT_KEYS
from lib.score.estimators import ans_avg
from lib.score.metrics import METRICS
from lib.store import KEYS, PAIR

SPLITS = ("calibration", "evaluation")
SOURCE = ["source_model", "source_dataset"]
Pair = tuple[str, str]

# ---- calibration and evaluation rows


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
            data[pair] = CalibrationData(*(scored_split(by_split[split]) for split in SPLITS))
    return data


def scored_split(rows: pd.DataFrame) -> ScoredSplit:
    """Return rows of one split with their Ans Avg (0 without an answer) and the logits of their answers."""
    confidence = np.array([0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer])
    answers = AnswerLogits.of(rows, rows.span) if rows.kept_positions.map(len).any() else None
    return ScoredSplit(rows[KEYS].reset_index(drop=True), confidence, answers, rows.correct.to_numpy(bool))


def token_signals(sets: DataByPair) -> pd.DataFrame:
    """Return the estimators' signals of the answer tokens: KEYS, `answer_margin` and `answer_entropy`.

    Each signal is (m,), or None for a row without answer tokens.
    """
    parts = [pd.DataFrame(columns=[*KEYS, "answer_margin", "answer_entropy"])]
    for rows in (rows for pair in sets.values() for rows in pair):
        if (answers := rows.answers) is not None:
            signals = {"answer_margin": answers.margins(), "answer_entropy": answers.entropies()}
            by_row = {name: pd.Series(answers.by_row(values), dtype=object) for name, values in signals.items()}
            parts.append(rows.keys.assign(**by_row))
    return pd.concat(parts[1:] or parts, ignore_index=True)


# ---- fitting


class Fit(NamedTuple):
    """A calibrator of a pair.

    `estimator` is "ans" for a calibrator of answer tokens, which serves both answer estimators. `kind` is its kind of
    input (`Method.inputs`).
    """

    pair: Pair
    estimator: str
    method: Method
    kind: str
    calibrator: Calibrator

    @property
    def is_of_ans_avg(self) -> bool:
        """Whether it is the method's calibrator of Ans Avg: of the answer tokens, if the method takes them."""
        return self.estimator == ("ans" if self.method.answer_input == "answers" else "ans_avg")


def calibrate(confidence: pd.DataFrame, sets: DataByPair) -> tuple[pd.DataFrame, pd.DataFrame, list[Fit]]:
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
        Metric t, a or b of every calibrator, from n calibration rows. A calibrator without numbers but with a note has
        a row with metric "" and the note as `reason`.
    fits : list of Fit
    """
    made: list[tuple[Fit, pd.DataFrame]] = []
    for pair, part in confidence.groupby(PAIR, sort=False):
        for estimator, rows in part.groupby("estimator", sort=False):
            made += fit_on_scores(pair, estimator, rows)
        if pair in sets:
            made += fit_on_answers(pair, *sets[pair])
    raw, fits = confidence[confidence.split == "evaluation"].assign(method=""), [fit for fit, _ in made]
    calibrated = pd.concat([raw, *(rows for _, rows in made)], ignore_index=True)
    return calibrated.drop(columns="margin", errors="ignore"), learned_numbers(fits), fits


def fit_on_scores(pair: Pair, estimator: str, rows: pd.DataFrame) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take an estimator's confidence, or its margin if every row has one, with its calibrated
    evaluation rows."""
    calibration, evaluation = (rows[rows.split == split] for split in SPLITS)
    for method, kind in product(METHODS.values(), ("confidence", "margin")):
        there = kind in rows and rows[kind].notna().all() and len(calibration) and len(evaluation)
        if kind in method.inputs and there:
            calibrator = method.inputs[kind]().fit(calibration[kind], calibration.correct)
            confidence = calibrator.predict(evaluation[kind])
            yield (
                Fit(pair, estimator, method, kind, calibrator),
                evaluation.assign(method=method.name, confidence=confidence),
            )


def fit_on_answers(pair: Pair, calibration: ScoredSplit, evaluation: ScoredSplit) -> Iterator[tuple[Fit, pd.DataFrame]]:
    """Fit the methods that take the answer tokens, for both answer estimators."""
    if calibration.answers is None or evaluation.answers is None:
        return
    for method in [method for method in METHODS.values() if "answers" in method.inputs]:
        calibrator = method.inputs["answers"]().fit(calibration.answers, calibration.correct)
        rows = evaluation.keys.assign(correct=evaluation.correct, method=method.name)
        calibrated = [
            rows.assign(estimator=estimator, confidence=calibrator.predict(evaluation.answers, joint))
            for estimator, joint in ANSWER_ESTIMATORS.items()
        ]
        yield Fit(pair, "ans", method, "answers", calibrator), pd.concat(calibrated)


def learned_numbers(fits: Iterable[Fit]) -> pd.DataFrame:
    """Return the table `learned` of `calibrate`."""
    rows: list[tuple] = []
    for fit in fits:
        key, note = (*fit.pair, fit.estimator, fit.method.name), fit.calibrator.note_
        numbers = fit.calibrator.learned or ({"": None} if note else {})
        rows += [(*key, metric, value, fit.calibrator.n_rows_, note) for metric, value in numbers.items()]
    return pd.DataFrame(rows, columns=[*RESULT_KEYS, "value", "n", "reason"]).astype({"value": "Float64"})


# ---- transfer of Ans Avg's calibrators (Finding 4)


def transfer(sets: DataByPair, fits: Iterable[Fit], n_bins: int = 10) -> pd.DataFrame:
    """Apply calibrators of Ans Avg that were fitted on one pair to every pair.

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    fits : iterable of Fit
        As `calibrate` returns them.
    n_bins
        As for `ece`.

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score), method, metric (ece,
        mce, brier, and `delta_ece` against the raw score), value, n.
    """
    rows: list[tuple] = []
    for target, (_, new) in sets.items():
        for key, scores in scores_by_source(new, fits).items():
            values = {name: METRICS[name](scores, new.correct, n_bins) for name in ("ece", "mce", "brier")}
            values["delta_ece"] = values["ece"] - METRICS["ece"](new.confidence, new.correct, n_bins)
            rows += [(*target, *key, metric, value, len(scores)) for metric, value in values.items()]
    return pd.DataFrame(rows, columns=[*PAIR, *SOURCE, "method", "metric", "value", "n"])


def scores_by_source(new: ScoredSplit, fits: Iterable[Fit]) -> pd.DataFrame:
    """Return Ans Avg of evaluation rows, raw and calibrated by every pair's calibrators.

    The frame has a row per example_id and a column per (source_model, source_dataset, method). The raw score comes
    first, with empty names.
    """
    scores = {("", "", ""): new.confidence}
    for fit in (fit for fit in fits if fit.is_of_ans_avg):
        if (taken := getattr(new, fit.kind)) is not None:
            scores[*fit.pair, fit.method.name] = fit.calibrator.predict(taken)
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=[*SOURCE, "method"])
