"""One response followed through the notebooks: which one it is, and what each estimator makes of it. Responses as
`interpret_responses` returns them."""

from typing import Any

import numpy as np
import pandas as pd

from lib.params import Reading
from lib.paths import UserError
from lib.score.confidence import compute_bald, logsumexp_of_options, scale_bald
from lib.score.estimators import ans_avg, c_bald
from lib.store import KEYS, PAIR
from lib.tasks.prompts import balance_spellings


def choose_example(responses: pd.DataFrame, example: str, model: str, dataset: str) -> pd.Series:
    """Choose the response that the notebooks follow.

    Parameters
    ----------
    responses : DataFrame
        As `interpret_responses` returns them.
    example : str
        Its id. Where it is empty or not there, the most confident wrong answer is taken.
    model, dataset : str

    Raises
    ------
    UserError
        Where the reading leaves no row of the model.
    """
    rows = responses[(responses.model == model) & (responses.split == "evaluation")]
    if rows.empty:
        raise UserError(f"model '{model}': no evaluation row has an answer, and `missing: drop` leaves out all others; "
                        "choose last_number or zero")  # fmt: skip
    named = rows[rows.example_id == example]
    if len(named):
        return named.iloc[0]
    rows = rows[rows.dataset == dataset] if (rows.dataset == dataset).any() else rows
    rows = rows[rows.answer.notna()] if rows.answer.notna().any() else rows
    rows = rows[~rows.correct.astype(bool)] if (~rows.correct.astype(bool)).any() else rows
    scores = [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    return rows.iloc[int(np.argmax(scores))]


def rows_of_example(frame: pd.DataFrame, one: pd.Series) -> pd.DataFrame:
    """The rows of any per-example frame that are about the chosen response."""
    return frame[(frame[KEYS] == one[KEYS]).all(axis=1)]


def option_probabilities(verified: pd.Series, words: str = "A/B") -> pd.DataFrame:
    """P(True) of one row of a verification frame, standard and in situ: probability of either option (summed over its
    spellings that count), the confidence, and the tokens that had to be encoded."""
    sides, records = balance_spellings(verified.spellings, words), {}
    for variant in ("standard", "in_situ"):
        logits = np.asarray(verified[f"{variant}_logits"], dtype=float)[None]
        masses = [float(logsumexp_of_options(list(verified.spellings), logits, side)[0]) for side in sides]
        true, false = np.exp(np.array(masses) - verified[f"{variant}_logz"])
        names = dict(zip(words.split("/"), (true, false), strict=True))
        records[variant.replace("_", " ")] = names | {
            "P(True)": true / (true + false), "tokens": verified[f"{variant}_tokens"]}  # fmt: skip
    return pd.DataFrame(records).T.astype({"tokens": int})


def bald_by_token(passes: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Of a dropout frame of one row, by answer token: both terms of `eq:bald` after all passes, BALD (nats) and phi of
    it (under `top_k` and `top_p` BALD is divided first). The mean of phi is c_BALD."""
    row: Any = passes.iloc[0]
    columns = {"predictive": row.predictive[-1], "conditional": row.conditional[-1], "BALD": compute_bald(row),
               "phi": [c_bald([value]) for value in scale_bald(passes, reading.phi)[0]]}  # fmt: skip
    return pd.DataFrame(columns).rename_axis("answer token")


def describe_c_bald(table: pd.DataFrame, phi: str = "clip") -> str:
    """What `bald_by_token` returns as sums: phi of every token, and c_BALD, their mean."""
    step = "clip(1 - {:.3f}, 0, 1)" if phi == "clip" else "phi({:.3f})"
    parts = [f"{step.format(row.BALD)} = {row.phi:.3f}" for row in table.itertuples()]
    total = " + ".join(f"{value:.3f}" for value in table.phi)
    return f"phi: {', '.join(parts)}; c_BALD = ({total}) / {len(table)} = {table.phi.mean():.3f}"


def find_position(keys: pd.DataFrame, one: pd.Series) -> int:
    """Where the chosen response stands in the rows of its pair (KEYS)."""
    return int(np.flatnonzero(keys.example_id == one.example_id)[0])


def pair_of_example(one: pd.Series) -> tuple[str, str]:
    """Its model and dataset."""
    model, dataset = one[PAIR]
    return model, dataset
