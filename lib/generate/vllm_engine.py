"""vLLM as an engine: it samples all responses of a pair together, in its own environment and process.

vLLM pins other packages than this project. Its worker (vllm_worker.py) appends a line per response to a file, so a
killed run resumes after the last one. Seeds are per example, so tokens do not depend on the other requests.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from lib.generate.models import LanguageModel, local_folder
from lib.generate.sampling import Request
from lib.paths import ROOT, UserError, relative_path

WORKER = Path(__file__).with_name("vllm_worker.py")
GPU_SHARE = 0.6  # maximum share of a GPU's memory for vLLM: the scoring model needs the rest
GPU_SPARE = 1.5e9  # bytes of the free memory that vLLM leaves
CPU_CACHE = 4 * 2**30  # bytes of vLLM's cache on a CPU, where it would use nearly all memory
ROWS_AT_ONCE = 256  # more would outgrow a large GPU's cache, and vLLM would recompute them
# no module of ours shadows vLLM's, and the paths of its sockets are short
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1", "VLLM_RPC_BASE_PATH": "/tmp"}


class VLLMEngine:
    """Samples all `requests` when the first of them are needed. The file of responses is parsed once."""

    def __init__(self, lm: LanguageModel, requests: Sequence[Request], scratch: Path):
        self.lm, self.requests, self.scratch = lm, requests, scratch
        self.python, version = find_vllm()
        self.drawn: dict[str, np.ndarray] = {}  # token ids by example
        self.facts: dict[str, Any] = {
            "engine": "vllm",
            "version": version,
            "seed": "of each request",
            "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0"),
        }

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of a response to each request. If vLLM fails, raise UserError with its first error."""
        path, names = self.scratch / "drawn.jsonl", [request.example.example_id for request in requests]
        if not self.drawn:
            self.read_drawn(path)
        if not self.drawn.keys() >= set(names):
            self.run_worker([one for one in self.requests if one.example.example_id not in self.drawn], path)
            self.read_drawn(path)
        return [self.drawn[name].tolist() for name in names]

    def read_drawn(self, path: Path) -> None:
        """Read the finished responses. A killed worker may leave half a line at the end, which is removed."""
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
        """Run the worker on requests. Its process group ends with it, even after a crash."""
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
            finally:  # its subprocesses too: vLLM's engine is its own process and would keep the GPU's memory
                with suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
        if code:
            cause = find_root_cause(log.read_text(encoding="utf-8", errors="replace"))
            raise UserError(f"vLLM ended with {code}: {cause:.300}")

    def build_orders(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Return the worker's input."""
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
    """Return vLLM's memory options.

    On a GPU: its share, within the memory that the loaded model leaves free, else vLLM refuses to start. On a CPU: its
    cache and the tokens per step, as vLLM can't split the prompt of a seeded request.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return {"gpu_memory_utilization": round(max(0.05, min(GPU_SHARE, (free - GPU_SPARE) / total)), 3)}
    cache = min(CPU_CACHE, psutil.virtual_memory().available // 4)
    return {"kv_cache_memory_bytes": cache, "max_num_batched_tokens": max(longest, 16384), "enforce_eager": True}


def find_root_cause(log: str) -> str:
    """Return the first error in an engine's log, from which later ones follow; else its last line."""
    named = re.search(r"\b\w*(?:Error|Exception): .+", log)
    return named.group() if named else (log.strip().splitlines() or ["no word"])[-1]


def find_vllm() -> tuple[str, str]:
    """Return the Python with vLLM (VLLM_PYTHON, else that of `.venv-vllm`) and vLLM's version.

    The CPU distribution has another name. Raise UserError if there is no vLLM.
    """
    python = os.environ.get("VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
    if not Path(python).exists():
        raise UserError(
            "`engine: vllm` draws in .venv-vllm, which is not there: ./run_all.sh makes it, or name a "
            "Python that has vLLM in VLLM_PYTHON; or write `engine: transformers`"
        )
    code = "from importlib.metadata import *; print(version(packages_distributions()['vllm'][0]))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{Path(python).name} in VLLM_PYTHON or .venv-vllm has no vLLM")
    return python, done.stdout.strip()
