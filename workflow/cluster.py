"""A run on a cluster: the same jobs, submitted by Snakemake's plugin for SLURM or Kubernetes as a profile file says.

The file is one of Snakemake's own (params/cluster/). All that is common to run and jobs is the project's folder: a job
on a node counts its cores there, waits until it sees what it reads, and notes what it says in a file that is followed.
"""

import hashlib
import os
import re
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lib.paths import ROOT, UserError, nearest, read_yaml
from workflow import kubernetes, records
from workflow.pipeline import NOTEBOOKS, Job, Notebook, Run

POLL = 1  # seconds between two looks at what jobs say
PATIENCE = 120  # seconds in which files of one node appear on another
NAMES = {"slurm": "SLURM", "kubernetes": "Kubernetes"}
PLUGINS = {"slurm": "slurm", "kubernetes": "cluster-generic"}  # Snakemake's, by which jobs are submitted
LISTS = ("default-resources", "set-resources", "set-threads")
Hear = Callable[[str], None]

# ---- the profile file --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """What a file in params/cluster/ says, for one executor of Snakemake."""

    executor: str
    path: str
    values: dict
    own: dict = field(default_factory=dict)  # of Kubernetes: image, volume, namespace
    places: tuple[str, ...] = ()  # of Snakemake's plugin
    settled: tuple[str, ...] = ()  # options that the file leaves open, as this cluster needs them

    @property
    def name(self) -> str:
        return NAMES[self.executor]

    @property
    def at_once(self) -> int | str:
        return self.values.get("jobs", 100)

    def options(self) -> list[str]:
        """What Snakemake is told beside the file."""
        jobs = [] if "jobs" in self.values else ["--jobs", str(self.at_once)]
        given = ["--profile", self.path, "--workflow-profile", "none"]
        return ["--executor", PLUGINS[self.executor], *given, *self.settled, *jobs]

    def resources(self, row: Notebook) -> dict:
        """What a notebook's jobs ask for."""
        own = self.values.get("set-resources", {}).get(row.name, {})
        return {**self.values.get("default-resources", {}), **own}

    def threads(self, row: Notebook) -> int:
        return self.values.get("set-threads", {}).get(row.name, 1)

    def gpus(self, row: Notebook) -> int:
        """GPUs that a notebook's jobs ask for, as `gpu: 2` or as `gres: gpu:TYPE:2`."""
        asked = self.resources(row)
        found = re.fullmatch(r"gpu(?::[^:,]*[^:,\d][^:,]*)?(?::(\d+))?", str(asked.get("gres", "")))
        counted = asked.get("gpu", int(found[1] or 1) if found else 0)
        return int(counted) or int("gpu_model" in asked)


def asked(words: Namespace) -> Profile | None:
    """The profile that the words of the command line name; None for a run on this machine."""
    for executor in NAMES:
        if path := getattr(words, executor, None):
            return load(executor, path)
    return None


def load(executor: str, path: str) -> Profile:
    """Raises UserError for what is no such file: of another executor, or with rules that no notebook has."""
    values = read_yaml(Path(path), Path(path).name)
    name = Path(path).name
    if not isinstance(values, dict):
        raise UserError(f"{name} holds no keys with values; params/cluster/{executor}.yaml is one that does")
    if values.get("executor", executor) != executor:
        raise UserError(f"{name} is of the executor '{values['executor']}', and --{executor} was asked for")
    for key in LISTS:
        values[key] = table(values.get(key) or {}, f"{name}: {key}")
    rules = [row.name for row in NOTEBOOKS]
    for key in LISTS[1:]:
        for rule, content in values[key].items():
            if rule not in rules:
                raise UserError(f"{name}: {key} names '{rule}', which is no notebook: {nearest(rule, rules)}")
            if key == "set-resources":
                values[key][rule] = table(content or {}, f"{name}: {rule}")
    for asked in (values["default-resources"], *values["set-resources"].values()):
        if "gpus" in asked:
            raise UserError(f"{name}: `gpus` is sbatch's word; Snakemake's is `gpu: {asked['gpus']}`, or `gres: gpu:1`")
    own = kubernetes.facts(values, name) if executor == "kubernetes" else {}
    return Profile(executor, str(path), values, own)


def table(content: object, where: str) -> dict:
    """Keys and values, as a mapping or as Snakemake's list of `key=value`."""
    if isinstance(content, list) and all(isinstance(word, str) and "=" in word for word in content):
        return dict(word.split("=", 1) for word in content)
    if not isinstance(content, dict):
        raise UserError(f"{where} takes keys with values, or a list of `key=value`")
    return content


def tag(run: Run) -> str:
    """What this run's jobs are known by, and those of no other folder."""
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "-", run.name)[:30] + f"-{place}"


# ---- what a node sees --------------------------------------------------------------------------------------


def here(run: Run) -> Run:
    """The run as a job sees it where it runs: on a cluster with the cores that it was given there."""
    if not run.cluster:
        return run
    given = os.environ.get("SLURM_CPUS_ON_NODE") or os.environ.get("CALIBRATION_CORES") or "1"
    return replace(run, cores=int(given))


def await_inputs(job: Job, patience: float = PATIENCE) -> None:
    """Wait until what the jobs upstream left is seen from here, to the byte: shared folders are slow to tell. Raises
    UserError for what does not come."""
    end = time.monotonic() + patience
    for above in job.upstream if job.run.cluster else ():
        while not seen(above):
            if time.monotonic() > end:
                where = f"is not whole where {job.title} runs, {patience:.0f} s after it was written"
                raise UserError(f"what {above.title} left {where}: is the project's folder shared by all nodes?")
            time.sleep(POLL)


def seen(job: Job) -> bool:
    with suppress(OSError):  # written at this moment
        record = records.read_record(ROOT / job.record, job)
        return bool(record) and all(records.checksum(path) == value for path, value in record["outputs"].items())
    return False


# ---- what jobs say -----------------------------------------------------------------------------------------


@contextmanager
def followed(run: Run, hear: Hear) -> Iterator[Hear]:
    """`hear`, which in the meantime is told what the jobs of a cluster say, too; where the run has one."""
    if not run.cluster:
        yield hear
        return
    places, lock, done = {ROOT / job.events: 0 for job in run.jobs}, threading.Lock(), threading.Event()
    for path in places:
        path.unlink(missing_ok=True)

    def listen(line: str) -> None:
        with lock:
            hear(line)

    def follow() -> None:
        while not done.wait(POLL):
            look(places, listen)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield listen
    finally:
        done.set()
        thread.join()
        look(places, listen)


def look(places: dict[Path, int], listen: Hear) -> None:
    """Pass on the whole lines that have come since the last look; `places` are files and how far each was read."""
    for path in places:
        with suppress(OSError), path.open("rb") as file:
            file.seek(places[path])
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            places[path] += len(whole)
            for line in whole.decode("utf-8", errors="replace").splitlines():
                listen(line)


def ending(log: Path) -> str:
    """What the cluster says of jobs that failed, or could not be submitted, from Snakemake's log; empty if nothing."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = list(dict.fromkeys(re.findall(r"SLURM-job '(\w+)' failed, SLURM status is: '(\w+)'", text)))
    refused = re.findall(r"The error message was '(.*)'", text)  # of sbatch, and of kubernetes.py
    return ", ".join(f"{status} (job {number})" for number, status in found[-3:]) or (refused or [""])[-1]


def note(line: str) -> None:
    """Have the run hear a line of this job, where it runs on another machine (CALIBRATION_EVENTS)."""
    if place := os.environ.get("CALIBRATION_EVENTS"):
        with suppress(OSError), open(place, "a", encoding="utf-8") as file:
            file.write(line)
