"""The running example of the notebooks: one response, followed from 01 to 07."""

import numpy as np
import pandas as pd

from lib.paths import UserError
from lib.score.estimators import ans_avg
from lib.store import KEYS


def choose_example(responses: pd.DataFrame, example: str, model: str, dataset: str) -> pd.Series:
    """Choose the running example of the notebooks.

    Parameters
    ----------
    responses : DataFrame
        From `interpret_responses`.
    example : str
        Its id. If empty or unknown, the most confident wrong answer is chosen.
    model, dataset : str

    Raises
    ------
    UserError
        The choices leave no row of the model.
    """
    rows = responses[(responses.model == model) & (responses.split == "evaluation")]
    if rows.empty:
        raise UserError(
            f"model '{model}': no evaluation row has an answer, and `missing: drop` leaves out all others; "
            "choose last_number or zero"
        )
    named = rows[rows.example_id == example]
    if len(named):
        return named.iloc[0]
    for wanted in (rows.dataset == dataset, rows.answer.notna(), ~rows.correct):
        chosen = rows[wanted.reindex(rows.index)]
        rows = chosen if len(chosen) else rows
    scores = [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    return rows.iloc[int(np.argmax(scores))]


def rows_of_example(frame: pd.DataFrame, one: pd.Series) -> pd.DataFrame:
    """Return the rows of a per-example frame for the running example."""
    return frame[(frame[KEYS] == one[KEYS]).all(axis=1)]
