"""The device of a job, and its measured speed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import psutil

from lib import params


@dataclass(frozen=True)
class Device:
    """A job's device: free memory (bytes), bandwidth (bytes/s), operations (per second), bytes per number."""

    cuda: bool
    name: str
    memory: float
    bandwidth: float
    operations: float
    bytes: int


@cache
def measure_device(threads: int, small: bool = False) -> Device:
    """Measure the GPU, else `threads` threads of the CPU (also used later), by a copy and a matrix product.

    For small models, the CPU is measured on every machine.
    """
    import torch

    torch.set_num_threads(threads)
    cuda = torch.cuda.is_available() and not small
    dtype = torch.bfloat16 if cuda else torch.float32
    block = torch.ones(64_000_000, dtype=dtype, device="cuda" if cuda else "cpu")
    return Device(
        cuda=cuda,
        name=torch.cuda.get_device_name() if cuda else "CPU",
        memory=torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available,
        bandwidth=2 * block.nbytes / time_fastest(block.clone),
        operations=measure_operations(dtype, block.device.type),
        bytes=block.element_size(),
    )


def measure_operations(dtype: Any, place: str = "cpu") -> float:
    """Return the operations per second of a matrix product."""
    import torch

    side = 4096 if place == "cuda" else 1024
    square = torch.ones((side, side), dtype=dtype, device=place)
    return 2 * side**3 / time_fastest(lambda: square @ square)


def adjust_to_model(device: Device, spec: params.Model, network: Any) -> Device:
    """Return the figures of the device on which a model runs, in its precision: a CPU was measured in float32."""
    import torch

    from lib.generate import models

    if models.is_small(network):
        measured = measure_device(threads=1, small=True)
        device = measured if device.cuda else replace(measured, memory=device.memory)
    dtype = models.loading_dtype(spec, network)
    if device.cuda or dtype == torch.float32:
        return device
    return replace(device, operations=measure_operations(dtype), bytes=2)


def time_fastest(work: Callable[[], object]) -> float:
    """Return the fastest of five timings, after a warm-up."""
    import torch

    times = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])
