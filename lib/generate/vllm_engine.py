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

from lib.generate.models import LanguageModel, local_folder
from lib.generate.sampling import Request
from lib.paths import ROOT, UserError
from lib.store import relative_path

WORKER = Path(__file__).with_name("vllm_worker.py")
GPU_SHARE = 0.6  # of a GPU's memory that vLLM takes at most: the model that scores lies beside it
GPU_SPARE = 1.5e9  # bytes of what is free there that it leaves
CPU_CACHE = 4 * 2**30  # bytes of its cache on a processor, where it would take nearly all memory
ROWS_AT_ONCE = 256  # of more, a large GPU's cache would not hold what they grow to, and they would be computed again
ENVIRONMENT = {  # no module of ours shadows vLLM's, and the paths of its sockets are short
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONSAFEPATH": "1",
    "VLLM_RPC_BASE_PATH": "/tmp",
}


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
        if not self.drawn.keys() >= set(names):
            self.run_worker([one for one in self.requests if one.example.example_id not in self.drawn], path)
            self.read_drawn(path)
        return [self.drawn[name].tolist() for name in names]

    def read_drawn(self, path: Path) -> None:
        """What has been drawn. The last line of a killed worker may be half a line: it is drawn again."""
        if not path.exists():
            return
        with path.open("r+b") as file:
            for line in file:
                if line.endswith(b"\n"):
                    one = json.loads(line)
                    self.drawn[one["example_id"]] = np.array(one["token_ids"] or self.lm.eos[:1], np.int32)
                else:
                    file.truncate(file.tell() - len(line))

    def run_worker(self, requests: Sequence[Request], path: Path) -> None:
        """Have the worker draw. Its group of processes ends with it, however it ended."""
        path.parent.mkdir(parents=True, exist_ok=True)
        orders, log = path.with_name("requests.json"), path.with_name("vllm.log")
        orders.write_text(json.dumps(self.build_orders(requests)), encoding="utf-8")
        print(f"vLLM draws {len(requests)} responses; {relative_path(log)} says how far it is")
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [self.python, str(WORKER), str(orders), str(path)]
        with log.open("wb") as said:
            worker = subprocess.Popen(
                command, stdout=said, stderr=subprocess.STDOUT, env=ENVIRONMENT | own, start_new_session=True
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
        spec, longest = self.lm.spec, max(len(one.prompt_ids) + one.max_new_tokens for one in requests)
        return {
            "engine": {
                "model": str(local_folder(spec) or spec.source),
                "revision": spec.revision,
                "dtype": self.lm.facts["dtype"],
                "seed": 0,
                "max_model_len": longest,
                "generation_config": "vllm",
                "trust_remote_code": False,
                "max_num_seqs": ROWS_AT_ONCE,
                **memory_budget(self.lm.device, longest),
            },
            "sampling": {
                **{name: getattr(spec, name) for name in ("temperature", "top_p", "min_p")},
                "top_k": max(spec.top_k, 0),
                "stop_token_ids": self.lm.eos,
                "detokenize": False,
            },
            "requests": [[r.example.example_id, r.prompt_ids, r.seed, r.max_new_tokens] for r in requests],
        }


def memory_budget(device: torch.device, longest: int) -> dict[str, Any]:
    """vLLM's share of a GPU, of what is free beside the loaded model: it refuses to start where less is. Or its cache
    on a processor, and how many tokens it takes at once there: it can't part a prompt whose draws have a seed."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return {"gpu_memory_utilization": round(max(0.05, min(GPU_SHARE, (free - GPU_SPARE) / total)), 3)}
    cache = min(CPU_CACHE, psutil.virtual_memory().available // 4)
    return {"kv_cache_memory_bytes": cache, "max_num_batched_tokens": max(longest, 16384), "enforce_eager": True}


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
    code = "from importlib.metadata import *; print(version(packages_distributions()['vllm'][0]))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{Path(python).name} in VLLM_PYTHON or .venv-vllm has no vLLM")
    return done.stdout.strip()
