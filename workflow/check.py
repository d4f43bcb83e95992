"""Can this machine do the run?

`./run_all.sh check PROFILE` prints one line per check: ok, note (for information), or wrong with
the remedy. Nothing is generated or saved. The exit code is 2 if anything is wrong.

A run asks the same of its models before its first job, by their files, without their downloads.
lib/generate/preflight.py checks a model by itself; this module adds the checks that depend on the
run.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from lib import params
from lib.errors import UserError, first_line
from lib.parameter_schemas import is_on_hub
from workflow import hub, machine
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import say

if TYPE_CHECKING:  # slow to import: PyTorch
    from transformers import PreTrainedModel

    from lib.models.loading import LanguageModel
    from lib.tasks.datasets import Example

Line = tuple[str, str]  # level (ok, note or wrong) and text
GPU_SHARE = 0.9  # of a GPU's memory that a model may use
LARGE = 2e9  # parameters; a larger model runs on a CPU only with --cpu
# peak bytes per vocabulary entry to sample a token: logits, float32, float64, sorted
SAMPLING_BYTES = 44
GPU = "a GPU"
VLLM_BYTES = 2e9  # of vLLM beside its weights and cache, estimated
SPARE = 1.1  # memory for weights, in multiples of their size
SILENT = (
    "it does not answer; models and datasets must be in the local cache, "
    "or in folders that files of params/ name"
)


def main(run: Run) -> int:
    """Print all checks of a run and return the exit code."""
    if hub.go_offline_if_silent(run):
        say(f"note   hub: {SILENT}")
    with suppress(UserError):  # reported below for each model
        hub.pin_revisions(run)
    levels = []
    for subject, lines in lines_by_subject(run):
        for level, text in explain_errors(lines):
            say(f"{level:5}  {subject}: {text}")
            levels.append(level)
    wrong = levels.count("wrong")
    summary = f"{wrong} problem(s) found" if wrong else "ready"
    say(f"{run.name}: {summary}; nothing was run")
    return 2 if wrong else 0


def lines_by_subject(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    """Yield each subject, with its lines."""
    yield "machine", about_machine(run)
    yield "disk", about_disk(run)
    texts: dict[str, list[str]] = {}
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name, texts)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, texts, thorough=True)


def explain_errors(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, and any error that ends them as a line: they read other people's files and
    packages."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def about_machine(run: Run) -> Iterator[Line]:
    import torch

    gpus = len(machine.list_gpus())
    cuda = torch.version.cuda
    if not gpus:
        yield "note", f"no GPU: {run.cores} cores, float32"
    elif torch.cuda.is_available():
        yield "ok", f"{gpus} GPU(s), CUDA {cuda}"
    else:
        yield (
            "wrong",
            f"nvidia-smi lists {gpus} GPU(s), but PyTorch (CUDA {cuda}) sees none: "
            "update the driver, or remove .venv and set TORCH_INDEX to a build for it",
        )
    if machine.uses_vllm(run):
        machine.check_vllm(run)


def about_disk(run: Run) -> Iterator[Line]:
    wanted = 0
    for name in run.values["models"]:
        with suppress(UserError):  # reported with the model
            wanted += hub.count_missing_bytes(params.load_model_config(name))
    hub.check_room(wanted)
    yield "ok", f"{wanted / 1e9:.1f} GB of weights to fetch"


def about_dataset(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    """Report the questions of a dataset, and add them to `texts`, if they can be read."""
    spec = params.load_dataset_config(name)
    examples = select_examples(run, name)
    texts[name] = [example.question for example in examples]
    rows = Counter(example.split for example in examples)
    counts = " and ".join(f"{count} {split}" for split, count in rows.items())
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    yield "ok", f"{counts} questions from {spec.folder or source}"


# ---- models


def refuse_unusable(run: Run, names: list[str]) -> None:
    """Raise UserError for the first model that the run cannot use, or for a dataset that cannot be
    read."""
    if not names:
        return
    texts = {}
    for name in run.values["datasets"]:
        texts[name] = [example.question for example in select_examples(run, name)]
    for name in names:
        for level, text in explain_errors(about_model(run, name, texts)):
            if level == "wrong":
                raise UserError(f"model '{name}': {text}")


def with_small(run: Run, names: list[str]) -> Run:
    """Return the run with those of these models that run on the processor on every machine."""
    return replace(run, small=tuple(name for name in names if is_small(name)))


def is_small(name: str) -> bool:
    from lib.models import checkpoints, loading  # these import torch, which is slow

    spec = params.load_model_config(name)
    if not spec.at_hand:
        return False
    folder, named = hub.find_config(spec)
    config = checkpoints.read_config(folder, **named)
    return loading.is_small(checkpoints.outline_network(config))


def select_examples(run: Run, name: str) -> "list[Example]":
    """Return the examples of a dataset that the run uses."""
    from lib.tasks import datasets

    examples = datasets.load_examples(params.load_dataset_config(name))
    values = run.values
    return datasets.select_examples(
        examples, values["limit"], values["seed"], name, values["example"]
    )


def about_model(
    run: Run, name: str, texts: dict[str, list[str]], thorough: bool = False
) -> Iterator[Line]:
    """Yield the lines of a model, given the questions of each dataset. `thorough` adds what a run
    is not refused for, as memory, which is an estimate."""
    spec = params.load_model_config(name)
    if spec.responses:
        yield from about_responses(run, spec)
    if not spec.at_hand:
        yield (
            "note",
            "its weights are not available (its file names no `source`): "
            "MC dropout, temperature scaling and ablations stay empty",
        )
        return
    if hub.is_elsewhere(spec):
        yield (
            "note",
            f"{spec.gguf} of {spec.source}, "
            f"{hub.count_missing_bytes(spec) / 1e9:.3g} GB on the hub: "
            "it is looked at once it is fetched, before the first job",
        )
        return
    # else tokenizers warn when a process is forked later
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lib.generate import preflight

    folder, named = hub.find_config(spec)
    # the hub's weights may not be downloaded yet, or only in part; those of a GGUF file would have
    # to be unpacked
    whole = not (is_on_hub(spec) or named)
    lm = preflight.load_outline(name, spec, folder, whole=whole, **named)
    yield from preflight.report_on_model(lm, run.values, texts)
    yield from about_place(run, lm)
    yield from about_memory(run, lm, thorough)


def about_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """Report how many of the run's questions a model's response files answer."""
    from lib.responses.imported import ImportedResponses

    for name in run.values["datasets"]:
        responses = ImportedResponses.read(spec, name, select_examples(run, name))
        coverage, *remarks = responses.describe_coverage()
        yield "ok", coverage
        for remark in remarks:
            yield "note", remark


def about_place(run: Run, lm: "LanguageModel") -> Iterator[Line]:
    """Report a model that would run without a GPU, probably by mistake, or that vLLM can't load."""
    from lib.models import loading

    loading.check_precision(lm.spec, lm.model)
    beyond_vllm = lm.spec.gguf or lm.spec.gpus
    if beyond_vllm and machine.uses_vllm(run) and not lm.spec.responses:
        problem = "vLLM loads no GGUF file here, and no model on several GPUs (`gpus: all`)"
        yield "wrong", f"{problem}: {machine.REMEDY}"
    on_gpu = loading.runs_on_gpu(lm.model)
    if on_gpu and not run.gpus and not run.slurm:  # jobs that run at once would all take the first
        problem = "PyTorch sees a GPU, but nvidia-smi lists none"
        yield "wrong", f"{problem}: name the GPUs in CUDA_VISIBLE_DEVICES"
    size = lm.model.num_parameters()
    has_gpu = run.gpus if run.slurm else on_gpu
    if size > LARGE and not has_gpu and not run.values.get("cpu"):
        lacks = "the file of --slurm requests no GPU" if run.slurm else "PyTorch sees no GPU here"
        remedy = "add --cpu (or `cpu: true` in the profile) to run it on the CPU, for days"
        yield "wrong", f"{size / 1e9:.2g} billion parameters, and {lacks}: {remedy}"


# ---- memory


def cache_numbers_per_token(network: "PreTrainedModel") -> int:
    """Return how many numbers one token takes in the cache: a key and a value per layer and
    key-value head."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 0)  # none in a model of states alone
    width = getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)
    key_value_heads = getattr(config, "num_key_value_heads", None) or heads
    return 2 * config.num_hidden_layers * key_value_heads * width


def find_memory(run: Run, lm: "LanguageModel") -> tuple[str, float]:
    """Return the name and the bytes of memory of where a model runs: the processor, a GPU, or all
    of them."""
    from lib.models import loading

    if run.slurm:
        return "a node", math.inf
    if not loading.runs_on_gpu(lm.model):
        return "the CPU", psutil.virtual_memory().available
    sizes = [GPU_SHARE * size for size in loading.memory_of_gpus()]
    if lm.spec.gpus == "all":
        return "all GPUs", sum(sizes)
    return GPU, min(sizes, default=math.inf)  # any job may get the smallest


def bytes_per_token(lm: "LanguageModel", longest: int) -> float:
    """Return the memory of a token of a row of this length: its cache, one layer's copy while the
    cache grows, its share of sampling."""
    from lib.models import loading

    config = lm.model.config.get_text_config()
    number_bytes = loading.loading_dtype(lm.spec, lm.model).itemsize
    cache = cache_numbers_per_token(lm.model) * number_bytes
    sampling = SAMPLING_BYTES * config.vocab_size / longest
    return cache * (1 + 1 / config.num_hidden_layers) + sampling


def estimate_prompt(lm: "LanguageModel", run: Run) -> int:
    from lib.generate import preflight

    return preflight.estimate_prompt(lm, run.values)


def about_vllm(lm: "LanguageModel", free: float, longest: int, new_tokens: int) -> Iterator[Line]:
    """Report a GPU on which vLLM would not start: it wants room for one response of the longest
    kind. It draws before the network is loaded."""
    from lib.models import loading

    number_bytes = loading.loading_dtype(lm.spec, lm.model).itemsize
    left = free - lm.model.num_parameters() * number_bytes - VLLM_BYTES
    fitting = int(left / (cache_numbers_per_token(lm.model) * number_bytes)) - longest + new_tokens
    if fitting < 1:
        yield "wrong", f"{free / 1e9:.4g} GB are too little for vLLM's weights: {machine.REMEDY}"
    elif fitting < new_tokens:
        remedy = f"write `max_new_tokens: {fitting}` in its file, or {machine.REMEDY}"
        room = f"vLLM has room for a response of {fitting} tokens, not of {new_tokens}"
        yield "wrong", f"{room}: {remedy}"


def about_memory(run: Run, lm: "LanguageModel", thorough: bool) -> Iterator[Line]:
    """Compare the memory of weights, and of the caches and logits of rows that are decoded
    together, with what the place has. Only weights that do not fit a GPU refuse a run."""
    from lib.models import loading

    batch_tokens = run.values["max_batch_tokens"]
    new_tokens = lm.spec.max_new_tokens or run.values["max_new_tokens"]
    longest = estimate_prompt(lm, run) + new_tokens
    size = lm.model.num_parameters()
    weights = SPARE * size * loading.loading_dtype(lm.spec, lm.model).itemsize
    token = bytes_per_token(lm, longest)
    need = weights + token * max(batch_tokens, longest)
    text = (
        f"{size / 1e9:.2g} billion parameters, up to {need / 1e9:.2g} GB "
        f"with {max(1, batch_tokens // longest)} rows at once"
    )
    place, free = find_memory(run, lm)
    lacks = f"{text}: {place} has room for {free / 1e9:.4g} GB"
    if weights + token > free and (thorough or place == GPU):
        problem = f"{lacks}, too little for the weights alone"
        if place == GPU:
            problem += ": write `gpus: all` in its file to spread it over all GPUs"
            problem += ", or leave smaller GPUs out by CUDA_VISIBLE_DEVICES"
        yield "wrong", problem
    elif thorough and need > free:
        yield "wrong", f"{lacks}; max_batch_tokens {int((free - weights) / token)} would fit"
    elif thorough:
        yield "ok", text
    if thorough and weights <= free and machine.uses_vllm(run) and not lm.spec.responses:
        yield from about_vllm(lm, free, longest, new_tokens)
