"""Stored responses as a run's choices read them: which answer is right, which tokens count, with which probability.

Every choice that the paper leaves open and that needs no new generation is made here (`params.Reading`). A run's
responses are read once; everything after takes the frame that `interpret_responses` returns.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.params import Reading
from lib.store import KEYS
from lib.tasks.answers import GRADERS, answer_span, grade, has_answer

LOGPROBS = {"model": "token_logprobs", "sampling": "token_logprobs_sampling"}


def interpret_responses(generations: pd.DataFrame, reading: Reading = Reading()) -> pd.DataFrame:  # noqa: B008  frozen
    """Grade stored responses and pick the tokens that count, under a run's choices.

    Parameters
    ----------
    generations : DataFrame
        A row per response, as 01 stores them.
    reading : Reading
        The choices: grader, form of an answer, what stands for a missing one, whose probabilities count.

    Returns
    -------
    DataFrame
        KEYS; `parsed`, whether an answer was found; `correct`; `response` (n,) and `answer` (m,), natural
        log-probabilities of the tokens that sequence and answer estimators take; `span`, where the answer's tokens
        stand.
        Without an answer, `answer` and `span` are None where `missing` is zero; where it is drop, the row is left out.
    """
    columns: dict[str, list] = {"parsed": [], "correct": [], "response": [], "answer": [], "span": []}
    for row in generations.itertuples(index=False):
        logprobs = np.asarray(getattr(row, LOGPROBS[reading.logprobs_from]), dtype=np.float64)
        has_answer = has_accepted_answer(row, reading)
        span = None if reading.missing == "zero" and not has_answer else answer_span(row, has_answer)
        columns["parsed"].append(has_answer)
        columns["correct"].append(has_answer and grade(row.answer, row.reference, reading.grader))
        columns["response"].append(select_sequence_tokens(row, logprobs, reading))
        columns["answer"].append(None if span is None else logprobs[slice(*span)])
        columns["span"].append(span)
    types = {"parsed": bool, "correct": bool}
    series = {name: pd.Series(values, dtype=types.get(name, object)) for name, values in columns.items()}
    responses = generations[KEYS].reset_index(drop=True).assign(**series)
    if reading.missing == "drop":
        responses = responses[responses.parsed].reset_index(drop=True)
    return responses


def has_accepted_answer(row: Any, reading: Reading) -> bool:
    """Whether a generations row holds an answer, in the form that the run accepts."""
    return has_answer(row) and (reading.answer_format == "any" or bool(row.plain))


def select_sequence_tokens(row: Any, logprobs: np.ndarray, reading: Reading) -> np.ndarray:
    """What the sequence estimators see of a row's log-probabilities (n,). A choice that would leave nothing is not
    applied: first the thinking stays, then the end token."""
    start = 0 if reading.include_thinking else int(row.thinking_end)
    end = len(logprobs) if reading.include_eos else len(logprobs) - int(row.eos)
    for part in (logprobs[start:end], logprobs[:end]):
        if part.size:
            return part
    return logprobs


def answer_coverage(
    generations: pd.DataFrame,
    reading: Reading = Reading(),  # noqa: B008  frozen
    split: str = "evaluation",
) -> pd.DataFrame:
    """Count by pair what has no answer, and what another grader would grade otherwise.

    Returns
    -------
    DataFrame
        model, dataset, `rows`, and shares of them: `unparsed` (no answer found), `cut` (by the length limit),
        `unclosed`
        (thinking that never ended), and by the name of each other grader what it would grade otherwise.
    """
    part = generations[generations.split == split]
    rows = list(part.itertuples(index=False))
    with_answer = [has_accepted_answer(row, reading) for row in rows]
    columns = {
        "unparsed": [not has_answer for has_answer in with_answer],
        "cut": part.finish_reason == "length",
        "unclosed": [0 < row.thinking_end >= len(row.token_logprobs) - row.eos for row in rows],
    }
    correct = {}
    for grader in GRADERS:
        correct[grader] = [has_answer and grade(row.answer, row.reference, grader)
                           for has_answer, row in zip(with_answer, rows, strict=True)]  # fmt: skip
    for grader in GRADERS:
        if grader != reading.grader:
            columns[grader] = np.not_equal(correct[grader], correct[reading.grader])
    flags = part[["model", "dataset"]].assign(rows=1, **columns)
    shares = flags.groupby(["model", "dataset"], sort=False)
    return shares.agg({"rows": "sum"} | dict.fromkeys(columns, "mean")).reset_index()
