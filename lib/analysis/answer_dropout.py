"""Dropout at the answer's tokens only, compared with dropout along the whole trajectory; beyond the paper."""

from collections.abc import Mapping, Sequence

import pandas as pd

from lib import store
from lib.analysis.dropout_statistics import evaluate_scopes
from lib.analysis.run_signals import Frames, RunSignals
from lib.params import Reading
from lib.score.bootstrap import bootstrap
from lib.score.confidence import confidence_frame, evaluate_rate_grid, rows_at_selected_rate
from lib.store import PAIR

SCOPES = {"trajectory": "c_bald", "answer": "c_bald_insitu"}  # estimator by dropout scope
REASON_MISSING = {"trajectory": "no passes over the whole response", "answer": "no passes at the answer only"}
COMPARED_METRICS = ("rate", "ece", "auroc", "tokens")


def compare_dropout_scopes(
    run: str, models: Sequence[str], datasets: Sequence[str], signals: RunSignals, resamples: int = 5000, seed: int = 0
) -> Frames:
    """Return the frames of `tab_dropout_in_situ` and of its grid.

    They use the passes over whole trajectories and a run's passes at the answer only, which may lack pairs.
    """
    responses, reading = signals.responses, signals.reading
    answer = store.load_frames(run, "dropout_answer", models, datasets, may_lack=True)[0]
    frames = {"trajectory": signals.dropout, "answer": answer}
    chosen = {scope: rows_at_selected_rate(frame, reading) for scope, frame in frames.items()}
    measured = evaluate_scopes(signals.generations, responses, chosen, reading).rename(columns={"scope": "estimator"})
    measured = measured.melt([*PAIR, "estimator"], ["rate", "auroc", "tokens", "once"], "metric")
    measured["estimator"] = measured.estimator.map(SCOPES)
    scores = confidence_frame(responses, None, chosen["trajectory"], reading, SCOPES.values(), chosen["answer"])
    parts = [
        measured,
        *resample_scopes(scores, reading, resamples, seed),
        mark_missing_passes(frames, models, datasets),
    ]
    rates = evaluate_rate_grid(responses, answer, reading, estimator="c_bald_insitu")
    return {"dropout_in_situ": pd.concat(parts, ignore_index=True), "dropout_in_situ_grid": rates}


def resample_scopes(scores: pd.DataFrame, reading: Reading, resamples: int, seed: int) -> list[pd.DataFrame]:
    """Return the ECE of both with intervals, and the paired difference (estimator "", metric `difference`)."""
    drawn = bootstrap(scores.assign(method=""), reading.bins, resamples, seed)
    gap = drawn.differences([(("c_bald_insitu", ""), ("c_bald", ""))])
    gap = gap.assign(value=gap.difference, metric="difference", estimator="")
    results = drawn.results[drawn.results.metric == "ece"]
    return [frame[[*PAIR, "estimator", "metric", "value", "low", "high"]] for frame in (results, gap)]


def mark_missing_passes(
    frames: Mapping[str, pd.DataFrame], models: Sequence[str], datasets: Sequence[str]
) -> pd.DataFrame:
    """Return rows without a value, with the reason, for pairs whose scope has no passes."""
    rows = []
    for scope, frame in frames.items():
        there = set(zip(frame.model, frame.dataset, strict=True))
        absent = [(model, dataset) for model in models for dataset in datasets if (model, dataset) not in there]
        lacking = [*((SCOPES[scope], metric) for metric in COMPARED_METRICS), ("", "difference")]
        rows += [(*pair, *number, pd.NA, REASON_MISSING[scope]) for pair in absent for number in lacking]
    return pd.DataFrame(rows, columns=[*PAIR, "estimator", "metric", "value", "reason"])
