"""The running example of the notebooks: its choice, and the values of each estimator. Responses come from
`interpret_responses`."""

from typing import Any

import numpy as np
import pandas as pd

from lib.params import EvaluationChoices
from lib.paths import UserError
from lib.score.confidence import MARGINS, compute_bald, option_log_odds, scale_bald
from lib.score.estimators import ans_avg, c_bald, p_true
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


def option_probabilities(verified: pd.Series, words: str = "A/B") -> pd.DataFrame:
    """Return P(True) of one row of a verification frame, standard and in situ.

    Columns: probability of either option (summed over counted spellings), the confidence, and the number of encoded
    tokens.
    """
    odds, records = option_log_odds(pd.DataFrame([verified]), words).iloc[0], {}
    for variant, margin in MARGINS.items():
        true, mass = p_true(odds[margin]), odds[f"{variant}_mass"]
        options = dict(zip(words.split("/"), (mass * true, mass * (1 - true)), strict=True))
        records[variant.replace("_", " ")] = options | {"P(True)": true, "tokens": verified[f"{variant}_tokens"]}
    return pd.DataFrame(records).T.astype({"tokens": int})


def bald_by_token(passes: pd.DataFrame, choices: EvaluationChoices) -> pd.DataFrame:
    """Return BALD by answer token from a dropout frame of one row; the mean of column phi is c_BALD.

    Columns: both terms of `eq:bald` after all passes, BALD (nats) and its phi (`top_k` and `top_p` divide BALD first).
    """
    row: Any = passes.iloc[0]
    columns = {
        "predictive": row.predictive[-1],
        "conditional": row.conditional[-1],
        "BALD": compute_bald(row),
        "phi": [c_bald([value]) for value in scale_bald(passes, choices.phi)[0]],
    }
    return pd.DataFrame(columns).rename_axis("answer token")
