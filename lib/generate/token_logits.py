"""What is kept of a next-token distribution: enough to softmax its logits again at any temperature.

Of each token that may be part of an answer: its own logit, the largest logits with their ids, and for all the others
the log-partition as a curve over temperatures. So 128,000 logits become some 160 numbers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from lib.generate.models import LanguageModel
from lib.generate.temperatures import temperatures
from lib.params import Generation

RING = 48  # number-like tokens per response whose logits are kept while decoding; older ones are re-encoded if needed
CHUNK = 128  # tokens whose logits are read from hidden states at once: 128 x 152,000 float32 are 78 MB


class TokenLogits(NamedTuple):
    """What is kept of the distribution of one token."""

    logprob: torch.Tensor  # () log-probability of the token that was written
    chosen: torch.Tensor  # () its logit
    top: torch.Tensor  # (top,) largest logits
    top_ids: torch.Tensor  # (top,) their tokens
    tail_curve: torch.Tensor  # (nodes,) log-partition of all others, less the largest logit, at `temperatures(nodes)`


# of a token while others are still drawn; of a model whose head rounds nothing what that was given, (H,)
Kept = TokenLogits | torch.Tensor


def compress(logits: torch.Tensor, top: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What re-softmaxing at any temperature needs of float32 logits (n, V).

    Returns the `top` largest logits (n, top), their ids (n, top), and the log-partition curve of the rest (n, nodes):
    log sum_v exp((z_v - z_max) / t) over the vocabulary outside the top, at `temperatures(nodes)`.
    """
    values, ids = logits.topk(min(top, logits.shape[-1] - 1), dim=-1)
    rest = (logits - values[:, :1]).scatter(-1, ids, -torch.inf)
    # a node at a time: all at once would hold nodes x V
    curve = torch.stack([(rest / t).logsumexp(-1) for t in temperatures(nodes)], dim=-1)
    return values, ids, curve


def of_tokens(logits: torch.Tensor, tokens: torch.Tensor, settings: Generation) -> TokenLogits:
    """What is kept of float32 logits (n, V), and of the n `tokens` that were written."""
    chosen, logprob = (values.gather(-1, tokens[:, None])[:, 0] for values in (logits, logits.log_softmax(-1)))
    return TokenLogits(logprob, chosen, *compress(logits, settings.top_logits, settings.curve_nodes))


def by_position(kept: TokenLogits, positions: Sequence[int]) -> dict[int, TokenLogits]:
    """What was kept of n tokens at once, by their positions."""
    return {position: TokenLogits(*(values[i] for values in kept)) for i, position in enumerate(positions)}


class Ring:
    """The latest `size` tokens of each row of a batch that are kept, the next one in place of the oldest: of each of
    them values of these `kinds`, given by a tensor (one of them, ...).

    All is allocated at the start: small pieces allocated between the (batch, V) blocks of each step would fragment the
    heap, which then grows by a block a step.
    """

    def __init__(self, batch: int, kinds: Sequence[torch.Tensor], size: int):
        self.count, self.size = [0] * batch, size  # tokens of each row so far
        self.positions = torch.zeros(batch, size, dtype=torch.long)
        self.buffers = [kind.new_empty(batch, size, *kind.shape[1:]) for kind in kinds]

    def keep(self, rows: Sequence[int], position: int, values: Sequence[torch.Tensor]) -> None:
        """Values (n, ...) of each kind, of the n `rows` whose token stands at `position`."""
        slots = [self.count[row] % self.size for row in rows]
        at = torch.tensor([rows, slots], device=values[0].device)
        for buffer, some in zip(self.buffers, values, strict=True):
            buffer[at[0], at[1]] = some
        for row, slot in zip(rows, slots, strict=True):
            self.positions[row, slot] = position
            self.count[row] += 1

    def row(self, row: int) -> dict[int, tuple[torch.Tensor, ...]]:
        """What is kept of a row, by position in the response."""
        slots = range(min(self.count[row], self.size))
        return {int(self.positions[row, i]): tuple(buffer[row, i] for buffer in self.buffers) for i in slots}


@torch.inference_mode()
def read(lm: LanguageModel, kept: Mapping[int, Kept], response: list[int], positions: Sequence[int],
         settings: Generation) -> dict[int, TokenLogits]:  # fmt: skip
    """What was kept of the response's tokens at `positions`: as it is; of hidden states, by the last product."""
    found, hidden = {}, {}
    for position in positions:
        value = kept[position]
        if isinstance(value, TokenLogits):
            found[position] = value
        else:
            hidden[position] = value
    if not hidden or lm.head is None:
        return found
    logits = lm.head(torch.stack(list(hidden.values())))
    tokens = torch.tensor([response[position] for position in hidden], device=logits.device)
    return found | by_position(of_tokens(logits, tokens, settings), list(hidden))


@torch.inference_mode()
def logprobs(lm: LanguageModel, kept: Mapping[int, Kept], response: list[int]) -> dict[int, float]:
    """Log-probabilities of a response's tokens whose hidden states were kept, by position, from float32 logits: those
    with which it was drawn may be rounded."""
    hidden = {position: value for position, value in kept.items() if isinstance(value, torch.Tensor)}
    if not hidden or lm.head is None:
        return {}
    tokens = torch.tensor([response[position] for position in hidden], device=lm.device)
    parts = zip(torch.stack(list(hidden.values())).split(CHUNK), tokens.split(CHUNK), strict=True)
    found = [lm.head(some).log_softmax(-1).gather(-1, written[:, None]) for some, written in parts]
    return dict(zip(hidden, torch.cat(found)[:, 0].tolist(), strict=True))


@torch.inference_mode()
def logits_at(lm: LanguageModel, prompt: list[int], response: list[int], positions: Sequence[int]) -> torch.Tensor:
    """Raw float32 logits (n, V) that predict the response's tokens at `positions`, by one full forward pass over this
    row alone: its shape, and so every last digit in half precision, hangs on no other row."""
    ids = torch.tensor([prompt + response], device=lm.device)
    predicting = torch.tensor([len(prompt) + position - 1 for position in positions], device=lm.device)
    return lm.model(ids, logits_to_keep=predicting, use_cache=False).logits[0].float()


def encode_again(lm: LanguageModel, prompt: list[int], response: list[int], positions: Sequence[int],
                 settings: Generation) -> dict[int, TokenLogits]:  # fmt: skip
    """What decoding would have kept of the response's tokens at `positions`, by one full forward pass."""
    if not positions:
        return {}
    logits = logits_at(lm, prompt, response, positions)
    tokens = torch.tensor([response[position] for position in positions], device=logits.device)
    return by_position(of_tokens(logits, tokens, settings), positions)
