"""Runs and their jobs.

A run (a profile plus the command-line options) turns the rows of the table of notebooks into jobs:
one per (model, dataset), or one for all pairs.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product

from lib import params
from lib.errors import UserError, nearest
from lib.paths import ROOT
from lib.run_names import DEFAULT, PUBLISHED, RunName, shows_paper
from workflow.engine import notebook_table
from workflow.engine.fingerprint import declared_parameters, write_json
from workflow.engine.notebook_table import Notebook

SHIPPED = "artifacts/shipped"
# of steps that a profile may leave out: what it sets to 0
STEPS = {"04": "dropout_passes", "04b": "ablation_limit"}
# a thinking model generates more tokens: its jobs come before those alike of other models
LONGER = 1.2
PER_PAIR = "jobs_per_pair"  # its word in a file of --slurm
THREADS_OF_GPU = 4  # at most, of a job on a GPU


@dataclass(frozen=True)
class Run:
    """One run: its name (the folder below artifacts/ and figures/), resolved parameters, cores and
    GPUs.

    `wanted`: names of notebooks, if only these and their upstream run. `slurm`: sbatch's options by
    notebook, empty for a run on this machine; on a cluster each job counts the cores and GPUs of
    its node. `small`: models that run on the processor everywhere (lib.parameter_schemas.SMALL), on
    one thread: it is the fastest, and its results do not depend on the machine's cores. They are
    known once jobs start. `forced`: how often `--force` asked for a job, by name. `profile`: its
    parameter file, if another name than the run's. `words`: of the command that makes a user's own
    run. `jobs_per_pair`: processes that share the rows of a job with a model; on a cluster, its
    file says so.
    """

    name: str
    values: dict = field(hash=False)
    cores: int = 1
    gpus: int = 0
    wanted: tuple[str, ...] = field(default=(), hash=False)
    small: tuple[str, ...] = field(default=(), hash=False)
    slurm: dict = field(default_factory=dict, hash=False)
    forced: dict = field(default_factory=dict, hash=False)
    profile: str = ""
    words: str = field(default="", hash=False)
    jobs_per_pair: int = field(default=1, hash=False)

    @property
    def folder(self) -> str:
        return f"artifacts/{self.name}"

    @property
    def replayed(self) -> str:
        """The profile whose shipped signals a replay reads; empty for a run that runs its
        models."""
        return RunName.parse(self.name).shipped

    @property
    def table(self) -> str:
        """The table of scores that the run judges; empty for a run of models."""
        return self.values.get("table", "")

    @property
    def command(self) -> str:
        """The words after `./run_all.sh` that make it."""
        return self.words or RunName.parse(self.name).command

    @property
    def figures(self) -> str:
        return f"figures/{self.name}"

    @cached_property
    def specs(self) -> dict[str, params.Model]:
        return {name: params.load_model_config(name) for name in self.values["models"]}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(product(self.values["models"], self.values["datasets"]))

    @property
    def notebooks(self) -> list[Notebook]:
        """The notebooks of this run, and the report. A replay runs no model; `published` only
        builds tables of the paper's numbers."""
        if self.table:
            return [row for row in notebook_table.NOTEBOOKS if row.of_table]
        rows = []
        for row in notebook_table.NOTEBOOKS:
            is_other_report = row.module and row.of_model != self.is_of_model
            if not row.of_table and not is_other_report:
                rows.append(row)
        if self.wanted:
            rows = notebook_table.needed(self.wanted)
        if not self.replayed and self.name != DEFAULT:
            rows = [row for row in rows if not row.of_shipped]
        left_out = self.steps_left_out
        rows = [row for row in rows if row.number not in left_out]
        if self.replayed:
            return [row for row in rows if not row.per_pair]
        if self.name == PUBLISHED:
            return [row for row in rows if row.exports or row.module]
        return rows

    @property
    def is_of_model(self) -> bool:
        """Whether its report answers for models of the user, not for the paper's claims."""
        return not shows_paper(self.name)

    @property
    def steps_left_out(self) -> list[str]:
        """The numbers of the notebooks of steps that the profile's 0 leaves out."""
        numbers = []
        for number, name in STEPS.items():
            if self.values.get(name) == 0:
                numbers.append(number)
        return numbers

    @cached_property
    def jobs(self) -> tuple["Job", ...]:
        """Every job of the run, upstream first."""
        jobs = []
        for row in self.notebooks:
            if not row.per_pair:
                jobs.append(Job(self, row))
                continue
            for model, dataset in self.pairs:
                if row.imports_responses != self.specs[model].at_hand:
                    jobs.append(Job(self, row, model, dataset))
        return tuple(jobs)

    def save(self) -> None:
        """Write the run for its jobs on other machines."""
        write_json(ROOT / self.folder / "run.json", asdict(self))

    @staticmethod
    def load(name: str) -> "Run":
        text = (ROOT / "artifacts" / name / "run.json").read_text(encoding="utf-8")
        return Run(**json.loads(text))

    def job(self, name: str) -> "Job":
        """Return the job of a name, or a process that helps it."""
        name, _, helper = name.partition("+")
        by_name = {job.name: job for job in self.jobs}
        return replace(by_name[name], helper=int(helper)) if helper else by_name[name]


@dataclass(frozen=True)
class Job:
    """One notebook of one run, for one (model, dataset) or for all pairs. Paths are relative to the
    root.

    `helper`: 0, or the number of a further process that only helps to make its rows.
    """

    run: Run = field(repr=False)
    notebook: Notebook
    model: str = ""
    dataset: str = ""
    helper: int = 0

    @property
    def name(self) -> str:
        return self.title.replace(" ", "__")

    @property
    def process(self) -> str:
        """Its name, and which of its processes it is."""
        return f"{self.name}+{self.helper}" if self.helper else self.name

    @property
    def helpers(self) -> list["Job"]:
        """The further processes that may help with its rows."""
        if not self.notebook.runs_model:
            return []
        count = self.run.jobs_per_pair
        if self.run.slurm:
            count = self.run.slurm.get(self.notebook.name, {}).get(PER_PAIR, 1)
        return [replace(self, helper=number) for number in range(1, count)]

    @property
    def title(self) -> str:
        return f"{self.notebook.name} {self.model} {self.dataset}".strip()

    @property
    def record(self) -> str:
        return f"{self.run.folder}/jobs/{self.name}.json"

    @property
    def log(self) -> str:
        """The file of what it prints beside its notebook, warnings for example; none if it prints
        nothing."""
        return f"{self.run.folder}/logs/{self.process}.log"

    @property
    def events(self) -> str:
        """The file in which it reports its events from a node of a cluster."""
        return f"{self.run.folder}/jobs/.{self.process}.events"

    @property
    def executed(self) -> str:
        """The executed notebook, or the page of a module."""
        if self.notebook.module:
            return f"{self.run.figures}/report.html"
        return f"{self.run.folder}/notebooks/{self.name}.ipynb"

    @property
    def exported(self) -> str:
        """The file of what the report shows of it; empty if that is nothing."""
        for path in self.outputs:
            if "/exported/" in path:
                return path
        return ""

    @property
    def is_light(self) -> bool:
        """Whether one thread is enough: it runs no model, or a small one."""
        return not self.notebook.runs_model or self.model in self.run.small

    @property
    def threads(self) -> int:
        """Its share of the cores; one for a small model, and few beside a GPU."""
        if self.is_light:
            return 1
        if self.run.slurm:
            return self.run.cores
        if self.run.gpus:
            return min(THREADS_OF_GPU, max(1, self.run.cores // self.run.gpus))
        alike = [job for job in self.run.jobs if job.notebook == self.notebook]
        side_by_side = len(alike) * (1 + len(self.helpers))
        return max(1, self.run.cores // side_by_side)

    @property
    def gpus(self) -> int:
        """The number of GPUs that it uses."""
        if self.is_light:
            return 0
        if self.run.specs[self.model].gpus == "all":
            return self.run.gpus
        return min(1, self.run.gpus)

    @cached_property
    def urgency(self) -> float:
        """Estimated minutes of it and of the longest chain of jobs downstream."""
        minutes = self.notebook.minutes
        if self.model and self.run.specs[self.model].thinking:
            minutes *= LONGER
        chains = [job.urgency for job in self.run.jobs if self in job.upstream]
        return minutes + max(chains, default=0)

    @cached_property
    def upstream(self) -> list["Job"]:
        """Jobs whose outputs this one reads; only those of the same pair if it has one."""
        jobs = []
        for job in self.run.jobs:
            is_same_pair = (job.model, job.dataset) == (self.model, self.dataset)
            concerns_this = not self.model or not job.model or is_same_pair
            if concerns_this and self.notebook.read_of(job.notebook):
                jobs.append(job)
        return jobs

    def written(self, folder: str, paths: Iterable[str]) -> list[str]:
        """Return these of the notebook's `writes` for this job, below a folder."""
        return [f"{folder}/{path.format(model=self.model, dataset=self.dataset)}" for path in paths]

    @property
    def outputs(self) -> list[str]:
        """Files that the notebook must write: frames with their manifests, and others."""
        paths = self.written(self.run.folder, self.notebook.writes)
        frames = [path for path in paths if path.endswith(".parquet")]
        return paths + [path.removesuffix(".parquet") + ".json" for path in frames]

    @property
    def extra_outputs(self) -> list[str]:
        """Files now in the notebook's own `folders`."""
        paths = []
        for folder in self.notebook.folders:
            for path in (ROOT / self.run.folder / folder).glob("[!.]*"):
                paths.append(path.relative_to(ROOT).as_posix())
        return sorted(paths)

    @property
    def inputs(self) -> list[str]:
        """Files that it reads: outputs of upstream jobs, and in a replay the shipped signals.

        A run of the paper's printed numbers needs nothing that is shipped.
        """
        paths = list(self.notebook.data)
        if self.run.name == PUBLISHED:
            paths = [path for path in paths if not path.startswith(SHIPPED)]
        for job in self.upstream:
            paths += job.written(self.run.folder, self.notebook.read_of(job.notebook))
        if self.run.replayed:
            paths += self.shipped_inputs
        return paths

    @property
    def shipped_inputs(self) -> list[str]:
        """Shipped signals that it reads in a replay; not those of an optional notebook that are
        missing."""
        folder = f"{SHIPPED}/{self.run.replayed}"
        paths = []
        for row in notebook_table.NOTEBOOKS:
            if not row.runs_model:
                continue
            for model, dataset in self.run.pairs:
                producer = Job(self.run, row, model, dataset)
                for path in producer.written(folder, self.notebook.read_of(row)):
                    if not row.optional or (ROOT / path).exists():
                        paths.append(path)
        return paths

    @property
    def parameters(self) -> dict:
        """The value of each parameter that the notebook uses; UserError if no profile sets one."""
        known = {**self.run.values, "run": self.run.name, "command": self.run.command}
        if self.model:
            known |= {"model": self.model, "dataset": self.dataset}
        used = {}
        for name in [*declared_parameters(self.notebook.path), *self.notebook.undeclared]:
            if name not in known:
                raise UserError(
                    f"{self.notebook.path} declares parameter '{name}', which no profile sets: "
                    f"{nearest(name, known)}"
                )
            used[name] = known[name]
        return used
