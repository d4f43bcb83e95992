"""`./run_all.sh check PROFILE`: can this machine do the run, and what would it take? Nothing is generated or kept.

A line per thing looked at: ok; note (good to know); or wrong, with what to do about it. Exit code 2 if anything is
wrong. Whether a model can be asked is told by usable.py, what it would cost by cost.py.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import UserError, one_line
from workflow import cost, extras, gpus, hub, usable, weights
from workflow.cost import Device
from workflow.pipeline import Run
from workflow.usable import Line

MOST = {"ok": 1000, "note": 1000, "wrong": 300}  # characters of a line
SOME = 50  # questions of a dataset whose prompts are measured
READ = 5e9  # bytes of weights up to which each is looked at; of more, when they are loaded
NOT_AT_HAND = (
    "it is not at hand (its file names no `source`): the log-probabilities of its responses give the Seq and Ans "
    "estimators and isotonic regression; P(True), passes with dropout, temperature and ablations stay empty"
)


def main(run: Run, say: Callable[[str], None]) -> int:
    """Say everything about a run; the exit code."""
    run, wrong = within_reach(run, say)
    with suppress(UserError):  # said again, model by model
        hub.pin(run)
    for subject, lines in subjects(run):
        for level, text in usable.explain_errors(lines):
            say(one_line(f"{level:5}  {subject}: {text}", MOST[level]))
            wrong += level == "wrong"
    say(f"{run.name}: {f'{wrong} thing(s) to mend' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def within_reach(run: Run, say: Callable[[str], None]) -> tuple[Run, int]:
    """The run without what is on the hub alone, where that does not answer, and whether something is: said once, here,
    and looked at no further."""
    wanted = {kind: [name for name in run.values[f"{kind}s"] if hub.remote(load(name))]
              for kind, load in params.LOADERS.items()}  # fmt: skip
    if not any(wanted.values()) or hub.answers():
        return run, 0
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")  # before its client is imported
    absent = {kind: [name for name in names if not at_hand(kind, name)] for kind, names in wanted.items()}
    if not any(absent.values()):
        say("note   hub: it does not answer; everything that the run reads of it is on this machine")
        return run, 0
    what = "; ".join(f"{kind}s {', '.join(names)}" for kind, names in absent.items() if names)
    say(f"wrong  hub: it does not answer, and not on this machine are {what}: connect, or name "
        "folders (a model's `source`, --data-dir for datasets); what they would take is not known without their "
        "configurations")  # fmt: skip
    left = {f"{kind}s": [name for name in run.values[f"{kind}s"] if name not in absent[kind]] for kind in absent}
    return replace(run, values=run.values | left), 1


def at_hand(kind: str, name: str) -> bool:
    """Whether what a run reads of the hub was fetched before."""
    if kind == "model":
        return hub.cached(params.load_model_config(name))
    from lib.tasks import datasets

    with suppress(UserError):
        return bool(datasets.load_examples(params.load_dataset_config(name)))
    return False


def subjects(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    device = cost.measure_device(run.jobs[0].threads)
    yield "machine", about_machine(run, device)
    yield "disk", about_disk(run)
    yield "engine", about_engine(run)
    texts = usable.load_questions(run)
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, device, texts)


# ---- machine, disk and datasets


def about_machine(run: Run, device: Device) -> Iterator[Line]:
    import torch

    listed = gpus.available()
    if listed and not device.cuda:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        seen = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    elif device.cuda:
        free = f"{device.memory / 1e9:.0f} GB free"
        yield "ok", f"{len(listed)} x {device.name}, {free}, CUDA {torch.version.cuda}, bfloat16"
    else:
        ratio = cost.bfloat16_seconds()
        units = "" if ratio < 1 else ", for it has no matrix units (AMX)"
        half = f"bfloat16 takes {ratio:.1f} times as long as float32{units}"
        yield "note", f"no GPU: {run.cores} cores, {device.memory / 1e9:.0f} GB of memory free, float32; {half}"


def about_disk(run: Run) -> Iterator[Line]:
    models = [params.load_model_config(name) for name in run.values["models"]]
    specs = [spec for spec in models if hub.remote(spec)]
    if models and not specs:
        files = ", or is a GGUF file" if any(spec.gguf for spec in models) else ""
        yield "ok", f"every model lies in a local folder{files}"
        return
    if not specs:
        return
    wanted = sum(hub.missing(spec) for spec in specs)
    place, free = hub.room()
    text = f"{wanted / 1e9:.1f} GB of weights to fetch to {place}, {free / 1e9:.0f} GB free"
    if wanted <= hub.FILLED * free:
        yield "ok", text
    else:
        yield "wrong", f"{text}: free some, or set HF_HOME to a larger disk"


def about_engine(run: Run) -> Iterator[Line]:
    """What draws, where that is not transformers."""
    if not extras.uses_vllm(run):
        return
    if named := os.environ.get("VLLM_PYTHON"):
        yield "ok", f"vLLM draws, by the Python that VLLM_PYTHON names ({Path(named).name})"
    elif reason := extras.why_no_vllm(run):
        yield "wrong", reason
    else:
        there = "is there" if extras.is_installed(extras.VENV, "vllm") else "will be made, once"
        yield "ok", f"vLLM draws, in {extras.VENV.name}, which {there}; one pass of the model rescores what it drew"


def about_dataset(run: Run, name: str) -> Iterator[Line]:
    from lib.tasks import datasets

    spec, examples = params.load_dataset_config(name), usable.select_examples(run, name)
    rows = Counter(example.split for example in examples)
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    if spec.folder:
        source = f"{', '.join(file.path for file in spec.files.values())} in {spec.folder}, of the right sha256"
    if hub.remote(spec):
        source = f"the repository {source} on the hub"
    split = f"{rows[datasets.CALIBRATION]} calibration and {rows[datasets.EVALUATION]} evaluation questions"
    yield "ok", f"{split} from {source}"


# ---- models


def about_model(run: Run, name: str, device: Device, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model_config(name)
    if spec.responses:
        yield from usable.check_responses(run, spec)
    if not spec.at_hand:
        yield "note", NOT_AT_HAND
        return
    if spec.gguf:
        yield from weights.about(spec)
        if weights.pending(spec):
            return
    folder = usable.config_folder(spec)
    where = "the repository {} on the hub" if hub.remote(spec) else "{}"
    yield "ok", where.format(spec.source) + (f" at {spec.revision[:12]}" if spec.revision else "")
    preflight = usable.load_preflight(run, name, texts)
    if not hub.remote(spec):
        yield from about_weights(folder)
    yield from preflight.check()
    yield from usable.check_processor(run, preflight.lm.model)
    yield from about_decoding(spec, preflight.lm.facts)
    yield from about_cost(run, preflight, device, "" if hub.remote(spec) else folder)


def about_weights(folder: str) -> Iterator[Line]:
    """Whether every weight in a folder is a finite number, where they are not too many to look at."""
    from safetensors import safe_open

    from lib.generate.checkpoint import check_finite_weights

    size = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    if 0 < size <= READ:
        for path in sorted(Path(folder).glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                check_finite_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
        yield "ok", f"its weights ({size / 1e9:.2g} GB) are whole, and finite numbers"


def about_decoding(spec: params.Model, own: dict) -> Iterator[Line]:
    """Where the file's settings are not the model's own."""
    ours = {"temperature": spec.temperature, "top_p": spec.top_p, "top_k": max(spec.top_k, 0), "min_p": spec.min_p}
    others = [f"{key} {own[key]} (here {ours[key]:g})" for key in ours if own.get(key, ours[key]) != ours[key]]
    if others:
        yield "note", "its own generation_config says " + ", ".join(others)


def about_cost(run: Run, preflight: Any, device: Device, folder: str = "") -> Iterator[Line]:
    """Memory, and hours for all datasets. In a local `folder` lie weights with which a step can be timed."""
    lm = preflight.lm
    size, work = cost.Size.of(lm.model, device.bytes), work_of(run, preflight)
    device = cost.in_precision(device, lm.spec)
    yield memory(size, work, device, run.gpus)
    timed = None
    if (
        folder
        and not work.served
        and size.weights <= cost.TIMED
        and cost.needed(size, work, device.bytes) < device.memory
    ):
        with suppress(Exception):  # the estimate stands for a network that is called in another way
            timed = cost.time_model(folder, work, device)
    parts = cost.estimate_hours(size, work, device, timed)
    low, high = cost.sum_hours(parts.values())
    seen = " (as written before)" if written(run, lm.name) else ""
    text = f"about {low:.2g} to {high:.2g} hours for {work.rows} questions, at {work.tokens} tokens a response{seen}"
    named = ", ".join(f"{name} {format_range(hours)}" for name, hours in parts.items())
    yield "note", f"{text}: {named}; {'measured' if timed else 'estimated'}"


def format_range(hours: tuple[float, float]) -> str:
    low, high = (f"{value:.2g}" for value in hours)
    return low if low == high else f"{low} to {high}"


def work_of(run: Run, preflight: Any) -> cost.Work:
    """What the run asks of a model: prompts as long as those of questions at hand, responses as long as those that it
    wrote before."""
    from lib.generate import generation

    lm, some = preflight.lm, [question for asked in preflight.questions.values() for question in asked[:SOME]]
    lengths = [preflight.count_tokens(question) for question in some]
    prompt = sum(lengths) // len(lengths) if lengths else preflight.estimate_prompt()
    few = run.values["demonstration"] == "few"
    shared = len(generation.shared_prompt_ids(lm, "few")) if few else 0
    return cost.Work.of(run.values, lm.spec, prompt, shared, written(run, lm.name))


def written(run: Run, name: str) -> float | None:
    """Mean tokens of a model's responses that are there, of an earlier run or shipped; none where there are none."""
    import pandas as pd

    from lib import store

    means = []
    for pair in store.pair_names([name], run.values["datasets"]):
        paths = [path for who in (run.name, f"replay-{run.name}", "replay")
                 for path in store.frame_paths(who, "generations", pair) if path.exists()]  # fmt: skip
        with suppress(Exception):  # a damaged file is said by the run
            frame = pd.read_parquet(paths[0], columns=["token_logprobs"])
            means.append(float(frame.token_logprobs.map(len).mean()))
    return sum(means) / len(means) if means else None


def memory(size: cost.Size, work: cost.Work, device: Device, gpus: int = 1) -> Line:
    """What weights and decoding need, beside what is free on a device, or on some of several alike."""
    from lib.generate import models

    weights = 1.1 * size.weights * device.bytes
    each = cost.token_bytes(size, work)
    need = cost.needed(size, work, device.bytes)
    text = f"{size.weights / 1e9:.2g} billion parameters, up to {need / 1e9:.2g} GB with {work.batch} rows at once"
    free = f"{device.name} has {device.memory / 1e9:.0f} GB free"
    count = models.gpus_needed(size.weights * device.bytes, [device.memory] * max(1, gpus))
    if device.cuda and count > 1:
        return "note", f"{text}: more than one {device.name} holds; its layers are spread over {count} of the {gpus}"
    if weights > device.memory:
        return "wrong", f"{text}: {free}, too little for the weights alone"
    if need > device.memory:
        return "wrong", f"{text}: {free}; max_batch_tokens {int((device.memory - weights) / each)} would fit"
    return "ok", text
