"""How the distributions of stochastic passes disagree at the answer's tokens (`eq:bald`), added up pass by pass.

Float64 sums over float32 logits: float32 probabilities of 128k tokens do not sum to 1 within 1e-5, and a library that
answers that with a softmax over them makes every disagreement vanish.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

BLOCK = 2**21  # probabilities of one pass at once: 13 tokens of a vocabulary of 152k; an endless number has hundreds


def falling(p: torch.Tensor) -> torch.Tensor:
    """Indices (..., V) of probabilities in falling order; on a CPU by numpy, which is five times faster."""
    if p.device.type == "cpu":
        return torch.from_numpy(np.argsort(-p.numpy(), -1))
    return p.argsort(-1, descending=True)


class Disagreement:
    """Passes of one example, added in order. Kept per number of passes 1..T and answer token (m): predictive entropy of
    the mean distribution, mean conditional entropy (nats; their difference is BALD), and the sizes of the union of all
    passes' top-k and top-p tokens, the effective supports of appendix `app:bald`.

    Between passes (m, V) numbers are carried, and never a view of (passes, m, V); nothing of them once all of a known
    number of `passes` are in. Raises ValueError where more are added.
    """

    def __init__(self, top_k: Sequence[int] = (), top_p: Sequence[float] = (), passes: int | None = None):
        self.top_k, self.top_p, self.passes = top_k, top_p, passes
        self.count = 0
        self.carried: dict[tuple[str, int], torch.Tensor] = {}  # by name and block of tokens
        self.kept: dict[str, list[torch.Tensor]] = {}

    def _sums(self, name: str, block: int, new: torch.Tensor) -> torch.Tensor:
        """Running sums over passes (b, ...), going on from those of earlier passes."""
        sums = new.cumsum(0) + self.carried.get((name, block), 0)
        self.carried[name, block] = sums[-1].clone()  # a view would keep the sums of all passes alive
        return sums

    def _sizes(self, name: str, block: int, new: torch.Tensor) -> torch.Tensor:
        """How many tokens some pass up to each has among `new` (b, tokens, V)."""
        union = self.carried.get((name, block), torch.zeros_like(new[0]))
        sizes = []
        for members in new:
            union = union | members
            sizes.append(union.sum(-1, dtype=torch.int32))
        self.carried[name, block] = union
        return torch.stack(sizes)

    def add(self, logits: torch.Tensor) -> None:
        """The next b passes: float32 logits (b, m, V); all of them or, where memory ends, none."""
        before = self.count, dict(self.carried)
        try:
            self._add(logits)
        except BaseException:
            self.count, self.carried = before
            raise

    def _add(self, logits: torch.Tensor) -> None:
        if self.passes is not None and self.count + len(logits) > self.passes:
            raise ValueError(f"{self.count + len(logits)} passes, where {self.passes} were announced")
        blocks = logits.split(max(1, BLOCK // logits.shape[-1]), 1)
        found = [self._values(part, block) for block, part in enumerate(blocks)]
        self.count += len(logits)
        for name in found[0]:
            self.kept.setdefault(name, []).append(torch.cat([values[name] for values in found], 1))
        if self.count == self.passes:
            self.carried.clear()

    def _values(self, logits: torch.Tensor, block: int) -> dict[str, torch.Tensor]:
        """What is kept of the next b passes at some of the tokens: (b, tokens) each."""
        p = logits.double().softmax(-1)
        number = torch.arange(self.count + 1, self.count + len(p) + 1, device=p.device)[:, None]
        ids = falling(p)
        ordered = p.gather(-1, ids)
        values = {
            "predictive": torch.special.entr(self._sums("p", block, p) / number[..., None]).sum(-1),
            "conditional": self._sums("h", block, torch.special.entr(p).sum(-1)) / number,
            "top": ids[..., 0].clone(),
        }
        # top-p: the smallest set whose mass exceeds p holds every token that has at most p before it
        before, rank = ordered.cumsum(-1) - ordered, torch.arange(p.shape[-1], device=p.device).expand_as(p)
        inside = {f"top_k_{k}": rank < k for k in self.top_k} | {f"top_p_{q:g}": before <= q for q in self.top_p}
        for name, mask in inside.items():
            member = torch.zeros_like(mask).scatter_(-1, ids, mask)
            values[name] = self._sizes(name, block, member)
        return values

    def row(self) -> dict[str, Any]:
        """Lists (T) of arrays (m,), and per answer token whether the most probable token differs between passes."""
        kept = {name: torch.cat(parts).cpu().numpy() for name, parts in self.kept.items()}
        top = kept.pop("top")
        return {name: list(values) for name, values in kept.items()} | {"top_changed": (top != top[0]).any(0)}
