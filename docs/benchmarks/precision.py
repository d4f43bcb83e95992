"""Half precision against float32, and two sizes of a batch against one another. Run by hand; it
needs no GPU:

    python docs/benchmarks/precision.py [rows]

The demo models answer questions in float32; the same tokens are then read in bfloat16, with logits
that the last layer rounds and in float32 (lib/models/float32_logits.py). Beside it, how many
responses come out the same when they are drawn in bfloat16, or in batches of another size. Where
there is no GPU, drawing rounds in either case, and what is said of the tokens does not. Two
processor minutes for 200 rows, where the processor knows bfloat16.
"""

import sys

import numpy as np
import pandas as pd
import torch

from lib import params
from lib.generate import generation, mc_dropout, p_true
from lib.models import loading
from lib.models.loading import LanguageModel
from lib.score import confidence, estimators
from lib.score.bald import compute_bald
from lib.tasks import datasets

DATASET = "demo-medium"
RATE = 0.1
PASSES = 10
SETTINGS = params.Generation(
    seed=0, demonstration="none", max_new_tokens=256, top_logits=32, max_batch_tokens=32768
)
loading.SMALL = 0  # the demo models run on a GPU here, if there is one


def load(name: str, dtype: str, rounds: bool = False) -> LanguageModel:
    """A demo model in a precision; `rounds`: its last layer as PyTorch has it."""
    spec = params.load_model_config(name).model_copy(update={"dtype": dtype})
    lm = loading.load_language_model(name, spec)
    if rounds:
        lm.model.get_output_embeddings()._forward_hooks.clear()
    return lm


def respond(lm: LanguageModel, rows: int, tokens: int = SETTINGS.max_batch_tokens) -> pd.DataFrame:
    examples = datasets.load_examples(params.load_dataset_config(DATASET))[:rows]
    settings = SETTINGS.model_copy(update={"max_batch_tokens": tokens})
    return generation.generate_responses(lm, DATASET, examples, settings)


def logits(lm: LanguageModel, frame: pd.DataFrame) -> list[torch.Tensor]:
    """Of every token of every response (n, V), by plain passes."""
    parts = []
    for row in frame.itertuples():
        prompt = loading.encode(lm, row.prompt)
        with torch.inference_mode():
            ids = torch.tensor([prompt + list(row.token_ids)], device=lm.device)
            of_response = lm.model(ids).logits[0, len(prompt) - 1 : -1]
        parts.append(of_response.float().cpu())
    return parts


def logprobs(of_responses: list[torch.Tensor], frame: pd.DataFrame) -> np.ndarray:
    """Log-probabilities of the tokens that were written, one after the other."""
    parts = []
    for z, token_ids in zip(of_responses, frame.token_ids, strict=True):
        written = torch.tensor(token_ids, dtype=torch.long)
        parts.append(z.log_softmax(-1).gather(-1, written[:, None])[:, 0])
    return torch.cat(parts).numpy()


def bald(lm: LanguageModel, frame: pd.DataFrame) -> np.ndarray:
    """c_BALD of each response, at one rate."""
    asked = [(name, RATE) for name in frame.example_id]
    settings = params.Dropout(dropout_passes=PASSES)
    passes = mc_dropout.mc_dropout_entropies(lm, frame, asked, settings)
    scores = []
    for row in passes.itertuples():
        scores.append(np.clip(1 - compute_bald(row), 0, 1).mean())
    return np.array(scores)


def compared(lm: LanguageModel, exact: dict, frame: pd.DataFrame) -> dict[str, str]:
    """A column of the table: what a model reads from the responses of `frame`, against the
    `exact`."""
    here = read(lm, frame)
    off = {}
    for name in ("logprobs", "margin", "p_true", "bald"):
        off[name] = np.abs(here[name] - exact[name])
    far = 0.0
    for logits_here, exact_logits in zip(here["logits"], exact["logits"], strict=True):
        far = max(far, float((logits_here - exact_logits).abs().max()))
    alike = np.corrcoef(here["bald"], exact["bald"])[0, 1]
    return {
        "logit, most": f"{far:.3f}",
        "log-probability, mean": f"{off['logprobs'].mean():.5f}",
        "log-probability, 99 of 100 within": f"{np.quantile(off['logprobs'], 0.99):.4f}",
        "log-probability, most": f"{off['logprobs'].max():.3f}",
        "logits of A less those of B, different ones": f"{len(set(here['bare']))} of {len(frame)}",
        "margin of P(True), mean": f"{off['margin'].mean():.4f}",
        "margin of P(True), most": f"{off['margin'].max():.3f}",
        "P(True), most": f"{off['p_true'].max():.4f}",
        "c_BALD, mean": f"{off['bald'].mean():.4f}",
        "c_BALD, correlation": f"{alike:.4f}",
    }


def read(lm: LanguageModel, frame: pd.DataFrame) -> dict:
    of_responses = logits(lm, frame)
    verdicts = p_true.verify_responses(lm, frame)
    options = pd.DataFrame(verdicts.standard_logits.tolist(), columns=verdicts.spellings[0])
    margin = confidence.option_log_odds(verdicts).standard_margin.to_numpy()
    return {
        "logits": of_responses,
        "logprobs": logprobs(of_responses, frame),
        "bare": options.A - options.B,
        "margin": margin,
        "p_true": np.array([estimators.p_true(value) for value in margin]),
        "bald": bald(lm, frame),
    }


def equal(one: pd.DataFrame, other: pd.DataFrame) -> str:
    same = sum(map(np.array_equal, one.token_ids, other.token_ids))
    return f"{same} of {len(one)}"


def main(rows: int) -> None:
    for name in ("tiny-llama", "tiny-qwen"):
        plain = load(name, "float32")
        half = load(name, "bfloat16")
        rounding = load(name, "bfloat16", rounds=True)
        responses = respond(plain, rows)
        exact = read(plain, responses)
        columns = {
            "logits rounded": compared(rounding, exact, responses),
            "logits in float32": compared(half, exact, responses),
        }
        table = pd.DataFrame(columns)
        print(f"{name}, {rows} responses to {DATASET}, bfloat16 against float32\n{table}\n")
        of_half = respond(half, rows)
        eighth = SETTINGS.max_batch_tokens // 8
        small_plain = respond(plain, rows, eighth)
        small_half = respond(half, rows, eighth)
        print(
            f"equal responses: bfloat16 and float32 {equal(responses, of_half)}; batches of an "
            f"eighth, float32 {equal(responses, small_plain)}, bfloat16 "
            f"{equal(of_half, small_half)}\n"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
