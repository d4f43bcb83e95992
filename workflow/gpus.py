"""The available GPUs and their memory."""

import os
import re
import sys

from workflow.environment import DRIVER
from workflow.locks import run_program

LOOK = "from torch import cuda\nfor i in range(cuda.device_count()): print(cuda.get_device_properties(i).uuid)"


def list_gpus() -> list[str]:
    """Return the words of CUDA_VISIBLE_DEVICES, one for a job each; without it, the UUIDs of all GPUs."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1")]
    return list(memory_by_gpu()) or list_gpus_of_torch()


def memory_by_gpu() -> dict[str, float]:
    """Return the bytes of memory of every GPU, by UUID; an empty dictionary without nvidia-smi."""
    _, listed = run_program("nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits")
    rows = re.findall(r"^(\S+), *([\d.]+)$", listed, flags=re.M)  # no line of an error is of this form
    return {uuid: 2**20 * float(size) for uuid, size in rows}


def list_gpus_of_torch() -> list[str]:
    """Return the GPUs that PyTorch finds without nvidia-smi, as in some containers.

    It runs in a separate process, because a process that has initialized CUDA cannot be forked.
    """
    if not any(map(os.path.exists, DRIVER)):
        return []
    code, found = run_program(sys.executable, "-c", LOOK)
    return [] if code else [f"GPU-{uuid}" for uuid in found.split()]
