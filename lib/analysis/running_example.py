"""The running example of the notebooks: one response, followed from 01 to 07."""

import numpy as np
import pandas as pd

from lib.errors import UserError
from lib.score.estimators import ans_avg
from lib.store import KEYS, evaluation_rows


def choose_example(responses: pd.DataFrame, example: str, model: str, dataset: str) -> pd.Series:
    """Choose the running example among a model's evaluation rows: the one of this id.

    If there is none, the most confident wrong answer, of this dataset if it has any. Raise
    UserError if the choices leave no row of the model.
    """
    rows = evaluation_rows(responses[responses.model == model])
    if rows.empty:
        raise UserError(
            f"model '{model}': no evaluation row has an answer, and `missing: drop` leaves out all "
            "others; choose last_number or zero"
        )
    wishes = (
        rows.example_id == example,
        rows.dataset == dataset,
        rows.answer.notna(),
        ~rows.correct,
    )
    for wish in wishes:  # the first counts most
        if wish[rows.index].any():
            rows = rows[wish[rows.index]]
    confidence = [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    return rows.iloc[int(np.argmax(confidence))]


def rows_of_example(frame: pd.DataFrame, example: pd.Series) -> pd.DataFrame:
    """Return the rows of a per-example frame for the running example."""
    return frame[(frame[KEYS] == example[KEYS]).all(axis=1)]
