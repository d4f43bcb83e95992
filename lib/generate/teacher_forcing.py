"""Scoring: one teacher-forced pass over prompt, response and query computes all stored quantities of a response.

The engine returns only token ids. The pass computes each token's log-probability, under the model and under the
sampling distribution. It also computes compressed logits at possible answer tokens, and in-situ P(True) after the
query. Each response has its own pass, without padding, so its scores do not depend on other responses.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import Cache

from lib.generate import p_true
from lib.generate.batching import map_by_length
from lib.generate.models import LanguageModel, check_finite_logits
from lib.generate.sampling import Request, encode_prefix, repeat_row, warp_logits
from lib.parameter_types import Model
from lib.params import Generation
from lib.stored_columns import temperatures
from lib.tasks import answers

LOGITS_AT_ONCE = 2**25  # numbers, 134 MB; four times as many on a GPU, where a pass is mostly kernel launches
Scores = dict[str, Any]  # columns of the generations frame


def compress_logits(logits: torch.Tensor, top: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compress float32 logits so that the softmax can be computed at any temperature.

    Parameters
    ----------
    logits : (n, V)
    top : number of logits stored exactly
    nodes : number of temperatures for the sums over the others

    Returns
    -------
    The `top` largest logits (n, top), their ids (n, top), and the log-partition curve of the rest (n, nodes):
    log sum_v exp((z_v - z_max) / t) over the vocabulary outside the top, at `temperatures(nodes)`.
    """
    values, ids = logits.topk(min(top, logits.shape[-1] - 1), dim=-1)
    rest = (logits - values[:, :1]).scatter(-1, ids, -torch.inf)
    # one node at a time: all together would need nodes x V
    curve = torch.stack([(rest / t).logsumexp(-1) for t in temperatures(nodes)], dim=-1)
    return values, ids, curve


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Return every token that an answer-span policy may choose: those of the answer and of the last number, and the
    last one."""
    positions = {length - 1}
    for name in ("answer", "last_number"):
        positions |= set(range(located[f"{name}_start"], located[f"{name}_end"]))  # empty if both are -1
    return sorted(positions)


def score_responses(
    lm: LanguageModel, requests: Sequence[Request], responses: Sequence[list[int]], settings: Generation
) -> list[Scores]:
    """Return the scores of responses (token ids with the end token), in their order.

    Each response is scored by itself, because a batch affects its last digits. The shared prefix of all prompts is
    encoded once.

    Raises
    ------
    UserError
        A row's logits are not finite, or it exceeds the device's memory.
    """
    prefix = encode_prefix(lm, requests[0].prompt_ids[: requests[0].shared_tokens])

    def score(pairs: list[tuple[Request, list[int]]]) -> list[Scores]:
        return [score_response(lm, prefix, settings, *pair) for pair in pairs]

    pairs = list(zip(requests, responses, strict=True))
    return map_by_length(score, pairs, [1] * len(pairs), 1, f"model '{lm.name}'")  # one at a time


@torch.inference_mode()
def score_response(
    lm: LanguageModel, prefix: Cache, settings: Generation, request: Request, response: list[int]
) -> Scores:
    """Return the scores of one response, after the cache of its shared prefix, which is unchanged.

    The pass reads prompt, response and query, and predicts the response's tokens and the option. The seconds in situ
    are the query's share of the pass.
    """
    started, cache = p_true.seconds_when_idle(lm), repeat_row(prefix, 1)
    body, query = response[:-1] if response[-1] in lm.eos else response, p_true.query_ids(lm)
    located = answers.locate_answer(answers.token_texts(lm.tokenizer, body), lm.spec.thinking)
    kept = answer_positions(located, max(len(body), 1))  # for an empty response, its end token
    ids = [*request.prompt_ids, *body, *query][prefix.get_seq_length() :]
    first = len(ids) - len(query) - len(body) - 1  # where the response's first token is predicted
    places = [*range(first, first + len(response)), len(ids) - 1]
    targets = torch.tensor([*response, query[0]], device=lm.device)  # the last stands for the option
    at_answer = torch.isin(torch.arange(len(places)), torch.tensor(kept))
    parts = []
    for part, logits in predict_in_parts(lm, cache, ids, places):
        tokens, answer = targets[part], at_answer[part]
        own, sampling = gather_token(logits.log_softmax(-1), tokens), gather_sampling_logprobs(logits, tokens, lm.spec)
        compressed = compress_logits(logits[answer], settings.top_logits, settings.n_temperature_nodes)
        parts.append([own, sampling, gather_token(logits, tokens)[answer], *compressed])
    (verdict,) = p_true.option_logits(lm, logits[-1:])
    own, sampling, chosen, top, top_ids, tail_curve = (torch.cat(columns).cpu() for columns in zip(*parts, strict=True))
    seconds = (p_true.seconds_when_idle(lm) - started) * len(query) / len(ids)
    check_finite_logits(lm, [float(own[:-1].sum()) + verdict["logz"]], [request.example.example_id])
    return {
        "token_logprobs": own[:-1].numpy(),
        "token_logprobs_sampling": sampling[:-1].numpy(),
        "kept_positions": np.array(kept, np.int32),
        "chosen_logit": chosen.numpy(),
        "top_logits": list(top.numpy()),
        "top_ids": list(top_ids.int().numpy()),
        "tail_curve": list(tail_curve.numpy()),
        "located": located,
        **p_true.in_situ_columns(verdict | {"seconds": seconds}),
    }


def predict_in_parts(
    lm: LanguageModel, cache: Cache, ids: Sequence[int], places: Sequence[int]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Read token ids after a cache, and yield the float32 logits (n, V) at some of the increasing places at a time.

    The slice tells which of the places these are. A long response would need too much memory for all of them.
    """
    at_once = max(1, LOGITS_AT_ONCE * (4 if lm.device.type == "cuda" else 1) // lm.vocab_size)
    read, new = 0, torch.tensor([ids], device=lm.device)
    for first in range(0, len(places), at_once):
        part = slice(first, first + at_once)
        keep, end = torch.tensor(places[part], device=lm.device) - read, places[part][-1] + 1
        yield part, lm.model(new[:, read:end], past_key_values=cache, logits_to_keep=keep).logits[0].float()
        read = end


def gather_token(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return (n,) the entry of each row of values (n, V) at its token (n,)."""
    return values.gather(-1, tokens[:, None])[:, 0]


def gather_sampling_logprobs(logits: torch.Tensor, tokens: torch.Tensor, spec: Model) -> torch.Tensor:
    """Return (n,) log-probabilities of tokens (n,) under the sampling distribution of logits (n, V).

    Another engine may draw a token that is truncated here, as it rounds differently at the nucleus' edge. Such a token
    gets its log-probability before truncation.
    """
    found = gather_token(warp_logits(logits, spec).log_softmax(-1), tokens)
    cut = found.isinf()
    found[cut] = gather_token((logits[cut] / spec.temperature).log_softmax(-1), tokens[cut])
    return found


def response_row(request: Request, token_ids: Sequence[int], scores: Scores, save_texts: bool) -> dict[str, Any]:
    """Return one row of the generations frame; `scores` are columns plus the position of the answer (`located`)."""
    scores = dict(scores)
    located = scores.pop("located")
    texts = {"text": located["text"], "prompt": request.prompt, "question": request.example.question}
    return {
        **request.example._asdict(),
        **located,
        **(texts if save_texts else dict.fromkeys(texts)),
        "prompt_tokens": len(request.prompt_ids),
        "token_ids": np.array(token_ids, np.int32),
        **scores,
    }
