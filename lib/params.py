"""Parameter files of profiles, models and datasets, validated key by key.

A profile (`params/<name>.yaml`) is also a papermill parameter file with flat keys. Each notebook
declares the keys it uses. `Profile` inherits from one part per step of the pipeline, so each
default is defined once. It names models (`params/models/`) and datasets (`params/datasets/`), one
file each. papermill only warns of unknown parameters, so a run checks them here.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field

from lib.errors import UserError, nearest
from lib.files import read_yaml
from lib.parameter_schemas import (
    AtLeastOne,
    Bins,
    Count,
    Dataset,
    Model,
    Names,
    Proportion,
    Rows,
    Schema,
    Seed,
    StrictModel,
    Text,
    as_list,
    validate,
)
from lib.paths import PARAMS, of_project, relative_path

# parameters that change at most the last digits of a row, so unfinished work resumes under another
# value
BUDGETS = ("max_batch_tokens", "max_dropout_tokens", "rows_per_shard")
Demonstration = Literal["one", "few", "none"]
Engine = Literal["transformers", "vllm"]


# ---- the parts of a profile


class ParameterGroup(StrictModel):
    """Settings of one step of the pipeline."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self:
        """Create the part from a notebook's variables of its own keys:
        `EvaluationChoices.of(globals())`.

        Raise UserError for an invalid value.
        """
        values = {name: declared[name] for name in cls.model_fields if name in declared}
        return validate(cls, values, "parameters")


class Seeded(ParameterGroup):
    seed: Seed = 0  # streams are keyed by (seed, model, dataset, example)


class Generation(Seeded):
    """How responses are sampled, and which of their logits are stored."""

    # examples in the prompt: the paper's, four worked ones, none
    demonstration: Demonstration = "one"
    max_new_tokens: Count = 1024
    max_batch_tokens: Count = 32768  # prompt and response tokens per batch
    top_logits: Count = 64  # largest logits stored per answer token
    # temperatures at which the other logits are summed
    n_temperature_nodes: int = Field(33, ge=4, le=1000)
    # store questions, prompts and responses as text; ids and numbers are always stored
    save_texts: bool = True


class EvaluationChoices(ParameterGroup):
    """How stored responses are interpreted; no change needs a new generation.

    04 chooses its rate under `grader`, `missing`, `phi` and `bins`: changing one reruns 04.
    """

    grader: Literal["numeric", "exact"] = "numeric"
    missing: Literal["last_number", "drop", "zero"] = "last_number"
    logprobs_from: Literal["model", "sampling"] = "model"
    include_thinking: bool = True
    options: Literal["A/B", "True/False"] = "A/B"  # words whose probabilities P(True) compares
    phi: Literal["clip", "top_k", "top_p"] = "clip"  # from BALD to confidence
    fit_on_tuning_rows: bool = True  # fit c_BALD's calibrators also on the rows that chose its rate
    bins: Bins = 10


class Dropout(Seeded):
    """How the stochastic forward passes are run."""

    dropout_passes: int = Field(10, ge=1, le=10_000)
    # masks over the common prefix of all prompts: own per row; or shared by all rows, computed once
    # per rate
    dropout_prefix: Literal["own", "shared"] = "own"
    max_dropout_tokens: Count = 4096  # of all passes in one forward call
    dropout_top_k: Count = 10  # of the effective supports, by which phi may divide
    dropout_top_p: Proportion = 0.95


class Saving(ParameterGroup):
    """How often unfinished work is saved."""

    rows_per_shard: Count = 100  # examples per shard


class BinAblation(ParameterGroup):
    """ECE and MCE under other numbers of bins (`tab:bin_ablation`)."""

    n_bins_ablation: AtLeastOne[Bins] = [10, 20, 30]
    bin_models: Names = []  # models of the table; empty: all


class Resampling(Seeded):
    """How bootstrap intervals are computed."""

    resamples: int = Field(5000, ge=1, le=10**6)  # of the evaluation rows


class Subsampling(Seeded):
    """How smaller calibration sets are sampled."""

    # and all rows
    calibration_sizes: AtLeastOne[Count] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    draws: int = Field(50, ge=1, le=10_000)  # random calibration sets of each size
    # of a set with oversampled incorrect answers
    incorrect_fraction: float = Field(default=0.5, ge=0, le=1)


class Transfer(ParameterGroup):
    """Between which pairs calibrators are transferred."""

    # of more than 15 pairs, too, from every pair to every other; else to neighbors
    all_transfers: bool = False


class SelectivePrediction(Resampling):
    """When to answer: the precisions that thresholds guarantee."""

    target_precisions: AtLeastOne[Proportion] = [0.80, 0.90, 0.95]  # among accepted answers
    # confidence level (1 - delta) of the guarantee
    precision_confidence: Proportion = 0.90


class TableJudgment(SelectivePrediction):
    """What 10 reads: how a table of scores is judged."""

    target_precisions: AtLeastOne[Proportion] = [0.70, 0.80, 0.90]
    bins: Bins = 10


# ---- what the steps that run a model read


class Selection(Seeded):
    """Which rows of a pair a step takes."""

    limit: Rows = 0  # rows per split, in random order; 0: all
    example: Text = ""  # running example of 01 to 07; empty or absent: a confident incorrect answer


class GenerationStep(Generation, Selection, Saving):
    """What 01 reads."""

    # samples the responses; vllm: in its own environment, many rows in parallel
    engine: Engine = "transformers"


class VerificationStep(Selection, Saving):
    """What 03 reads."""

    max_batch_tokens: Count = 32768  # tokens of standard prompts per batch


class DropoutStep(Dropout, Selection, Saving):
    """What 04 reads, beside the choices under which it selects a rate."""

    dropout_rates: AtLeastOne[Proportion] = [0.10, 0.15, 0.20]  # the grid
    n_tuning_examples: Count = 100  # calibration examples on which the rate is chosen
    dropout_limit: Rows = 0  # rows per split at the selected rate; 0: all


class AblationStep(Generation, Saving):
    """What 04b reads."""

    engine: Engine = "transformers"  # as in 01
    ablation_limit: Count = 100  # evaluation questions repeated under the other demonstration


class Profile(
    GenerationStep,
    EvaluationChoices,
    DropoutStep,
    AblationStep,
    BinAblation,
    Subsampling,
    Transfer,
    SelectivePrediction,
):
    """All parameters of a run, including each choice that the paper leaves open."""

    title: Text = ""  # printed below every table
    models: Names = Field(min_length=1)
    datasets: Names = Field(min_length=1)
    cpu: bool = False  # allow large models without a GPU; otherwise such a run is refused
    # effect of a code-only change on generations
    on_code_change: Literal["remake", "keep"] = "remake"
    # 0: without these steps
    dropout_passes: int = Field(10, ge=0, le=10_000)
    ablation_limit: Rows = 100
    # tables and figures
    main_figure_model: Text = ""  # model and dataset of fig:main_analysis (a); empty: the first
    main_figure_dataset: Text = ""
    # calibration
    figure_model: Text = ""  # model of fig:calibration_analysis; empty: the first
    figure_dataset: Text = ""  # dataset of its (a) and (b); empty: the first
    transfer_models: Names = []  # pairs of tab:calibration_transfer_full; empty: all
    transfer_datasets: Names = []


# ---- reading the files

# commits by hub source, for files without a revision; set by a run, for its notebooks in the
# environment
REVISIONS: dict[str, str] = json.loads(os.environ.get("CALIBRATION_REVISIONS", "{}"))
# datasets of a user's file, by name, until the run writes their files
UNWRITTEN: dict[str, Dataset] = {}
Source = TypeVar("Source", Model, Dataset)


def read_parameter_file(path: Path, kind: type[Schema]) -> Schema:
    """Return the validated contents of a parameter file. Raise UserError with file, key and the
    nearest valid one."""
    values = read_yaml(path) or {}
    where = relative_path(path)
    if not isinstance(values, dict):
        raise UserError(f"{where} must hold 'key: value' lines, not a {type(values).__name__}")
    return validate(kind, values, where)


def load_parameter_file(kind: str, name: str, contents: type[Schema]) -> Schema:
    """Read the file of a profile, model or dataset (`kind`). Raise UserError with the nearest
    name.
    """
    folder = of_project(PARAMS) / ("" if contents is Profile else f"{kind}s")
    names = [path.stem for path in folder.glob("*.yaml")]
    if name not in names:
        where = folder.relative_to(PARAMS.parent)
        raise UserError(f"there is no {kind} '{name}' in {where}/; {nearest(name, names)}")
    return read_parameter_file(folder / f"{name}.yaml", contents)


def pin_revision(spec: Source) -> Source:
    """Return a model or dataset with the commit that the run resolved, if its file names none."""
    commit = REVISIONS.get(str(spec.source))
    if spec.revision or not commit:
        return spec
    return spec.model_copy(update={"revision": commit})


def load_model_config(name: str) -> Model:
    """Read `params/models/<name>.yaml`."""
    return pin_revision(load_parameter_file("model", name, Model))


def load_dataset_config(name: str) -> Dataset:
    """Read `params/datasets/<name>.yaml`, or what a run has yet to write there."""
    spec = UNWRITTEN.get(name)
    return pin_revision(spec or load_parameter_file("dataset", name, Dataset))


LOADERS: dict[str, Callable[[str], Model | Dataset]] = {
    "model": load_model_config,
    "dataset": load_dataset_config,
}


def load_profile(name: str) -> Profile:
    """Read `params/<name>.yaml`, and check every model and dataset that it names."""
    profile = load_parameter_file("profile", name, Profile)
    for kind, mentioned in names_mentioned(dict(profile)):
        LOADERS[kind](mentioned)
    return profile


def kind_of(parameter: str) -> str:
    """Return the last word of a parameter in the singular: 'model' for `bin_models`."""
    return parameter.removesuffix("s").split("_")[-1]


def names_mentioned(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of each model and dataset that parameters name: `model`, `models`,
    `figure_model`, ...
    """
    mentioned: list[tuple[str, str]] = []
    for parameter, value in values.items():
        kind = kind_of(parameter)
        if kind in LOADERS:
            mentioned += [(kind, name) for name in as_list(value) if name]
    return list(dict.fromkeys(mentioned))


# ---- the models and datasets of a notebook


def models_at_hand(models: Sequence[str]) -> list[str]:
    """Return the models whose weights are available; the others have only precomputed responses."""
    return [name for name in models if load_model_config(name).at_hand]


def labels_by_name(kind: str, chosen: Sequence[str]) -> dict[str, str]:
    """Return the label of each of a run's models or datasets (`kind`).

    Raise UserError unless they are a list of distinct names with files.
    """
    check_parameters({f"{kind}s": chosen})
    return {name: LOADERS[kind](name).label for name in chosen}


def select_names(kind: str, wanted: Sequence[str], of_run: Sequence[str]) -> list[str]:
    """Return the wanted models or datasets (`kind`) of a run, or all if it has none of them.

    Raise UserError for a name without a file, or that is given twice.
    """
    for name in wanted:
        if name:
            LOADERS[kind](name)
        if wanted.count(name) > 1:
            raise UserError(f"a list of {kind}s holds '{name}' twice: name it once")
    selected = [name for name in of_run if name in wanted]
    return selected if selected else list(of_run)


# ---- parameters of a notebook


def check_parameters(values: Mapping[str, Any]) -> None:
    """Raise UserError unless these are parameters of a profile with valid values."""
    validate(Profile, {"models": ["any"], "datasets": ["any"]} | dict(values), "parameters")
