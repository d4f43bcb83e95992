"""Can this machine do the run? `./run_all.sh check PROFILE` prints one line per check: ok, note (for information), or
wrong with the remedy. Nothing is generated or saved. The exit code is 2 if anything is wrong.

A run asks the same of its models before its first job, by their files, without their downloads.
lib/generate/preflight.py checks a model by itself; this module adds the checks that depend on the run.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lib import params
from lib.paths import UserError, first_line, one_line
from workflow import downloads, hub, machine, slurm
from workflow.pipeline import Run
from workflow.progress import say

Line = tuple[str, str]  # level (ok, note or wrong) and text
MAX_LENGTH = 600  # characters of a line
GPU_SHARE = 0.9  # of a GPU's memory that weights may use
LARGE = 2e9  # parameters; a larger model runs on a CPU only with --cpu
SILENT = "it does not answer; models and datasets must be in the local cache, or in folders that files of params/ name"


def main(run: Run) -> int:
    """Print all checks of a run and return the exit code."""
    silent = hub.go_offline_if_silent(run)
    with suppress(UserError):  # reported below for each model
        hub.pin_revisions(run)
    wrong = 0
    for subject, lines in list_checks(run, silent):
        for level, text in explain_errors(lines):
            say(one_line(f"{level:5}  {subject}: {text}", MAX_LENGTH))
            wrong += level == "wrong"
    say(f"{run.name}: {f'{wrong} problem(s) found' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def list_checks(run: Run, silent: bool) -> Iterator[tuple[str, Iterator[Line]]]:
    """Yield each subject, with its lines."""
    if silent:
        yield "hub", iter([("note", SILENT)])
    yield "machine", about_machine(run)
    yield "disk", about_disk(run)
    yield "engine", about_engine(run)
    texts: dict[str, list[str]] = {}
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name, texts)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, texts, thorough=True)


def about_machine(run: Run) -> Iterator[Line]:
    import torch

    listed, seen = machine.list_gpus(), torch.cuda.is_available()
    place, free = machine.find_place(seen)
    if seen:
        yield "ok", f"{len(listed) or 1} x {place}, {free / 1e9:.0f} GB free, CUDA {torch.version.cuda}, bfloat16"
    elif listed:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        said = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{said}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    else:
        yield "note", f"no GPU: {run.cores} cores, {free / 1e9:.0f} GB of memory free, float32"


def about_disk(run: Run) -> Iterator[Line]:
    with suppress(UserError):  # reported with the model
        wanted = sum(downloads.count_missing_bytes(params.load_model_config(name)) for name in run.values["models"])
        lack = downloads.why_no_room(wanted)
        yield ("wrong", lack) if lack else ("ok", f"{wanted / 1e9:.1f} GB of weights to fetch")


def about_engine(run: Run) -> Iterator[Line]:
    if downloads.uses_vllm(run):
        reason = downloads.why_no_vllm(run)
        yield ("wrong", reason) if reason else ("ok", "vLLM generates responses; one pass rescores them")


def about_dataset(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    """Report the questions of a dataset, and add them to `texts`, if they can be read."""
    from lib.tasks import datasets

    spec, examples = params.load_dataset_config(name), select_examples(run, name)
    texts[name] = [example.question for example in examples]
    rows = Counter(example.split for example in examples)
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    split = f"{rows[datasets.CALIBRATION]} calibration and {rows[datasets.EVALUATION]} evaluation questions"
    yield "ok", f"{split} from {spec.folder or source}"


# ---- models ----------------------------------------------------------------------------------------------------


def explain_errors(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, and any error that ends them as a line: they read other people's files and packages."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def refuse_unusable(run: Run, names: list[str]) -> None:
    """Raise UserError for the first model that the run cannot use, or for a dataset that cannot be read."""
    asked = {name: select_examples(run, name) for name in run.values["datasets"]} if names else {}
    texts = {name: [example.question for example in examples] for name, examples in asked.items()}
    for name in names:
        for level, text in explain_errors(about_model(run, name, texts)):
            if level == "wrong":
                raise UserError(f"model '{name}': {text}")


def with_small(run: Run, names: list[str]) -> Run:
    """Return the run with those of these models that run on the processor on every machine."""
    return replace(run, small=tuple(filter(is_small, names)))


def is_small(name: str) -> bool:
    from lib.generate import checkpoints, models  # these import torch, which is slow

    spec = params.load_model_config(name)
    if not spec.at_hand:
        return False
    folder, named = downloads.find_config(spec)
    return models.is_small(checkpoints.outline_network(checkpoints.read_config(folder, **named)))


def select_examples(run: Run, name: str) -> list[Any]:
    """Return the examples of a dataset that the run uses."""
    from lib.tasks import datasets

    examples = datasets.load_examples(params.load_dataset_config(name))
    return datasets.select_examples(examples, run.values["limit"], run.values["seed"], name, run.values["example"])


def about_model(run: Run, name: str, texts: dict[str, list[str]], thorough: bool = False) -> Iterator[Line]:
    """Yield the lines of a model, given the questions of each dataset. `thorough` adds what a run is not refused for,
    as memory, which is an estimate."""
    spec = params.load_model_config(name)
    if spec.responses:
        yield from about_responses(run, spec)
    if not spec.at_hand:
        text = "its weights are not available (its file names no `source`)"
        yield "note", f"{text}: MC dropout, temperature scaling and ablations stay empty"
        return
    if downloads.is_elsewhere(spec):
        size = f"{downloads.count_missing_bytes(spec) / 1e9:.3g} GB on the hub"
        yield "note", f"{spec.gguf} of {spec.source}, {size}: it is looked at once it is fetched, before the first job"
        return
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizers warn when a process is forked later
    from lib.generate import preflight

    folder, named = downloads.find_config(spec)
    # the hub's weights may not be downloaded yet, or only in part; those of a GGUF file would have to be unpacked
    whole = not (hub.is_on_hub(spec) or named)
    lm = preflight.load_outline(name, spec, folder, whole=whole, **named)
    yield from preflight.check_model(lm, run.values, texts)
    yield from about_processor(run, lm.model)
    yield from about_gpu(run, lm)
    if thorough:
        yield "ok", spec.source + (f" at {spec.revision[:12]}" if spec.revision else "")
        yield machine.about_memory(run, lm, preflight.estimate_prompt(lm, run.values))


def about_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """Report how many of the run's questions a model's response files answer, and which fields are used."""
    from lib.generate.imported_responses import ImportedResponses

    for name in run.values["datasets"]:
        found = ImportedResponses.read(spec, name, select_examples(run, name))
        said, *missed = found.describe_coverage()
        yield "ok", f"{said}, {sum(bool(one.logprobs) for one in found.responses.values())} with log-probabilities"
        yield from (("note", text) for text in missed)


def about_processor(run: Run, network: Any) -> Iterator[Line]:
    """Report a large model that would run without a GPU, probably by mistake."""
    import torch

    size, seen = network.num_parameters(), ""
    if run.slurm:  # each job requests its own
        rows = [row.name for row in run.notebooks if row.runs_model]
        bare = [name for name in rows if not slurm.requests_gpu(run.slurm[name])]
        seen = f"the file of --slurm requests no GPU for {', '.join(bare)}" if bare else ""
    elif not torch.cuda.is_available():
        seen = f"PyTorch ({torch.__version__}) sees no GPU here"
    if seen and size > LARGE and not run.values.get("cpu"):
        remedy = "add --cpu (or `cpu: true` in the profile) to run it on the CPU, for days"
        yield "wrong", f"{size / 1e9:.2g} billion parameters, and {seen}: {remedy}"


def about_gpu(run: Run, lm: Any) -> Iterator[Line]:
    """Report a model that vLLM can't load, or that does not fit a GPU unless its file spreads it over all of them."""
    from lib.generate import models

    if downloads.uses_vllm(run) and not lm.spec.responses and (lm.spec.gguf or lm.spec.gpus):
        yield "wrong", f"vLLM loads no GGUF file here, and no model on several GPUs (`gpus: all`): {downloads.REMEDY}"
    if run.slurm or lm.spec.gpus == "all" or not models.runs_on_gpu(lm.model):
        return
    if not run.gpus:  # jobs that run at once would all take the first
        yield "wrong", "PyTorch sees a GPU, but nvidia-smi lists none: name the GPUs in CUDA_VISIBLE_DEVICES"
    size = lm.model.num_parameters() * models.loading_dtype(lm.spec, lm.model).itemsize
    largest = max(machine.memory_by_gpu().values(), default=math.inf)
    if size > GPU_SHARE * largest:
        text = f"its weights ({size / 1e9:.2g} GB) do not fit a GPU of {largest / 1e9:.2g} GB"
        yield "wrong", f"{text}: write `gpus: all` in its file to spread it over all GPUs"
