"""Scoring: one teacher-forced pass over prompt, response and query computes all stored quantities of a response.

The engine returns only token ids. The pass computes each token's log-probability, under the model and under the
sampling distribution. It also computes compressed logits at possible answer tokens, and in-situ P(True) after the
query. Rows are padded on the right, which causal attention never sees. So we need no mask and no positions, and padding
cannot fill sliding windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache

from lib.configs import Model
from lib.generate import p_true
from lib.generate.batching import map_by_length
from lib.generate.models import LanguageModel, check_finite_logits
from lib.generate.sampling import Request, encode_prefixes, repeat_row, warp_logits
from lib.generate.temperatures import temperatures
from lib.params import Generation
from lib.tasks import answers
from lib.tasks.datasets import hash_words

PASS_TOKENS = 4096  # tokens of one pass: few, as padding costs more than a pass
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

    In half precision the batch affects a row's last digits, so each row is scored by itself. The shared prefix of all
    prompts is encoded once.

    Raises
    ------
    UserError
        A row's logits are not finite, or a single row exceeds the device's memory.
    """
    rows = [ScoredRow.locate(lm, *pair) for pair in zip(requests, responses, strict=True)]
    prefix = encode_prefixes(lm, [rows[0].ids[: requests[0].shared_tokens]])
    at_once = 1 if lm.model.dtype != torch.float32 else min(settings.max_batch_tokens, PASS_TOKENS)
    work, lengths = partial(score_batch, lm, prefix, settings), [len(row.ids) for row in rows]
    return map_by_length(work, rows, lengths, at_once, f"model '{lm.name}'")


@dataclass(frozen=True)
class ScoredRow:
    """A row of a scoring pass. Column `first + i` predicts token i of the response."""

    request: Request
    response: list[int]
    ids: list[int]  # prompt, response without its end token, query
    located: dict[str, Any]
    positions: list[int]  # in the response, of possible answer tokens
    first: int

    @classmethod
    def locate(cls, lm: LanguageModel, request: Request, response: list[int]) -> "ScoredRow":
        body = response[:-1] if response[-1] in lm.eos else response
        located = answers.locate_answer(lm.tokenizer, body, lm.spec.thinking)
        positions = answer_positions(located, max(len(body), 1))  # for an empty response, its end token
        ids = [*request.prompt_ids, *body, *p_true.query_ids(lm)]
        return cls(request, response, ids, located, positions, first=len(request.prompt_ids) - 1)


@torch.inference_mode()
def score_batch(lm: LanguageModel, prefix: Cache, settings: Generation, rows: Sequence[ScoredRow]) -> list[Scores]:
    """Return the scores of one batch, after the cache of its shared prefix, which is unchanged.

    Logits are computed for a chunk of columns at a time. The seconds in situ are the query's share of the pass.
    """
    started, shared = p_true.seconds_when_idle(lm), prefix.get_seq_length()
    cache = repeat_row(prefix, len(rows))
    ids, targets, at_answer, at_end = lay_out(rows)
    own, sampling = torch.zeros(2, *ids.shape)
    kept: list[tuple[torch.Tensor, ...]] = []  # by chunk, and in each by row and column
    verdicts: dict[int, p_true.OptionLogits] = {}
    at_once = LOGITS_AT_ONCE * (4 if lm.device.type == "cuda" else 1) // lm.vocab_size
    for part in split_columns((targets >= 0) | at_end, shared, at_once):
        wanted = (targets[:, part] >= 0) | at_end[:, part]
        tokens = targets[:, part][wanted].clamp(min=0).to(lm.device)  # (n,)
        keep = wanted.to(lm.device)
        encoded = ids[:, part].to(lm.device)
        logits = lm.model(encoded, past_key_values=cache, logits_to_keep=keep).logits.float()  # (n, V)
        own[:, part][wanted] = gather_token(logits.log_softmax(-1), tokens).cpu()
        row_of, answer, ends = wanted.nonzero()[:, 0], at_answer[:, part][wanted], at_end[:, part][wanted]
        kept.append((row_of[answer], *keep_answer(logits, tokens, answer, settings)))
        at_query = logits[ends.to(lm.device)]
        verdicts |= zip(row_of[ends].tolist(), p_true.option_logits(lm, at_query), strict=True)
        sampling[:, part][wanted] = gather_sampling_logprobs(logits, tokens, lm.spec).cpu()
    seconds = (p_true.seconds_when_idle(lm) - started) * len(p_true.query_ids(lm)) / ids[:, shared:].numel()
    partitions = [float(of_row.sum()) + verdicts[i]["logz"] for i, of_row in enumerate(own)]
    check_finite_logits(lm, partitions, [row.request.example.example_id for row in rows])
    row_of, *columns = map(torch.cat, zip(*kept, strict=True))
    return [
        to_scores(row, own[i], sampling[i], *(values[row_of == i] for values in columns))
        | p_true.in_situ_columns(verdicts[i] | {"seconds": seconds})
        for i, row in enumerate(rows)
    ]


def keep_answer(
    logits: torch.Tensor, tokens: torch.Tensor, at_answer: torch.Tensor, settings: Generation
) -> list[torch.Tensor]:
    """Return the logit of each token (n,) and the `compress_logits` of the rows of logits (n, V) in `at_answer` (n,),
    on the CPU."""
    here = at_answer.to(logits.device)
    logits, tokens = logits[here], tokens[here]
    kept = gather_token(logits, tokens), *compress_logits(logits, settings.top_logits, settings.n_temperature_nodes)
    return [values.cpu() for values in kept]


def lay_out(rows: Sequence[ScoredRow]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the token ids of a batch (batch, L) and three arrays by column.

    The first has the response's token that the column predicts, or -1. The second: whether that token may be part of
    the answer. The third: whether the row ends here and predicts the option.
    """
    ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
    targets = torch.full_like(ids, -1)
    at_answer, at_end = torch.zeros(2, *ids.shape, dtype=torch.bool)
    for i, row in enumerate(rows):
        targets[i, row.first : row.first + len(row.response)] = torch.tensor(row.response)
        at_answer[i, [row.first + position for position in row.positions]] = True
        at_end[i, len(row.ids) - 1] = True
    return ids, targets, at_answer, at_end


def split_columns(wanted: torch.Tensor, start: int, most: int) -> list[slice]:
    """Split the columns of `wanted` (batch, L) from `start` on into chunks with at most `most` true entries."""
    cuts, count = [start], 0
    for column, number in enumerate(wanted.sum(0).tolist()):
        if count and count + number > most:
            cuts.append(column)
            count = 0
        count += number
    return [slice(*ends) for ends in pairwise([*cuts, wanted.shape[1]])]


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


def to_scores(
    row: ScoredRow, own: torch.Tensor, sampling: torch.Tensor, chosen: torch.Tensor, *compressed: torch.Tensor
) -> Scores:
    """Return the columns of one response, from the log-probabilities by column of its row (L,) and its stored
    logits."""
    top, top_ids, tail_curve = compressed
    of_response = slice(row.first, row.first + len(row.response))
    return {
        "token_logprobs": own[of_response].numpy(),
        "token_logprobs_sampling": sampling[of_response].numpy(),
        "kept_positions": np.array(row.positions, np.int32),
        "chosen_logit": chosen.numpy(),
        "top_logits": list(top.numpy()),
        "top_ids": list(top_ids.int().numpy()),
        "tail_curve": list(tail_curve.numpy()),
        "located": row.located,
    }


def response_row(
    request: Request, token_ids: Sequence[int], scores: Scores, thinking: bool, save_texts: bool
) -> dict[str, Any]:
    """Return one row of the generations frame; `scores` are columns plus the position of the answer (`located`)."""
    scores = dict(scores)
    located = scores.pop("located")
    texts = {"text": located["text"], "prompt": request.prompt, "question": request.example.question}
    return {
        **request.example._asdict(),
        **located,
        **(texts if save_texts else dict.fromkeys(texts)),
        **answers.find_alternative_answers(located["text"], thinking),
        "words": hash_words(request.example.question),
        "prompt_tokens": len(request.prompt_ids),
        "token_ids": np.array(token_ids, np.int32),
        "seed": request.seed,
        "reencoded": 0,
        **scores,
    }
