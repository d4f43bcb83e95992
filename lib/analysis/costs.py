"""The cost of each estimator in tokens, and its benefit; the paper reports it for verification only. Single-pass
estimators come with the response; all others process additional tokens."""

import pandas as pd

from lib.store import KEYS, PAIR
from lib.tasks.answers import answer_span

RESPONSE_ITSELF = "response"  # instead of an estimator
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald")  # estimators that read more tokens
CELL = [*PAIR, "estimator"]


def count_tokens(generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame) -> pd.DataFrame:
    """Return the mean tokens of an evaluation question by pair and estimator, beyond the response.

    The row of the response has its own tokens and its prompt's. Each pass with dropout reads prompt and response up to
    the answer's end. Columns: CELL, value, metric (`tokens`).
    """
    passes = dropout.loc[dropout["selected"], [*KEYS, "predictive"]].merge(generations, on=KEYS)
    read = [row.prompt_tokens + answer_span(row)[1] - 1 for row in passes.itertuples()]
    values = (
        (generations, RESPONSE_ITSELF, generations["prompt_tokens"] + generations["token_ids"].map(len)),
        (verification, "p_true", verification["standard_tokens"]),
        (verification, "p_true_insitu", verification["in_situ_tokens"]),
        (passes, "c_bald", passes["predictive"].map(len) * pd.Series(read, dtype=float)),
    )
    rows = pd.concat([frame[KEYS].assign(estimator=name, value=tokens) for frame, name, tokens in values])
    means = rows[rows["split"] == "evaluation"].astype({"value": float}).groupby(CELL, sort=False)["value"].mean()
    return means.reset_index().assign(metric="tokens")


def cost_and_quality(costs: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return by pair and estimator: all tokens of a question with its response, ECE and AUROC of the raw score.

    `costs` are from `count_tokens`, `results` from `evaluate`.
    """
    measured = results[results["metric"].isin(["ece", "auroc"])].astype({"value": float}).dropna(subset="value")
    table = measured.pivot(index=CELL, columns="metric", values="value").reindex(columns=["ece", "auroc"]).reset_index()
    tokens = costs.set_index(CELL)["value"]
    response = tokens.xs(RESPONSE_ITSELF, level="estimator").rename("response")
    table = table.join(response, on=PAIR).join(tokens.rename("further"), on=CELL)
    return table.assign(tokens=table.pop("response") + table.pop("further").fillna(0.0))


# ---- verification


def summarize_token_reduction(verification: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens saved in situ as rows like `evaluate`: mean of 1 - query / standard prompt, in percent."""
    part = verification[verification.split == "evaluation"]
    rows = part.assign(value=100 * (1 - part.in_situ_tokens / part.standard_tokens)).groupby(PAIR, sort=False)
    means = rows.value.mean().reset_index()
    return means.assign(estimator="p_true_insitu", metric="token_reduction_pct", reason="")


def verification_costs(verification: pd.DataFrame, generations: pd.DataFrame) -> pd.DataFrame:
    """Return two statistics of verification by pair; NaN where tokens do not vary.

    `r2`: R squared of the standard prompt's tokens on those it encodes again: the question (in its prompt) and the
    answer without thinking. `saving_with_length`: rank correlation of the share saved in situ with the response's
    length.
    """
    length = generations[KEYS].assign(length=generations.token_ids.map(len))
    length["again"] = generations.prompt_tokens + (length["length"] - generations.thinking_end).clip(lower=0)
    rows = verification[verification.split == "evaluation"].merge(length, on=KEYS)
    records = []
    for pair, part in rows.groupby(PAIR, sort=False):
        saved = (1 - part.in_situ_tokens / part.standard_tokens).rank()
        r = part.again.corr(part.standard_tokens, min_periods=2)
        records.append((*pair, r**2, saved.corr(part["length"].rank(), min_periods=2)))
    return pd.DataFrame(records, columns=[*PAIR, "r2", "saving_with_length"])
