"""Draw responses with vLLM in an environment of its own, into a file of responses
(lib.responses.formats).

vLLM pins other packages, so `vllm_worker.py` runs it as a script. The file grows by whole lines: a
launch after a kill draws what it lacks. It is launched before the network is loaded, which is on
torch's meta device: two copies of the weights would not fit many GPUs.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from lib.errors import UserError
from lib.files import try_lock
from lib.models.loading import LanguageModel, loading_dtype, local_folder, runs_on_gpu
from lib.paths import ROOT, relative_path
from lib.responses.rows import Request
from lib.row_cache import RowCache

WORKER = Path(__file__).with_name("vllm_worker.py")
GPU_SHARE = 0.9  # maximum share of a GPU's memory for vLLM
GPU_SPARE = 1.5e9  # bytes of the free memory that vLLM leaves
CPU_CACHE = 4 * 2**30  # bytes of vLLM's cache on a CPU, where it would use nearly all memory
ROWS_AT_ONCE = 256  # more would outgrow a large GPU's cache, and vLLM would recompute them
REPORT_SECONDS = 60.0  # between two lines on how far it is
LOOKS_PER_REPORT = 60  # at the lock of another process that draws
# no module of ours shadows vLLM's, and the paths of its sockets are short
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1", "VLLM_RPC_BASE_PATH": "/tmp"}


class Drawing(NamedTuple):
    """Requests, and the folder with the responses that vLLM has drawn to them so far."""

    requests: Sequence[Request]
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "drawn.jsonl"

    def count_drawn(self) -> int:
        return self.file.read_bytes().count(b"\n") if self.file.exists() else 0

    def describe(self) -> dict[str, Any]:
        """Return a manifest's facts on vLLM, once all responses are drawn."""
        facts = {"engine": "vllm", "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0")}
        return facts | json.loads((self.folder / "vllm.json").read_text())


def open_drawn(
    run: str, kind: str, lm: LanguageModel, dataset: str, facts: dict[str, Any]
) -> RowCache:
    """Return the cache whose folder holds what vLLM draws, by the facts of the rows. These are
    known before the network is loaded.
    """
    loaded = {
        "device": "GPU" if runs_on_gpu(lm.model) else "cpu",
        "dtype": str(loading_dtype(lm.spec, lm.model)),
    }
    return RowCache(run, kind, f"{lm.name}__{dataset}", facts | {"loaded": loaded})


def draw_with_vllm(lm: LanguageModel, drawings: Sequence[Drawing]) -> None:
    """Let vLLM draw the responses that the files of some drawings lack, in one start.

    Of several processes one draws, and the others wait for it. Raise UserError if there is no vLLM,
    or if it fails, with the first of its errors.

    Parameters
    ----------
    lm : a model, or its outline (lib.models.loading.outline_language_model)
    drawings : the folder of the first holds vLLM's log, too
    """
    python = find_python()
    for drawing in drawings:
        drawing.folder.mkdir(parents=True, exist_ok=True)
    folder = drawings[0].folder
    progress = Progress(drawings)
    with wait_for_lock(folder / "drawing.lock", progress.report):
        orders = folder / "requests.json"
        log = folder / "vllm.log"
        orders.write_text(json.dumps(build_orders(lm, drawings)), encoding="utf-8")
        files = ", ".join(relative_path(drawing.file) for drawing in drawings)
        print(f"vLLM draws the responses that {files} lack; {relative_path(log)} is its log")
        code = run_worker([python, str(WORKER), str(orders)], log, progress.report)
    if code:
        cause = find_root_cause(log.read_text(encoding="utf-8", errors="replace"))
        raise UserError(f"vLLM ended with {code}: {cause:.300}")


class Progress:
    """How many responses of some drawings are drawn."""

    def __init__(self, drawings: Sequence[Drawing]):
        self.drawings = drawings
        self.drawn = self.count()

    def count(self) -> int:
        return sum(drawing.count_drawn() for drawing in self.drawings)

    def report(self) -> None:
        """Print how far it is, if that is farther than before: a run shows the line."""
        before = self.drawn
        self.drawn = self.count()
        if self.drawn > before:
            wanted = sum(len(drawing.requests) for drawing in self.drawings)
            print(f"{self.drawn} of {wanted} drawn")


@contextmanager
def wait_for_lock(path: Path, report: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, once no other process holds it. `report` is called while it waits."""
    looks = 0
    while True:
        with try_lock(path) as is_free:
            if is_free:
                yield
                return
        looks += 1
        if looks % LOOKS_PER_REPORT == 0:
            report()
        time.sleep(REPORT_SECONDS / LOOKS_PER_REPORT)


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


def run_worker(command: Sequence[str], log: Path, report: Callable[[], None]) -> int:
    """Run a command to its end, and end all processes that it started; return its exit code.
    `report` is called while it runs.
    """
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": ""}
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return worker.wait(REPORT_SECONDS)
                report()
        # its subprocesses too: vLLM's engine is its own process and would keep the GPU's memory
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def build_orders(lm: LanguageModel, drawings: Sequence[Drawing]) -> dict[str, Any]:
    """Return the worker's input."""
    spec = lm.spec
    lengths = []
    for drawing in drawings:
        for request in drawing.requests:
            lengths.append(len(request.prompt_ids) + request.max_new_tokens)
    folder = local_folder(spec)
    engine = {
        "model": spec.source if folder is None else str(folder),
        "revision": spec.revision,
        "trust_remote_code": False,
        "dtype": str(loading_dtype(spec, lm.model)).removeprefix("torch."),
        "max_model_len": max(lengths),
        "max_num_seqs": ROWS_AT_ONCE,
        "seed": 0,
        "generation_config": "vllm",
        **memory_budget(runs_on_gpu(lm.model), max(lengths)),
    }
    sampling = {
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "min_p": spec.min_p,
        "top_k": max(spec.top_k, 0),
        "stop_token_ids": lm.eos,
    }
    files = {str(drawing.file): order_rows(drawing.requests) for drawing in drawings}
    return {"engine": engine, "sampling": sampling, "files": files}


def order_rows(requests: Sequence[Request]) -> list[list[Any]]:
    """Return a row of the worker's input for each request."""
    rows = []
    for request in requests:
        example_id = request.example.example_id
        rows.append([example_id, request.prompt_ids, request.seed, request.max_new_tokens])
    return rows


def memory_budget(on_gpu: bool, longest: int) -> dict[str, Any]:
    """Return vLLM's memory options.

    On a GPU: its share, within the memory that is free (a network may be loaded), else vLLM refuses
    to start. On a CPU: its cache and the tokens per step, as vLLM can't split the prompt of a
    seeded request.
    """
    if on_gpu:
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
