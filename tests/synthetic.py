"""Generations frames made of random logits, with the columns that reading, calibration and transfer
use."""

import json

import numpy as np
import pandas as pd
import torch
from scipy.special import log_softmax

from lib.analysis.results import Results
from lib.calibrate.answer_logits import AnswerLogits
from lib.generate import teacher_forcing
from lib.params import EvaluationChoices
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import answers


def generations(model="m", dataset="d", rows=60, accuracy=0.6, seed=0, vocabulary=300):
    """`rows` calibration and as many evaluation rows; answers of 1 to 3 tokens, right ones a little
    surer. The last row of each split has no parsable answer. The full logits of the answer are in
    column `logits`: the first leads."""
    rng = np.random.default_rng([seed, *f"{model}{dataset}".encode()])
    columns = []
    for i in range(2 * rows):
        right = rng.random() < accuracy
        m = int(rng.integers(1, 4))
        parsed = i % rows != rows - 1
        logits = rng.normal(size=(m, vocabulary)).astype("float32")
        logits[:, 0] = 8 + 2 * right + rng.normal(size=m)
        compressed = teacher_forcing.compress_logits(torch.from_numpy(logits), 16, 33)
        values, ids, curve = (tensor.numpy() for tensor in compressed)
        answer = log_softmax(logits.astype(float), axis=1)[:, 0]
        before = np.log(rng.beta(9, 1 if right else 2, 10))
        body = np.append(before, answer).astype("float32")
        columns.append(
            {
                "split": "calibration" if i < rows else "evaluation",
                "example_id": f"{i:04d}",
                "question": f"Person {i} has {i} things of kind {'abcdefghij'[i % 10]} and asks.",
                "token_ids": np.arange(10 + m),
                "token_logprobs": body,
                "token_logprobs_sampling": body,
                "answer_start": 10 if parsed else -1,
                "answer_end": 10 + m if parsed else -1,
                "last_number_end": 10 + m,
                "answer": ("7" if right else "8") if parsed else None,
                "kept_positions": np.arange(10, 10 + m),
                "chosen_logit": logits[:, 0],
                "top_logits": list(values),
                "top_ids": list(ids),
                "tail_curve": list(curve),
                "logits": list(logits),
            }
        )
    fixed = {"reference": "7", "last_number_start": 10, "thinking_end": 0, "eos": 0}
    return pd.DataFrame(columns).assign(model=model, dataset=dataset, finish_reason="stop", **fixed)


def run(models=("m", "n"), datasets=("d", "e"), **more):
    """Every pair; accuracy falls from dataset to dataset."""
    parts = []
    for model in models:
        for place, dataset in enumerate(datasets):
            parts.append(generations(model, dataset, accuracy=0.85 - 0.35 * place, **more))
    return pd.concat(parts, ignore_index=True)


def responses(frame, **choices):
    """A generations frame as it is read under some choices."""
    return interpret_responses(frame, EvaluationChoices.of(choices))


def single_pass(frame, **choices):
    """Confidence of the single-pass estimators under some choices."""
    return confidence_frame(responses(frame, **choices))


def with_margins(confidence, seed=0):
    """The confidence frame with a P(True) that knows something."""
    rows = confidence[confidence.estimator == "ans_avg"].assign(estimator="p_true")
    noise = np.random.default_rng(seed).normal(size=len(rows))
    margin = noise + 2 * rows.correct - 1
    p_true = rows.assign(margin=margin, confidence=1 / (1 + np.exp(-margin)))
    return pd.concat([confidence, p_true], ignore_index=True)


def scored(n=200, seed=0, power=2):
    """Scores (n,) that are a little too high, and whether their answers are right: at `power` 1
    they are calibrated."""
    rng = np.random.default_rng(seed)
    c = rng.beta(5, 2, n)
    return c, rng.random(n) < c**power


def columns(rows):
    """The columns of a list of tuples, such as scores and outcomes, each an array."""
    return (np.array(column) for column in zip(*rows, strict=True))


def keyed(rows, model="m", dataset="d", split="evaluation", **columns):
    """A per-example frame of one pair."""
    content = {
        "model": model,
        "dataset": dataset,
        "split": split,
        "example_id": [f"e{i}" for i in range(rows)],
    }
    for name, values in columns.items():
        content[name] = pd.Series(list(values))
    return pd.DataFrame(content)


def responses_of_pair(probabilities, correct, **more):
    """Responses of one pair, as `interpret_responses` returns them; the answer is the last
    token."""
    tokens = [np.log(p) for p in probabilities]
    return keyed(
        len(correct), correct=correct, response=tokens, answer=[p[-1:] for p in tokens], **more
    )


def passed(**columns):
    """A dropout frame of one row: three passes over an answer of two tokens."""
    fixed = {"predictive": [[[0.1, 0.2], [0.3, 0.4], [0.5, 0.7]]],
             "conditional": [[[0.1, 0.2], [0.2, 0.2], [0.3, 0.1]]],
             "top_k": [[[10, 10], [11, 14], [12, 20]]], "top_p": [[[1, 1], [2, 1], [3, 2]]],
             "top_changed": [[False, False]], "correct": [True]}  # fmt: skip
    return keyed(1, **fixed | columns)


def fitting_input(takes):
    """New scores of what a calibrator takes: confidence or margins (7,), or the tokens of new
    answers."""
    if takes == "answers":
        frame = generations(seed=5, rows=4)
        return AnswerLogits.of(frame, responses(frame).span)
    scores = np.array([0.0, 1e-9, 0.2, 0.5, 0.71, 1 - 1e-9, 1.0])
    return scores if takes == "confidence" else 40 * scores - 20


def write_responses(generations, path, tokenizer=None):
    """The responses of a generations frame as JSON lines: token ids, or, with the model's
    tokenizer, tokens as text."""
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("w", encoding="utf-8") as file:
        for row in generations.itertuples():
            line = {
                "example_id": row.example_id,
                "dataset": row.dataset,
                "finish_reason": row.finish_reason,
            }
            if tokenizer is None:
                line["token_ids"] = row.token_ids.tolist()
            else:
                pairs = zip(
                    answers.token_texts(tokenizer, row.token_ids),
                    row.token_logprobs.tolist(),
                    strict=True,
                )
                line["logprobs"] = [{"token": text, "logprob": value} for text, value in pairs]
            print(json.dumps(line, ensure_ascii=False), file=file)
    return path


def results_of(**frames):
    """Results of these frames, whose models and datasets are labeled by their names."""
    first = next(iter(frames.values()))
    models = {name: name for name in first.model.unique()}
    datasets = {name: name for name in first.dataset.unique()}
    return Results(models, datasets, models, (models, datasets), [], frames, "Demo models.")
