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
from lib.generate import generation, mc_dropout
from lib.models import loading
from lib.score import confidence, estimators, metrics
from lib.score.bald import compute_bald

ROWS = 120  # evaluation rows whose passes are drawn twice
DEMO = params.load_profile("demo")
CHOICES = params.EvaluationChoices.of(DEMO.model_dump())


def of_scores(
    read: pd.DataFrame, scores: pd.DataFrame, verified: pd.DataFrame
) -> dict[str, float | None]:
    """The bands of one pair's evaluation rows, from its responses, their scores and both forms of
    P(True)."""
    correct = read.correct.to_numpy(bool)
    by_name = {
        str(name): part.confidence.to_numpy(float) for name, part in scores.groupby("estimator")
    }
    averaged, joint = by_name["ans_avg"][~correct], by_name["ans_joint"][~correct]
    shown = {"accuracy": correct.mean(), "responses with a parsable answer": read.parsed.mean(),
             "Ans Avg, mean on wrong answers": averaged.mean(),
             "Ans Avg less Ans Joint, on wrong answers": (averaged - joint).mean()}  # fmt: skip
    for name, label in {
        "seq_avg": "Seq Avg",
        "ans_avg": "Ans Avg",
        "p_true": "P(True), standard",
        "p_true_insitu": "P(True), in situ",
        "c_bald": "c_BALD",
    }.items():
        shown[f"{label}: ECE"] = metrics.ece(by_name[name], correct)
        shown[f"{label}: AUROC"] = metrics.auroc(by_name[name], correct)
    masses = confidence.option_log_odds(verified)
    return shown | {
        f"P(True), {form.replace('_', ' ')}: mass of A and B": masses[f"{form}_mass"].mean()
        for form in confidence.MARGINS
    }


def of_passes(
    lm: loading.LanguageModel, frame: pd.DataFrame, correct: np.ndarray, rate: float
) -> dict[str, float]:
    """Whether c_BALD of ten passes says the same twice: two draws of masks over the same rows."""
    settings, work = (
        params.Dropout.of(DEMO.model_dump()),
        [(name, rate) for name in frame.example_id[:ROWS]],
    )
    twice = [
        mc_dropout.mc_dropout_entropies(lm, frame, work, settings.model_copy(update={"seed": seed}))
        for seed in (1, 2)
    ]
    first, second = (
        [estimators.c_bald(compute_bald(row)) for row in passes.itertuples()] for passes in twice
    )
    return {
        "c_BALD: rate": rate,
        "c_BALD: correlation of two draws": np.corrcoef(first, second)[0, 1],
        "c_BALD: AUROC of one draw": metrics.auroc(first, correct[: len(work)]),
        "c_BALD: AUROC of the other": metrics.auroc(second, correct[: len(work)]),
    }


def main(run: str) -> None:
    torch.set_num_threads(1)
    signals = load_signals(run, DEMO.models, DEMO.datasets, CHOICES)
    columns = {}
    for name in DEMO.models:
        lm = loading.load_language_model(name, params.load_model_config(name))
        for dataset in DEMO.datasets:
            parts = [
                frame[
                    (frame.model == name)
                    & (frame.dataset == dataset)
                    & (frame.split == "evaluation")
                ]
                for frame in (signals.responses, signals.confidence, signals.verification)
            ]
            place = store.find_frame(run, "generations", f"{name}__{dataset}")
            whole = generation.restore_texts(
                lm, store.read_frame(place), dataset, store.read_manifest(place)["parameters"]
            )
            rate = signals.dropout.query(
                "model == @name and dataset == @dataset and selected"
            ).rate.iloc[0]
            shown = of_passes(
                lm, whole[whole.split == "evaluation"], parts[0].correct.to_numpy(bool), rate
            )
            columns[(name, dataset)] = of_scores(*parts) | shown
    with pd.option_context("display.width", 160, "display.max_columns", 10, "display.max_rows", 99):
        print(pd.DataFrame(columns).astype(float).round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "replay-demo")
