"""`./run_all.sh check PROFILE`: can this machine do the run, and what would it take? Nothing is generated or kept.

A line per thing looked at: ok; note (good to know); or wrong, with what to do about it. Exit code 2 if anything is
wrong.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import psutil

from lib import params
from lib.project import UserError
from workflow import guard, hub
from workflow.check_model import Line, about_model
from workflow.jobs import Run
from workflow.schedule import say


def check(run: Run) -> int:
    """Say everything about a run; the exit code."""
    wrong = 0
    for subject, lines in subjects(run):
        try:
            for level, text in lines:
                say(f"{level:5}  {subject}: {text}")
                wrong += level == "wrong"
        except UserError as problem:
            say(f"wrong  {subject}: {problem}")
            wrong += 1
    say(f"{run.name}: {f'{wrong} thing(s) to mend' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def subjects(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    device = machine()
    yield "machine", about_machine(run, device)
    yield "disk", about_disk(run)
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, device)


# ---- the machine


def machine() -> SimpleNamespace:
    """The device that a job would get: name, free memory (bytes), bandwidth (bytes/s), operations (per second)."""
    import torch

    cuda = torch.cuda.is_available()
    place, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    memory = torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available
    block = torch.ones(64_000_000, dtype=dtype, device=place)
    square = torch.ones(4096 if cuda else 1024, 4096 if cuda else 1024, dtype=dtype, device=place)
    moved = 2 * block.numel() * block.element_size() / seconds(lambda: block.clone())
    return SimpleNamespace(
        cuda=cuda,
        name=torch.cuda.get_device_name() if cuda else "CPU",
        memory=memory,
        bandwidth=moved,
        bytes=block.element_size(),
        operations=2 * len(square) ** 3 / seconds(lambda: square @ square),
    )


def seconds(work) -> float:
    """The fastest of five, the first thrown away."""
    import torch

    times = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def about_machine(run: Run, device: SimpleNamespace) -> Iterator[Line]:
    import torch

    listed = guard.gpus()
    if listed and not device.cuda:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        seen = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    elif device.cuda:
        free = f"{device.memory / 1e9:.0f} GB free"
        yield "ok", f"{len(listed)} x {device.name}, {free}, CUDA {torch.version.cuda}, bfloat16"
    else:
        yield "note", f"no GPU: {run.cores} cores, {device.memory / 1e9:.0f} GB of memory free, float32"


def about_disk(run: Run) -> Iterator[Line]:
    specs = [params.load_model(name) for name in run.values["models"]]
    if not any(map(hub.remote, specs)):
        yield "ok", "every model lies in a local folder"
        return
    wanted, (place, free) = (
        sum(hub.missing(spec, hub.TEXTS + hub.WEIGHTS) for spec in specs if hub.remote(spec)),
        hub.room(),
    )
    text = f"{wanted / 1e9:.1f} GB of weights to fetch to {place}, {free / 1e9:.0f} GB free"
    yield ("ok", text) if wanted < 0.95 * free else ("wrong", f"{text}: free some, or set HF_HOME to a larger disk")


def about_dataset(run: Run, name: str) -> Iterator[Line]:
    from lib.tasks import datasets

    spec = params.load_dataset(name)
    examples = datasets.load(spec, run.values["limit"])
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    split = [sum(e.split == part for e in examples) for part in (datasets.CALIBRATION, datasets.EVALUATION)]
    yield "ok", f"{split[0]} calibration and {split[1]} evaluation questions from {source}"


def main(run: Run) -> int:
    """As run.py calls it."""
    with suppress(UserError):  # said again, model by model
        hub.pin(run)
    return check(run)
