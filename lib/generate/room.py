"""Where the device's memory ends: a batch is made in halves, and that is said in the manifest."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from lib.project import UserError

Item = TypeVar("Item")
HALVED: list[int] = []  # sizes of the batches of this process that had to be halved


def by_halves(group: Sequence[Item], work: Callable[[list[Item]], None], what: str) -> None:
    """`work` on a group, in order; where memory ends, on its halves, one after the other, down to a single item.

    What a part had done before its memory ended `work` is given again. Raises UserError, with `what`, where a single
    item is too large.
    """
    waiting = [list(group)]
    while waiting:
        part = waiting.pop()
        if fits(part, work):
            continue
        if len(part) == 1:
            raise UserError(f"{what}: the device's memory ends at a single row, beside whatever else uses it")
        HALVED.append(len(part))
        half = (len(part) + 1) // 2
        waiting += [part[half:], part[:half]]


def fits(part: list[Item], work: Callable[[list[Item]], None]) -> bool:
    """Whether there was memory for it. What was allocated on the way is given back: here, where the exception and the
    frames that it holds are gone."""
    try:
        work(part)
        return True
    except torch.OutOfMemoryError:
        pass
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False
