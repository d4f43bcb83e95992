"""Batches of sequences by length, and smaller batches when the device runs out of memory."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lib.errors import UserError

NO_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|can't allocate memory", re.IGNORECASE)
oom_splits: list[int] = []  # sizes of the batches that this process had to halve


def batch_by_length(
    lengths: Sequence[int], max_tokens: int, *, equal: bool = False
) -> list[list[int]]:
    """Return the indices of the sequences in each batch, shortest first.

    Parameters
    ----------
    lengths : tokens of each sequence
    max_tokens : tokens of a batch; a single sequence may exceed it
    equal : whether all sequences of a batch have one length, so that they need no padding
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        last = batches[-1] if batches else []
        has_room = 0 < len(last) < max_tokens // lengths[i]
        if has_room and (not equal or lengths[last[0]] == lengths[i]):
            last.append(i)
        else:
            batches.append([i])
    return batches


def map_by_length(
    work: Callable[[list], list],
    items: Sequence[Any],
    lengths: Sequence[int],
    max_tokens: int,
    what: str,
    *,
    equal: bool = False,
) -> list[Any]:
    """Apply `work` to the batches of `batch_by_length` and return the results in the order of the
    items."""
    results: list[Any] = [None] * len(items)
    for batch in batch_by_length(lengths, max_tokens, equal=equal):
        of_batch = retry_in_halves_on_oom(work, [items[i] for i in batch], what)
        for i, result in zip(batch, of_batch, strict=True):
            results[i] = result
    return results


def retry_in_halves_on_oom(
    work: Callable[[list], list], items: Sequence[Any], what: str
) -> list[Any]:
    """Return the results of `work` on a batch, in order. When memory runs out, retry on each half,
    down to a single item.

    Raises
    ------
    UserError
        A single item is too large; the message begins with `what`.
    """
    try:
        return work(list(items))
    except (RuntimeError, MemoryError) as error:
        # workspaces of CUDA libraries fail as plain RuntimeErrors
        says_so = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not says_so and not NO_MEMORY.search(str(error)):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # only here are the exception's frames gone
    if len(items) == 1:
        raise UserError(
            f"{what}: the device's memory ends at a single row, beside whatever else uses it"
        )
    oom_splits.append(len(items))
    half = (len(items) + 1) // 2
    first = retry_in_halves_on_oom(work, items[:half], what)
    return first + retry_in_halves_on_oom(work, items[half:], what)
