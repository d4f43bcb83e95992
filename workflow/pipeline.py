"""The workflow as a table: the notebooks, with their inputs and outputs.

Each row of NOTEBOOKS is a notebook. A run (a profile plus the command-line options) turns rows into jobs: one per
(model, dataset), or one for all pairs. The Snakefile, freshness and execution use this table.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property

from lib.configs import Model
from lib.paths import ROOT, UserError, nearest
from workflow.files import write_json
from workflow.fingerprint import code_cells, declared_parameters, import_closure

REPLAY, PUBLISHED = "replay", "published"
MARK = "@@"  # prefix of the lines on a job's stdout that are events for the run
SHIPPED = "artifacts/shipped"
LONGER = 13  # a thinking model generates about this many times more tokens
SMALL = 1e8  # bytes of weights: one thread is the fastest, and its results do not depend on the machine's cores


@dataclass(frozen=True)
class Notebook:
    """One row of the table.

    `heavy`: runs a model, once per (model, dataset), on a GPU if there is one. Its outputs depend on the files of model
    and dataset. They survive code changes if the profile has `on_code_change: keep`. A replay reads shipped ones.
    `given`: replaces a heavy notebook for a model whose weights are missing, and reads its file of responses.
    `minutes`: estimated time of a job; Snakemake starts the longest chains of jobs first.
    `reads`: notebooks, or one folder of a notebook's outputs (`01_generate/generations`).
    `writes`: paths below artifacts/<run>/; a manifest (.json) goes with each parquet file.
    `data`: files of the project that it reads.
    `exports`: produces what goes into the paper (workflow/export.py).
    `may_lack`: a replay works without its outputs.
    `by_scope`: folders of `writes` that exist only if the parameter `dropout_scope` lists this word.
    `folders`: folders below artifacts/<run>/ that only this notebook fills, with any number of files.
    `decided_by`: modules or functions (`module.py:function`) of lib/score that affect a heavy notebook's outputs.
    `takes`: parameters that its parameters cell does not declare; run by hand, it uses the defaults of the code.
    """

    name: str
    heavy: bool = False
    given: bool = False
    minutes: float = 0.1
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    exports: bool = False
    may_lack: bool = False
    by_scope: dict[str, str] = field(default_factory=dict, hash=False)
    folders: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def of_pair(self) -> bool:
        """Whether it runs once per (model, dataset)."""
        return self.heavy or self.given

    @property
    def number(self) -> str:
        return self.name.split("_")[0]

    def read_of(self, other: "Notebook") -> tuple[str, ...]:
        """Return the outputs of another notebook that this one reads."""
        wanted = [word.partition("/")[2] for word in self.reads if word.partition("/")[0] == other.name]
        return tuple(path for path in other.writes if path.split("/")[0] in wanted or "" in wanted)

    @property
    def path(self) -> str:
        return f"notebooks/{self.name}.ipynb"


RATE = (  # the code of lib/score that chooses the dropout rate
    "lib/score/interpretation.py",
    "lib/score/confidence.py",
    "lib/score/metrics.py",
    "lib/score/estimators.py:c_bald",
    "lib/score/estimators.py:normalize_bald",
)
PAIR = "{model}__{dataset}.parquet"
RESPONSES = ("01_generate/generations", "01b_import/generations")
SIGNALS = (*RESPONSES, "03_ptrue_insitu", "04_mc_dropout_grid")
READ = ("answer_format", "include_eos", "include_thinking", "closed")  # for every notebook that reads signals
READ_ALL = (*READ, "options", "phi", "fit_on_tuning_rows", "logprobs_from")  # and for those that use every estimator
FITTED = ("one_class", "isotonic_decimals")
SHOWN = (*READ_ALL, *FITTED, "bins", "n_bins_ablation", "bin_models", "seed")
PAPER = ("artifacts/reference.csv", "artifacts/paper.yaml")
NOTEBOOKS = (
    Notebook("01_generate", heavy=True, minutes=0.3, writes=(f"generations/{PAIR}", f"in_situ/{PAIR}"),
             takes=("max_batch_tokens", "n_temperature_nodes")),
    Notebook("01b_import", given=True, writes=(f"generations/{PAIR}",)),
    Notebook("02_single_pass", reads=RESPONSES, writes=("confidence/single_pass.parquet",),
             takes=("include_eos", "include_thinking", "closed", "n_bins_ablation", "bin_models")),
    Notebook("03_ptrue_insitu", heavy=True, minutes=0.2, reads=("01_generate",), writes=(f"verification/{PAIR}",)),
    Notebook("04_mc_dropout_grid", heavy=True, minutes=1, reads=("01_generate/generations",), may_lack=True,
             writes=(f"dropout/{PAIR}", f"dropout_answer/{PAIR}"), decided_by=RATE,
             by_scope={"dropout": "trajectory", "dropout_answer": "answer"},
             takes=("grader", "answer_format", "missing", "bins", "closed", "dropout_prefix", "max_dropout_tokens",
                    "dropout_top_k", "dropout_top_p", "rows_per_shard")),
    Notebook("04b_ablation", heavy=True, reads=("01_generate/generations",), may_lack=True,
             writes=(f"ablation/{PAIR}",), decided_by=("lib/score/ablation.py",)),
    Notebook("05_calibration", reads=SIGNALS, takes=(*READ_ALL, "one_class", "seed", "resamples"),
             writes=("calibration/confidence.parquet", "calibration/results.parquet")),
    Notebook("06_sample_efficiency", reads=RESPONSES, takes=(*READ, "logprobs_from", *FITTED),
             writes=("calibration/curves.parquet",)),
    Notebook("07_transfer", reads=RESPONSES, takes=(*READ, *FITTED), writes=("calibration/transfer.parquet",)),
    Notebook("09_robustness", minutes=0.3, reads=SIGNALS, takes=SHOWN, data=PAPER),
    Notebook("10_selective", reads=SIGNALS, takes=(*READ_ALL, *FITTED, "seed"), folders=("calibrators",),
             writes=("selective/scores.parquet", "selective/thresholds.parquet", "selective/curves.parquet")),
    Notebook("08_tables", exports=True, takes=(*SHOWN, "resamples", "temperature_objective"), data=PAPER,
             reads=(*SIGNALS, "04b_ablation", "05_calibration", "06_sample_efficiency", "07_transfer", "10_selective")),
)  # fmt: skip


def needed(names: Iterable[str]) -> list[Notebook]:
    """Return the notebooks of these names and all upstream ones."""
    wanted = set(names)
    for row in reversed(NOTEBOOKS):  # readers come after what they read
        if row.name in wanted:
            wanted |= {word.split("/")[0] for word in row.reads}
    return [row for row in NOTEBOOKS if row.name in wanted]


def is_small(spec: Model) -> bool:
    """Whether a model has local weights of less than SMALL bytes."""
    files = spec.place.glob("*.safetensors") if os.path.isdir(spec.place) else ()  # pathlib raises for a name too long
    return 0 < sum(path.stat().st_size for path in files) < SMALL


def shippable(may_lack: bool) -> list[str]:
    """Return the outputs of heavy notebooks that a replay needs, or (`may_lack`) can do without."""
    return [path for row in NOTEBOOKS if row.heavy and row.may_lack == may_lack for path in row.writes]


@dataclass(frozen=True)
class Run:
    """One run: its name (the folder below artifacts/ and figures/), resolved parameters, cores and GPUs.

    `wanted`: names of notebooks, if only these and their upstream run. `absent`: models without weights.
    `thinking`: models that think. `small`: models with less than SMALL bytes of local weights.
    `gpus_by_model`: for models too large for one GPU.
    `cluster`: the Snakemake executor that submits the jobs, empty for a local run. On a cluster `gpus_by_notebook` is
    what the profile requests for a job, `gpus` the largest of these, and each job counts the cores of its node."""

    name: str
    values: dict = field(hash=False)
    cores: int = 1
    gpus: int = 0
    wanted: tuple[str, ...] = field(default=(), hash=False)
    absent: tuple[str, ...] = field(default=(), hash=False)
    thinking: tuple[str, ...] = field(default=(), hash=False)
    small: tuple[str, ...] = field(default=(), hash=False)
    cluster: str = ""
    gpus_by_model: dict = field(default_factory=dict, hash=False)
    gpus_by_notebook: dict = field(default_factory=dict, hash=False)

    @property
    def folder(self) -> str:
        return f"artifacts/{self.name}"

    @property
    def done(self) -> str:
        """The folder of marks that tell Snakemake which jobs are done; every run clears it."""
        return f"{self.folder}/jobs/.done"

    @property
    def forced(self) -> str:
        """The folder of earlier outputs that `--force` replaced."""
        return f"{self.folder}/stale/forced"

    @property
    def moving(self) -> str:
        """The journal of a move of several jobs' files; removed when the move is complete."""
        return f"{self.folder}/jobs/.moving"

    @property
    def replayed(self) -> str:
        """The profile whose shipped signals a replay reads; empty for a run that runs its models."""
        verb, _, profile = self.name.partition("-")
        return (profile or "demo") if verb == REPLAY else ""

    @property
    def figures(self) -> str:
        return f"figures/{self.name}"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(model, dataset) for model in self.values["models"] for dataset in self.values["datasets"]]

    @property
    def notebooks(self) -> list[Notebook]:
        """The notebooks of this run. A replay runs no model; `published` only builds tables of the paper's numbers."""
        rows = needed(self.wanted) if self.wanted else list(NOTEBOOKS)
        if self.replayed:
            return [row for row in rows if not row.of_pair]
        if self.name == PUBLISHED:
            return [row for row in rows if row.exports]
        return rows

    @cached_property
    def jobs(self) -> tuple["Job", ...]:
        """Every job of the run, upstream first."""
        jobs = []
        for row in self.notebooks:
            pairs = [pair for pair in self.pairs if row.given == (pair[0] in self.absent)]
            jobs += [Job(self, row, *pair) for pair in pairs] if row.of_pair else [Job(self, row)]
        return tuple(jobs)

    @cached_property
    def urgency(self) -> dict[str, int]:
        """Estimated seconds, by job, of the job and its longest downstream chain."""
        chains = dict.fromkeys((job.name for job in self.jobs), 0)
        for job in reversed(self.jobs):
            long = LONGER if job.model in self.thinking else 1
            chains[job.name] += round(60 * job.notebook.minutes * long)
            for above in job.upstream:
                chains[above.name] = max(chains[above.name], chains[job.name])
        return chains

    def job(self, name: str) -> "Job":
        jobs = {job.name: job for job in self.jobs}
        if name not in jobs:
            raise UserError(f"run '{self.name}' has no job '{name}': {nearest(name, jobs)}")
        return jobs[name]

    def save(self) -> None:
        write_json(ROOT / self.folder / "run.json", asdict(self))

    @staticmethod
    def load(name: str) -> "Run":
        return Run(**json.loads((ROOT / "artifacts" / name / "run.json").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Job:
    """One notebook of one run, for one (model, dataset) or for all pairs. Paths are relative to the root."""

    run: Run = field(repr=False)
    notebook: Notebook
    model: str = ""
    dataset: str = ""

    @property
    def name(self) -> str:
        return self.title.replace(" ", "__")

    @property
    def title(self) -> str:
        return f"{self.notebook.name} {self.model} {self.dataset}".strip()

    @property
    def record(self) -> str:
        return f"{self.run.folder}/jobs/{self.name}.json"

    @property
    def done(self) -> str:
        return f"{self.run.done}/{self.name}"

    @property
    def moving(self) -> str:
        """The journal of a move of its files; removed when the move is complete."""
        return f"{self.run.folder}/jobs/.{self.name}.moving"

    @property
    def events(self) -> str:
        """The file of events of a job on a cluster, whose stdout does not reach the run."""
        return f"{self.run.folder}/jobs/.{self.name}.events"

    @property
    def executed(self) -> str:
        return f"{self.run.folder}/notebooks/{self.name}.ipynb"

    @property
    def threads(self) -> int:
        """Its share of the cores; one for a small model."""
        if not self.notebook.heavy or self.model in self.run.small:
            return 1
        if self.run.cluster:
            return self.run.cores
        side_by_side = self.run.gpus or sum(job.notebook == self.notebook for job in self.run.jobs)
        return max(1, self.run.cores // side_by_side)

    @property
    def gpus(self) -> int:
        """The number of GPUs that it uses."""
        wanted = self.run.gpus_by_notebook.get(self.notebook.name, self.run.gpus)
        return self.run.gpus_by_model.get(self.model, 1) if self.notebook.heavy and wanted else 0

    @property
    def upstream(self) -> list["Job"]:
        """Jobs whose outputs this one reads; only those of the same pair if it has one."""
        read = [job for job in self.run.jobs if self.notebook.read_of(job.notebook)]
        mine = (self.model, self.dataset)
        return [job for job in read if not self.model or not job.model or (job.model, job.dataset) == mine]

    def written(self, folder: str, paths: Iterable[str]) -> list[str]:
        """Return these of the notebook's `writes` for this job, below a folder."""
        return [f"{folder}/{path.format(model=self.model, dataset=self.dataset)}" for path in paths]

    @property
    def outputs(self) -> list[str]:
        """Files that the notebook must write."""
        words = self.notebook.by_scope
        asked = [None, *self.run.values.get("dropout_scope", ["trajectory"])]
        paths = [path for path in self.notebook.writes if words.get(path.split("/")[0]) in asked]
        return self.written(self.run.folder, paths)

    @property
    def loose(self) -> list[str]:
        """Files now in the notebook's own `folders`."""
        files = [path for name in self.notebook.folders for path in (ROOT / self.run.folder / name).glob("*")]
        return sorted(path.relative_to(ROOT).as_posix() for path in files if not path.name.startswith("."))

    @property
    def inputs(self) -> list[str]:
        """Files that it reads: outputs of upstream jobs, and in a replay the shipped signals."""
        paths = list(self.notebook.data)
        for job in self.upstream:
            read = job.written(self.run.folder, self.notebook.read_of(job.notebook))
            paths += [path for path in job.outputs if path in read]
        for row in NOTEBOOKS if self.run.replayed else ():
            for pair in self.run.pairs if row.heavy else ():
                folder = f"{SHIPPED}/{self.run.replayed}"
                shipped = Job(self.run, row, *pair).written(folder, self.notebook.read_of(row))
                paths += [path for path in shipped if not row.may_lack or (ROOT / path).exists()]
        return paths

    @property
    def parameters(self) -> dict:
        """The value of each parameter that the notebook uses; UserError if no profile sets one."""
        known = {**self.run.values, "run": self.run.name}
        if self.model:
            known |= {"model": self.model, "dataset": self.dataset}
        used = [*declared_parameters(self.notebook.path), *self.notebook.takes]
        for name in used:
            if name not in known:
                hint = nearest(name, known)
                raise UserError(f"{self.notebook.path} declares parameter '{name}', which no profile sets: {hint}")
        return {name: known[name] for name in used}

    def check(self) -> None:
        """Raise UserError if the notebook or its Python cannot be parsed, or if no profile sets a parameter."""
        import_closure(code_cells(self.notebook.path), self.notebook.path)
        self.parameters  # noqa: B018
