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
    """Return the words of CUDA_VISIBLE_DEVICES, one for a job each; without it, the UUIDs of all GPUs."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1")]
    code, listed = run_program("nvidia-smi", "-L")
    return list_gpus_of_torch() if code else re.findall(r"^GPU .*\(UUID: ([^)]+)\)", listed, flags=re.M)


def list_gpus_of_torch() -> list[str]:
    """Return the GPUs that PyTorch finds without nvidia-smi, as in some containers.

    It runs in a separate process, because a process that has initialized CUDA cannot be forked.
    """
    if not any(map(os.path.exists, DRIVER)):
        return []
    code, found = run_program(sys.executable, "-c", LOOK)
    return [] if code else [f"GPU-{uuid}" for uuid in found.split()]


def lock_gpu(stack: ExitStack, name: str) -> bool:
    """Lock a GPU until the stack is closed. Return whether it was free."""
    lock = FileLock(own_folder() / f"gpu-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.lock", mode=0o600)
    try:
        stack.enter_context(lock.acquire(blocking=False))
        return True
    except Timeout:
        return False


def gpu_memory(names: list[str]) -> list[float]:
    """Return the bytes of memory of each GPU; an empty list without nvidia-smi, or if it names them otherwise."""
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
