"""Whether the models of a run can be asked what it asks, before any job: by their files, without their weights.

What can be told of a model alone is told by lib/generate/preflight.py; here stands what a run adds to it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import UserError, first_line
from workflow import gpus, hub
from workflow.pipeline import Run

Line = tuple[str, str]  # ok, note or wrong; what was seen
LARGE = 2e9  # parameters above which a model is run on a processor only where that is said


def explain_errors(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, and what ended them early, whatever that was: others' files and packages are looked at."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def find_unusable(run: Run, names: list[str]) -> list[str]:
    """Of those models of a run that can't be asked as it asks, a line with the reason, before any job is done."""
    reasons, texts = [], load_questions(run) if names else {}
    for name in names:
        found = [text for level, text in explain_errors(check_usable(run, name, texts)) if level == "wrong"]
        reasons += [text if text.startswith("model '") else f"model '{name}': {text}" for text in found[:1]]
    return reasons


def check_usable(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model_config(name)
    if spec.responses:
        yield from check_responses(run, spec)
    if spec.at_hand:
        preflight = load_preflight(run, name, texts)
        yield from preflight.check()
        yield from check_processor(run, preflight.lm.model)


def load_preflight(run: Run, name: str, texts: dict[str, list[str]]) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else they complain when a process is forked later
    from lib.generate.preflight import Preflight, load_outline

    spec = params.load_model_config(name)
    # of the hub's weights, some or none may have been fetched
    return Preflight(load_outline(name, spec, config_folder(spec), whole=not hub.remote(spec)), run.values, texts)


def config_folder(spec: params.Model) -> str:
    """The folder with a model's configuration and tokenizer; from the hub these alone are fetched."""
    from lib.generate import models

    if hub.remote(spec):
        return hub.texts(spec)
    folder = models.find_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} holds no *.safetensors, the only weights that are loaded")
    return folder


def select_examples(run: Run, name: str) -> list[Any]:
    """The examples of a dataset that the run takes."""
    from lib.tasks import datasets

    examples = datasets.load_examples(params.load_dataset_config(name))
    return datasets.select_examples(examples, run.values["limit"], run.values["seed"], name, run.values["example"])


def load_questions(run: Run) -> dict[str, list[str]]:
    """The questions of each dataset that can be read here."""
    found = {}
    for name in run.values["datasets"]:
        with suppress(UserError):  # said where the dataset is looked at, and by the job that reads it
            found[name] = [example.question for example in select_examples(run, name)]
    return found


def check_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """How many questions of the run a model's file answers, with what will be read of it."""
    from lib.generate import imported_responses

    for name in run.values["datasets"]:
        examples = select_examples(run, name)
        found = imported_responses.read_imported(spec, name, examples)
        told = sum(bool(found[example.example_id].stated) for example in examples)
        said, *missed = imported_responses.describe_coverage(spec, name, examples, found)
        yield "ok", f"{said}, {told} with log-probabilities"
        yield from (("note", text) for text in missed)


def check_processor(run: Run, network: Any) -> Iterator[Line]:
    """Whether a large model would be run without a GPU, which nobody may have meant."""
    import torch

    weights = network.num_parameters()
    bare = [row.name for row in run.notebooks if row.heavy and not run.gpus_of.get(row.name, run.gpus)]
    there = not bare if run.cluster else torch.cuda.is_available()  # a node's are those that the profile asks for
    if weights <= LARGE or run.values.get("cpu") or there:
        return
    seen = f"PyTorch ({torch.__version__}) sees no GPU here"
    if run.cluster:
        seen = f"the cluster's profile asks for no GPU for {', '.join(bare)}"
    remedy = "say --cpu (or `cpu: true` in the profile) to run it on the processor, for days"
    yield "wrong", f"{weights / 1e9:.2g} billion parameters, and {seen}: {remedy}"


def cards(run: Run, names: list[str]) -> dict[str, int]:
    """GPUs that models take which are too large for one of this machine's; no word of the others."""
    memory = gpus.gpu_memory(gpus.available()) if run.gpus > 1 and not run.cluster else []
    if not memory:
        return {}
    from lib.generate import models

    found = {}
    for name in names:
        lm = load_preflight(run, name, {}).lm
        weights = lm.model.num_parameters() * models.loading_dtype(lm.spec).itemsize
        if (count := models.gpus_needed(weights, memory)) > 1:
            found[name] = count
    return found
