"""One step of decoding: from a distribution to a token, and to the little that is kept of it.

`generate` runs greedily over our own processors: the first notes the raw logits of the step, the warpers
(temperature, top-k, top-p, min-p) follow, and the last samples by inverting the cumulative distribution at a uniform
number that belongs to (example, step). So an example's tokens do not depend on the batch it is in, and one step's
logits are all that is ever held: `output_logits=True` would hold batch x length x vocabulary.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from lib.generate.temperatures import temperatures
from lib.params import Model

RING = 48  # number-like tokens per response whose logits are kept while sampling; older ones are re-encoded if needed


@dataclass(frozen=True)
class Settings:
    """What of a profile generation depends on."""

    seed: int = 0
    demonstration: bool = True
    max_new_tokens: int = 1024
    batch_tokens: int = 32768
    top_logits: int = 64
    curve_nodes: int = 33


def warpers(spec: Model) -> list[LogitsProcessor]:
    """The decoding settings as transformers' own processors, in its order; a setting that is off adds none."""
    chain: list[LogitsProcessor] = []
    if spec.temperature != 1.0:
        chain.append(TemperatureLogitsWarper(spec.temperature))
    if spec.top_k > 0:
        chain.append(TopKLogitsWarper(spec.top_k))
    if spec.top_p < 1.0:
        chain.append(TopPLogitsWarper(spec.top_p))
    if spec.min_p > 0.0:
        chain.append(MinPLogitsWarper(spec.min_p))
    return chain


def stream_seed(seed: int, *who: str) -> int:
    """Seed of a random stream, from the run's seed and names (model, dataset, example): 63 bits."""
    return int.from_bytes(hashlib.sha256("|".join([str(seed), *who]).encode()).digest()[:8], "big") >> 1


def uniforms(seeds: Sequence[int], steps: int) -> torch.Tensor:
    """(batch, steps) numbers in [0, 1), a row per seed. Philox counts, so a longer row begins with the shorter one."""
    return torch.from_numpy(np.stack([np.random.Generator(np.random.Philox(s)).random(steps) for s in seeds]))


def invert(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Tokens (batch,) where the cumulative distribution of logits (batch, V) passes u (batch,).

    The first index whose cumulative mass exceeds u has mass of its own, so a truncated token is never drawn.
    """
    cumulative = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)[:, 0]


def chosen(values: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """(batch,) the entry of each row of values (batch, V) at its token (batch,)."""
    return values.gather(-1, token[:, None])[:, 0]


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


class Note(LogitsProcessor):
    """First in the chain: notes the step's raw logits, and changes nothing."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.raw = scores.float()
        return scores


class Sample(LogitsProcessor):
    """Last in the chain: draws each row's token and gathers what is kept of it; then leaves it the only choice."""

    def __init__(self, note: Note, seeds: Sequence[int], number_like: torch.Tensor, settings: Settings):
        self.note, self.settings, self.number_like = note, settings, number_like
        batch, steps, device = len(seeds), settings.max_new_tokens, number_like.device
        self.uniforms = uniforms(seeds, steps).to(device)
        # All that outlives a step is allocated here: small pieces allocated between the (batch, V) blocks of each
        # step would fragment the heap, which then grows by a block a step.
        self.step = 0
        self.logprobs, self.sampling = torch.zeros(2, batch, steps, device=device)  # (batch, steps) each
        self.count = [0] * batch  # number-like tokens of each row so far; the latest RING are kept
        top, nodes = min(settings.top_logits, len(number_like) - 1), settings.curve_nodes
        self.where = torch.zeros(batch, RING, dtype=torch.long)
        self.ids = torch.zeros(batch, RING, top, dtype=torch.long, device=device)
        self.values = torch.zeros(batch, RING, 1 + top + nodes, device=device)  # chosen logit, top logits, curve

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = invert(scores, self.uniforms[:, self.step])
        # log_softmax, not z_y - logsumexp(z): that cancels digits where logits are large
        self.logprobs[:, self.step] = chosen(self.note.raw.log_softmax(-1), token)
        self.sampling[:, self.step] = chosen(scores.float().log_softmax(-1), token)
        self.keep(self.number_like[token].nonzero()[:, 0], chosen(self.note.raw, token))
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(-1, token[:, None], 0.0)

    def keep(self, rows: torch.Tensor, logit: torch.Tensor) -> None:
        """Compressed logits of the rows that have just written part of a number, the latest RING of each."""
        if not len(rows):
            return
        values, ids, curve = compress(self.note.raw[rows], self.settings.top_logits, self.settings.curve_nodes)
        at = torch.tensor([self.count[row] % RING for row in rows.tolist()])
        self.values[rows, at] = torch.cat([logit[rows, None], values, curve], dim=-1)
        self.ids[rows, at] = ids
        self.where[rows.cpu(), at] = self.step
        for row in rows.tolist():
            self.count[row] += 1

    @property
    def kept(self) -> list[dict[int, tuple[torch.Tensor, ...]]]:
        """Per row: position -> chosen logit, top logits, their ids, curve of the rest (as `compress`)."""
        top = self.ids.shape[-1]
        return [
            {int(self.where[row, i]): (v[0], v[1 : 1 + top], self.ids[row, i], v[1 + top :])
             for i, v in enumerate(self.values[row, : min(count, RING)])}
            for row, count in enumerate(self.count)
        ]  # fmt: skip
