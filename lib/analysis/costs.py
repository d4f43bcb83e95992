"""The cost of each estimator in tokens per question, and its benefit; the paper reports it for verification only.
Single-pass estimators come with the response; all others process additional tokens."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.analysis.run_signals import Frames, RunSignals
from lib.store import KEYS, PAIR
from lib.tasks.answers import answer_span

RESPONSE_ITSELF = "response"  # instead of an estimator
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald")  # estimators that read more tokens


def costs_of_run(signals: RunSignals, frames: Mapping[str, pd.DataFrame]) -> Frames:
    """Return the frames of costs and benefits, from the other `frames` of a run.

    The costs are by pair and estimator: mean `tokens` of an evaluation question beyond the response. The row of the
    response has its own tokens and its prompt's.
    """
    tokens = count_tokens(signals.generations, signals.verification)
    passes = count_tokens_of_passes(signals.generations, signals.dropout)
    found = pd.concat([tokens, passes], ignore_index=True)[[*PAIR, "estimator", "metric", "value"]]
    return {"costs": found, "cost_quality": cost_and_quality(found, frames["result_estimation"])}


def count_tokens(generations: pd.DataFrame, verification: pd.DataFrame) -> pd.DataFrame:
    """Return the mean tokens of the response with its prompt, and of both variants of verification."""
    response = generations.assign(**{RESPONSE_ITSELF: generations["prompt_tokens"] + generations["token_ids"].map(len)})
    asked = verification.rename(columns={"standard_tokens": "p_true", "in_situ_tokens": "p_true_insitu"})
    parts = ((response, [RESPONSE_ITSELF]), (asked, ["p_true", "p_true_insitu"]))
    counts = pd.concat([frame.melt([*PAIR, "split"], names, "estimator") for frame, names in parts])
    evaluation = counts[counts["split"] == "evaluation"].groupby(["estimator", *PAIR], sort=False)
    return evaluation["value"].mean().astype(float).reset_index().assign(metric="tokens")


def count_tokens_of_passes(generations: pd.DataFrame, dropout: pd.DataFrame) -> pd.DataFrame:
    """Return the mean tokens of all passes over a response: each reads prompt and response up to the answer's end."""
    chosen = dropout[dropout["selected"] & (dropout["split"] == "evaluation")]
    passes = chosen[KEYS].assign(passes=chosen["predictive"].map(len)).merge(generations, on=KEYS)
    read = [row.prompt_tokens + answer_span(row)[1] - 1 for row in passes.itertuples()]
    tokens = passes[PAIR].assign(value=passes["passes"] * np.array(read, dtype=float))
    return tokens.groupby(PAIR, sort=False).mean().reset_index().assign(estimator="c_bald", metric="tokens")


def cost_and_quality(frame: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return by pair and estimator: all tokens of a question with its response, ECE and AUROC of the raw score."""
    known = results["metric"].isin(["ece", "auroc"]) & results["value"].notna()  # AUROC may be missing for one class
    measured = results[known].astype({"value": float})
    table = measured.pivot_table(index=[*PAIR, "estimator"], columns="metric", values="value").reset_index()
    table = table.reindex(columns=[*PAIR, "estimator", "ece", "auroc"])
    tokens = frame[frame["metric"] == "tokens"].astype({"value": float})
    response = tokens[tokens["estimator"] == RESPONSE_ITSELF].set_index(PAIR)["value"].rename("response")
    further = tokens.set_index([*PAIR, "estimator"])["value"].rename("further")
    table = table.join(response, on=PAIR).join(further, on=[*PAIR, "estimator"])
    return table.assign(tokens=table.pop("response") + table.pop("further").fillna(0.0))
