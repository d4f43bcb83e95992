"""Scoring: one teacher-forced pass over prompt, response and query says all that is kept of a response.

Whoever drew it gives token ids alone. The pass gives each token's log-probability under the model and under the
sampling distribution, compressed logits at what may be the answer, and P(True) in situ, which the query ends with.
Rows are padded on the right, where causal attention never looks: no mask, no positions, and no cache of sliding windows
that padding could fill.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache

from lib.configs import Model
from lib.generate import p_true
from lib.generate.batching import batch_by_length, retry_in_halves_on_oom
from lib.generate.models import LanguageModel, check_finite_logits
from lib.generate.sampling import Request, encode_prefix, select_rows, warp_logits
from lib.generate.temperatures import temperatures
from lib.params import Generation
from lib.tasks import answers
from lib.tasks.datasets import hash_words

PASS_TOKENS = 4096  # of the rows of one pass: few, for padding costs more than a pass
LOGITS_AT_ONCE = 2**25  # numbers, 134 MB; four times as many on a GPU, where a pass is mostly launches
Scores = dict[str, Any]  # columns of the generations frame


class TokenLogits(NamedTuple):
    """What is kept of the distributions of n answer tokens: enough to softmax their logits again at any temperature."""

    chosen: torch.Tensor  # (n,) logits of the tokens that were written
    top: torch.Tensor  # (n, top) largest logits
    top_ids: torch.Tensor  # (n, top) their tokens
    tail_curve: torch.Tensor  # (n, nodes) log-partition of all others, less the largest logit, by temperature


def compress_logits(logits: torch.Tensor, top: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What re-softmaxing at any temperature needs of float32 logits.

    Parameters
    ----------
    logits : (n, V)
    top : logits that are kept exactly
    nodes : temperatures at which the others are summed

    Returns
    -------
    The `top` largest logits (n, top), their ids (n, top), and the log-partition curve of the rest (n, nodes):
    log sum_v exp((z_v - z_max) / t) over the vocabulary outside the top, at `temperatures(nodes)`.
    """
    values, ids = logits.topk(min(top, logits.shape[-1] - 1), dim=-1)
    rest = (logits - values[:, :1]).scatter(-1, ids, -torch.inf)
    # a node at a time: all at once would hold nodes x V
    curve = torch.stack([(rest / t).logsumexp(-1) for t in temperatures(nodes)], dim=-1)
    return values, ids, curve


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Every token that some answer-span policy may choose: the answer's, the last number's, the last one."""
    positions = {length - 1}
    for name in ("answer", "last_number"):
        start, end = located[f"{name}_start"], located[f"{name}_end"]
        if start >= 0:
            positions |= set(range(start, end))
    return sorted(positions)


def score_responses(
    lm: LanguageModel, requests: Sequence[Request], responses: Sequence[list[int]], settings: Generation
) -> list[Scores]:
    """Scores of responses (token ids, the end token too), in their order.

    In half precision a row's last digits hang on what it is batched with, so each is scored by itself. What all prompts
    begin with is encoded once.

    Raises
    ------
    UserError
        A row's logits are not finite, or a single row does not fit the device.
    """
    query = p_true.query_ids(lm)
    rows = [ScoredRow.locate(lm, *pair, query) for pair in zip(requests, responses, strict=True)]
    prefix = encode_prefix(lm, rows[0].ids[: requests[0].shared_tokens])
    at_once = 1 if lm.model.dtype != torch.float32 else min(settings.max_batch_tokens, PASS_TOKENS)
    scores: dict[int, Scores] = {}
    for group in batch_by_length([len(row.ids) for row in rows], at_once):
        found = retry_in_halves_on_oom(
            lambda part: score_batch(lm, part, prefix, settings), [rows[i] for i in group], f"model '{lm.name}'"
        )
        scores |= zip(group, found, strict=True)
    return [scores[i] for i in range(len(rows))]


@dataclass(frozen=True)
class ScoredRow:
    """A row of a scoring pass. Column `first + i` predicts token i of the response."""

    request: Request
    response: list[int]
    ids: list[int]  # prompt, response without its end token, query
    located: dict[str, Any]
    positions: list[int]  # in the response, of what may be the answer

    @classmethod
    def locate(cls, lm: LanguageModel, request: Request, response: list[int], query: list[int]) -> "ScoredRow":
        body = response[:-1] if response[-1] in lm.eos else response
        located = answers.locate_answer(lm.tokenizer, body, lm.spec.thinking)
        positions = answer_positions(located, max(len(body), 1))  # of a response that ends at once, its end token
        return cls(request, response, [*request.prompt_ids, *body, *query], located, positions)

    @property
    def first(self) -> int:
        return len(self.request.prompt_ids) - 1


@torch.inference_mode()
def score_batch(lm: LanguageModel, rows: Sequence[ScoredRow], prefix: Cache, settings: Generation) -> list[Scores]:
    """The same of one batch, behind the cache of its shared beginning, which is left as it is.

    Logits are there for a chunk of columns at a time. In situ takes the query's share of the pass's seconds.
    """
    started, shared = p_true.seconds_when_idle(lm), prefix.get_seq_length()
    cache = select_rows(prefix, [0] * len(rows))
    ids, targets, at_answer, at_end = lay_out(rows)
    own, sampling = torch.zeros(2, *ids.shape)
    kept: list[TokenLogits] = []
    kept_rows: list[torch.Tensor] = []  # by chunk, and within it by row and column
    verdicts: dict[int, p_true.OptionLogits] = {}
    at_once = LOGITS_AT_ONCE * (4 if lm.device.type == "cuda" else 1) // lm.vocab_size
    for part in split_columns((targets >= 0) | at_end, shared, at_once):
        wanted = (targets[:, part] >= 0) | at_end[:, part]
        tokens = targets[:, part][wanted].clamp(min=0).to(lm.device)  # (n,)
        keep = wanted.to(lm.device)
        encoded = ids[:, part].to(lm.device)
        logits = lm.model(encoded, past_key_values=cache, logits_to_keep=keep).logits.float()  # (n, V)
        own[:, part][wanted] = gather_token(logits.log_softmax(-1), tokens).cpu()
        kept.append(keep_answer(logits, tokens, at_answer[:, part][wanted], settings))
        kept_rows.append(at_answer[:, part].nonzero()[:, 0])
        ended = at_end[:, part].nonzero()[:, 0].tolist()
        at_query = logits[at_end[:, part][wanted].to(lm.device)]
        verdicts |= zip(ended, p_true.option_logits(lm, at_query), strict=True)
        sampling[:, part][wanted] = gather_sampling_logprobs(logits, tokens, lm.spec).cpu()
    seconds = (p_true.seconds_when_idle(lm) - started) * len(p_true.query_ids(lm)) / ids[:, shared:].numel()
    partitions = [float(of_row.sum()) + verdicts[i]["logz"] for i, of_row in enumerate(own)]
    check_finite_logits(lm, partitions, [row.request.example.example_id for row in rows])
    row_of, answer = torch.cat(kept_rows), TokenLogits(*map(torch.cat, zip(*kept, strict=True)))
    return [
        to_scores(row, own[i], sampling[i], TokenLogits(*(values[row_of == i] for values in answer)))
        | p_true.in_situ_columns(verdicts[i] | {"seconds": seconds})
        for i, row in enumerate(rows)
    ]


def keep_answer(
    logits: torch.Tensor, tokens: torch.Tensor, at_answer: torch.Tensor, settings: Generation
) -> TokenLogits:
    """What is kept of those of logits (n, V), and of `tokens` (n,), that are `at_answer` (n,); on the host."""
    here = at_answer.to(logits.device)
    logits, tokens = logits[here], tokens[here]
    kept = gather_token(logits, tokens), *compress_logits(logits, settings.top_logits, settings.n_temperature_nodes)
    return TokenLogits(*(values.cpu() for values in kept))


def lay_out(rows: Sequence[ScoredRow]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids of a batch (batch, L), and by column: the response's token that it predicts, or -1; whether that may
    be part of the answer; whether the row ends here, so that it predicts the option."""
    ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
    targets = torch.full_like(ids, -1)
    at_answer, at_end = torch.zeros(2, *ids.shape, dtype=torch.bool)
    for i, row in enumerate(rows):
        targets[i, row.first : row.first + len(row.response)] = torch.tensor(row.response)
        at_answer[i, [row.first + position for position in row.positions]] = True
        at_end[i, len(row.ids) - 1] = True
    return ids, targets, at_answer, at_end


def split_columns(wanted: torch.Tensor, start: int, most: int) -> list[slice]:
    """Columns of `wanted` (batch, L) from `start` on, in chunks of which at most `most` entries are wanted."""
    cuts, count = [start], 0
    for column, number in enumerate(wanted.sum(0).tolist()):
        if count and count + number > most:
            cuts.append(column)
            count = 0
        count += number
    return [slice(*ends) for ends in pairwise([*cuts, wanted.shape[1]])]


def gather_token(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """(n,) the entry of each row of values (n, V) at its token (n,)."""
    return values.gather(-1, tokens[:, None])[:, 0]


def gather_sampling_logprobs(logits: torch.Tensor, tokens: torch.Tensor, spec: Model) -> torch.Tensor:
    """(n,) log-probabilities of tokens (n,) under logits (n, V) as they are sampled. Of a token that is truncated, but
    was drawn all the same (another engine rounds otherwise at the nucleus' edge), those before truncation."""
    found = gather_token(warp_logits(logits, spec).log_softmax(-1), tokens)
    cut = found.isinf()
    found[cut] = gather_token((logits[cut] / spec.temperature).log_softmax(-1), tokens[cut])
    return found


def to_scores(row: ScoredRow, own: torch.Tensor, sampling: torch.Tensor, answer: TokenLogits) -> Scores:
    """Columns of one response, of log-probabilities by column of its row (L,)."""
    of_response = slice(row.first, row.first + len(row.response))
    return {
        "token_logprobs": own[of_response].numpy(),
        "token_logprobs_sampling": sampling[of_response].numpy(),
        "kept_positions": np.array(row.positions, np.int32),
        "chosen_logit": answer.chosen.numpy(),
        "top_logits": list(answer.top.numpy()),
        "top_ids": list(answer.top_ids.int().numpy()),
        "tail_curve": list(answer.tail_curve.numpy()),
        "located": row.located,
    }


def response_row(
    request: Request, token_ids: Sequence[int], scores: Scores, thinking: bool, save_texts: bool
) -> dict[str, Any]:
    """One line of the generations frame; `scores` are columns, and say where in the text the answer is `located`."""
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
