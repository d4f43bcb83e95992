"""This machine: its programs, the lock and the scratch folder of a run, its GPUs, and the memory that a model needs.

That is its weights, and the caches and logits of the rows that it decodes together.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from lib.paths import ROOT, UserError
from workflow.fingerprint import digest
from workflow.pipeline import Run

SAMPLING_BYTES = 44  # peak bytes per vocabulary entry to sample a token: logits, float32, float64, sorted
SPARE = 1.1  # memory for weights, in multiples of their size


def run_program(*command: str, **more: str) -> tuple[int, str]:
    """Run a program with extra environment variables and return its exit code and its output, or its error."""
    env = {**os.environ, **more}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stderr if done.returncode else done.stdout).strip()


@contextmanager
def run_lock(run: Run, patience: float = 2) -> Iterator[Path]:
    """Hold the run's lock and yield its scratch folder. Raise UserError while another process holds the lock."""
    folder, holder = ROOT / run.folder, ROOT / run.folder / ".running"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(patience)
    except Timeout:
        raise UserError(f"run '{run.name}' is running already, in process {holder.read_text()}") from None
    with lock:
        holder.write_text(str(os.getpid()))
        scratch, before = new_scratch_folder(run), tempfile.tempdir
        tempfile.tempdir = str(scratch)
        try:
            yield scratch
        finally:
            tempfile.tempdir = before
            shutil.rmtree(scratch, ignore_errors=True)
            holder.unlink(missing_ok=True)


def remove_partial_files(run: Run) -> None:
    """Remove the files that a killed run was writing (lib.files.write_atomically). The caller has the run's lock."""
    for folder in (run.folder, run.figures):
        for path in list((ROOT / folder).rglob(".*.partial")):
            path.unlink()


def new_scratch_folder(run: Run) -> Path:
    """Create the run's folder for temporary files, empty and private. Its name is that of the run's last start."""
    folder = short_tempdir() / f"run-{os.getuid()}-{digest(str(ROOT / run.folder))[:8]}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise UserError(f"{folder} is in the way: remove it, or set TMPDIR to another folder") from None
    return folder


def short_tempdir() -> Path:
    """Return the folder for temporary files, with a path short enough for sockets below it (104 bytes on macOS)."""
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 50 else "/tmp")


# ---- GPUs and memory -------------------------------------------------------------------------------------------


def list_gpus() -> list[str]:
    """Return the words of CUDA_VISIBLE_DEVICES, one for a job each; without it, the UUIDs of all
    GPUs that nvidia-smi lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1")]
    return list(memory_by_gpu())


def memory_by_gpu() -> dict[str, float]:
    """Return the bytes of memory of every GPU, by UUID; an empty dictionary without nvidia-smi."""
    _, listed = run_program("nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits")
    rows = re.findall(r"^(\S+), *([\d.]+)$", listed, flags=re.M)  # no line of an error is of this form
    return {uuid: 2**20 * float(size) for uuid, size in rows}


def find_place(on_gpu: bool, gpus: int = 1) -> tuple[str, float]:
    """Return the name and the free bytes of the processor, the first visible GPU, or `gpus` GPUs like it together."""
    if not on_gpu:
        return "CPU", psutil.virtual_memory().available
    import torch

    memory = torch.cuda.mem_get_info()[0]
    return (f"all {gpus} GPUs", gpus * memory) if gpus > 1 else (torch.cuda.get_device_name(), memory)


def cache_numbers_per_token(network: Any) -> int:
    """Return how many numbers one token takes in the cache: a key and a value per layer and key-value head."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 0)  # none in a model of states alone
    width = getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)
    return 2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or heads) * width


def about_memory(run: Run, lm: Any, prompt: int) -> tuple[str, str]:
    """Compare the memory that weights and decoding need with what is free where the model runs, for prompts of so many
    tokens. Return a level and a line."""
    from lib.generate import models

    batch_tokens = run.values["max_batch_tokens"]
    config, number_bytes = lm.model.config.get_text_config(), models.loading_dtype(lm.spec, lm.model).itemsize
    longest = prompt + (lm.spec.max_new_tokens or run.values["max_new_tokens"])
    # per token: its cache, one layer's copy while the cache grows, its share of sampling
    cache = cache_numbers_per_token(lm.model) * number_bytes
    token = cache * (1 + 1 / config.num_hidden_layers) + SAMPLING_BYTES * config.vocab_size / longest
    weights = SPARE * lm.model.num_parameters() * number_bytes
    need, rows = weights + token * max(batch_tokens, longest), max(1, batch_tokens // longest)
    size = f"{lm.model.num_parameters() / 1e9:.2g} billion parameters"
    text = f"{size}, up to {need / 1e9:.2g} GB with {rows} rows at once"
    place, free = find_place(models.runs_on_gpu(lm.model), run.gpus if lm.spec.gpus == "all" else 1)
    if need <= free:
        return "ok", text
    room = int((free - weights) / token)
    remedy = f"max_batch_tokens {room} would fit" if room > 0 else "too little for the weights alone"
    return "wrong", f"{text}: {place} has {free / 1e9:.0f} GB free; {remedy}"
