"""`./run_all.sh check PROFILE`: can this machine do the run? Nothing is generated or saved.

It prints one line per check: ok, note (for information), or wrong with the remedy. The exit code is 2 if anything is
wrong. model_checks.py checks whether a model can be used, and memory.py estimates its memory.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import UserError, one_line
from workflow import gpus, hub, memory, model_checks, vllm, weights
from workflow.model_checks import Line
from workflow.pipeline import Run

MAX_LENGTH = {"ok": 1000, "note": 1000, "wrong": 300}  # characters per line
SILENT = (
    "note   hub: it does not answer; models and datasets must be in the local cache, or in folders that a model's "
    "`source` and --data-dir name"
)
SAMPLED = 50  # questions per dataset whose prompts are measured


def main(run: Run, say: Callable[[str], None]) -> int:
    """Print all checks of a run and return the exit code."""
    if hub.go_offline_if_silent(run):
        say(SILENT)
    with suppress(UserError):  # reported below for each model
        hub.pin_revisions(run)
    wrong = 0
    for subject, lines in check_subjects(run):
        for level, text in model_checks.explain_errors(lines):
            say(one_line(f"{level:5}  {subject}: {text}", MAX_LENGTH[level]))
            wrong += level == "wrong"
    say(f"{run.name}: {f'{wrong} problem(s) found' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def check_subjects(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    yield "machine", about_machine(run)
    yield "disk", about_disk(run)
    yield "engine", about_engine(run)
    texts = model_checks.load_questions(run)
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, texts)


# ---- machine, disk and datasets


def about_machine(run: Run) -> Iterator[Line]:
    import torch

    place, listed = memory.find_place(torch.cuda.is_available()), gpus.list_gpus()
    free = f"{place.memory / 1e9:.0f} GB"
    if torch.cuda.is_available():
        yield "ok", f"{len(listed)} x {place.name}, {free} free, CUDA {torch.version.cuda}, bfloat16"
    elif listed:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        seen = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    else:
        yield "note", f"no GPU: {run.cores} cores, {free} of memory free, float32"


def about_disk(run: Run) -> Iterator[Line]:
    models = [params.load_model_config(name) for name in run.values["models"]]
    specs = [spec for spec in models if hub.is_on_hub(spec)]
    if models and not specs:
        files = ", or is a GGUF file" if any(spec.gguf for spec in models) else ""
        yield "ok", f"every model is in a local folder{files}"
        return
    try:
        wanted = sum(hub.count_missing_bytes(spec) for spec in specs)
    except UserError:  # reported with the model
        return
    if specs:
        lack = hub.lack_of_cache_room(wanted)
        yield ("wrong", lack) if lack else ("ok", f"{wanted / 1e9:.1f} GB of weights to fetch")


def about_engine(run: Run) -> Iterator[Line]:
    """Check vLLM, if the run uses it."""
    if not vllm.uses_vllm(run):
        return
    if named := os.environ.get("VLLM_PYTHON"):
        yield "ok", f"vLLM generates, with the Python of VLLM_PYTHON ({Path(named).name})"
    elif reason := vllm.why_no_vllm(run):
        yield "wrong", reason
    else:
        there = "is installed" if vllm.is_installed(vllm.VENV, "vllm") else "will be installed once"
        yield "ok", f"vLLM generates responses in {vllm.VENV.name}, which {there}; one pass rescores them"


def about_dataset(run: Run, name: str) -> Iterator[Line]:
    from lib.tasks import datasets

    spec, examples = params.load_dataset_config(name), model_checks.select_examples(run, name)
    rows = Counter(example.split for example in examples)
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    if spec.folder:
        source = f"{', '.join(file.path for file in spec.files.values())} in {spec.folder}, of the right sha256"
    elif hub.is_on_hub(spec):
        source = f"the repository {source} on the hub"
    split = f"{rows[datasets.CALIBRATION]} calibration and {rows[datasets.EVALUATION]} evaluation questions"
    yield "ok", f"{split} from {source}"


# ---- models


def about_model(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model_config(name)
    if spec.gguf and spec.at_hand:
        yield from weights.describe_weights(spec)
        if weights.is_elsewhere(spec):
            return
    preflight = yield from model_checks.check_usable(run, name, texts)
    if not preflight:
        text = (
            "its weights are not available (its file names no `source`): the log-probabilities of its "
            "responses give the Seq and Ans estimators and isotonic regression; P(True), MC dropout, "
            "temperature scaling and ablations stay empty"
        )
        yield "note", text
        return
    where = f"the repository {spec.source} on the hub" if hub.is_on_hub(spec) else spec.source
    yield "ok", where + (f" at {spec.revision[:12]}" if spec.revision else "")
    yield from about_decoding(spec, preflight.lm.facts)
    yield about_memory(run, preflight)


def about_decoding(spec: params.Model, own: dict) -> Iterator[Line]:
    """Report where the sampling settings differ from the model's own generation_config."""
    ours = {"temperature": spec.temperature, "top_p": spec.top_p, "top_k": max(spec.top_k, 0), "min_p": spec.min_p}
    others = [f"{key} {own[key]} (here {ours[key]:g})" for key in ours if own.get(key, ours[key]) != ours[key]]
    if others:
        yield "note", "its own generation_config has " + ", ".join(others)


def about_memory(run: Run, preflight: Any) -> Line:
    """Compare the memory that a model needs, with prompts of the mean length, with that of the place where it runs."""
    from lib.generate import models

    lm, asked = preflight.lm, preflight.questions.values()
    lengths = [preflight.count_tokens(question) for questions in asked for question in questions[:SAMPLED]]
    prompt = sum(lengths) // len(lengths) if lengths else preflight.estimate_prompt()
    longest = prompt + (lm.spec.max_new_tokens or run.values["max_new_tokens"])
    place = memory.find_place(models.runs_on_gpu(lm.model), run.gpus if lm.spec.gpus == "all" else 1)
    number_bytes = models.loading_dtype(lm.spec, lm.model).itemsize
    return memory.check_memory(lm.model, number_bytes, run.values["max_batch_tokens"], longest, place)
