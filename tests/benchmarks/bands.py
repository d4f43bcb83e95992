"""Measures what the demo models are meant to show (demo/README.md). Run by hand:

    python tests/benchmarks/bands.py [run]

Reads the generations of a run (default: the shipped ones), and loads the models for both forms of P(True).
"""

import sys

import numpy as np
import pandas as pd
import torch

from lib import params, store
from lib.generate import models, p_true
from lib.score import confidence, curves, estimators, metrics, reading

MODELS, DATASETS = ["tiny-llama", "tiny-qwen"], ["demo-easy", "demo-medium", "demo-hard"]


def main(run: str) -> None:
    torch.set_num_threads(1)
    frame, _ = store.gather(run, "generations", MODELS, DATASETS)
    frame = frame[frame.split == "evaluation"].reset_index(drop=True)
    read = reading.read(frame)
    frame["correct"], frame["parsed"] = read.correct, read.parsed
    scores = confidence.confidence_frame(read)
    results = metrics.evaluate(scores)
    table = results.assign(name=results.estimator + " " + results.metric).pivot_table(
        index=["model", "dataset"], columns="name", values="value", sort=False).astype(float)
    table["parsed"] = frame.groupby(["model", "dataset"]).parsed.mean()
    tokens = curves.answer_tokens(read)
    wrong = tokens[~tokens.correct]
    table["answer p, wrong"] = np.exp(wrong.logprob).groupby([wrong.model, wrong.dataset]).mean()
    for name in MODELS:
        lm = models.load(name, params.load_model(name))
        for dataset in DATASETS:
            part = frame[(frame.model == name) & (frame.dataset == dataset)]
            read = confidence.margins(p_true.verify(lm, part, params.Verification()))
            for form in confidence.MARGINS:
                confident = read[f"{form}_margin"].map(estimators.p_true)
                table.loc[(name, dataset), f"P(True) {form} auroc"] = metrics.auroc(confident, part.correct)
                table.loc[(name, dataset), f"P(True) {form} ece"] = metrics.ece(confident, part.correct)
                table.loc[(name, dataset), f"P(True) {form} mass"] = read[f"{form}_mass"].mean()
    with pd.option_context("display.width", 120, "display.max_columns", 10):
        print(table.T.round(3))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shipped")
