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
from lib.tasks.answers import MARK, answer_span, answer_start_char, has_answer, unread_line
from lib.tasks.grading import grade
from lib.tasks.written_numbers import Span


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

    Examples
    --------
    >>> keys = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": "a"}
    >>> answer = {"answer": "18", "reference": "18", "answer_start": 1, "answer_end": 2}
    >>> tokens = {"token_logprobs": np.log([0.5, 0.25, 1]), "eos": 1, "thinking_end": 0}
    >>> number = {"last_number_start": 1, "last_number_end": 2}
    >>> responses = interpret_responses(pd.DataFrame([keys | answer | tokens | number]))
    >>> responses[["parsed", "correct", "span"]]
       parsed  correct    span
    0    True     True  (1, 2)
    >>> np.exp(responses.response[0]), np.exp(responses.answer[0])
    (array([0.5 , 0.25]), array([0.25]))
    """
    rows = [interpret_row(row, choices) for row in generations.itertuples(index=False)]
    interpreted = pd.DataFrame(rows, columns=InterpretedRow._fields, dtype=object)
    interpreted = interpreted.astype({"parsed": bool, "correct": bool})
    keys = generations[KEYS].reset_index(drop=True)
    responses = pd.concat([keys, interpreted], axis=1)
    if choices.missing == "drop":
        return responses[responses.parsed].reset_index(drop=True)
    return responses


def interpret_row(row: Any, choices: EvaluationChoices) -> InterpretedRow:
    """Return the columns of `interpret_responses` for a generations row.

    Examples
    --------
    >>> row = pd.Series({"answer": None, "answer_start": -1, "answer_end": -1, "eos": 0,
    ...     "last_number_start": -1, "last_number_end": -1, "token_logprobs": [-1, -2]})
    >>> interpret_row(row, EvaluationChoices())  # without a number, the last token counts
    InterpretedRow(parsed=False, correct=False, response=array([-1., -2.]), answer=array([-2.]), \
span=(1, 2))
    """
    name = "token_logprobs" if choices.logprobs_from == "model" else "token_logprobs_sampling"
    logprobs = np.asarray(getattr(row, name), dtype=np.float64)
    parsed = has_answer(row)
    correct = parsed and grade(row.answer, row.reference, choices.grader)
    span = answer = None
    if parsed or choices.missing != "zero":
        span = answer_span(row)
        answer = logprobs[slice(*span)]
    response = select_sequence_tokens(row, logprobs, choices)
    return InterpretedRow(parsed, correct, response, answer, span)


def select_sequence_tokens(
    row: Any, logprobs: np.ndarray, choices: EvaluationChoices
) -> np.ndarray:
    """Return the log-probabilities (n,) for the sequence estimators.

    The end token is no part of them. If no token would be left, the thinking is kept, then the end
    token.

    Examples
    --------
    >>> row = pd.Series({"thinking_end": 1, "eos": 1})
    >>> choices = EvaluationChoices(include_thinking=False)
    >>> select_sequence_tokens(row, np.array([-1, -2, -3]), choices)
    array([-2])
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

    Examples
    --------
    >>> row = {"model": "m", "dataset": "d", "split": "evaluation", "thinking_end": 0, "eos": 0}
    >>> row |= {"answer": None, "finish_reason": "length", "token_logprobs": [-1]}
    >>> answer_coverage(pd.DataFrame([row]))
      model dataset  rows  unparsed  cut  unclosed
    0     m       d     1       1.0  1.0       0.0
    """
    evaluation = evaluation_rows(generations)
    unparsed = []
    unclosed = []
    for row in evaluation.itertuples(index=False):
        unparsed.append(not has_answer(row))
        unclosed.append(row.thinking_end > len(row.token_logprobs) - row.eos)
    cut = evaluation.finish_reason == "length"
    marked = evaluation[PAIR].assign(unparsed=unparsed, cut=cut, unclosed=unclosed)
    by_pair = marked.groupby(PAIR, sort=False)
    coverage = by_pair.mean()
    coverage.insert(0, "rows", by_pair.size())
    return coverage.reset_index()


def find_unread_lines(generations: pd.DataFrame) -> pd.DataFrame:
    """Return for each response whose text is stored what follows `####` in its last line, if it is
    not read as a number.

    Columns: model, dataset, `line` (None where the answer is read, or without such a line).

    Examples
    --------
    >>> row = {"model": "m", "dataset": "d", "text": "#### 5 or 6", "thinking_end": 0}
    >>> find_unread_lines(pd.DataFrame([row]))
      model dataset    line
    0     m       d  5 or 6
    """
    rows = generations[generations.text.notna()]
    lines = []
    for row in rows.itertuples():
        start = answer_start_char(row.text, thinking=row.thinking_end > 0)
        lines.append(unread_line(row.text, start))
    return rows[PAIR].assign(line=pd.Series(lines, rows.index, dtype=object))


def describe_unread_lines(lines: pd.DataFrame) -> str:
    """Say how many responses have a last line with `####` that is not read, with the first three.

    `lines` are from `find_unread_lines`. The result is empty if no text is stored.

    Examples
    --------
    >>> describe_unread_lines(pd.DataFrame({"line": [None, "5 or 6"]}))
    "In 1 of 2 responses, what follows `####` is not read as a number, as in '5 or 6'."
    """
    if lines.empty:
        return ""
    unread = lines.line.dropna()
    count = f"In {len(unread)} of {len(lines)} responses"
    sentence = f"{count}, what follows `{MARK}` is not read as a number"
    if len(unread):
        first = [f"{line[:60]!r}" for line in unread[:3]]
        sentence += f", as in {', '.join(first)}"
    return f"{sentence}."
