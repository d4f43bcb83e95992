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
from typing import Any, Literal, Self

from pydantic import Field

from lib import parameter_schemas
from lib.errors import UserError, nearest
from lib.files import read_yaml
from lib.parameter_schemas import (
    Bins,
    Count,
    Dataset,
    Model,
    Names,
    Rows,
    Seed,
    Several,
    Share,
    Strict,
    Text,
    validate,
)
from lib.paths import PARAMS, of_project, relative_path

# parameters that change at most the last digits of a row, so unfinished work resumes under another
# value
BUDGETS = ("max_batch_tokens", "max_dropout_tokens", "rows_per_shard")
Demonstration = Literal["one", "few", "none"]
Engine = Literal["transformers", "vllm"]


# ---- the parts of a profile


class Part(Strict):
    """Settings of one step of the pipeline."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self:
        """Create the part from a notebook's variables of its own keys:
        `EvaluationChoices.of(globals())`.

        Raise UserError for an invalid value.
        """
        values = {name: declared[name] for name in cls.model_fields if name in declared}
        return validate(cls, values, "parameters")


class Seeded(Part):
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


class EvaluationChoices(Part):
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
    dropout_top_p: Share = 0.95


class Saving(Part):
    """How often unfinished work is saved."""

    rows_per_shard: Count = 100  # examples per shard


class BinAblation(Part):
    """ECE and MCE under other numbers of bins (`tab:bin_ablation`)."""

    n_bins_ablation: Several[Bins] = [10, 20, 30]
    bin_models: Names = []  # models of the table; empty: all


class Resampling(Seeded):
    """How bootstrap intervals are computed."""

    resamples: int = Field(5000, ge=1, le=10**6)  # of the evaluation rows


class Subsampling(Seeded):
    """How smaller calibration sets are sampled."""

    # and all rows
    calibration_sizes: Several[Count] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    draws: int = Field(50, ge=1, le=10_000)  # random calibration sets of each size
    # of a set with oversampled incorrect answers
    incorrect_fraction: float = Field(default=0.5, ge=0, le=1)


class SelectivePrediction(Resampling):
    """When to answer: the precisions that thresholds guarantee."""

    target_precisions: Several[Share] = [0.80, 0.90, 0.95]  # among accepted answers
    precision_confidence: Share = 0.90  # confidence level (1 - delta) of the guarantee


class Profile(
    Generation, EvaluationChoices, Dropout, Saving, BinAblation, Subsampling, SelectivePrediction
):
    """All parameters of a run, including each choice that the paper leaves open."""

    title: Text = ""  # printed below every table
    models: Names = Field(min_length=1)
    datasets: Names = Field(min_length=1)
    limit: Rows = 0  # rows per split, in random order; 0: all
    dropout_limit: Rows = 0  # rows per split for 04 at the selected rate; 0: all
    cpu: bool = False  # allow large models without a GPU; otherwise such a run is refused
    # effect of a code-only change on generations
    on_code_change: Literal["remake", "keep"] = "remake"
    # samples the responses; vllm: in its own environment, many rows in parallel
    engine: Engine = "transformers"
    dropout_rates: Several[Share] = [0.10, 0.15, 0.20]  # the grid of 04
    n_tuning_examples: Count = 100  # calibration examples on which the rate is chosen
    ablation_limit: Count = 100  # evaluation questions repeated under the other demonstration
    # tables and figures
    example: Text = ""  # running example of 01 to 07; empty or absent: a confident incorrect answer
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


def read_parameter_file(path: Path, kind: type[parameter_schemas.Kind]) -> parameter_schemas.Kind:
    """Return the validated contents of a parameter file. Raise UserError with file, key and the
    nearest valid one."""
    values, where = read_yaml(path) or {}, relative_path(path)
    if not isinstance(values, dict):
        raise UserError(f"{where} must hold 'key: value' lines, not a {type(values).__name__}")
    return validate(kind, values, where)


def load_parameter_file(
    kind: str, name: str, contents: type[parameter_schemas.Kind]
) -> parameter_schemas.Kind:
    """Read the file of a profile, model or dataset (`kind`), with the commit that the run resolved
    if it names none. Raise UserError with the nearest name."""
    folder = of_project(PARAMS) / ("" if contents is Profile else f"{kind}s")
    names = [path.stem for path in folder.glob("*.yaml")]
    if name not in names:
        raise UserError(
            f"there is no {kind} '{name}' in {folder.relative_to(PARAMS.parent)}/; {nearest(name, names)}"
        )
    spec = read_parameter_file(folder / f"{name}.yaml", contents)
    commit = (
        None if getattr(spec, "revision", None) else REVISIONS.get(str(getattr(spec, "source", "")))
    )
    return spec.model_copy(update={"revision": commit}) if commit else spec


def load_model_config(name: str) -> Model:
    """Read `params/models/<name>.yaml`."""
    return load_parameter_file("model", name, Model)


def load_dataset_config(name: str) -> Dataset:
    """Read `params/datasets/<name>.yaml`."""
    return load_parameter_file("dataset", name, Dataset)


LOADERS: dict[str, Callable[[str], Model | Dataset]] = {
    "model": load_model_config,
    "dataset": load_dataset_config,
}


def load_profile(name: str) -> Profile:
    """Read `params/<name>.yaml`, and check every model and dataset that it names."""
    profile = load_parameter_file("profile", name, Profile)
    for kind, named in names_mentioned(dict(profile)):
        LOADERS[kind](named)
    return profile


def kind_of(parameter: str) -> str:
    """Return the last word of a parameter in the singular: 'model' for `bin_models`."""
    return parameter.removesuffix("s").split("_")[-1]


def names_mentioned(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of each model and dataset that parameters name: `model`, `models`,
    `figure_model`, ..."""
    lists = {
        name: parameter_schemas.as_list(value)
        for name, value in values.items()
        if kind_of(name) in LOADERS
    }
    return list(
        dict.fromkeys((kind_of(name), one) for name, names in lists.items() for one in names if one)
    )


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


def select_names(kind: str, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the wanted models or datasets (`kind`) of a run, or all if it has none of them.

    Raise UserError for a name without a file.
    """
    for name in filter(None, wanted):
        LOADERS[kind](name)
    return [name for name in there if name in wanted] or list(there)


# ---- parameters of a notebook


def check_parameters(values: Mapping[str, Any]) -> None:
    """Raise UserError unless these are parameters of a profile with valid values."""
    validate(Profile, {"models": ["any"], "datasets": ["any"]} | dict(values), "parameters")
