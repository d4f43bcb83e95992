"""Fit calibrators to a run's frames, one per method and model-dataset pair, apply them to the
pair's own evaluation rows, and keep them as files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import store
from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrators import ANSWER_ESTIMATORS, METHODS, Calibrator, Method
from lib.files import digest, parse_json, read_bytes, write_text
from lib.paths import UserError, check_choice, first_line, relative_path
from lib.score.estimators import ans_avg
from lib.score.evaluation import RESULT_KEYS
from lib.store import KEYS, PAIR, SCORE_CELL, calibration_rows, evaluation_rows

SPLITS = ("calibration", "evaluation")
Pair = tuple[str, str]

# ---- calibration and evaluation rows


@dataclass(frozen=True)
class ScoredSplit:
    """One split of a pair, n rows: KEYS, `confidence` (n,) as Ans Avg, answer tokens, and correct
    (n,).

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
    """Group the calibration and evaluation rows of every model and dataset that has both splits.

    Parameters
    ----------
    generations : as 01 stores them, with the answer tokens' logits
    responses : as `interpret_responses` returns them

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
    """Return rows of one split with their Ans Avg (0 without an answer) and the logits of their
    answers."""
    confidence = np.array(
        [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    )
    answers = AnswerLogits.of(rows, rows.span) if rows.kept_positions.map(len).any() else None
    return ScoredSplit(
        rows[KEYS].reset_index(drop=True), confidence, answers, rows.correct.to_numpy(bool)
    )


def token_signals(sets: DataByPair) -> pd.DataFrame:
    """Return the estimators' signals of the answer tokens: KEYS, `answer_margin` and
    `answer_entropy`, (m,) each, or None for a row without answer tokens."""
    parts = [pd.DataFrame(columns=KEYS)]
    for rows in chain(*sets.values()):
        if rows.answers is not None:
            margins, entropies = map(
                rows.answers.by_row, (rows.answers.margins(), rows.answers.entropies())
            )
            parts.append(rows.keys.assign(answer_margin=margins, answer_entropy=entropies))
    return pd.concat(parts, ignore_index=True)


# ---- fitting


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


# ---- files: self-contained JSON, with exact float64 round trips


def save_calibrators(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Write each calibrator to
    artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json.

    Return a frame with model, dataset, estimator, calibrator, rows and file.
    """
    written = []
    for fit in fits:
        who = [*fit.pair, fit.estimator, type(fit.calibrator).__name__.lower()]
        path = store.frame_path(run, "calibrators", "__".join(who)).with_suffix(".json")
        text = json.dumps(calibrator_record(fit), indent=1, sort_keys=True) + "\n"
        write_text(path, text)
        written.append((*who, fit.calibrator.n_rows_, path.name))
    return pd.DataFrame(written, columns=[*SCORE_CELL, "calibrator", "rows", "file"])


def calibrator_record(fit: Fit, **facts: Any) -> dict[str, Any]:
    """Return the contents of a file, with further `facts`."""
    model, dataset = fit.pair
    record = {"model": model, "dataset": dataset, "estimator": fit.estimator, "method": fit.method.name,
              "input": fit.kind, "attributes": vars(fit.calibrator), **facts}  # fmt: skip
    try:
        record = json.loads(
            json.dumps(record, allow_nan=False, default=lambda value: value.tolist())
        )
    except (AttributeError, ValueError) as error:
        raise UserError(
            f"the calibrator {fit.method.name} can't be kept as a file: {first_line(error)}"
        ) from None
    return record | {"sha256": digest([record])}


def read_calibrator_record(path: Path) -> dict[str, Any]:
    """Return the contents of a file, which `calibrator_record` made. Raise UserError as
    `load_calibrator`."""
    where = relative_path(path)
    record = parse_json(read_bytes(path), where)
    if not isinstance(record, dict) or record.pop("sha256", None) != digest([record]):
        raise UserError(f"{where} is not a calibrator, or was modified: remove it and run 09 again")
    return record


def load_calibrator(path: Path | str) -> Calibrator:
    """Load a calibrator from its JSON file.

    Returns
    -------
    Calibrator
        Ready to `predict` from the file's kind of input: scores, margins or answer tokens.

    Raises
    ------
    UserError
        If the file is missing or modified, or its method is not declared.
    """
    record = read_calibrator_record(Path(path))
    method = METHODS[check_choice("method", record["method"], METHODS)]
    calibrator = method.inputs[record["input"]]()
    for name, value in record["attributes"].items():
        setattr(calibrator, name, np.asarray(value) if isinstance(value, list) else value)
    return calibrator
