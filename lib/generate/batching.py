"""How many sequences one pass takes, and smaller batches where the device's memory ends."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lib.paths import UserError

NO_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|can't allocate memory", re.IGNORECASE)
oom_splits: list[int] = []  # sizes of the batches of this process that had to be halved


def batch_by_length(lengths: Sequence[int], max_tokens: int, growth: int = 0) -> list[list[int]]:
    """Indices of sequences by batch, shortest first.

    Parameters
    ----------
    lengths : tokens of each sequence
    max_tokens : tokens of a batch; one sequence may have more
    growth : tokens by which each sequence will grow
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and len(groups[-1]) < max_tokens // (lengths[i] + growth):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def retry_in_halves_on_oom(work: Callable[[list], list], items: Sequence[Any], what: str) -> list[Any]:
    """Results of `work` on a batch, in order. Where memory ends, the batch is halved, down to a single item.

    Raises
    ------
    UserError
        A single item is too large; the message begins with `what`.
    """
    try:
        return work(list(items))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # here, where the exception's frames are gone
    if len(items) == 1:
        raise UserError(f"{what}: the device's memory ends at a single row, beside whatever else uses it")
    oom_splits.append(len(items))
    half = (len(items) + 1) // 2
    return [part for half in (items[:half], items[half:]) for part in retry_in_halves_on_oom(work, half, what)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ended. Workspaces of CUDA's libraries fail as plain RuntimeErrors."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or NO_MEMORY.search(str(error)) is not None
