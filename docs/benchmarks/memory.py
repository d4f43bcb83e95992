"""The most memory that a command and the processes which it starts hold at once, in GB.

    python docs/benchmarks/memory.py ./run_all.sh

Memory that processes share counts once (proportional set size, so Linux only). It is looked at five
times a second. ARTIFACT-APPENDIX.md quotes it.
"""

import contextlib
import subprocess
import sys
import time

import psutil


def held(process: psutil.Process) -> int:
    """Return the bytes of a process; 0 if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.memory_full_info().pss
    return 0


def held_by_all(first: psutil.Process) -> int:
    """Return the bytes of a process and of all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(map(held, [first, *first.children(recursive=True)]))
    return 0


def measure(command: list[str]) -> tuple[int, float]:
    """Run a command. Return its exit code and its peak in GB."""
    started = subprocess.Popen(command)
    peak = 0
    first = psutil.Process(started.pid)
    while started.poll() is None:
        peak = max(peak, held_by_all(first))
        time.sleep(0.2)
    return started.returncode, peak / 1e9


if __name__ == "__main__":
    code, peak = measure(sys.argv[1:])
    print(f"at most {peak:.2f} GB at once")
    sys.exit(code)
