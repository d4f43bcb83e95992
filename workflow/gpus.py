"""Find the available GPUs and lock one for each job."""

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from filelock import FileLock, Timeout

from lib.paths import UserError
from workflow.environment import DRIVER
from workflow.locks import own_folder, run_program

POLL = 0.5  # seconds
LOOK = "from torch import cuda\nfor i in range(cuda.device_count()): print(cuda.get_device_properties(i).uuid)"


def list_gpus() -> list[str]:
    """Return the UUIDs of the GPUs in CUDA_VISIBLE_DEVICES, else of all; of a MIG GPU, those of its parts.

    On a shared node, each job may call its own GPU 0; UUIDs are unique.
    """
    code, listed = run_program("nvidia-smi", "-L")
    if code:
        return list_gpus_of_torch()
    cards = group_by_card(listed)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return select_visible(cards, chosen) if chosen is not None else [name for names in cards.values() for name in names]


def group_by_card(listed: str) -> dict[str, list[str]]:
    """Return the UUIDs to use of each GPU that nvidia-smi lists: its own, or those of its MIG parts."""
    cards: dict[str, list[str]] = {}
    for kind, uuid in re.findall(r"^\s*(GPU|MIG) .*\(UUID: ([^)]+)\)", listed, flags=re.M):
        if kind == "GPU":
            card = uuid
            cards[card] = []
        else:
            cards[card].append(uuid)
    return {card: parts or [card] for card, parts in cards.items()}


def select_visible(cards: dict[str, list[str]], chosen: str) -> list[str]:
    """Return the UUIDs that CUDA_VISIBLE_DEVICES names, by index or by the beginning of a UUID. A GPU with MIG parts
    stands for its parts."""
    found: list[str] = []
    for word in map(str.strip, chosen.split(",")):
        for place, (card, names) in enumerate(cards.items()):
            called = word in (str(place), card) or word.startswith("GPU-") and card.startswith(word)
            found += names if called else [name for name in names if word.startswith("MIG-") and name.startswith(word)]
    return found


def list_gpus_of_torch() -> list[str]:
    """Return the GPUs that PyTorch finds without nvidia-smi, as in some containers.

    It runs in a separate process, because a process that has initialized CUDA cannot be forked.
    """
    if not any(map(os.path.exists, DRIVER)):
        return []
    code, found = run_program(sys.executable, "-c", LOOK)
    if code:
        return []
    parts = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.startswith("MIG-")]
    return parts[:1] or [f"GPU-{uuid}" for uuid in found.split()]  # CUDA uses only one MIG part


def lock_gpu(stack: ExitStack, name: str) -> bool:
    """Lock a GPU until the stack is closed. Return whether it was free."""
    lock = FileLock(own_folder() / f"gpu-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.lock", mode=0o600)
    try:
        stack.enter_context(lock.acquire(blocking=False))
        return True
    except Timeout:
        return False


def gpu_memory(names: list[str]) -> list[float]:
    """Return the bytes of memory of each GPU; an empty list without nvidia-smi or for MIG parts."""
    _, listed = run_program("nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits")
    rows = re.findall(r"^(\S+), *([\d.]+)$", listed, flags=re.M)  # no line of an error is of this form
    found = {uuid: 2**20 * float(size) for uuid, size in rows}
    return [found[name] for name in names] if set(names) <= set(found) else []


def take_gpu(stack: ExitStack, names: list[str], say: Callable[[str], None] = lambda text: None, count: int = 1) -> str:
    """Wait for `count` free GPUs, lock them until the job ends and return them, separated by commas.

    Raise UserError if there are fewer than `count`.
    """
    if len(names) < count:
        there = f"there are {len(names)}" if names else "there is none"
        raise UserError(f"the run began with a GPU and {there} now: see nvidia-smi, CUDA_VISIBLE_DEVICES")
    waiting = False
    while True:
        with ExitStack() as taken:  # all or none: else two jobs that need two each could wait for each other
            free: list[str] = []
            for name in names:
                if len(free) < count and lock_gpu(taken, name):
                    free.append(name)
            if len(free) == count:
                stack.push(taken.pop_all())
                return ",".join(free)
        if not waiting:
            say(f"waits for a GPU: other jobs have {', '.join(names)}")
        waiting = True
        time.sleep(POLL)
