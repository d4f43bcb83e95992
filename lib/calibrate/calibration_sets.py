"""The calibration and evaluation rows of each model and dataset, as calibrators read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.calibrate.answer_logits import AnswerLogits
from lib.errors import UserError
from lib.score.estimators import ans_avg
from lib.store import KEYS, PAIR, calibration_rows, evaluation_rows

Pair = tuple[str, str]


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

    Examples
    --------
    Of one pair, a calibration and an evaluation row, without stored logits:

    >>> keys = {"model": "m", "dataset": "d", "split": ["calibration", "evaluation"]}
    >>> keys["example_id"] = ["a", "b"]
    >>> logits = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    >>> generations = pd.DataFrame(keys | {name: [[], []] for name in logits})
    >>> responses = pd.DataFrame(keys | {"correct": [True, False], "span": [(0, 1)] * 2})
    >>> responses["answer"] = [np.log([0.5]), np.log([0.25])]
    >>> calibration_data(generations, responses)["m", "d"].evaluation.confidence
    array([0.25])
    """
    if responses.empty:
        raise no_response_left()
    logits = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    joined = generations[[*KEYS, *logits]].merge(responses, on=KEYS)
    data = {}
    for pair, rows in joined.groupby(PAIR, sort=False):
        calibration = calibration_rows(rows)
        evaluation = evaluation_rows(rows)
        if len(calibration) and len(evaluation):
            data[pair] = CalibrationData(_scored_split(calibration), _scored_split(evaluation))
    return data


def no_response_left() -> UserError:
    """Return the error for choices under which no response counts.

    Examples
    --------
    >>> str(no_response_left()).partition(",")[0]
    'no response has an answer'
    """
    return UserError(
        "no response has an answer, and `missing: drop` leaves out all others; "
        "choose last_number or zero"
    )


def _scored_split(rows: pd.DataFrame) -> ScoredSplit:
    """Return rows of one split with their Ans Avg (0 without an answer) and the logits of their
    answers."""
    confidence = [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    has_logits = rows.kept_positions.map(len).any()
    return ScoredSplit(
        keys=rows[KEYS].reset_index(drop=True),
        confidence=np.array(confidence),
        answers=AnswerLogits.of(rows, rows.span) if has_logits else None,
        correct=rows.correct.to_numpy(bool),
    )


def token_signals(sets: DataByPair) -> pd.DataFrame:
    """Return the estimators' signals of the answer tokens: KEYS, `answer_margin` and
    `answer_entropy`, (m,) each, or None for a row without answer tokens.

    Examples
    --------
    An answer of one token, whose probability is .5 beside another of .25 and a rest of .25:

    >>> rest = np.full((1, 33), np.log(0.25 / 0.5))
    >>> answers = AnswerLogits(1, np.array([0]), np.zeros(1), np.log([[1.0, 0.5]]), rest)
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "split": "evaluation"}, index=[0])
    >>> rows = ScoredSplit(keys.assign(example_id="a"), np.array([0.5]), answers, np.array([True]))
    >>> signals = token_signals({("m", "d"): CalibrationData(rows, rows)})
    >>> signals.answer_margin[0]
    array([0.25])
    """
    parts = [pd.DataFrame(columns=KEYS)]
    for data in sets.values():
        for rows in data:
            if rows.answers is None:
                continue
            margins = rows.answers.by_row(rows.answers.margins())
            entropies = rows.answers.by_row(rows.answers.entropies())
            parts.append(rows.keys.assign(answer_margin=margins, answer_entropy=entropies))
    return pd.concat(parts, ignore_index=True)
