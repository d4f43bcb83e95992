"""Draw responses with vLLM in an environment of its own, into a file of responses
(lib.responses.formats).

vLLM pins other packages, so `vllm_worker.py` runs it as a script. The file grows by whole lines: a
launch after a kill draws what it lacks.
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

import psutil
import torch

from lib.errors import UserError
from lib.models.loading import LanguageModel, local_folder
from lib.paths import ROOT, relative_path
from lib.responses.rows import Request

WORKER = Path(__file__).with_name("vllm_worker.py")
GPU_SHARE = 0.6  # maximum share of a GPU's memory for vLLM: the scoring model needs the rest
GPU_SPARE = 1.5e9  # bytes of the free memory that vLLM leaves
CPU_CACHE = 4 * 2**30  # bytes of vLLM's cache on a CPU, where it would use nearly all memory
ROWS_AT_ONCE = 256  # more would outgrow a large GPU's cache, and vLLM would recompute them
# no module of ours shadows vLLM's, and the paths of its sockets are short
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1", "VLLM_RPC_BASE_PATH": "/tmp"}


def draw_with_vllm(
    lm: LanguageModel, requests: Sequence[Request], folder: Path
) -> tuple[Path, dict[str, Any]]:
    """Return the file with a response to each request, of which vLLM draws the missing ones, and
    facts about vLLM.

    Parameters
    ----------
    folder : of the file, and of vLLM's log

    Raises
    ------
    UserError
        There is no vLLM, or it fails: the first of its errors.
    """
    python = find_python()
    folder.mkdir(parents=True, exist_ok=True)
    responses = folder / "drawn.jsonl"
    orders = folder / "requests.json"
    log = folder / "vllm.log"
    orders.write_text(json.dumps(build_orders(lm, requests)), encoding="utf-8")
    print(
        f"vLLM draws the responses that {relative_path(responses)} lacks; "
        f"{log.name} beside it says how far it is"
    )
    code = run_worker([python, str(WORKER), str(orders), str(responses)], log)
    if code:
        cause = find_root_cause(log.read_text(encoding="utf-8", errors="replace"))
        raise UserError(f"vLLM ended with {code}: {cause:.300}")
    facts = {"engine": "vllm", "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0")}
    return responses, facts | json.loads((folder / "vllm.json").read_text())


def find_python() -> str:
    """Return the Python that has vLLM: VLLM_PYTHON, or that of .venv-vllm. Raise UserError if it is
    not there.
    """
    python = str(ROOT / ".venv-vllm" / "bin" / "python")
    if os.environ.get("VLLM_PYTHON"):
        python = os.environ["VLLM_PYTHON"]
    if not Path(python).exists():
        raise UserError(
            "`engine: vllm` draws in .venv-vllm, which is not there: ./run_all.sh makes it, "
            "or name a Python that has vLLM in VLLM_PYTHON; or write `engine: transformers`"
        )
    return python


def run_worker(command: Sequence[str], log: Path) -> int:
    """Run a command to its end, and end all processes that it started; return its exit code."""
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": ""}
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            return worker.wait()
        # its subprocesses too: vLLM's engine is its own process and would keep the GPU's memory
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def build_orders(lm: LanguageModel, requests: Sequence[Request]) -> dict[str, Any]:
    """Return the worker's input."""
    spec = lm.spec
    lengths = [len(request.prompt_ids) + request.max_new_tokens for request in requests]
    folder = local_folder(spec)
    engine = {
        "model": spec.source if folder is None else str(folder),
        "revision": spec.revision,
        "trust_remote_code": False,
        "dtype": lm.facts["dtype"],
        "max_model_len": max(lengths),
        "max_num_seqs": ROWS_AT_ONCE,
        "seed": 0,
        "generation_config": "vllm",
        **memory_budget(lm.device, max(lengths)),
    }
    sampling = {
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "min_p": spec.min_p,
        "top_k": max(spec.top_k, 0),
        "stop_token_ids": lm.eos,
    }
    rows = []
    for request in requests:
        example_id = request.example.example_id
        rows.append([example_id, request.prompt_ids, request.seed, request.max_new_tokens])
    return {"engine": engine, "sampling": sampling, "requests": rows}


def memory_budget(device: torch.device, longest: int) -> dict[str, Any]:
    """Return vLLM's memory options.

    On a GPU: its share, within the memory that the loaded model leaves free, else vLLM refuses to
    start. On a CPU: its cache and the tokens per step, as vLLM can't split the prompt of a seeded
    request.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        share = min(GPU_SHARE, (free - GPU_SPARE) / total)
        return {"gpu_memory_utilization": round(max(0.05, share), 3)}
    cache = min(CPU_CACHE, psutil.virtual_memory().available // 4)
    return {
        "kv_cache_memory_bytes": cache,
        "max_num_batched_tokens": max(longest, 16384),
        "enforce_eager": True,
    }


def find_root_cause(log: str) -> str:
    """Return the first error in an engine's log, from which later ones follow; else its last
    line.
    """
    error = re.search(r"\b\w*(?:Error|Exception): .+", log)
    if error:
        return error.group()
    lines = log.strip().splitlines()
    return lines[-1] if lines else "no word"
