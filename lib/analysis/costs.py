"""The cost of each estimator in tokens and seconds per question, and its benefit; the paper reports it for verification
only. Single-pass estimators come with the response; all others process additional tokens."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib import store
from lib.analysis.run_signals import Frames, RunSignals, read_manifests
from lib.store import PAIR

RESPONSE_ITSELF, ALL_JOBS = "response", "total"  # instead of an estimator: the response itself; all jobs of a pair
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald", "c_bald_insitu")  # estimators that read more tokens
# Kinds whose manifests have seconds
TIMED_KINDS = ("generations", "verification", "dropout", "dropout_answer", "ablation")


def costs_of_run(
    run: str, models: Sequence[str], datasets: Sequence[str], signals: RunSignals, frames: Mapping[str, pd.DataFrame]
) -> Frames:
    """Return the frames of costs and benefits, from the other `frames` of a run.

    The costs are by pair and estimator: mean `tokens` of an evaluation question beyond the response, `seconds` per
    question, and total `hours` of a pair's jobs. The row of the response has its own tokens and its prompt's.
    """
    in_situ = frames["dropout_in_situ"]
    passes = in_situ[in_situ["metric"].isin(["tokens", "once"]) & in_situ["value"].notna()]
    of_passes = passes.groupby([*PAIR, "estimator"], sort=False)["value"].sum().reset_index().assign(metric="tokens")
    tokens = count_tokens(signals.generations, signals.verification)
    parts = [tokens, of_passes, seconds_per_question(run, models, datasets, signals.verification)]
    found = pd.concat([part[[*PAIR, "estimator", "metric", "value"]] for part in parts], ignore_index=True)
    return {"costs": found, "cost_quality": cost_and_quality(found, frames["result_estimation"], in_situ)}


def count_tokens(generations: pd.DataFrame, verification: pd.DataFrame) -> pd.DataFrame:
    """Return the mean tokens of the response with its prompt, and of both variants of verification."""
    response = generations.assign(**{RESPONSE_ITSELF: generations["prompt_tokens"] + generations["token_ids"].map(len)})
    asked = verification.rename(columns={"standard_tokens": "p_true", "in_situ_tokens": "p_true_insitu"})
    parts = ((response, [RESPONSE_ITSELF]), (asked, ["p_true", "p_true_insitu"]))
    counts = pd.concat([frame.melt([*PAIR, "split"], names, "estimator") for frame, names in parts])
    evaluation = counts[counts["split"] == "evaluation"].groupby(["estimator", *PAIR], sort=False)
    return evaluation["value"].mean().astype(float).reset_index().assign(metric="tokens")


def seconds_per_question(
    run: str, models: Sequence[str], datasets: Sequence[str], verification: pd.DataFrame
) -> pd.DataFrame:
    """Return seconds per question, from manifests and from the rows of verification.

    A pair has hours only if they are known for all its rows.
    """
    records: list[tuple] = []
    estimators = {"generations": RESPONSE_ITSELF, "dropout": "c_bald", "dropout_answer": "c_bald_insitu"}
    for pair in store.pair_names(models, datasets):
        where, hours = pair.split("__"), 0.0
        for kind in TIMED_KINDS:
            for _, facts in read_manifests(run, kind, [pair]):
                seconds = facts.get("seconds", np.nan) + facts.get("grid_seconds", 0.0)
                made = facts["rows"] - facts.get("kept_from", {"rows": 0})["rows"]
                hours += seconds / 3600 if made == facts["rows"] else np.nan
                if kind in estimators and made > 0 and not np.isnan(seconds):
                    records.append((*where, estimators[kind], "seconds", seconds / made))
        if not np.isnan(hours):
            records.append((*where, ALL_JOBS, "hours", hours))
    columns = {"standard_seconds": "p_true", "in_situ_seconds": "p_true_insitu"}
    for name in columns.keys() & set(verification):
        means = verification.groupby(PAIR, sort=False)[name].mean().dropna()
        records += [(*where, columns[name], "seconds", value) for where, value in means.items()]
    return pd.DataFrame(records, columns=[*PAIR, "estimator", "metric", "value"])


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
