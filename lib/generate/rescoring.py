"""Rescoring: all that is kept of a response, from one teacher-forced pass over tokens that somebody has drawn before.

A row at a time, in chunks over its own cache, so that at most CHUNK x V logits live and nothing hangs on other rows:
what decoding says of a token in bfloat16 moves with the batch, what this pass says does not. The query of in-situ
verification ends it: causal attention leaves all before untouched, and only the query's tokens are encoded anew.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import torch
from transformers import DynamicCache

from lib.generate.decoding import Batch, entry, warpers
from lib.generate.models import LanguageModel, check_finite
from lib.generate.p_true import query, read_verdicts
from lib.generate.responses import Request, answer_positions, frame_of, row
from lib.generate.token_logits import Kept, by_position, of_tokens
from lib.params import Generation
from lib.tasks import answers

CHUNK = 512  # tokens whose logits live at once: 512 x 152,000 float32 are 0.3 GB


def respond(lm: LanguageModel, dataset: str, requests: Sequence[Request], drawn: Sequence[list[int]],
            settings: Generation) -> pd.DataFrame:  # fmt: skip
    """A generations frame, with in-situ verdicts, of responses (token ids, the end token too) that were `drawn` to
    `requests`. Raises UserError where a row's logits are not finite."""
    rows = []
    for asked, ids in zip(requests, drawn, strict=True):
        batch, verdict = rescored(lm, asked, ids, settings)
        rows.append(row(lm, asked, batch, 0, settings) | {f"in_situ_{name}": value for name, value in verdict.items()})
    return frame_of(lm, dataset, rows)


@torch.inference_mode()
def rescored(lm: LanguageModel, asked: Request, ids: list[int], settings: Generation) -> tuple[Batch, dict[str, Any]]:
    """A batch of one row, as decoding leaves it but without its cache, and the verdict of in-situ verification."""
    body = ids[:-1] if ids and ids[-1] in lm.eos else ids
    located = answers.locate_answer(lm.tokenizer, body, lm.spec.thinking)
    wanted = set(answer_positions(located, max(len(body), 1))) & set(range(len(ids)))
    cache, chain = DynamicCache(config=lm.model.config), warpers(lm.spec)
    logprobs, sampling = [], []
    kept: dict[int, Kept] = {}
    for first, logits in steps(lm, [*asked.prompt_ids, *body], len(asked.prompt_ids), cache, asked.example.example_id):
        logits = logits[: len(ids) - first]  # the last predicts no token of a response that was cut
        tokens = torch.tensor(ids[first : first + len(logits)], device=lm.device)
        logprobs.append(entry(logits.log_softmax(-1), tokens))
        kept |= at_answer(logits, first, ids, wanted, settings)
        for warper in chain:
            logits = warper(tokens[:, None], logits)
        sampling.append(entry(logits.log_softmax(-1), tokens))
    started = time.perf_counter()
    asks = torch.tensor([query(lm)], device=lm.device)
    last = lm.model(asks, past_key_values=cache, logits_to_keep=1).logits[:, -1]
    (verdict,) = read_verdicts(lm, last, started, [asked.example.example_id])
    prompt = torch.tensor([asked.prompt_ids])
    return Batch(prompt, torch.ones_like(prompt), [ids], torch.cat(logprobs)[None], torch.cat(sampling)[None],
                 [kept], None, [asked.example.example_id]), verdict  # fmt: skip


def steps(lm: LanguageModel, tokens: list[int], prompt: int, cache: DynamicCache,
          name: str) -> Iterator[tuple[int, torch.Tensor]]:  # fmt: skip
    """(first, logits): raw float32 logits (n, V) that predict a response's tokens from place `first` on, a chunk at a
    time, the one after its last token too. `tokens` are the prompt's, so many, and the response's."""
    for at in range(0, len(tokens), CHUNK):
        chunk = torch.tensor([tokens[at : at + CHUNK]], device=lm.device)
        predicting = range(max(prompt - 1 - at, 0), chunk.shape[1])  # places in the chunk, none in the prompt's inside
        keep = torch.tensor(predicting or [chunk.shape[1] - 1], device=lm.device)
        logits = lm.model(chunk, past_key_values=cache, logits_to_keep=keep).logits[0].float()
        if predicting:
            check_finite(lm, [float(logits[-1].logsumexp(-1))], [name])
            yield at + predicting[0] - (prompt - 1), logits


def at_answer(logits: torch.Tensor, first: int, ids: list[int], wanted: set[int],
              settings: Generation) -> dict[int, Kept]:  # fmt: skip
    """What is kept of those positions of a chunk, `logits` (n, V) from place `first` on, that an answer may hold."""
    positions = sorted(position for position in wanted if first <= position < first + len(logits))
    if not positions:
        return {}
    tokens = torch.tensor([ids[position] for position in positions], device=logits.device)
    of = logits[[position - first for position in positions]]
    return dict(by_position(of_tokens(of, tokens, settings), positions))
