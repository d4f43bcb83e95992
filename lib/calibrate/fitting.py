"""Calibrators on a run's frames: rows by pair and split, every calibrator on its own pair, reliability diagrams."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import METHODS, Calibrator, Method
from lib.params import Calibration
from lib.score.estimators import ans_avg
from lib.score.metrics import reliability_bins
from lib.store import KEYS

SPLITS = ("calibration", "evaluation")
ANSWER_ESTIMATORS = ("ans_avg", "ans_joint")  # served by what is fitted on the answer's tokens
LEARNED = ["model", "dataset", "estimator", "method", "metric", "value", "n", "reason"]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Rows:
    """One split of a pair, n rows: KEYS; Ans Avg, `confidence` (n,); the tokens of the `answers`; correct (n,)."""

    keys: pd.DataFrame
    confidence: np.ndarray
    answers: AnswerLogits
    correct: np.ndarray


class Splits(NamedTuple):
    calibration: Rows
    evaluation: Rows


Sets = Mapping[Pair, Splits]


def splits(generations: pd.DataFrame, responses: pd.DataFrame) -> Sets:
    """Both splits of every pair that has both; `responses` are the generations as `reading.read` returns them."""
    kept = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    joined = generations[[*KEYS, *kept]].merge(responses, on=KEYS)
    rows = {pair: split_rows(part) for pair, part in joined.groupby(KEYS[:2], sort=False)}
    return {pair: Splits(**parts) for pair, parts in rows.items() if len(parts) == len(SPLITS)}


def split_rows(joined: pd.DataFrame) -> dict[str, Rows]:
    """The rows of one pair by split."""
    rows = {}
    for split, part in joined.groupby("split", sort=False):
        confidence = np.array([0.0 if logprobs is None else ans_avg(logprobs) for logprobs in part.answer])
        answers = AnswerLogits.of(part, part.span)
        rows[str(split)] = Rows(part[KEYS].reset_index(drop=True), confidence, answers, part.correct.to_numpy(bool))
    return rows


def fit_answers(sets: Sets, choices: Calibration = Calibration()) -> dict[Pair, dict[str, Calibrator]]:  # noqa: B008
    """Every method fitted for the answer's tokens of every pair: on the tokens themselves, or on Ans Avg."""
    fitted: dict[Pair, dict[str, Calibrator]] = {}
    for pair, (calibration, _) in sets.items():
        fitted[pair] = {}
        for name, method in METHODS.items():
            calibrator = method.make(method.of_answers, choices)
            fitted[pair][name] = calibrator.fit(getattr(calibration, method.of_answers), calibration.correct)
    return fitted


def calibrate(
    confidence: pd.DataFrame,
    sets: Sets,
    fitted: Mapping[Pair, Mapping[str, Calibrator]],
    choices: Calibration = Calibration(),  # noqa: B008  frozen
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every method on what it takes: confidence of every estimator, a `margin` where there is one, the answer's tokens
    (whose estimator is called "ans" below): fitted on calibration rows (for the answer's tokens, `fitted` as
    `fit_answers` returns it), applied to evaluation rows.

    Returns the evaluation rows, raw ones (method "") first, and what was learned, tidy: LEARNED, metric t, a or b, of n
    calibration rows.
    """
    frames = [confidence[confidence.split == "evaluation"].assign(method="")]
    learned: dict[tuple, tuple[float | None, int, str]] = {}
    for pair, part in confidence.groupby(["model", "dataset"], sort=False):
        for estimator, method, calibrator, rows in _fitted(part, sets.get(pair), fitted.get(pair, {}), choices):
            frames.append(rows)
            for metric, value in _reported(calibrator).items():
                learned[*pair, estimator, method.name, metric] = (value, calibrator.n_rows_, calibrator.note)
    table = pd.DataFrame([(*key, *values) for key, values in learned.items()], columns=LEARNED)
    calibrated = pd.concat(frames, ignore_index=True).drop(columns="margin", errors="ignore")
    return calibrated, table.astype({"value": "Float64"})


def _reported(calibrator: Calibrator) -> dict[str, float | None]:
    """What a calibrator learned by its symbol; of one that learns no number its note, if any, under the symbol ""."""
    if not calibrator.learned and calibrator.note:
        return {"": None}
    return calibrator.learned


Fitted = Iterator[tuple[str, Method, Calibrator, pd.DataFrame]]


def _fitted(part: pd.DataFrame, pair: Splits | None, on_answers: Mapping[str, Calibrator], choices: Calibration
            ) -> Fitted:  # fmt: skip
    """Every calibrator of a pair, with the estimator and method it serves and its predictions on evaluation rows."""
    for _, group in part.groupby("estimator", sort=False):
        calibration, evaluation = (group[group.split == split] for split in SPLITS)
        if not calibration.empty and not evaluation.empty:
            yield from _on_scores(calibration, evaluation, choices)
    if pair is not None:
        yield from _on_answers(pair.evaluation, on_answers)


def _on_scores(calibration: pd.DataFrame, evaluation: pd.DataFrame, choices: Calibration) -> Fitted:
    """The methods that take an estimator's confidence, or its margin where every row has one."""
    estimator = evaluation.estimator.iloc[0]
    for method in METHODS.values():
        for kind in ("confidence", "margin"):
            if kind not in method.takes or kind not in calibration:
                continue
            if calibration[kind].isna().any() or evaluation[kind].isna().any():
                continue
            calibrator = method.make(kind, choices).fit(calibration[kind].to_numpy(), calibration.correct)
            scores = calibrator.predict(evaluation[kind].to_numpy())
            yield estimator, method, calibrator, evaluation.assign(method=method.name, confidence=scores)


def _on_answers(evaluation: Rows, fitted: Mapping[str, Calibrator]) -> Fitted:
    """The methods that take the answer's tokens: fitted once, applied to both answer estimators."""
    for method in METHODS.values():
        if "answers" in method.takes:
            calibrator = fitted[method.name]
            for name in ANSWER_ESTIMATORS:
                scores = calibrator.predict(evaluation.answers, joint=name == "ans_joint")
                columns: dict[str, Any] = {"estimator": name, "confidence": scores, "correct": evaluation.correct}
                yield "ans", method, calibrator, evaluation.keys.assign(**columns, method=method.name)


def maps(confidence: pd.DataFrame, sets: Sets, fitted: Mapping[Pair, Mapping[str, Calibrator]], pair: Pair,
         choices: Calibration = Calibration()) -> pd.DataFrame:  # noqa: B008  frozen  # fmt: skip
    """What is drawn of the calibrators of one pair, for Ans Avg and P(True): estimator, method, score, calibrated, and
    correct (of calibration rows, else missing). Of a method that maps scores, calibrated ones on 201 scores, even in
    the log-odds, from the least to the largest; of one that takes the answer's tokens, those of the calibration rows.
    Method "" are these rows themselves."""
    parts, own = [], confidence[(confidence.model == pair[0]) & (confidence.dataset == pair[1])]
    for estimator in ("ans_avg", "p_true"):
        rows = own[(own.estimator == estimator) & (own.split == "calibration")]
        if rows.empty:
            continue
        score, correct = rows.confidence.to_numpy(), rows.correct.to_numpy(bool)
        odds = logit(np.clip(score, 1e-9, 1 - 1e-9))
        even = np.linspace(odds.min(), odds.max(), 201)
        isotonic = METHODS["isotonic"].make("confidence", choices).fit(score, correct).predict(expit(even))
        drawn = {"": (score, score, correct), "isotonic": (expit(even), isotonic, None)}
        if estimator == "ans_avg":
            tokens = sets[pair].calibration
            drawn["platt"] = (tokens.confidence, fitted[pair]["platt"].predict(tokens.answers), tokens.correct)
        else:
            platt = METHODS["platt"].make("margin", choices).fit(rows.margin.to_numpy(float), correct)
            drawn["platt"] = (expit(even), platt.predict(even), None)
        for method, (x, y, right) in drawn.items():
            known = pd.array([pd.NA] * len(x) if right is None else right, dtype="boolean")
            columns = {"estimator": estimator, "method": method, "score": x, "calibrated": y, "correct": known}
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def reliability(
    calibrated: pd.DataFrame, model: str, dataset: str, n_bins: int = 10, closed: str = "right",
    estimator: str = "ans_avg",
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Reliability diagram of an estimator on one pair, by method."""
    here = calibrated[(calibrated[["model", "dataset", "estimator"]] == [model, dataset, estimator]).all(axis=1)]
    groups = here.groupby("method", sort=False)
    return {how: reliability_bins(part.confidence, part.correct, n_bins, closed).frame() for how, part in groups}
