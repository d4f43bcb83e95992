"""Calibrators on a run's frames: rows by pair and split, every calibrator on its own pair."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import store
from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import METHODS, Calibrator, Method, calibrator_record
from lib.params import Calibration
from lib.project import UserError
from lib.score.estimators import ans_avg
from lib.store import KEYS

SPLITS = ("calibration", "evaluation")
ANSWER_ESTIMATORS = ("ans_avg", "ans_joint")  # served by what is fitted on the answer's tokens
LEARNED = ["model", "dataset", "estimator", "method", "metric", "value", "n", "reason"]
Pair = tuple[str, str]


@dataclass(frozen=True)
class ScoredSplit:
    """One split of a pair, n rows: KEYS; Ans Avg, `confidence` (n,); the tokens of the `answers`, None where no logits
    were kept, for the model is not at hand; correct (n,)."""

    keys: pd.DataFrame
    confidence: np.ndarray
    answers: AnswerLogits | None
    correct: np.ndarray


class CalibrationData(NamedTuple):
    calibration: ScoredSplit
    evaluation: ScoredSplit


DataByPair = Mapping[Pair, CalibrationData]


def calibration_data(generations: pd.DataFrame, responses: pd.DataFrame) -> DataByPair:
    """Pair the calibration and the evaluation rows of every model and dataset.

    Parameters
    ----------
    generations : DataFrame
        As 01 stores them; it holds the answer tokens' logits.
    responses : DataFrame
        As `interpret_responses` returns them.

    Returns
    -------
    dict of (model, dataset) to CalibrationData
        Pairs that have both splits.

    Raises
    ------
    UserError
        Where no response is left.
    """
    if responses.empty:
        raise UserError("no response has an answer, and `missing: drop` leaves out all others; "
                        "choose last_number or zero")  # fmt: skip
    kept = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    joined = generations[[*KEYS, *kept]].merge(responses, on=KEYS)
    rows = {pair: score_splits(part) for pair, part in joined.groupby(KEYS[:2], sort=False)}
    return {pair: CalibrationData(**parts) for pair, parts in rows.items() if len(parts) == len(SPLITS)}


def score_splits(joined: pd.DataFrame) -> dict[str, ScoredSplit]:
    """The rows of one pair by split."""
    rows = {}
    for split, part in joined.groupby("split", sort=False):
        confidence = np.array([0.0 if logprobs is None else ans_avg(logprobs) for logprobs in part.answer])
        answers = AnswerLogits.of(part, part.span) if part.kept_positions.map(len).any() else None
        rows[str(split)] = ScoredSplit(
            part[KEYS].reset_index(drop=True), confidence, answers, part.correct.to_numpy(bool)
        )
    return rows


def fit_answers(sets: DataByPair, choices: Calibration = Calibration()) -> dict[Pair, dict[str, Calibrator]]:  # noqa: B008
    """Fit every method for Ans Avg, pair by pair.

    Returns
    -------
    dict of (model, dataset) to dict of method to Calibrator
        Fitted on the answer's tokens where the method takes these, else on Ans Avg.
    """
    fitted: dict[Pair, dict[str, Calibrator]] = {}
    for pair, (calibration, _) in sets.items():
        fitted[pair] = {}
        for name, method in METHODS.items():
            if (scores := getattr(calibration, method.of_answers)) is not None:
                calibrator = method.make(method.of_answers, choices)
                fitted[pair][name] = calibrator.fit(scores, calibration.correct)
    return fitted


@dataclass(frozen=True)
class Fit:
    """A calibrator of a pair, what it was fitted on, and what it makes of the evaluation rows. `estimator` is "ans" for
    one of the answer's tokens, which serves both answer estimators; `kind` what it takes (`Method.takes`)."""

    pair: Pair
    estimator: str
    method: Method
    kind: str
    calibrator: Calibrator
    fitted_on: Any  # scores (n,), or the answer's tokens
    evaluated: pd.DataFrame  # KEYS, estimator, confidence, correct, method


def calibrate(
    confidence: pd.DataFrame,
    sets: DataByPair,
    fitted: Mapping[Pair, Mapping[str, Calibrator]],
    choices: Calibration = Calibration(),  # noqa: B008  frozen
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Calibrate every estimator by every method.

    Parameters
    ----------
    confidence, sets, fitted, choices
        As for `fit_all`.

    Returns
    -------
    calibrated : DataFrame
        Evaluation rows with a column `method`; raw scores first (method "").
    learned : DataFrame
        What each calibrator learned, as `learned_parameters` returns it.
    """
    fits = fit_all(confidence, sets, fitted, choices)
    return apply_fits(confidence, fits), learned_parameters(fits)


def fit_all(
    confidence: pd.DataFrame,
    sets: DataByPair,
    fitted: Mapping[Pair, Mapping[str, Calibrator]],
    choices: Calibration = Calibration(),  # noqa: B008  frozen
) -> list[Fit]:
    """Fit every method to every estimator, and apply it to the evaluation rows.

    Parameters
    ----------
    confidence : DataFrame
        As `confidence_frame` returns it.
    sets : dict
        As `calibration_data` returns it.
    fitted : dict
        As `fit_answers` returns it: calibrators of the answer's tokens.
    choices : Calibration

    Returns
    -------
    list of Fit
    """
    fits: list[Fit] = []
    for pair, part in confidence.groupby(["model", "dataset"], sort=False):
        calibration, evaluation = (dict(list(part[part.split == split].groupby("estimator", sort=False)))
                                   for split in SPLITS)  # fmt: skip
        for name in part.estimator.unique():
            if name in calibration and name in evaluation:
                fits += _on_scores(pair, calibration[name], evaluation[name], choices)
        if pair in sets:
            fits += _on_answers(pair, sets[pair], fitted.get(pair, {}))
    return fits


def apply_fits(confidence: pd.DataFrame, fits: Iterable[Fit]) -> pd.DataFrame:
    """The evaluation rows, raw ones (method "") first."""
    frames = [confidence[confidence.split == "evaluation"].assign(method=""), *(fit.evaluated for fit in fits)]
    return pd.concat(frames, ignore_index=True).drop(columns="margin", errors="ignore")


def learned_parameters(fits: Iterable[Fit]) -> pd.DataFrame:
    """What was learned, tidy: LEARNED, metric t, a or b, of n calibration rows."""
    rows: dict[tuple, tuple[float | None, int, str]] = {}
    for fit in fits:
        for metric, value in _reported(fit.calibrator).items():
            rows[*fit.pair, fit.estimator, fit.method.name, metric] = (
                value, fit.calibrator.n_rows_, fit.calibrator.note)  # fmt: skip
    table = pd.DataFrame([(*key, *values) for key, values in rows.items()], columns=LEARNED)
    return table.astype({"value": "Float64"})


def _reported(calibrator: Calibrator) -> dict[str, float | None]:
    """What a calibrator learned by its symbol; of one that learns no number its note, if any, under the symbol ""."""
    if not calibrator.learned and calibrator.note:
        return {"": None}
    return calibrator.learned


def _on_scores(pair: Pair, calibration: pd.DataFrame, evaluation: pd.DataFrame, choices: Calibration
               ) -> Iterator[Fit]:  # fmt: skip
    """The methods that take an estimator's confidence, or its margin where every row has one."""
    for method in METHODS.values():
        for kind in ("confidence", "margin"):
            if kind not in method.takes or kind not in calibration:
                continue
            if calibration[kind].isna().any() or evaluation[kind].isna().any():
                continue
            scores = calibration[kind].to_numpy()
            calibrator = method.make(kind, choices).fit(scores, calibration.correct)
            made = evaluation.assign(method=method.name, confidence=calibrator.predict(evaluation[kind].to_numpy()))
            yield Fit(pair, evaluation.estimator.iloc[0], method, kind, calibrator, scores, made)


def _on_answers(pair: Pair, sets: CalibrationData, fitted: Mapping[str, Calibrator]) -> Iterator[Fit]:
    """The methods that take the answer's tokens: fitted once, applied to both answer estimators."""
    new = sets.evaluation
    for method in METHODS.values():
        if "answers" in method.takes and new.answers is not None:
            calibrator, parts = fitted[method.name], []
            for name in ANSWER_ESTIMATORS:
                scores = calibrator.predict(new.answers, joint=name == "ans_joint")
                columns: dict[str, Any] = {"estimator": name, "confidence": scores, "correct": new.correct}
                parts.append(new.keys.assign(**columns, method=method.name))
            made = pd.concat(parts, ignore_index=True)
            yield Fit(pair, "ans", method, "answers", calibrator, sets.calibration.answers, made)


def save_calibrators(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Every calibrator as artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json; what was
    written: model, dataset, estimator, calibrator, rows, file (or why there is none)."""
    written = []
    for fit in fits:
        name = type(fit.calibrator).__name__.lower()
        path = store.frame_path(run, "calibrators", "__".join([*fit.pair, fit.estimator, name])).with_suffix(".json")
        about = {"model": fit.pair[0], "dataset": fit.pair[1], "estimator": fit.estimator}
        try:
            record = calibrator_record(fit.calibrator, fit.method, fit.kind, fit.fitted_on, **about)
            text = json.dumps(record, indent=1, sort_keys=True) + "\n"
            store.write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            said = path.name
        except UserError as error:
            said = str(error)
        written.append((*about.values(), name, fit.calibrator.n_rows_, said))
    return pd.DataFrame(written, columns=["model", "dataset", "estimator", "calibrator", "rows", "file"])


def token_signals(sets: DataByPair) -> pd.DataFrame:
    """What was kept at the answer's tokens, as signals of estimators: KEYS, `answer_margin`, `answer_entropy`, each
    (m,) or None."""
    parts = []
    for rows in (rows for pair in sets.values() for rows in pair):
        if (answers := rows.answers) is None:
            continue
        signals = {"answer_margin": answers.margins(), "answer_entropy": answers.entropies()}
        columns = {name: pd.Series(answers.by_row(values), dtype=object) for name, values in signals.items()}
        parts.append(rows.keys.assign(**columns))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*KEYS, "answer_margin",
                                                                                   "answer_entropy"])  # fmt: skip
