"""How many tokens each confidence costs, beside its quality.

Single-pass estimators come with the response; all others process additional tokens.
"""

import pandas as pd

from lib.store import KEYS, PAIR, SCORE_CELL, evaluation_rows
from lib.tasks.answers import answer_span

RESPONSE_ITSELF = "response"  # instead of an estimator
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald")  # estimators that read more tokens


def count_tokens(
    generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame
) -> pd.DataFrame:
    """Return the mean tokens of an evaluation question by pair and estimator, beyond the response.

    The row of the response has its own tokens and its prompt's. Each pass with dropout reads prompt
    and response up to the answer's end. Columns: SCORE_CELL, value, metric (`tokens`).
    """
    of_response = generations["prompt_tokens"] + generations["token_ids"].map(len)
    passes = dropout.loc[dropout["selected"], [*KEYS, "predictive"]]
    passes = passes.merge(generations, on=KEYS)
    ends = [row.prompt_tokens + answer_span(row)[1] - 1 for row in passes.itertuples()]
    of_passes = passes["predictive"].map(len) * pd.Series(ends, dtype=float)
    parts = [
        generations[KEYS].assign(estimator=RESPONSE_ITSELF, value=of_response),
        verification[KEYS].assign(estimator="p_true", value=verification["standard_tokens"]),
        verification[KEYS].assign(estimator="p_true_insitu", value=verification["in_situ_tokens"]),
        passes[KEYS].assign(estimator="c_bald", value=of_passes),
    ]
    rows = evaluation_rows(pd.concat(parts)).astype({"value": float})
    means = rows.groupby(SCORE_CELL, sort=False)["value"].mean()
    return means.reset_index().assign(metric="tokens")


def cost_and_quality(costs: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return by pair and estimator: all tokens of a question with its response, ECE and AUROC of
    the raw score.

    `costs` are from `count_tokens`, `results` from `evaluate`.
    """
    measured = results[results["metric"].isin(["ece", "auroc"])].astype({"value": float})
    measured = measured.dropna(subset="value")
    table = measured.pivot(index=SCORE_CELL, columns="metric", values="value")
    table = table.reindex(columns=["ece", "auroc"]).reset_index()
    tokens = costs.set_index(SCORE_CELL)["value"]
    response = tokens.xs(RESPONSE_ITSELF, level="estimator").rename("response")
    table = table.join(response, on=PAIR).join(tokens.rename("further"), on=SCORE_CELL)
    every_token = table["response"] + table["further"].fillna(0.0)
    return table.drop(columns=["response", "further"]).assign(tokens=every_token)
