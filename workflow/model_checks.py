"""Whether a run's models can do what it needs: checked before any job by their files, without their weights.

lib/generate/preflight.py checks a model by itself; this module adds the checks that depend on the run.
"""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import UserError, first_line
from workflow import gpus, hub, vllm, weights
from workflow.pipeline import Run

Line = tuple[str, str]  # level (ok, note or wrong) and text
MOST_OF_GPU = 0.9  # share of a GPU's memory that weights may use
LARGE = 2e9  # parameters; a larger model runs on a CPU only with --cpu


def explain_errors(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, and any error that ends them as a line: they read other people's files and packages."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def find_unusable(run: Run, names: list[str]) -> list[str]:
    """Return a line with the reason for each model that the run cannot use, before any job is done."""
    reasons, texts = [], load_questions(run) if names else {}
    for name in names:
        found = [text for level, text in explain_errors(check_usable(run, name, texts)) if level == "wrong"]
        reasons += [text if text.startswith("model '") else f"model '{name}': {text}" for text in found[:1]]
    return reasons


def check_usable(run: Run, name: str, texts: dict[str, list[str]]) -> Generator[Line, None, Any]:
    """Yield the lines of a model. Return its preflight if its weights are available."""
    spec = params.load_model_config(name)
    if spec.responses:
        yield from check_responses(run, spec)
    if not spec.at_hand:
        return None
    preflight = load_preflight(run, name, texts)
    yield from preflight.check()
    yield from check_processor(run, preflight.lm.model)
    yield from check_gpu(run, preflight.lm)
    return preflight


def load_preflight(run: Run, name: str, texts: dict[str, list[str]]) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizers warn when a process is forked later
    from lib.generate.preflight import Preflight, load_outline

    spec = params.load_model_config(name)
    folder, named = find_config(spec)
    # the hub's weights may not be downloaded yet, or only in part; those of a GGUF file would have to be unpacked
    whole = not (hub.is_on_hub(spec) or named)
    return Preflight(load_outline(name, spec, folder, whole=whole, **named), run.values, texts)


def find_config(spec: params.Model) -> tuple[str, dict[str, str]]:
    """Return the folder with a model's configuration and tokenizer, and the name of the GGUF file that holds them.

    From the hub only these are downloaded; a GGUF file must be here.
    """
    if not spec.gguf:
        return config_folder(spec), {}
    file = weights.locate_file(spec)
    if not file:
        raise UserError(f"{spec.gguf} of {spec.source} is yet to be fetched")
    return str(file.parent), {"gguf_file": file.name}


def config_folder(spec: params.Model) -> str:
    """Return the folder with a model's configuration and tokenizer. From the hub only these are downloaded."""
    from lib.generate import models

    if hub.is_on_hub(spec):
        return hub.download_texts(spec)
    folder = models.find_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} has no *.safetensors, the only weights that are loaded")
    return folder


def select_examples(run: Run, name: str) -> list[Any]:
    """Return the examples of a dataset that the run uses."""
    from lib.tasks import datasets

    examples = datasets.load_examples(params.load_dataset_config(name))
    return datasets.select_examples(examples, run.values["limit"], run.values["seed"], name, run.values["example"])


def load_questions(run: Run) -> dict[str, list[str]]:
    """Return the questions of each dataset that can be read here."""
    found = {}
    for name in run.values["datasets"]:
        with suppress(UserError):  # reported with the dataset, and by the job that reads it
            found[name] = [example.question for example in select_examples(run, name)]
    return found


def check_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """Report how many of the run's questions a model's response files answer, and which fields are used."""
    from lib.generate.imported_responses import ImportedResponses

    for name in run.values["datasets"]:
        found = ImportedResponses.read(spec, name, select_examples(run, name))
        said, *missed = found.describe_coverage()
        yield "ok", f"{said}, {sum(bool(one.logprobs) for one in found.responses.values())} with log-probabilities"
        yield from (("note", text) for text in missed)


def check_processor(run: Run, network: Any) -> Iterator[Line]:
    """Report a large model that would run without a GPU, probably by mistake."""
    import torch

    weights = network.num_parameters()
    bare = [row.name for row in run.notebooks if row.runs_model and not run.gpus_by_notebook.get(row.name, run.gpus)]
    there = not bare if run.slurm else torch.cuda.is_available()  # on a cluster, each job requests its own
    if weights <= LARGE or run.values.get("cpu") or there:
        return
    seen = f"PyTorch ({torch.__version__}) sees no GPU here"
    if run.slurm:
        seen = f"the file of --slurm requests no GPU for {', '.join(bare)}"
    remedy = "add --cpu (or `cpu: true` in the profile) to run it on the CPU, for days"
    yield "wrong", f"{weights / 1e9:.2g} billion parameters, and {seen}: {remedy}"


def check_gpu(run: Run, lm: Any) -> Iterator[Line]:
    """Report a model that vLLM can't load, or that does not fit a GPU unless its file spreads it over all of them."""
    from lib.generate import models

    if vllm.uses_vllm(run) and not lm.spec.responses and (lm.spec.gguf or lm.spec.gpus):
        why = "loads no GGUF file here" if lm.spec.gguf else "generates on one GPU, and its file says `gpus: all`"
        yield "wrong", f"vLLM {why}: write `engine: transformers` in the profile"
    if lm.spec.gpus == "all":
        return
    memory = gpus.gpu_memory(gpus.list_gpus()) if run.gpus and not run.slurm else []
    size = lm.model.num_parameters() * models.loading_dtype(lm.spec, lm.model).itemsize
    if memory and size > MOST_OF_GPU * max(memory) and models.runs_on_gpu(lm.model):
        text = f"its weights ({size / 1e9:.2g} GB) do not fit a GPU of {max(memory) / 1e9:.2g} GB"
        yield "wrong", f"{text}: write `gpus: all` in its file to spread it over all GPUs"


def with_small(run: Run, names: list[str]) -> Run:
    """Return the run with those of these models that run on the processor on every machine."""
    from lib.generate import models

    outlines = {}
    for name, spec in ((name, params.load_model_config(name)) for name in names):
        if spec.at_hand:
            folder, named = find_config(spec)
            outlines[name] = models.outline_network(models.read_config(folder, **named))
    return replace(run, small=tuple(name for name, network in outlines.items() if models.is_small(network)))
