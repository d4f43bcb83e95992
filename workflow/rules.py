"""The rules of the workflow: each row of NOTEBOOKS is a notebook, with its inputs and outputs."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Notebook:
    """One row of NOTEBOOKS.

    `runs_model`: once per (model, dataset), on a GPU if there is one. Its outputs depend on the files of model and
    dataset. They survive code changes if the profile has `on_code_change: keep`. A replay reads shipped ones.
    `imports_responses`: runs for a model whose weights are missing, and reads what its server answered.
    `minutes`: estimated time of a job; the longest chains of jobs start first.
    `reads`: notebooks, or one folder of a notebook's outputs (`01_generate/generations`).
    `writes`: paths below artifacts/<run>/; a manifest (.json) goes with each parquet file.
    `data`: files of the project that it reads.
    `exports`: produces what goes into the paper (workflow/export.py).
    `module`: a module that is run in place of a notebook; it writes the report.
    `optional`: a replay works without its outputs.
    `of_shipped`: reads only shipped files; the demo and replays run it, and nothing depends on it.
    `folders`: folders below artifacts/<run>/ that only this notebook fills, with any number of files.
    `decided_by`: files or functions (`module.py:function`) that affect its outputs beside the modules that count.
    `undeclared`: parameters that its parameters cell does not declare; run by hand, it uses the defaults of the code.
    """

    name: str
    runs_model: bool = False
    imports_responses: bool = False
    minutes: float = 0.05
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    exports: bool = False
    module: str = ""
    optional: bool = False
    of_shipped: bool = False
    folders: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()

    @property
    def per_pair(self) -> bool:
        """Whether it runs once per (model, dataset)."""
        return self.runs_model or self.imports_responses

    @property
    def number(self) -> str:
        return self.name.split("_")[0]

    def read_of(self, other: "Notebook") -> tuple[str, ...]:
        """Return the outputs of another notebook that this one reads."""
        wanted = [word.partition("/")[2] for word in self.reads if word.partition("/")[0] == other.name]
        return tuple(path for path in other.writes if path.split("/")[0] in wanted or "" in wanted)

    @property
    def path(self) -> str:
        return self.module or f"notebooks/{self.name}.ipynb"

    @property
    def reports(self) -> bool:
        """Whether the report shows something of it."""
        return any(path.startswith("exported/") for path in self.writes)


RATE = (  # the code of lib/score that chooses the dropout rate
    "lib/score/interpretation.py",
    "lib/score/confidence.py",
    "lib/score/evaluation.py",
    "lib/score/metrics.py",
    "lib/score/estimators.py:c_bald",
)
PAIR = "{model}__{dataset}.parquet"
RESPONSES = ("01_generate/generations", "01b_import/generations")
SIGNALS = (*RESPONSES, "01b_import/verification", "03_ptrue_insitu", "04_mc_dropout_grid")
READ = ("include_thinking",)  # for every notebook that reads signals
READ_ALL = (*READ, "options", "phi", "fit_on_tuning_rows", "logprobs_from")  # and for those that use every estimator
SHOWN = (*READ_ALL, "bins", "n_bins_ablation", "bin_models", "seed")
PAPER = ("artifacts/reference.csv", "artifacts/paper.yaml")
EXPORT = ("workflow/export.py", "workflow/results.tex.jinja")
SHIPPED_PAIRS = {"demo": ("tiny-llama__demo-easy", "tiny-llama__demo-medium"),
                 "small": ("qwen2.5-coder-1.5b__svamp", "qwen2.5-coder-1.5b__gsm8k")}  # fmt: skip
OVERVIEW = tuple(f"artifacts/shipped/{run}/{kind}/{pair}.parquet" for run, pairs in SHIPPED_PAIRS.items()
                 for kind in ("generations", "verification", "dropout") for pair in pairs)  # fmt: skip
NOTEBOOKS = (
    Notebook("01_generate", runs_model=True, minutes=0.3, writes=(f"generations/{PAIR}", f"in_situ/{PAIR}"),
             undeclared=("max_batch_tokens", "n_temperature_nodes")),
    Notebook("01b_import", imports_responses=True, data=PAPER, writes=(f"generations/{PAIR}", f"verification/{PAIR}")),
    Notebook("02_single_pass", minutes=0.1, reads=RESPONSES, data=PAPER, writes=("confidence/single_pass.parquet",),
             undeclared=("include_thinking", "n_bins_ablation", "bin_models")),
    Notebook("03_ptrue_insitu", runs_model=True, minutes=0.2, reads=("01_generate",), writes=(f"verification/{PAIR}",)),
    Notebook("04_mc_dropout_grid", runs_model=True, minutes=1, reads=("01_generate/generations",), optional=True,
             writes=(f"dropout/{PAIR}",), decided_by=RATE,
             undeclared=("grader", "missing", "bins", "dropout_prefix", "max_dropout_tokens",
                         "dropout_top_k", "dropout_top_p", "rows_per_shard")),
    Notebook("04b_ablation", runs_model=True, reads=("01_generate/generations",), optional=True,
             writes=(f"ablation/{PAIR}",),
             decided_by=("lib/score/prompt_ablation.py", "lib/score/estimators.py:seq_avg")),
    Notebook("05_calibration", minutes=0.2, reads=SIGNALS, data=PAPER, undeclared=(*READ_ALL, "seed", "resamples"),
             writes=("calibration/confidence.parquet", "calibration/results.parquet")),
    Notebook("06_sample_efficiency", minutes=0.1, reads=RESPONSES, data=PAPER, undeclared=(*READ, "logprobs_from"),
             writes=("calibration/curves.parquet",)),
    Notebook("07_transfer", reads=RESPONSES, data=PAPER, undeclared=READ,
             writes=("calibration/transfer.parquet",)),
    Notebook("09_beyond", minutes=0.5, reads=SIGNALS, data=PAPER, decided_by=EXPORT, undeclared=(*READ_ALL, "seed"),
             folders=("calibrators",),
             writes=("selective/scores.parquet", "selective/thresholds.parquet", "selective/curves.parquet",
                     "exported/09_beyond.json")),
    Notebook("08_tables", exports=True, minutes=0.2, undeclared=(*SHOWN, "resamples"), data=PAPER, decided_by=EXPORT,
             writes=("exported/08_tables.json",),
             reads=(*SIGNALS, "04b_ablation", "05_calibration", "06_sample_efficiency", "07_transfer",
                    "09_beyond/selective")),
    Notebook("00_overview", of_shipped=True,
             data=(*OVERVIEW, "artifacts/shipped/small/example.json", "params/models/tiny-llama.yaml",
                   "params/models/qwen2.5-coder-1.5b.yaml", "params/datasets/gsm8k.yaml")),
)  # fmt: skip
REPORT = Notebook("report", module="workflow/report.py", reads=("08_tables/exported", "09_beyond/exported"), data=PAPER,
                  decided_by=("workflow/report.html.jinja",))  # fmt: skip


def needed(names: Iterable[str]) -> list[Notebook]:
    """Return the notebooks of these names and all upstream ones."""
    wanted = set(names)
    for row in reversed(NOTEBOOKS):  # readers come after what they read
        if row.name in wanted:
            wanted |= {word.split("/")[0] for word in row.reads}
    return [row for row in NOTEBOOKS if row.name in wanted]
