"""Scoring: one teacher-forced pass over prompt, response and query computes all stored quantities
of a response.

The engine returns only token ids. The pass computes each token's log-probability, under the model
and under the sampling distribution. It also computes compressed logits at possible answer tokens,
and in-situ P(True) after the query. There is no padding, and in float32 rows of equal length share
a pass.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

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
    count = min(top, logits.shape[-1] - 1)
    values, ids = logits.topk(count, dim=-1)
    largest = values[:, :1]
    rest = (logits - largest).scatter(-1, ids, -torch.inf)
    curve = []
    for t in temperatures(nodes):  # one node at a time: all together would need nodes x V
        curve.append((rest / t).logsumexp(-1))
    return values, ids, torch.stack(curve, dim=-1)


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Return every token that an answer-span policy may choose: those of the answer and of the last
    number, and the last one.
    """
    positions = {length - 1}
    # either is empty if its ends are -1
    positions |= set(range(located["answer_start"], located["answer_end"]))
    positions |= set(range(located["last_number_start"], located["last_number_end"]))
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
    first = requests[0]
    prefix = encode_prefix(lm, first.prompt_ids[: first.shared_tokens])
    rows = []
    for request, response in zip(requests, responses, strict=True):
        rows.append(Row(lm, request, response))
    work = partial(score_rows, lm, prefix, settings)
    lengths = [len(row.ids) for row in rows]
    at_once = logits_at_once(lm) if lm.model.dtype == torch.float32 else 1
    return map_by_length(work, rows, lengths, at_once, f"model '{lm.name}'", equal=True)


class Row:
    """A response as the pass reads it.

    `ids` are those of prompt, response and query, and `candidates` are the positions of possible
    answer tokens. `last` is the number of last ids that predict something, from the one before the
    response on.
    """

    def __init__(self, lm: LanguageModel, request: Request, response: list[int]):
        ended = response[-1] in lm.eos
        body = response[:-1] if ended else response
        query = p_true.query_ids(lm)
        self.name = request.example.example_id
        self.response = response
        self.ids = [*request.prompt_ids, *body, *query]
        self.last = len(body) + len(query) + 1
        texts = answers.token_texts(lm.tokenizer, body)
        self.located = answers.locate_answer(texts, lm.spec.thinking)
        # for an empty response, its end token
        self.candidates = answer_positions(self.located, max(len(body), 1))


class TokenScores(NamedTuple):
    """What the pass computes of n tokens, k of which are possible answer tokens."""

    logprobs: torch.Tensor  # (n,) under the model
    sampling_logprobs: torch.Tensor  # (n,) under the sampling distribution
    chosen_logits: torch.Tensor  # (k,)
    top_logits: torch.Tensor  # (k, top)
    top_ids: torch.Tensor  # (k, top)
    tail_curves: torch.Tensor  # (k, nodes)

    @classmethod
    def concatenate(cls, parts: Sequence["TokenScores"]) -> "TokenScores":
        """Join the scores of consecutive tokens, on the CPU."""
        columns = zip(*parts, strict=True)
        return cls(*[torch.cat(column).cpu() for column in columns])

    def split(self, rows: Sequence[Row]) -> list["TokenScores"]:
        """Return the scores of each row."""
        tokens = [len(row.response) for row in rows]
        candidates = [len(row.candidates) for row in rows]
        by_row = zip(
            self.logprobs.split(tokens),
            self.sampling_logprobs.split(tokens),
            self.chosen_logits.split(candidates),
            self.top_logits.split(candidates),
            self.top_ids.split(candidates),
            self.tail_curves.split(candidates),
            strict=True,
        )
        return [TokenScores(*columns) for columns in by_row]


@torch.inference_mode()
def score_rows(
    lm: LanguageModel, prefix: Cache, settings: Generation, rows: Sequence[Row]
) -> list[Scores]:
    """Return the scores of rows of one length, after the cache of their shared prefix, which is
    unchanged.

    The pass reads prompt, response and query, and predicts the response's tokens and the option.
    The seconds in situ are the query's share of the pass.
    """
    started = p_true.seconds_when_idle(lm)
    cache = repeat_row(prefix, len(rows))
    shared = prefix.get_seq_length()
    ids = torch.tensor([row.ids[shared:] for row in rows], device=lm.device)
    length = ids.shape[1]
    query = len(p_true.query_ids(lm))
    last = max(row.last for row in rows)
    places = list(range(length - last, length - query))  # of the responses' tokens
    places.append(length - 1)  # of the option
    targets, is_candidate = place_targets(rows, last, len(places))
    parts = []  # several of a single row, or one of all rows
    for part, logits in predict_in_parts(lm, cache, ids, places):
        tokens = targets[:, part]
        candidates = is_candidate[:, part]
        parts.append(score_part(lm, settings, logits, tokens, candidates))
    verdicts = p_true.option_logits(lm, logits[:, -1])
    seconds = p_true.seconds_when_idle(lm) - started
    for verdict in verdicts:
        verdict["seconds"] = seconds * query / length / len(rows)
    return combine_scores(lm, rows, TokenScores.concatenate(parts).split(rows), verdicts)


def place_targets(rows: Sequence[Row], last: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens to predict at `count` places (rows, count), -1 for none; and where they are
    possible answers.

    The first place is `last` ids before the end.
    """
    targets = torch.full((len(rows), count), -1)
    is_candidate = torch.zeros_like(targets, dtype=torch.bool)
    for number, row in enumerate(rows):
        first = last - row.last
        end = first + len(row.response)
        targets[number, first:end] = torch.tensor(row.response)
        is_candidate[number, first + torch.tensor(row.candidates)] = True
    return targets, is_candidate


def score_part(
    lm: LanguageModel,
    settings: Generation,
    logits: torch.Tensor,
    targets: torch.Tensor,
    is_candidate: torch.Tensor,
) -> TokenScores:
    """Return the scores of the tokens at some places.

    Parameters
    ----------
    logits : float32 (rows, places, V)
    targets, is_candidate : of `place_targets`, (rows, places)
    """
    predicts = (targets >= 0).to(lm.device)
    tokens = targets.to(lm.device)[predicts]
    of_tokens = logits[predicts]
    candidates = is_candidate.to(lm.device)[predicts]
    top, top_ids, tail = compress_logits(
        of_tokens[candidates], settings.top_logits, settings.n_temperature_nodes
    )
    return TokenScores(
        gather_token(of_tokens.log_softmax(-1), tokens),
        gather_sampling_logprobs(of_tokens, tokens, lm.spec),
        gather_token(of_tokens, tokens)[candidates],
        top,
        top_ids,
        tail,
    )


def combine_scores(
    lm: LanguageModel,
    rows: Sequence[Row],
    scores: Sequence[TokenScores],
    verdicts: Sequence[p_true.OptionLogits],
) -> list[Scores]:
    """Return the columns of rows, from the scores of their tokens and the verdict in situ."""
    columns, sums = [], []
    for row, of_row, verdict in zip(rows, scores, verdicts, strict=True):
        total = float(of_row.logprobs.sum())
        sums.append(total + verdict["logz"])
        columns.append(
            {
                "token_logprobs": of_row.logprobs.numpy(),
                "token_logprobs_sampling": of_row.sampling_logprobs.numpy(),
                "kept_positions": np.array(row.candidates, np.int32),
                "chosen_logit": of_row.chosen_logits.numpy(),
                "top_logits": list(of_row.top_logits.numpy()),
                "top_ids": list(of_row.top_ids.int().numpy()),
                "tail_curve": list(of_row.tail_curves.numpy()),
                "located": row.located,
                **p_true.in_situ_columns(verdict),
            }
        )
    check_finite_logits(lm, sums, [row.name for row in rows])
    return columns


def predict_in_parts(
    lm: LanguageModel, cache: Cache, ids: torch.Tensor, places: Sequence[int]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Read token ids (rows, L) after a cache, and yield the float32 logits (rows, n, V) at some of
    the increasing places at a time.

    The slice tells which of the places these are. A long response would need too much memory for
    all of them.
    """
    at_once = max(1, logits_at_once(lm) // len(ids))
    read = 0
    for first in range(0, len(places), at_once):
        part = slice(first, first + at_once)
        end = places[part][-1] + 1
        keep = torch.tensor(places[part], device=lm.device) - read
        output = lm.model(ids[:, read:end], past_key_values=cache, logits_to_keep=keep)
        yield part, output.logits.float()
        read = end


def logits_at_once(lm: LanguageModel) -> int:
    """Return at how many places the logits of the whole vocabulary may be in memory."""
    numbers = LOGITS_AT_ONCE
    if lm.device.type == "cuda":
        numbers *= 4
    return numbers // lm.vocab_size


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
    logprobs = gather_token(warp_logits(logits, spec).log_softmax(-1), tokens)
    truncated = logprobs.isinf()
    whole = (logits[truncated] / spec.temperature).log_softmax(-1)
    logprobs[truncated] = gather_token(whole, tokens[truncated])
    return logprobs
