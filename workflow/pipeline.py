"""The workflow as a table: which notebook runs for what, what it reads and what it writes.

A row of NOTEBOOKS is a notebook; a run (a profile after the options of the command line) turns rows into
jobs, one per (model, dataset) or one over all. The Snakefile, freshness and execution derive from here.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property

from lib.paths import ROOT, UserError, nearest
from workflow.files import read_json, write_json
from workflow.fingerprint import code_cells, declared_parameters, import_closure

REPLAY, PUBLISHED = "replay", "published"
MARK = "@@"  # begins those lines on a job's stdout that are events for the run
SHIPPED = "artifacts/shipped"


@dataclass(frozen=True)
class Notebook:
    """One row. `writes` are paths below artifacts/<run>/; a parquet file brings its manifest (.json) along. `reads` are
    notebooks, or of what one writes a single folder: `01_generate/generations`.

    `minutes` is about what a job takes before any has been timed: those that most hangs on are begun first.
    `heavy` notebooks run a model: once per (model, dataset), on a GPU where there is one. Their outputs hang
    on the files of model and dataset, survive a change of code where the profile says so, and are shipped for
    the replay, which does not run them. `given` ones stand in their place for a model that is not at hand, and read
    what its file holds. `data` are files of the project that it reads. `exports` ones carry what goes into the paper
    (workflow/export.py). What a notebook left that `may_lack` is done without, where it is not shipped.
    `by_scope`: folders of `writes` that come only where the parameter `dropout_scope` lists this word. `folders` are
    its own, below artifacts/<run>/, and hold as many files as there is to keep. `decided_by`: what of lib/score decides
    what a heavy one writes, modules or single functions (`module.py:function`); all else there only shows it. `takes`:
    parameters beside those that its parameters cell declares; by hand, their defaults are the code's.
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
        """The paths of what another writes that this one reads."""
        wanted = [word.partition("/")[2] for word in self.reads if word.partition("/")[0] == other.name]
        return tuple(path for path in other.writes if path.split("/")[0] in wanted or "" in wanted)

    @property
    def path(self) -> str:
        return f"notebooks/{self.name}.ipynb"


SELECTION = ("lib/score/interpretation.py", "lib/score/confidence.py", "lib/score/metrics.py",  # of the dropout rate
             "lib/score/estimators.py:c_bald", "lib/score/estimators.py:normalize_bald")  # fmt: skip
RESPONSES = ("01_generate/generations", "01b_import/generations")
SELDOM_READ = ("answer_format", "include_eos", "include_thinking", "closed")  # choices that few change, of all readers
SELDOM_ASKED = ("options", "phi", "fit_on_tuning_rows")  # and of those who read P(True) and c_BALD
NOTEBOOKS = (
    Notebook(
        "01_generate",
        heavy=True,
        minutes=0.3,
        takes=("max_batch_tokens", "n_temperature_nodes"),
        writes=("generations/{model}__{dataset}.parquet", "in_situ/{model}__{dataset}.parquet"),
    ),
    Notebook("01b_import", given=True, writes=("generations/{model}__{dataset}.parquet",)),
    Notebook(
        "02_single_pass",
        reads=RESPONSES,
        takes=("include_eos", "include_thinking", "closed", "n_bins_ablation", "bin_models"),
        writes=("confidence/single_pass.parquet",),
    ),
    Notebook(
        "03_ptrue_insitu",
        heavy=True,
        minutes=0.2,
        reads=("01_generate",),
        writes=("verification/{model}__{dataset}.parquet",),
    ),
    Notebook(
        "04_mc_dropout_grid",
        heavy=True,
        minutes=1,
        reads=("01_generate/generations",),
        may_lack=True,
        writes=("dropout/{model}__{dataset}.parquet", "dropout_answer/{model}__{dataset}.parquet"),
        by_scope={"dropout": "trajectory", "dropout_answer": "answer"},
        decided_by=SELECTION,
        takes=(
            "grader",
            "answer_format",
            "missing",
            "bins",
            "closed",
            "dropout_prefix",
            "max_dropout_tokens",
            "dropout_top_k",
            "dropout_top_p",
            "rows_per_shard",
        ),
    ),
    Notebook(
        "04b_ablation",
        heavy=True,
        reads=("01_generate/generations",),
        may_lack=True,
        writes=("ablation/{model}__{dataset}.parquet",),
        decided_by=("lib/score/ablation.py",),
    ),
    Notebook(
        "05_calibration",
        takes=(*SELDOM_READ, *SELDOM_ASKED, "logprobs_from", "one_class", "seed", "resamples"),
        reads=(*RESPONSES, "03_ptrue_insitu", "04_mc_dropout_grid"),
        writes=("calibration/confidence.parquet", "calibration/results.parquet"),
    ),
    Notebook(
        "06_sample_efficiency",
        takes=(*SELDOM_READ, "logprobs_from", "one_class", "isotonic_decimals"),
        reads=RESPONSES,
        writes=("calibration/curves.parquet",),
    ),
    Notebook(
        "07_transfer",
        takes=(*SELDOM_READ, "one_class", "isotonic_decimals"),
        reads=RESPONSES,
        writes=("calibration/transfer.parquet",),
    ),
    Notebook(
        "09_robustness",
        minutes=0.3,
        takes=(
            *SELDOM_READ,
            *SELDOM_ASKED,
            "logprobs_from",
            "bins",
            "n_bins_ablation",
            "bin_models",
            "seed",
            "one_class",
            "isotonic_decimals",
        ),
        reads=(*RESPONSES, "03_ptrue_insitu", "04_mc_dropout_grid"),
        data=("artifacts/reference.csv", "artifacts/paper.yaml"),
    ),
    Notebook(
        "10_selective",
        takes=(*SELDOM_READ, *SELDOM_ASKED, "logprobs_from", "one_class", "isotonic_decimals", "seed"),
        reads=(*RESPONSES, "03_ptrue_insitu", "04_mc_dropout_grid"),
        writes=("selective/scores.parquet", "selective/thresholds.parquet", "selective/curves.parquet"),
        folders=("calibrators",),
    ),
    Notebook(
        "08_tables",
        takes=(
            *SELDOM_READ,
            *SELDOM_ASKED,
            "logprobs_from",
            "bins",
            "n_bins_ablation",
            "bin_models",
            "seed",
            "resamples",
            "temperature_objective",
            "one_class",
            "isotonic_decimals",
        ),
        reads=(
            *RESPONSES,
            "03_ptrue_insitu",
            "04_mc_dropout_grid",
            "04b_ablation",
            "05_calibration",
            "06_sample_efficiency",
            "07_transfer",
            "10_selective",
        ),
        data=("artifacts/reference.csv", "artifacts/paper.yaml"),
        exports=True,
    ),
)


def needed(names: Iterable[str]) -> list[Notebook]:
    """The notebooks of these names, and those above whose results they read."""
    wanted = set(names)
    for row in reversed(NOTEBOOKS):  # who reads another stands below it
        if row.name in wanted:
            wanted |= {word.split("/")[0] for word in row.reads}
    return [row for row in NOTEBOOKS if row.name in wanted]


def shippable(may_lack: bool) -> list[str]:
    """What heavy notebooks write: what a replay needs, or what it may do without."""
    return [path for row in NOTEBOOKS if row.heavy and row.may_lack == may_lack for path in row.writes]


@dataclass(frozen=True)
class Run:
    """One run: its name (folder below artifacts/ and figures/), resolved parameters, cores and GPUs; the names of
    notebooks where it is to do no more than these need; and those of its models that are not at hand.

    `cluster` is the executor that submits its jobs, empty where they are run here; then `gpus` is what a job asks for,
    and each counts its cores where it runs; `gpus_of` says it by notebook. `cards`: GPUs that models take which are too
    large for one."""

    name: str
    values: dict = field(hash=False)
    cores: int = 1
    gpus: int = 0
    wanted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    cluster: str = ""
    cards: dict = field(default_factory=dict, hash=False)
    gpus_of: dict = field(default_factory=dict, hash=False)

    @property
    def folder(self) -> str:
        return f"artifacts/{self.name}"

    @property
    def wishes(self) -> str:
        """Which jobs are to be made anew because that was asked for."""
        return f"{self.folder}/jobs/.remake"

    @property
    def replayed(self) -> str:
        """The profile whose shipped signals stand in for the models of this run; empty where they are run."""
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
        """A replay runs no model; the paper's own numbers need no run at all, and are set by what exports."""
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
            asked = [pair for pair in self.pairs if row.given == (pair[0] in self.absent)]
            jobs += [Job(self, row, *pair) for pair in asked] if row.of_pair else [Job(self, row)]
        return tuple(jobs)

    @cached_property
    def urgency(self) -> dict[str, int]:
        """Seconds, by job, of it and the longest chain of jobs that waits for it; as they were timed last."""
        seconds, chains = self.seconds(), dict.fromkeys((job.name for job in self.jobs), 0)
        for job in reversed(self.jobs):
            chains[job.name] += round(seconds.get(job.name, 60 * job.notebook.minutes))
            for above in job.upstream:
                chains[above.name] = max(chains[above.name], chains[job.name])
        return chains

    def seconds(self) -> dict[str, float]:
        """What jobs took when they were last run; empty if none was."""
        known = read_json(ROOT / self.folder / "seconds.json")
        pairs = known.items() if isinstance(known, dict) else ()
        return {name: value for name, value in pairs if isinstance(value, (int, float))}

    def job(self, name: str) -> "Job":
        jobs = {job.name: job for job in self.jobs}
        if name not in jobs:
            raise UserError(f"run '{self.name}' has no job '{name}': {nearest(name, jobs)}")
        return jobs[name]

    def save(self) -> None:
        write_json(ROOT / self.folder / "run.json", asdict(self))

    @staticmethod
    def load(name: str) -> "Run":
        return Run.of(json.loads((ROOT / "artifacts" / name / "run.json").read_text(encoding="utf-8")))

    @staticmethod
    def of(values: dict) -> "Run":
        """The run that `dataclasses.asdict` made a dictionary."""
        names = {key: tuple(values.get(key, ())) for key in ("wanted", "absent")}
        return Run(**{**values, **names})


@dataclass(frozen=True)
class Job:
    """One notebook of one run, for one (model, dataset) or over all pairs. Paths are relative to the root."""

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
    def aside(self) -> str:
        """The record while it is open whether what the job reads will change."""
        return f"{self.run.folder}/jobs/.{self.name}.aside"

    @property
    def moving(self) -> str:
        """Which of its files are being moved where, until they are."""
        return f"{self.run.folder}/jobs/.{self.name}.moving"

    @property
    def events(self) -> str:
        """What a job on a cluster says, which the run cannot hear."""
        return f"{self.run.folder}/jobs/.{self.name}.events"

    @property
    def executed(self) -> str:
        return f"{self.run.folder}/notebooks/{self.name}.ipynb"

    @property
    def threads(self) -> int:
        """One for a job of the demo, whose results must not depend on the machine; else cores are shared."""
        if not self.notebook.heavy or self.run.name == "demo":
            return 1
        if self.run.cluster:
            return self.run.cores
        side_by_side = self.run.gpus or sum(job.notebook == self.notebook for job in self.run.jobs)
        return max(1, self.run.cores // side_by_side)

    @property
    def on_gpu(self) -> bool:
        return self.notebook.heavy and self.run.gpus_of.get(self.notebook.name, self.run.gpus) > 0

    @property
    def cards(self) -> int:
        """GPUs that it takes."""
        return self.run.cards.get(self.model, 1) if self.on_gpu else 0

    @property
    def upstream(self) -> list["Job"]:
        """Jobs whose outputs this one reads, those of the same pair if it works on one."""
        read = [job for job in self.run.jobs if self.notebook.read_of(job.notebook)]
        mine = (self.model, self.dataset)
        return [job for job in read if not self.model or not job.model or (job.model, job.dataset) == mine]

    def written(self, folder: str, paths: Iterable[str] | None = None) -> list[str]:
        """What the notebook writes for this job (or those of `paths`), below a folder."""
        paths = self.notebook.writes if paths is None else paths
        return [f"{folder}/{path.format(model=self.model, dataset=self.dataset)}" for path in paths]

    @property
    def outputs(self) -> list[str]:
        """Files that the notebook itself must have written."""
        words = self.notebook.by_scope
        asked = [None, *self.run.values.get("dropout_scope", ["trajectory"])]
        paths = [path for path in self.notebook.writes if words.get(path.split("/")[0]) in asked]
        return self.written(self.run.folder, paths)

    @property
    def loose(self) -> list[str]:
        """Files in the folders that the notebook alone fills, as they are now."""
        files = [path for name in self.notebook.folders for path in (ROOT / self.run.folder / name).glob("*")]
        return sorted(path.relative_to(ROOT).as_posix() for path in files if not path.name.startswith("."))

    @property
    def inputs(self) -> list[str]:
        """Artifacts that it reads: from jobs upstream, and shipped ones of those that a replay does not run."""
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
        """Value of each parameter that the notebook uses; UserError for one that nobody sets."""
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
        """UserError for a notebook that cannot be run: not a notebook, not Python, parameters that nobody sets."""
        import_closure(code_cells(self.notebook.path), self.notebook.path)
        self.parameters  # noqa: B018
