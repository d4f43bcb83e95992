"""How much the passes over one response disagree at the answer (`eq:bald`), in float64.

Float32 probabilities of 128k tokens sum to 1 only within about 1e-5. Some libraries then apply a
second softmax, after which every disagreement vanishes. So we apply a float64 softmax to float32
logits.
"""

from collections.abc import Iterable
from typing import Any

import torch


def bald_terms(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both terms of `eq:bald` after 1..T passes; their difference is BALD.

    Parameters
    ----------
    p : float64 probabilities (T, m, V) of T passes at m answer tokens

    Returns
    -------
    predictive, conditional : entropy of the mean of the first t passes, mean of their entropies;
        (T, m) each, nats
    """
    t = torch.arange(1, len(p) + 1, device=p.device)
    mean = p.cumsum(0) / t[:, None, None]
    entropies = torch.special.entr(p).sum(-1)
    predictive = torch.special.entr(mean).sum(-1)
    conditional = entropies.cumsum(0) / t[:, None]
    return predictive, conditional


def bald_terms_of_halves(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both terms after all passes of either half, (2, m) each; (0, m) if T is 1."""
    half = len(p) // 2
    if half == 0:
        none = p.new_empty((0, p.shape[1]))
        return none, none
    halves = p[: 2 * half].unflatten(0, (2, half))
    mean = halves.mean(1)
    entropies = torch.special.entr(halves).sum(-1)
    predictive = torch.special.entr(mean).sum(-1)
    conditional = entropies.mean(1)
    return predictive, conditional


def effective_supports(p: torch.Tensor, top_k: int, top_p: float) -> dict[str, torch.Tensor]:
    """Return the sizes (T, m) of the union of the first t passes' top-k and top-p sets
    (`app:bald`), by column.

    A top-p set is the smallest set whose mass exceeds p. Tokens that tie with its last token are
    included.
    """
    falling = p.sort(-1, descending=True).values
    before = falling.cumsum(-1) - falling
    most_probable = min(top_k, p.shape[-1])
    sizes = {
        "top_k": torch.full(p.shape[:-1], most_probable, device=p.device),
        "top_p": (before <= top_p).sum(-1),
    }
    unions = {}
    for name, size in sizes.items():
        least = falling.gather(-1, size[..., None] - 1)
        in_any = (p >= least).cumsum(0) > 0
        unions[name] = in_any.sum(-1, dtype=torch.int32)
    return unions


def columns_of_block(p: torch.Tensor, top_k: int, top_p: float) -> dict[str, torch.Tensor]:
    """Return the columns of a dropout frame for probabilities (T, b, V) at some answer tokens."""
    predictive, conditional = bald_terms(p)
    half_predictive, half_conditional = bald_terms_of_halves(p)
    most_probable = p.argmax(-1)
    return {
        "predictive": predictive,
        "conditional": conditional,
        **effective_supports(p, top_k, top_p),
        "top_changed": (most_probable != most_probable[0]).any(0),
        "half_predictive": half_predictive,
        "half_conditional": half_conditional,
    }


def dropout_columns(
    logits: Iterable[torch.Tensor], top_k: int = 10, top_p: float = 0.95
) -> dict[str, Any]:
    """Return the columns of a dropout frame for the passes over one response.

    Parameters
    ----------
    logits : float32 logits (T, b, V) of T passes, in blocks of answer tokens, m in total

    Returns
    -------
    by column, a list of T arrays (m,); columns `half_...` have 2 arrays, one for
    each half of the passes; and `top_changed` (m,)
    """
    blocks = []
    for block in logits:
        p = block.double().softmax(-1)
        blocks.append(columns_of_block(p, top_k, top_p))
    columns: dict[str, Any] = {}
    for name in blocks[0]:
        joined = torch.cat([block[name] for block in blocks], -1)
        values = joined.cpu().numpy()
        columns[name] = values if values.ndim == 1 else list(values)
    return columns
