"""Scoring: one teacher-forced pass over prompt, response and query computes all stored quantities
of a response.

The engine returns only token ids. The pass computes each token's log-probability, under the model
and under the sampling distribution. It also computes compressed logits at possible answer tokens,
and in-situ P(True) after the query. There is no padding, and in float32 rows of equal length share
a pass.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import Cache

from lib.generate import p_true
from lib.generate.sampling import encode_prefix, repeat_row, warp_logits
from lib.models.batching import map_by_length
from lib.models.loading import LanguageModel, check_finite_logits
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.responses.rows import Request, Scores
from lib.stored_columns import temperatures
from lib.tasks import answers

# numbers, 134 MB; four times as many on a GPU, where a pass is mostly kernel launches
LOGITS_AT_ONCE = 2**25


def compress_logits(
    logits: torch.Tensor, top: int, nodes: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compress float32 logits so that the softmax can be computed at any temperature.

    Parameters
    ----------
    logits : (n, V)
    top : number of logits stored exactly
    nodes : number of temperatures for the sums over the others

    Returns
    -------
    The `top` largest logits (n, top), their ids (n, top), and the log-partition
    curve of the rest (n, nodes): log sum_v exp((z_v - z_max) / t) over the vocabulary outside the
    top, at `temperatures(nodes)`.
    """
    values, ids = logits.topk(min(top, logits.shape[-1] - 1), dim=-1)
    rest = (logits - values[:, :1]).scatter(-1, ids, -torch.inf)
    # one node at a time: all together would need nodes x V
    curve = torch.stack([(rest / t).logsumexp(-1) for t in temperatures(nodes)], dim=-1)
    return values, ids, curve


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Return every token that an answer-span policy may choose: those of the answer and of the last
    number, and the last one."""
    positions = {length - 1}
    for name in ("answer", "last_number"):
        # empty if both are -1
        positions |= set(range(located[f"{name}_start"], located[f"{name}_end"]))
    return sorted(positions)


def score_responses(
    lm: LanguageModel,
    requests: Sequence[Request],
    responses: Sequence[list[int]],
    settings: Generation,
) -> list[Scores]:
    """Return the scores of responses (token ids with the end token), in their order.

    In float32, rows of equal length are one batch. They need no padding, so their numbers are those
    that they have alone, but for the last digits on some processors. In half precision a batch
    would change more than these, so each response has its own pass. The shared prefix of all
    prompts is encoded once.

    Raises
    ------
    UserError
        A row's logits are not finite, or it exceeds the device's memory.
    """
    prefix = encode_prefix(lm, requests[0].prompt_ids[: requests[0].shared_tokens])
    rows = [Row(lm, *pair) for pair in zip(requests, responses, strict=True)]
    work, lengths = partial(score_rows, lm, prefix, settings), [len(row.ids) for row in rows]
    at_once = logits_at_once(lm) if lm.model.dtype == torch.float32 else 1
    return map_by_length(work, rows, lengths, at_once, f"model '{lm.name}'", equal=True)


class Row:
    """A response as the pass reads it.

    `ids` are those of prompt, response and query, and `kept` are the possible answer tokens. `last`
    is the number of last ids that predict something, from the one before the response on.
    """

    def __init__(self, lm: LanguageModel, request: Request, response: list[int]):
        body, query = response[:-1] if response[-1] in lm.eos else response, p_true.query_ids(lm)
        self.name, self.response = request.example.example_id, response
        self.ids, self.last = [*request.prompt_ids, *body, *query], len(body) + len(query) + 1
        self.located = answers.locate_answer(
            answers.token_texts(lm.tokenizer, body), lm.spec.thinking
        )
        # for an empty response, its end token
        self.kept = answer_positions(self.located, max(len(body), 1))


@torch.inference_mode()
def score_rows(
    lm: LanguageModel, prefix: Cache, settings: Generation, rows: Sequence[Row]
) -> list[Scores]:
    """Return the scores of rows of one length, after the cache of their shared prefix, which is
    unchanged.

    The pass reads prompt, response and query, and predicts the response's tokens and the option.
    The seconds in situ are the query's share of the pass.
    """
    started, cache, query = (
        p_true.seconds_when_idle(lm),
        repeat_row(prefix, len(rows)),
        len(p_true.query_ids(lm)),
    )
    ids = torch.tensor([row.ids for row in rows], device=lm.device)[:, prefix.get_seq_length() :]
    length, last = ids.shape[1], max(row.last for row in rows)
    # of the responses' tokens, and of the option
    places = [*range(length - last, length - query), length - 1]
    targets, at_answer = place_targets(rows, last, len(places))
    parts = []
    for part, logits in predict_in_parts(lm, cache, ids, places):
        predicts = (targets[:, part] >= 0).to(lm.device)
        tokens, of_tokens = targets[:, part].to(lm.device)[predicts], logits[predicts]
        own, sampling = (
            of_tokens.log_softmax(-1),
            gather_sampling_logprobs(of_tokens, tokens, lm.spec),
        )
        kept = at_answer[:, part].to(lm.device)[predicts]
        compressed = compress_logits(
            of_tokens[kept], settings.top_logits, settings.n_temperature_nodes
        )
        parts.append(
            [
                gather_token(own, tokens),
                sampling,
                gather_token(of_tokens, tokens)[kept],
                *compressed,
            ]
        )
    verdicts = p_true.option_logits(lm, logits[:, -1])
    seconds = (p_true.seconds_when_idle(lm) - started) * query / length / len(rows)
    columns = [torch.cat(column).cpu() for column in zip(*parts, strict=True)]
    counts = [[len(row.response) for row in rows]] * 2 + [[len(row.kept) for row in rows]] * 4
    by_row = list(
        zip(
            *(column.split(count) for column, count in zip(columns, counts, strict=True)),
            strict=True,
        )
    )
    sums = [
        float(own.sum()) + verdict["logz"]
        for (own, *_), verdict in zip(by_row, verdicts, strict=True)
    ]
    check_finite_logits(lm, sums, [row.name for row in rows])
    return [
        {
            "token_logprobs": own.numpy(),
            "token_logprobs_sampling": sampling.numpy(),
            "kept_positions": np.array(row.kept, np.int32),
            "chosen_logit": chosen.numpy(),
            "top_logits": list(top.numpy()),
            "top_ids": list(top_ids.int().numpy()),
            "tail_curve": list(tail_curve.numpy()),
            "located": row.located,
            **p_true.in_situ_columns(verdict | {"seconds": seconds}),
        }
        for row, verdict, (own, sampling, chosen, top, top_ids, tail_curve) in zip(
            rows, verdicts, by_row, strict=True
        )
    ]


def place_targets(rows: Sequence[Row], last: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens to predict at `count` places (rows, count), -1 for none; and where they are
    possible answers.

    The first place is `last` ids before the end.
    """
    targets = torch.full((len(rows), count), -1)
    at_answer = torch.zeros_like(targets, dtype=torch.bool)
    for row, tokens, answer in zip(rows, targets, at_answer, strict=True):
        first = last - row.last
        tokens[first : first + len(row.response)] = torch.tensor(row.response)
        answer[first + torch.tensor(row.kept)] = True
    return targets, at_answer


def predict_in_parts(
    lm: LanguageModel, cache: Cache, ids: torch.Tensor, places: Sequence[int]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Read token ids (rows, L) after a cache, and yield the float32 logits (rows, n, V) at some of
    the increasing places at a time.

    The slice tells which of the places these are. A long response would need too much memory for
    all of them.
    """
    at_once, read = max(1, logits_at_once(lm) // len(ids)), 0
    for first in range(0, len(places), at_once):
        part = slice(first, first + at_once)
        keep, end = torch.tensor(places[part], device=lm.device) - read, places[part][-1] + 1
        yield (
            part,
            lm.model(ids[:, read:end], past_key_values=cache, logits_to_keep=keep).logits.float(),
        )
        read = end


def logits_at_once(lm: LanguageModel) -> int:
    """Return at how many places the logits of the whole vocabulary may be in memory."""
    return LOGITS_AT_ONCE * (4 if lm.device.type == "cuda" else 1) // lm.vocab_size


def gather_token(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return (n,) the entry of each row of values (n, V) at its token (n,)."""
    return values.gather(-1, tokens[:, None])[:, 0]


def gather_sampling_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, spec: Model
) -> torch.Tensor:
    """Return (n,) log-probabilities of tokens (n,) under the sampling distribution of logits (n,
    V).

    Another engine may draw a token that is truncated here, as it rounds differently at the nucleus'
    edge. Such a token gets its log-probability before truncation.
    """
    found = gather_token(warp_logits(logits, spec).log_softmax(-1), tokens)
    cut = found.isinf()
    found[cut] = gather_token((logits[cut] / spec.temperature).log_softmax(-1), tokens[cut])
    return found
