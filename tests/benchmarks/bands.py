"""Measures what the demo models are meant to show (demo/README.md). Run by hand:

    python tests/benchmarks/bands.py [run]

Reads the generations of a run (default: the shipped ones), and loads the models for both forms of P(True).
"""

import sys

import numpy as np
import pandas as pd
import torch

from lib import answers, estimators, metrics, models, params, prompts, store

MODELS, DATASETS = ["tiny-llama", "tiny-qwen"], ["demo-easy", "demo-medium", "demo-hard"]


@torch.inference_mode()
def p_true(lm, sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and the mass of both options, at the end of each sequence of token ids."""
    a, b = models.option_ids(lm, "A"), models.option_ids(lm, "B")
    confidence, mass = [], []
    for at in range(0, len(sequences), 50):
        batch = lm.tokenizer.pad({"input_ids": sequences[at : at + 50]}, return_tensors="pt")
        position = (batch.attention_mask.cumsum(-1) - 1).clamp(min=0)
        p = lm.model(**batch, position_ids=position, logits_to_keep=1).logits[:, -1].double().softmax(-1)
        yes, no = p[:, a].sum(-1), p[:, b].sum(-1)
        confidence.append(yes / (yes + no))
        mass.append(yes + no)
    return torch.cat(confidence).numpy(), torch.cat(mass).numpy()


def verifications(lm, frame: pd.DataFrame) -> dict[str, list[list[int]]]:
    query = models.encode(lm, prompts.QUERY)
    standard, in_situ = [], []
    for row in frame.itertuples():
        proposed = row.text[answers.answer_start_char(row.text, lm.spec.thinking) :].strip("\n")
        text = models.render(lm, prompts.verify(row.question, proposed, lm.spec.system_prompt), thinking=False)
        standard.append(models.encode(lm, text))
        in_situ.append(models.encode(lm, row.prompt) + list(row.token_ids[: len(row.token_ids) - row.eos]) + query)
    return {"standard": standard, "in situ": in_situ}


def main(run: str) -> None:
    torch.set_num_threads(1)
    frame, _ = store.gather(run, "generations", MODELS, DATASETS)
    frame = frame[frame.split == "evaluation"].reset_index(drop=True)
    read = estimators.signals(frame)
    frame["correct"], frame["parsed"] = read.correct, read.parsed
    confidence = estimators.single_pass(frame)
    results = metrics.evaluate(confidence)
    table = results.assign(name=results.estimator + " " + results.metric).pivot_table(
        index=["model", "dataset"], columns="name", values="value", sort=False).astype(float)
    table["parsed"] = frame.groupby(["model", "dataset"]).parsed.mean()
    tokens = estimators.answer_tokens(frame)
    wrong = tokens[~tokens.correct]
    table["answer p, wrong"] = np.exp(wrong.logprob).groupby([wrong.model, wrong.dataset]).mean()
    for name in MODELS:
        lm = models.load(name, params.load_model(name))
        for dataset in DATASETS:
            part = frame[(frame.model == name) & (frame.dataset == dataset)]
            for form, sequences in verifications(lm, part).items():
                confident, mass = p_true(lm, sequences)
                table.loc[(name, dataset), f"P(True) {form} auroc"] = metrics.auroc(confident, part.correct)
                table.loc[(name, dataset), f"P(True) {form} ece"] = metrics.ece(confident, part.correct)
                table.loc[(name, dataset), f"P(True) {form} mass"] = mass.mean()
    with pd.option_context("display.width", 120, "display.max_columns", 10):
        print(table.T.round(3))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shipped")
