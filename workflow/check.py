"""`./run_all.sh check PROFILE`: can this machine do the run? Nothing is generated or saved.

It prints one line per check: ok, note (for information), or wrong with the remedy. The exit code is 2 if anything is
wrong. model_checks.py checks the models.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from lib import params
from lib.paths import UserError, one_line
from workflow import gpus, hub, memory, vllm, weights
from workflow.model_checks import Line, about_model, explain_errors, select_examples
from workflow.pipeline import Run

MAX_LENGTH = 600  # characters of a line
SILENT = (
    "it does not answer; models and datasets must be in the local cache, or in folders that a model's `source` and "
    "--data-dir name"
)


def main(run: Run, say: Callable[[str], None]) -> int:
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

    listed = gpus.list_gpus()
    place, free = memory.find_place(torch.cuda.is_available())
    if torch.cuda.is_available():
        yield "ok", f"{len(listed)} x {place}, {free / 1e9:.0f} GB free, CUDA {torch.version.cuda}, bfloat16"
    elif listed:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        seen = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    else:
        yield "note", f"no GPU: {run.cores} cores, {free / 1e9:.0f} GB of memory free, float32"


def about_disk(run: Run) -> Iterator[Line]:
    with suppress(UserError):  # reported with the model
        wanted = sum(weights.count_missing_bytes(params.load_model_config(name)) for name in run.values["models"])
        lack = weights.why_no_room(wanted)
        yield ("wrong", lack) if lack else ("ok", f"{wanted / 1e9:.1f} GB of weights to fetch")


def about_engine(run: Run) -> Iterator[Line]:
    if vllm.is_used(run):
        reason = vllm.why_unavailable(run)
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
