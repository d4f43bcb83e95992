"""Interpret stored responses under a run's choices: correctness, the tokens that count, and their
probabilities.

This covers every choice that the paper leaves open and that needs no new generation
(`params.EvaluationChoices`). A run interprets its responses once; all later steps use the frame
from `interpret_responses`.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.params import EvaluationChoices
from lib.store import KEYS, PAIR, evaluation_rows
from lib.tasks.answers import (
    MARK,
    Span,
    answer_span,
    answer_start_char,
    grade,
    has_answer,
    unread_line,
)


class InterpretedRow(NamedTuple):
    """A response under a run's choices; `interpret_responses` describes the fields."""

    parsed: bool
    correct: bool
    response: np.ndarray
    answer: np.ndarray | None
    span: Span | None


def interpret_responses(
    generations: pd.DataFrame, choices: EvaluationChoices = EvaluationChoices()
) -> pd.DataFrame:
    """Grade stored responses and select the tokens that count, under a run's choices.

    Parameters
    ----------
    generations : DataFrame
        A row per response, as stored by 01.
    choices : EvaluationChoices
        The choices: grader, treatment of missing answers, which probabilities count.

    Returns
    -------
    DataFrame
        KEYS; `parsed`, whether an answer was found; `correct`; `response` (n,) and `answer` (m,),
        natural log-probabilities of the tokens for sequence and answer estimators; `span`, the
        position of the answer's tokens. For rows without an answer, `missing: zero` sets `answer`
        and `span` to None, so that `confidence_frame` gives every estimator 0, and `missing: drop`
        omits the row.
    """
    rows = [interpret_row(row, choices) for row in generations.itertuples(index=False)]
    columns = {"parsed": bool, "correct": bool} | dict.fromkeys(
        ("response", "answer", "span"), object
    )
    read = pd.DataFrame(rows, columns=list(columns), dtype=object).astype(columns)
    responses = pd.concat([generations[KEYS].reset_index(drop=True), read], axis=1)
    if choices.missing == "drop":
        responses = responses[responses.parsed].reset_index(drop=True)
    return responses


def interpret_row(row: Any, choices: EvaluationChoices) -> InterpretedRow:
    """Return the columns of `interpret_responses` for a generations row."""
    name = {"model": "token_logprobs", "sampling": "token_logprobs_sampling"}[choices.logprobs_from]
    logprobs = np.asarray(getattr(row, name), dtype=np.float64)
    parsed = has_answer(row)
    correct = parsed and grade(row.answer, row.reference, choices.grader)
    span = None if choices.missing == "zero" and not parsed else answer_span(row)
    answer = None if span is None else logprobs[slice(*span)]
    response = select_sequence_tokens(row, logprobs, choices)
    return InterpretedRow(parsed, correct, response, answer, span)


def select_sequence_tokens(
    row: Any, logprobs: np.ndarray, choices: EvaluationChoices
) -> np.ndarray:
    """Return the log-probabilities (n,) for the sequence estimators.

    The end token is no part of them. If no token would be left, the thinking is kept, then the end
    token.
    """
    start = 0 if choices.include_thinking else int(row.thinking_end)
    end = len(logprobs) - int(row.eos)
    for part in (logprobs[start:end], logprobs[:end]):
        if part.size:
            return part
    return logprobs


def answer_coverage(generations: pd.DataFrame) -> pd.DataFrame:
    """Count by pair the evaluation rows without an answer, or not read to their end.

    Returns
    -------
    DataFrame
        model, dataset, `rows`, and shares of them: `unparsed` (no answer found), `cut` (by the
        length limit), `unclosed` (thinking that never ended).
    """
    part = evaluation_rows(generations)
    rows = list(part.itertuples(index=False))
    columns = {
        "unparsed": [not has_answer(row) for row in rows],
        "cut": part.finish_reason == "length",
        "unclosed": [row.thinking_end > len(row.token_logprobs) - row.eos for row in rows],
    }
    shares = part[PAIR].assign(rows=1, **columns).groupby(PAIR, sort=False)
    return shares.agg({"rows": "sum"} | dict.fromkeys(columns, "mean")).reset_index()


def describe_unread_lines(generations: pd.DataFrame) -> str:
    """Say how many responses have a last line with `####` that is not read, with the first three.

    Only stored texts count. The result is empty if there are none.
    """
    rows = generations[generations.text.notna()]
    if rows.empty:
        return ""
    unread = []
    for row in rows.itertuples():
        thinking = row.thinking_end > 0
        line = unread_line(row.text, answer_start_char(row.text, thinking))
        if line is not None:
            unread.append(line)
    first = ", ".join(f"{line[:60]!r}" for line in unread[:3])
    count = (
        f"In {len(unread)} of {len(rows)} responses, what follows `{MARK}` is not read as a number"
    )
    return f"{count}, as in {first}." if unread else f"{count}."
