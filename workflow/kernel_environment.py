"""The environment variables of a job's kernel: what libraries read at import, and where the job puts its files."""

import json
import os
from pathlib import Path

from lib import params
from lib.paths import ROOT
from workflow import keys, preload
from workflow.pipeline import Job


def fixed_environment(job: Job) -> dict[str, str]:
    """Return the environment variables that libraries read at import."""
    threads = {f"{name}_NUM_THREADS": str(job.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if keys.is_local(job) or job.run.slurm else {}
    return {
        **threads,
        **offline,
        **(gpu_allocator_settings() if job.gpus else cpu_allocator_settings()),
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "SOURCE_DATE_EPOCH": "0",  # the same date in every PDF
        "TOKENIZERS_PARALLELISM": "false",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


def gpu_allocator_settings() -> dict[str, str]:
    """Return PyTorch's GPU allocator settings, unless the user sets them. Expandable segments can be reused by batches
    of any shape, while caches grow at every step."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return {} if any(name in os.environ for name in names) else {names[0]: "expandable_segments:True"}


def cpu_allocator_settings() -> dict[str, str]:
    """Return the C library's allocator settings, unless the user sets them. Freed memory is reused by the next layer:
    getting it from the system again would take 10% to 25% of a forward pass on CPU. Blocks above 32 MB go back to the
    system, to avoid fragmentation."""
    wanted = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
    return {} if any(name in os.environ for name in wanted) else wanted


def kernel_environment(job: Job, scratch: Path, content: keys.Parts) -> dict[str, str]:
    """Return the environment variables of the kernel: places, and the keys and revisions for `lib`."""
    return {
        **fixed_environment(job),
        "JUPYTER_RUNTIME_DIR": str(scratch),
        "IPYTHONDIR": str(scratch / "ipython"),  # without the user's start-up files
        "TMPDIR": str(scratch),
        "CALIBRATION_CODE": keys.code_key(job, content),
        "CALIBRATION_REVISIONS": json.dumps(params.REVISIONS),
    }


def can_fork_kernel(job: Job) -> bool:
    """Whether this process was forked with the libraries imported, in the environment of the job's kernel."""
    alike = all(os.environ.get(name) == value for name, value in fixed_environment(job).items())
    return preload.IS_DONE and alike and not job.gpus
