"""`--dry-run`: a line per job with what it would ask a cluster for and about how long it would take; nothing is run."""

from collections.abc import Callable, Iterable

from lib import params
from workflow import check, cost, fresh, usable
from workflow.cluster import Profile
from workflow.pipeline import Job, Run

Say = Callable[[str], None]
CARD = cost.Device(True, "GPU of 80 GB", 80e9, 2.0e12, 312e12, 2)  # an A100: bytes/s and operations/s of its data sheet


def show(run: Run, profile: Profile, remake: Iterable[str], say: Say) -> int:
    """Say a line per job; nothing is submitted, moved or fetched."""
    todo = [verdict.job for verdict in fresh.outlook(run, remake) if verdict.open]
    times = hours(run, todo)
    width = max((len(job.title) for job in todo), default=0)
    for job in todo:
        say(f"{job.title.ljust(width)}  {asks(profile, job)}; {span(times[job])}")
    total = [sum(part) for part in zip(*filter(None, times.values()), strict=True)]
    unknown = sum(time is None for time in times.values())
    rest = f", and {unknown} job(s) of unknown length" if unknown else ""
    estimated = f"; about {span(tuple(total))} in all{rest}" if total else rest
    where = f" (hours as on a {CARD.name})" if run.gpus else ""
    say(f"{run.name}: {len(todo)} of {len(run.jobs)} jobs would be submitted to {profile.name}{estimated}{where}; "
        "nothing was")  # fmt: skip
    return 0


def asks(profile: Profile, job: Job) -> str:
    """What a job asks the cluster for, in the words of the file."""
    threads = profile.values["set-threads"].get(job.notebook.name, 1)
    resources = {"threads": threads, **profile.resources(job.notebook)}
    return ", ".join(f"{key.removeprefix('slurm_')} {value}" for key, value in resources.items())


def span(time: tuple[float, float] | None) -> str:
    """Hours, at least and at most."""
    if time is None:
        return "hours unknown"
    low, high = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in time)
    return f"{low} h" if low == high else f"{low} to {high} h"


def hours(run: Run, jobs: list[Job]) -> dict[Job, tuple[float, float] | None]:
    """Of each job at least and at most; as it was timed last, else by estimate; None where neither can be had."""
    timed, sizes = run.seconds(), {}
    device = CARD if run.gpus else None
    found: dict[Job, tuple[float, float] | None] = {}
    for job in jobs:
        if job.name in timed:
            found[job] = (timed[job.name] / 3600,) * 2
        elif not job.notebook.heavy:
            found[job] = (job.notebook.minutes / 60,) * 2
        else:
            if job.model not in sizes:
                device = device or cost.measure_device(1)
                sizes[job.model] = measured(run, job.model, device)
            found[job] = estimate(job, *sizes[job.model], device) if sizes[job.model] else None
    return found


def measured(run: Run, model: str, device: cost.Device) -> tuple[cost.Size, int, int] | None:
    """Size of a model's network, tokens of its prompt, and those that all prompts share; None where its files are not
    to be had."""
    try:
        preflight = usable.load_preflight(run, model, {})
        work = check.work_of(run, preflight)
    except Exception:  # of the hub's, or of files that check and the run itself name
        return None
    return cost.Size.of(preflight.lm.model, device.bytes), work.prompt, work.shared


def estimate(job: Job, size: cost.Size, prompt: int, shared: int, device: cost.Device) -> tuple[float, float]:
    """Hours of a job that runs a model, at least and at most, by cost.py; a quarter of the loads for each notebook."""
    spec, values = params.load_model_config(job.model), {**job.run.values, "datasets": [job.dataset]}
    parts = cost.estimate_hours(size, cost.Work.of(values, spec, prompt, shared), device)
    own = cost.sum_hours(parts[name] for name in cost.PARTS[job.notebook.number])
    low, high = (value + parts["loads"][0] / cost.OF_PAIR for value in own)
    return low, high
