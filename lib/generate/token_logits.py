"""What is kept of a next-token distribution: enough to softmax its logits again at any temperature.

Of each token that may be part of an answer: its own logit, the largest logits with their ids, and for all the others
the log-partition as a curve over temperatures. So 128,000 logits become some 160 numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from lib.generate.models import LanguageModel
from lib.generate.temperatures import temperatures
from lib.params import Generation

RING = 48  # number-like tokens per response whose logits are kept while decoding; older ones are re-encoded if needed


class TokenLogits(NamedTuple):
    """What is kept of the distribution of one token."""

    chosen: torch.Tensor  # () logit of the token that was written
    top: torch.Tensor  # (top,) largest logits
    top_ids: torch.Tensor  # (top,) their tokens
    tail_curve: torch.Tensor  # (nodes,) log-partition of all others, less the largest logit, at `temperatures(nodes)`


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


class Ring:
    """The latest RING tokens of each row of a batch that are kept, the next one in place of the oldest.

    All is allocated at the start: small pieces allocated between the (batch, V) blocks of each step would fragment the
    heap, which then grows by a block a step.
    """

    def __init__(self, batch: int, vocabulary: int, settings: Generation, device: torch.device):
        self.settings = settings
        self.count = [0] * batch  # tokens of each row so far
        self.positions = torch.zeros(batch, RING, dtype=torch.long)
        top, nodes = min(settings.top_logits, vocabulary - 1), settings.curve_nodes
        self.buffers = TokenLogits(
            torch.zeros(batch, RING, device=device), torch.zeros(batch, RING, top, device=device),
            torch.zeros(batch, RING, top, dtype=torch.long, device=device),
            torch.zeros(batch, RING, nodes, device=device))  # fmt: skip

    def keep(self, rows: Sequence[int], position: int, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        """Compressed logits (n, V) of the n `rows` whose token at `position` has the logit `chosen` (n,)."""
        slots = [self.count[row] % RING for row in rows]
        at = torch.tensor([rows, slots], device=logits.device)
        compressed = compress(logits, self.settings.top_logits, self.settings.curve_nodes)
        for buffer, values in zip(self.buffers, (chosen, *compressed), strict=True):
            buffer[at[0], at[1]] = values
        for row, slot in zip(rows, slots, strict=True):
            self.positions[row, slot] = position
            self.count[row] += 1

    def row(self, row: int) -> dict[int, TokenLogits]:
        """What is kept of a row, by position in the response."""
        slots = range(min(self.count[row], RING))
        return {int(self.positions[row, i]): TokenLogits(*(buffer[row, i] for buffer in self.buffers)) for i in slots}


@torch.inference_mode()
def logits_at(lm: LanguageModel, prompt: list[int], response: list[int], positions: Sequence[int]) -> torch.Tensor:
    """Raw float32 logits (n, V) that predict the response's tokens at `positions`, by one full forward pass."""
    ids = torch.tensor([prompt + response], device=lm.device)
    predicting = torch.tensor([len(prompt) + position - 1 for position in positions], device=lm.device)
    return lm.model(ids, logits_to_keep=predicting, use_cache=False).logits[0].float()


def encode_again(lm: LanguageModel, prompt: list[int], response: list[int], positions: Sequence[int],
                 settings: Generation) -> dict[int, TokenLogits]:  # fmt: skip
    """What decoding would have kept of the response's tokens at `positions`, by one full forward pass."""
    if not positions:
        return {}
    logits = logits_at(lm, prompt, response, positions)
    top, top_ids, curve = compress(logits, settings.top_logits, settings.curve_nodes)
    return {position: TokenLogits(logits[i, response[position]], top[i], top_ids[i], curve[i])
            for i, position in enumerate(positions)}  # fmt: skip
