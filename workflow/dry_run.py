"""`--dry-run`: list the jobs of a cluster run with their resources and estimated time, without submitting them."""

from collections.abc import Callable, Iterable
from functools import cache

from lib import params
from workflow import check, cost, fresh, usable
from workflow.cluster import Profile
from workflow.device import Device
from workflow.pipeline import Job, Run

Say = Callable[[str], None]
CARD = Device(True, "GPU of 80 GB", 80e9, 2.0e12, 312e12, 2)  # an A100: bytes/s and FLOP/s by its data sheet


def list_jobs(run: Run, profile: Profile, force: Iterable[str], say: Say) -> int:
    """Print a line per job; submit, move and download nothing."""
    todo = [verdict.job for verdict in fresh.judge_all(run, force) if verdict.open]
    times = job_hours(run, todo)
    width = max((len(job.title) for job in todo), default=0)
    for job in todo:
        known = f"{cost.format_hours(times[job])} h" if job in times else "hours unknown"
        say(f"{job.title.ljust(width)}  {describe_resources(profile, job)}; {known}")
    total = f"; about {cost.format_hours(cost.sum_hours(times.values()))} h in all" if times else ""
    rest = f", and {len(todo) - len(times)} job(s) of unknown length" if len(times) < len(todo) else ""
    where = f" (hours as on a {CARD.name})" if run.gpus else ""
    say(
        f"{run.name}: {len(todo)} of {len(run.jobs)} jobs would be submitted to {profile.name}{total}{rest}{where}; "
        "nothing was"
    )
    return 0


def describe_resources(profile: Profile, job: Job) -> str:
    """Return the resources that a job requests, by the names of the profile."""
    threads = profile.values["set-threads"].get(job.notebook.name, 1)
    resources = {"threads": threads, **profile.resources(job.notebook)}
    return ", ".join(f"{key.removeprefix('slurm_')} {value}" for key, value in resources.items())


def job_hours(run: Run, jobs: list[Job]) -> dict[Job, cost.Range]:
    """Return the estimated least and most hours of each job. A job without an estimate is left out."""
    found: dict[Job, cost.Range] = {}
    for job in jobs:
        if not job.notebook.heavy:
            found[job] = (job.notebook.minutes / 60,) * 2
        elif run.gpus and job.notebook.number in cost.PARTS and (measured := measure_model(run, job.model)):
            found[job] = estimate_job(job, *measured)
    return found


@cache
def measure_model(run: Run, model: str) -> tuple[cost.Size, int, int] | None:
    """Return the size of a model's network, the tokens of its prompt, and those shared by all prompts. None if its
    files are not available."""
    try:
        preflight = usable.load_preflight(run, model, {})
        work = check.estimate_work(run, preflight)
    except Exception:  # of the Hub or of the files; `check` and the run report it
        return None
    return cost.Size.of(preflight.lm.model, CARD.bytes), work.prompt, work.shared


def estimate_job(job: Job, size: cost.Size, prompt: int, shared: int) -> cost.Range:
    """Estimate the least and most hours of a job that runs a model on CARD, with its share of the loading time."""
    spec, values = params.load_model_config(job.model), {**job.run.values, "datasets": [job.dataset]}
    parts = cost.estimate_hours(size, cost.Work.of(values, spec, prompt, shared), CARD)
    load = parts["loads"][0] / cost.OF_PAIR
    return cost.sum_hours([(load, load), *(parts[name] for name in cost.PARTS[job.notebook.number])])
