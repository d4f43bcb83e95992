"""Measures what the demo models are meant to show (the bands in demo/README.md). Run by hand:

    python demo/bands.py [run]

Reads the signals of a run (default: the shipped ones). Loads the models for one thing: ten passes
with dropout, drawn twice more, over the first 120 evaluation rows of each pair.
"""

import sys

import numpy as np
import pandas as pd
import torch

from lib import params, store
from lib.analysis.signals import load_signals
from lib.generate import mc_dropout, stored_responses
from lib.models import loading
from lib.score import bald, confidence, estimators, metrics

ROWS = 120  # evaluation rows whose passes are drawn twice
DEMO = params.load_profile("demo")
CHOICES = params.EvaluationChoices.of(DEMO.model_dump())
LABELS = {
    "seq_avg": "Seq Avg",
    "ans_avg": "Ans Avg",
    "p_true": "P(True), standard",
    "p_true_insitu": "P(True), in situ",
    "c_bald": "c_BALD",
}


def of_scores(
    responses: pd.DataFrame, scores: pd.DataFrame, verification: pd.DataFrame
) -> dict[str, float | None]:
    """The bands of one pair's evaluation rows, from its responses, their scores and both forms of
    P(True)."""
    correct = responses.correct.to_numpy(bool)
    by_name = {}
    for name, part in scores.groupby("estimator"):
        by_name[name] = part.confidence.to_numpy(float)
    averaged = by_name["ans_avg"][~correct]
    joint = by_name["ans_joint"][~correct]
    bands = {
        "accuracy": correct.mean(),
        "responses with a parsable answer": responses.parsed.mean(),
        "Ans Avg, mean on wrong answers": averaged.mean(),
        "Ans Avg less Ans Joint, on wrong answers": (averaged - joint).mean(),
    }
    for name, label in LABELS.items():
        bands[f"{label}: ECE"] = metrics.ece(by_name[name], correct)
        bands[f"{label}: AUROC"] = metrics.auroc(by_name[name], correct)
    masses = confidence.option_log_odds(verification)
    for form in confidence.MARGINS:
        label = f"P(True), {form.replace('_', ' ')}: mass of A and B"
        bands[label] = masses[f"{form}_mass"].mean()
    return bands


def of_pair(frame: pd.DataFrame, model: str, dataset: str) -> pd.DataFrame:
    """The evaluation rows of a pair."""
    frame = store.evaluation_rows(frame)
    return frame[(frame.model == model) & (frame.dataset == dataset)]


def of_passes(
    lm: loading.LanguageModel, frame: pd.DataFrame, correct: np.ndarray, rate: float
) -> dict[str, float]:
    """Whether c_BALD of ten passes says the same twice: two draws of masks over the same rows."""
    settings = params.Dropout.of(DEMO.model_dump())
    asked = [(name, rate) for name in frame.example_id[:ROWS]]
    draws = []
    for seed in (1, 2):
        seeded = settings.model_copy(update={"seed": seed})
        passes = mc_dropout.mc_dropout_entropies(lm, frame, asked, seeded)
        balds = [bald.compute_bald(row) for row in passes.itertuples()]
        draws.append([estimators.c_bald(bald) for bald in balds])
    first, second = draws
    return {
        "c_BALD: rate": rate,
        "c_BALD: correlation of two draws": np.corrcoef(first, second)[0, 1],
        "c_BALD: AUROC of one draw": metrics.auroc(first, correct[: len(asked)]),
        "c_BALD: AUROC of the other": metrics.auroc(second, correct[: len(asked)]),
    }


def main(run: str) -> None:
    torch.set_num_threads(1)
    signals = load_signals(run, DEMO.models, DEMO.datasets, CHOICES)
    columns = {}
    for name in DEMO.models:
        lm = loading.load_language_model(name, params.load_model_config(name))
        for dataset in DEMO.datasets:
            responses = of_pair(signals.responses, name, dataset)
            scores = of_pair(signals.confidence, name, dataset)
            verification = of_pair(signals.verification, name, dataset)
            path = store.find_frame(run, "generations", f"{name}__{dataset}")
            settings = store.read_manifest(path)["parameters"]
            frame = stored_responses.restore_texts(lm, store.read_frame(path), dataset, settings)
            passes = of_pair(signals.dropout, name, dataset)
            rate = passes[passes.selected].rate.iloc[0]
            correct = responses.correct.to_numpy(bool)
            bands = of_scores(responses, scores, verification)
            bands |= of_passes(lm, store.evaluation_rows(frame), correct, rate)
            columns[name, dataset] = bands
    with pd.option_context("display.width", 160, "display.max_columns", 10, "display.max_rows", 99):
        print(pd.DataFrame(columns).astype(float).round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "replay-demo")
