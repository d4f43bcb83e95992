"""The cost of each estimator in tokens per question, and its benefit; the paper reports it for verification only.
Single-pass estimators come with the response; all others process additional tokens."""

from collections.abc import Mapping

import pandas as pd

from lib.analysis.run_signals import Frames, RunSignals
from lib.store import PAIR

RESPONSE_ITSELF = "response"  # instead of an estimator
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald", "c_bald_insitu")  # estimators that read more tokens


def costs_of_run(signals: RunSignals, frames: Mapping[str, pd.DataFrame]) -> Frames:
    """Return the frames of costs and benefits, from the other `frames` of a run.

    The costs are by pair and estimator: mean `tokens` of an evaluation question beyond the response. The row of the
    response has its own tokens and its prompt's.
    """
    in_situ = frames["dropout_in_situ"]
    passes = in_situ[in_situ["metric"].isin(["tokens", "once"]) & in_situ["value"].notna()]
    of_passes = passes.groupby([*PAIR, "estimator"], sort=False)["value"].sum().reset_index().assign(metric="tokens")
    tokens = count_tokens(signals.generations, signals.verification)
    found = pd.concat(
        [part[[*PAIR, "estimator", "metric", "value"]] for part in (tokens, of_passes)], ignore_index=True
    )
    return {"costs": found, "cost_quality": cost_and_quality(found, frames["result_estimation"], in_situ)}


def count_tokens(generations: pd.DataFrame, verification: pd.DataFrame) -> pd.DataFrame:
    """Return the mean tokens of the response with its prompt, and of both variants of verification."""
    response = generations.assign(**{RESPONSE_ITSELF: generations["prompt_tokens"] + generations["token_ids"].map(len)})
    asked = verification.rename(columns={"standard_tokens": "p_true", "in_situ_tokens": "p_true_insitu"})
    parts = ((response, [RESPONSE_ITSELF]), (asked, ["p_true", "p_true_insitu"]))
    counts = pd.concat([frame.melt([*PAIR, "split"], names, "estimator") for frame, names in parts])
    evaluation = counts[counts["split"] == "evaluation"].groupby(["estimator", *PAIR], sort=False)
    return evaluation["value"].mean().astype(float).reset_index().assign(metric="tokens")


def cost_and_quality(frame: pd.DataFrame, results: pd.DataFrame, in_situ: pd.DataFrame) -> pd.DataFrame:
    """Return by pair and estimator: all tokens of a question with its response, ECE and AUROC of the raw score."""
    measured = pd.concat([results, in_situ[in_situ["estimator"] == "c_bald_insitu"]], ignore_index=True)
    known = measured["metric"].isin(["ece", "auroc"]) & measured["value"].notna()  # AUROC may be missing for one class
    measured = measured[known].astype({"value": float})
    table = measured.pivot_table(index=[*PAIR, "estimator"], columns="metric", values="value").reset_index()
    table = table.reindex(columns=[*PAIR, "estimator", "ece", "auroc"])
    tokens = frame[frame["metric"] == "tokens"].astype({"value": float})
    response = tokens[tokens["estimator"] == RESPONSE_ITSELF].set_index(PAIR)["value"].rename("response")
    further = tokens.set_index([*PAIR, "estimator"])["value"].rename("further")
    table = table.join(response, on=PAIR).join(further, on=[*PAIR, "estimator"])
    return table.assign(tokens=table.pop("response") + table.pop("further").fillna(0.0))
