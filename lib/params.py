"""Parameter files: what a run, a model and a dataset are told, checked key by key.

A profile (`params/<name>.yaml`) is at the same time a papermill parameter file: flat keys, of which every notebook
declares the ones it uses. It is composed of parts, each the settings of one piece of the science, so that a default is
written once. It names models (`params/models/`) and datasets (`params/datasets/`), a file each. papermill accepts any
unknown parameter in silence, hence the strictness here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from lib.configs import Dataset, Model
from lib.paths import PARAMS, UserError, nearest, read_yaml
from lib.validation import Bins, Count, Kind, Names, Once, Rows, Seed, Share, Strict, Text, Tokens, as_list, validate

# parameters that change no row but for the last digits, so that unfinished work goes on under another value
BUDGETS = ("max_batch_tokens", "max_dropout_tokens", "rows_per_shard")
Demonstration = Literal["one", "few", "none"]
Scope = Literal["trajectory", "answer"]
Engine = Literal["transformers", "vllm"]


# ---- the parts of a profile


class Part(Strict):
    """Settings of one piece of the science."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self:
        """Take them from what a notebook declares: `Reading.of(globals())`. Raises UserError for a wrong value, of this
        part or another."""
        check_declared(declared)
        return cls(**{name: declared[name] for name in cls.model_fields if name in declared})


class Seeded(Part):
    seed: Seed = 0  # of every random stream, together with model, dataset and example


class Generation(Seeded):
    """How responses are drawn, and what is kept of their logits."""

    demonstration: Demonstration = "one"  # what the prompt shows first: the paper's example, few worked ones, none
    max_new_tokens: Tokens = 1024
    max_batch_tokens: Count = 32768  # prompt and response tokens held at once
    top_logits: Tokens = 64  # kept exactly per answer token
    n_temperature_nodes: int = Field(33, ge=4, le=1000)  # temperatures at which the rest is summed
    save_texts: bool = True  # questions, prompts and responses as texts; ids, numbers and what they hold always are


class Reading(Part):
    """How stored responses are read. None of it needs a new generation, but 04 chooses its rate under `grader`,
    `answer_format`, `missing`, `phi`, `bins` and `closed`: changing one of these runs 04 again."""

    grader: Literal["numeric", "relative", "pal", "exact", "integer"] = "numeric"
    answer_format: Literal["any", "plain"] = "any"  # plain: `#### number` alone on its line is an answer
    missing: Literal["last_number", "drop", "zero"] = "last_number"
    logprobs_from: Literal["model", "sampling"] = "model"
    include_eos: bool = False
    include_thinking: bool = True
    options: Literal["A/B", "True/False"] = "A/B"  # words whose mass P(True) compares
    phi: Literal["clip", "top_k", "top_p"] = "clip"  # from BALD to confidence
    fit_on_tuning_rows: bool = True  # c_BALD's calibrators see the rows on which its rate was chosen
    bins: Bins = 10
    closed: Literal["right", "left"] = "right"


class Verification(Part):
    """How P(True) asks."""

    standard_prompt: Literal["template", "as_drawn"] = "template"  # as_drawn: no assistant header, as in the figure
    ptrue_includes_thinking: bool = False  # thinking text in the standard prompt's proposed answer


class Dropout(Seeded):
    """How the stochastic passes are made."""

    dropout_passes: int = Field(10, ge=1, le=10_000)
    # whose masks stand over what every prompt begins with: the row's own; or one pass's for all rows, read once a rate
    dropout_prefix: Literal["own", "shared"] = "own"
    max_dropout_tokens: Count = 4096  # of all passes in one forward
    dropout_top_k: Annotated[list[Tokens], Once] = [10]  # effective supports, of which phi takes the first
    dropout_top_p: Annotated[list[Share], Once] = [0.95]


class Calibration(Part):
    """How calibrators are fitted."""

    temperature_objective: Literal["ans_avg", "ans_joint"] = "ans_avg"  # whose log-loss the temperature minimizes
    one_class: Literal["fit", "constant"] = "fit"  # of rows all right or all wrong: what the method gives
    # digits after the point that isotonic regression sees of a score; null: all of them
    isotonic_decimals: Annotated[int, Field(ge=1, le=15)] | None = None


class Saving(Part):
    """How often unfinished work is saved."""

    rows_per_shard: Count = 100  # examples between two savings


class BinAblation(Part):
    """How ECE and MCE are shown under other numbers of bins (`tab:bin_ablation`)."""

    n_bins_ablation: Annotated[list[Bins], Field(min_length=1), Once] = [10, 20, 30]
    bin_models: Names = []  # models of the table; none: all


class Resampling(Seeded):
    """How intervals are drawn."""

    resamples: int = Field(5000, ge=1, le=10**6)  # of the evaluation rows


class Profile(Generation, Reading, Verification, Dropout, Calibration, Saving, BinAblation, Resampling):
    """What a run does. Every choice that the paper leaves open is a key here, or of a part."""

    title: Text = ""  # said under every table
    models: Names = Field(min_length=1)
    datasets: Names = Field(min_length=1)
    limit: Rows = 0  # rows per split, the first of a random order; 0: all
    dropout_limit: Rows = 0  # rows per split whose whole trajectory 04 passes over, likewise; 0: all
    cpu: bool = False  # large models are run where there is no GPU, too; else such a run is refused
    on_code_change: Literal["remake", "keep"] = "remake"  # what a code-only change does to generations
    engine: Engine = "transformers"  # what draws responses; vllm: in an environment of its own, many rows at once
    # where dropout acts: on the whole trajectory, as in the paper; only where the answer's tokens are read
    dropout_scope: Annotated[list[Scope], BeforeValidator(as_list), Field(min_length=1), Once] = ["trajectory"]
    dropout_rates: Annotated[list[Share], Field(min_length=1), Once] = [0.10, 0.15, 0.20]
    n_tuning_examples: Count = 100  # calibration examples on which the rate is chosen
    ablation_limit: Count = 100  # evaluation questions asked again with the demonstration the other way
    # tables and figures
    example: Text = ""  # the evaluation row that 01 to 07 follow; empty or not there: a confident wrong answer
    main_figure_model: Text = ""  # model and dataset of fig:main_analysis (a); empty: the first
    main_figure_dataset: Text = ""
    # calibration
    figure_model: Text = ""  # model of fig:calibration_analysis; empty: the first
    figure_dataset: Text = ""  # dataset of its (a) and (b); empty: the first
    calibration_sizes: Annotated[list[Count], Field(min_length=1), Once] = [
        5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000
    ]  # and all rows  # fmt: skip
    draws: int = Field(50, ge=1, le=10_000)  # random calibration sets of each size
    incorrect_fraction: float = Field(0.5, ge=0, le=1)  # of a set in which wrong answers are over-sampled
    transfer_models: Names = []  # pairs of tab:calibration_transfer_full; none: all
    transfer_datasets: Names = []
    # when to answer
    target_precisions: Annotated[list[Share], Field(min_length=1), Once] = [0.80, 0.90, 0.95]  # of the answers given
    precision_confidence: Share = 0.90  # in how many draws of calibration rows a threshold keeps its promise

    @model_validator(mode="after")
    def _supported(self) -> Self:
        supports = {"top_k": self.dropout_top_k, "top_p": self.dropout_top_p}
        if not supports.get(self.phi, [self.phi]):
            raise ValueError(f"'phi' is {self.phi}, whose first value is used, and 'dropout_{self.phi}' names none")
        return self


# ---- reading and checking the files

REVISIONS: dict[str, str] = {}  # commits, by source on the hub, where a file leaves the revision open: a run sets them


def parameter_file_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def find_parameter_file(kind: str, name: str) -> Path:
    """The file of a profile, model or dataset (`kind`). Raises UserError that names the nearest one."""
    folder = PARAMS if kind == "profile" else PARAMS / f"{kind}s"
    names = parameter_file_names(folder)
    if name not in names:
        raise UserError(f"there is no {kind} '{name}' in {folder.relative_to(PARAMS.parent)}/; {nearest(name, names)}")
    return folder / f"{name}.yaml"


def read_parameter_file(path: Path, kind: type[Kind]) -> Kind:
    """The checked contents of a parameter file. Raises UserError naming file, key and the nearest right one."""
    where = path.relative_to(PARAMS.parent) if path.is_relative_to(PARAMS.parent) else path
    values = read_yaml(path, where)
    if not isinstance(values, dict | None):
        raise UserError(f"{where} must hold 'key: value' lines, not a {type(values).__name__}")
    return validate(kind, values or {}, str(where))


def load_config(kind: str, name: str, contents: type[Kind]) -> Kind:
    """A model's or a dataset's file, with the commit that the run resolved where it leaves the revision open."""
    spec = read_parameter_file(find_parameter_file(kind, name), contents)
    commit = None if getattr(spec, "revision", None) else REVISIONS.get(str(getattr(spec, "source", "")))
    return spec.model_copy(update={"revision": commit}) if commit else spec


def load_model_config(name: str) -> Model:
    """`params/models/<name>.yaml`."""
    return load_config("model", name, Model)


def load_dataset_config(name: str) -> Dataset:
    """`params/datasets/<name>.yaml`."""
    return load_config("dataset", name, Dataset)


LOADERS: dict[str, Callable[[str], Model | Dataset]] = {"model": load_model_config, "dataset": load_dataset_config}


def load_profile(name: str) -> Profile:
    """`params/<name>.yaml`, with every model and dataset that it names."""
    profile = read_parameter_file(find_parameter_file("profile", name), Profile)
    for field, value in profile:
        kind = field.split("_")[-1].removesuffix("s")  # of `models`, `figure_model`, ...
        for named in filter(None, as_list(value)) if kind in LOADERS else ():
            LOADERS[kind](named)
    return profile


# ---- what a notebook declares


def check_declared(declared: Mapping[str, Any]) -> None:
    """Raises UserError for a value that no profile could hold, among what a notebook declares."""
    given = {name: declared[name] for name in Profile.model_fields.keys() & declared.keys()}
    given = {name: value for name, value in given.items() if not isinstance(value, ModuleType)}
    validate(Profile, {"models": ["any"], "datasets": ["any"]} | given, "parameters")


def models_at_hand(models: Sequence[str]) -> list[str]:
    """Those of these models that can be asked: the others' responses come from a file, and nothing else does."""
    return [name for name in models if load_model_config(name).at_hand]


def labels_by_name(kind: str, chosen: Sequence[str]) -> dict[str, str]:
    """The label of each of a run's models or datasets (`kind`). Raises UserError for what is no list of names, each
    once and each with a file."""
    check_declared({f"{kind}s": chosen})
    return {name: LOADERS[kind](name).label for name in chosen}


def choose_some(kind: str, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Those models or datasets (`kind`) of the run that are wanted; all, where none is. Raises UserError for a name
    without a file, and where the run has none."""
    check_declared({f"{kind}s": list(there)})
    for name in [*there, *wanted]:
        find_parameter_file(kind, name)
    return [name for name in there if name in wanted] or list(there)


def choose_one(kind: str, wanted: str, there: Sequence[str]) -> str:
    """The wanted model or dataset; the run's first, where it is empty or not among them. Otherwise as `choose_some`."""
    return choose_some(kind, [wanted] if wanted else [], there)[0]
