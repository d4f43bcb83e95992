"""Parameter files: read, checked, and explained when they are wrong.

A profile (`params/<name>.yaml`) is at the same time a papermill parameter file: flat keys, of which every notebook
declares the ones it uses. It is composed of parts, each the settings of one piece of the science, so that a default is
written once. It names models (`params/models/`) and datasets (`params/datasets/`), a file each. papermill accepts any
unknown parameter in silence, hence the strictness here.
"""

import os
import re
import reprlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from lib.paths import MODELS, PARAMS, ROOT, UserError, first_line, nearest, public_path, read_bytes

# parameters that change no row but for the last digits, so that unfinished work goes on under another value
BUDGETS = ("max_batch_tokens", "max_dropout_tokens", "rows_per_shard")
# keys of the version before: what they are called now, or why they are gone
RENAMED = {
    "ablation_rows": "ablation_limit",
    "answer_form": "answer_format",
    "batch_tokens": "max_batch_tokens",
    "bin_counts": "n_bins_ablation",
    "calibration_dataset": "figure_dataset",
    "calibration_model": "figure_model",
    "code_changes": "on_code_change",
    "curve_nodes": "n_temperature_nodes",
    "dropout_opening": "dropout_prefix",
    "dropout_rows": "dropout_limit",
    "dropout_tokens": "max_dropout_tokens",
    "dropout_tuning": "n_tuning_examples",
    "keep_texts": "save_texts",
    "precision_certainty": "precision_confidence",
    "precision_targets": "target_precisions",
    "shard_rows": "rows_per_shard",
    "temperature_target": "temperature_objective",
    "token_source": "logprobs_from",
    "trajectory_dataset": "main_figure_dataset",
    "trajectory_model": "main_figure_model",
    "tuning_in_fit": "fit_on_tuning_rows",
    "verify_thinking": "ptrue_includes_thinking",
    "wrong_share": "incorrect_fraction",
}
REMOVED = {
    "dropout_kernel": "there is one way to draw masks",
    "mirror": "weights come from a folder or the hub",
    "size": "weights come from a folder or the hub",
}
Kind = TypeVar("Kind", bound="Strict")
Item = TypeVar("Item")


# ---- kinds of values


def check_printable(value: str) -> str:
    """Raises ValueError for a text with a character that is none: control characters, halves of a surrogate pair."""
    wrong = [character for character in value if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")]
    if wrong:
        raise ValueError(f"holds the character {wrong[0]!a}")
    return value


def check_distinct(values: list[Item]) -> list[Item]:
    """Raises ValueError for a list that holds something twice."""
    if twice := [value for value in values if values.count(value) > 1]:
        raise ValueError(f"holds {twice[0]!r} twice")
    return values


def is_path(source: str) -> bool:
    """Whether a source is a path, though nothing may be there, and no name on the hub: so is what begins in a folder of
    the project (`demo/...`) or in `models/`."""
    first, *rest = source.split("/")
    inside = bool(rest) and (first in ("", ".", "..", "~", "models") or os.path.isdir(ROOT / first))
    return inside or len(rest) > 1 or os.path.exists(ROOT / source)


Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Rows = Annotated[int, Field(ge=0, le=10**9)]  # 0: all
Bins = Annotated[int, Field(ge=1, le=1000)]
Decimals = Annotated[int, Field(ge=1, le=15)]
Tokens = Annotated[int, Field(ge=1, le=10**6)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what every generator takes
Text = Annotated[str, Field(max_length=200), AfterValidator(check_printable)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(check_printable)]
# a path, or a name on the hub
Place = Annotated[
    str, Field(min_length=1, max_length=1000), AfterValidator(check_printable), PlainSerializer(public_path)
]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Once = AfterValidator(check_distinct)
Names = Annotated[list[Name], Once]
Sizes = Annotated[list[Count], Field(min_length=1), Once]


def as_list(value: Any) -> Any:
    """A single word stands for a list of it."""
    return [value] if isinstance(value, str) else value


def place_or_files(value: Any) -> Any:
    """Raises ValueError for what is neither a text nor a mapping of texts."""
    files = list(value.values()) if isinstance(value, dict) else [value]
    if not files or not all(isinstance(file, str) for file in files):
        raise ValueError("is neither a name on the hub nor files by part, such as {all: questions.jsonl}")
    return value


Demonstration = Literal["one", "few", "none"]
Scope = Literal["trajectory", "answer"]
Engine = Literal["transformers", "vllm"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())


# ---- the parts of a profile


class Part(Strict):
    """Settings of one piece of the science."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self:
        """Those among the parameters that a notebook declares: `Reading.of(globals())`. Raises UserError where any of
        them, of this part or not, is no choice."""
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

    temperature_objective: Literal["ans_avg", "ans_joint"] = "ans_avg"  # whose log-loss the temperature minimises
    one_class: Literal["fit", "constant"] = "fit"  # of rows all right or all wrong: what the method gives
    isotonic_decimals: Decimals | None = None  # that isotonic regression sees of a score; null: all of them


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
    calibration_sizes: Sizes = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]  # and all rows
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


class Model(Strict):
    """A language model: where it is, and the decoding settings of tab:inference_settings."""

    label: Name
    # name on the hub, or a folder (relative to the project's root); none: not at hand, only its `responses` are
    source: Place = ""
    revision: Name | None = None
    gguf: str | None = Field(None, pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*\.gguf$")  # file there, converted once
    sha256: Sha256 | None = None  # of that file
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # auto: bfloat16 on CUDA, float32 elsewhere
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    temperature: float = Field(1.0, ge=0.001, le=1000)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1, le=10**6)  # -1 (or 0): off
    min_p: float = Field(0.0, ge=0, lt=1)
    system_prompt: bool = True
    thinking: bool = False
    date_string: Name | None = None  # for templates that would write today's date
    max_new_tokens: Tokens | None = None
    # JSON lines of responses that it has already written ({dataset} stands for the dataset's name): none are drawn
    responses: Annotated[Place, Field(pattern=r"^(?:[^{}]|\{dataset\})+$")] | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not self.source and (self.gguf or self.revision or not self.responses):
            raise ValueError("'source' is missing")
        if self.gguf and not self.sha256:
            raise ValueError(f"'gguf' needs the 'sha256' of {self.gguf}, since it may come from several places")
        if self.sha256 and not self.gguf:
            raise ValueError("'sha256' is said of a GGUF file, and none is named: 'gguf' is missing")
        return self

    @property
    def at_hand(self) -> bool:
        """Whether it can be asked; else nothing is known of it but the responses in its file."""
        return bool(self.source)

    @property
    def place(self) -> Path:
        """The folder that its source names (if it is no name on the hub), or that its converted GGUF file makes."""
        return MODELS / str(self.sha256) if self.gguf else ROOT / self.source

    def responses_to(self, dataset: str) -> Path | None:
        """The file of its responses to the questions of a dataset (a relative one starts from the project's root)."""
        return ROOT / self.responses.format(dataset=dataset) if self.responses else None


class Published(Strict):
    """A file as it was published, by its path in the folder that DATA_FOLDER names."""

    path: str = Field(pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*$")
    sha256: Sha256


class Dataset(Strict):
    """A set of questions: where its rows are, which of their fields are read, and how they are split."""

    label: Name
    # name on the hub, or files of JSON by part ("all" for one file)
    source: Annotated[Place | dict[Name, Place], BeforeValidator(place_or_files)]
    revision: Name | None = None
    config: Name | None = None
    question: Annotated[Names, BeforeValidator(as_list), Field(min_length=1)] = ["question"]  # joined by one space
    answer: Name = "answer"  # field of a number, or of a text that ends in `#### number`
    id: Name | None = None  # field; null: `id` where a row has one, else made of split and place
    calibration: Count  # rows expected, checked at loading
    evaluation: Count
    parts: dict[Name, Annotated[str, Field(pattern="^(calibration|evaluation)$")]] = {
        "train": "calibration", "test": "evaluation", "calibration": "calibration", "evaluation": "evaluation"
    }  # fmt: skip
    seed: Seed | None = None  # shuffles the rows of one file into the two splits
    split_ids: Place | None = None  # file that lists the ids of each part
    files: dict[str, Published] = {}  # by part, and `split_ids`: the same rows, where DATA_FOLDER names their folder

    @model_validator(mode="after")
    def _known_files(self) -> Self:
        known = {*self.parts, "all", "split_ids"}
        for part in self.files.keys() - known:
            raise ValueError(f"'files' knows no part '{part}'; {nearest(part, known)}")
        return self

    @property
    def folder(self) -> Path | None:
        """The folder with its published files, if one is named (a relative one starts from the project's root)."""
        named = os.environ.get("DATA_FOLDER")
        return ROOT / os.path.expanduser(named) if named and self.files else None


# ---- reading and checking the files


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML whose mappings hold each key once: which of two would be meant?"""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """As PyYAML does. Raises ConstructorError for a key that comes twice."""
        seen = []
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' again", key.start_mark)
            seen.append(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, where: object = None) -> Any:
    """The value of a YAML file. Raises UserError naming the file, by `where`, and the line."""
    where, data = where or path, read_bytes(path, where)
    try:
        return yaml.load(data.decode("utf-8"), UniqueKeyLoader)  # safe: it makes plain values alone
    except UnicodeDecodeError:
        raise UserError(f"{where} is not text in UTF-8") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{where} is not YAML{f', line {mark.line + 1}' if mark else ''}: {problem}") from None


def parameter_file_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_parameter_file(path: Path, kind: type[Kind]) -> Kind:
    """The checked contents of a parameter file. Raises UserError naming file, key and the nearest right one."""
    where = path.relative_to(PARAMS.parent) if path.is_relative_to(PARAMS.parent) else path
    raw = read_yaml(path, where)
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise UserError(f"{where} must hold 'key: value' lines, not a {type(raw).__name__}")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain_validation_error(error, kind, str(where))) from None


def explain_validation_error(error: ValidationError, kind: type[Strict], where: str) -> str:
    """What is wrong with a parameter file, in one line: the first thing, but a key that is unknown before one that is
    missing, since that may be the same one misspelt."""
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    # without the ways to read a key that has two, as pydantic calls them
    loc = [str(part) for part in first["loc"] if not str(part).startswith(("function-", "dict["))]
    key, last, given = ".".join(loc), loc[-1] if loc else "", first["input"]
    match first["type"]:
        case "extra_forbidden" if last in RENAMED:
            said = f"'{key}' is called '{RENAMED[last]}' now"
        case "extra_forbidden" if last in REMOVED:
            said = f"there is no parameter '{key}' any more: {REMOVED[last]}"
        case "extra_forbidden":
            names = (Published if len(loc) > 1 else kind).model_fields
            said = f"there is no parameter '{key}'; {nearest(last, names)}"
        case "value_error":  # one of the rules here, which speaks for itself
            said = f"{f'{key!r} ' if loc else ''}{first['ctx']['error']}"
        case "missing":
            lacking = [".".join(map(str, one["loc"])) for one in errors if one["type"] == "missing"]
            said = f"{', '.join(map(repr, lacking))} {'is' if len(lacking) == 1 else 'are'} missing"
        case "literal_error" if isinstance(given, str):
            words = re.findall("'(.*?)'", first["ctx"]["expected"])
            said = f"'{key}' can't be '{given:.60}'; {nearest(given, words)}"
        case "bool_type":
            said = f"'{key}' is {reprlib.repr(given)}; true or false is meant"
        case _:
            said = f"'{key}' is {reprlib.repr(given)}; {first['msg'][0].lower()}{first['msg'][1:]}"
    return f"{where}: {said}"


def find_parameter_file(folder: Path, name: str, what: str) -> Path:
    path = folder / f"{name}.yaml"
    if name not in parameter_file_names(folder):
        raise UserError(f"there is no {what} '{name}' in {folder.relative_to(PARAMS.parent)}/; "
                        f"{nearest(name, parameter_file_names(folder))}")  # fmt: skip
    return path


REVISIONS: dict[str, str] = {}  # commits, by source on the hub, where a file leaves the revision open: a run sets them


def load_file(what: str, name: str, kind: type[Kind]) -> Kind:
    """A model's or a dataset's file, with the commit that the run resolved where it leaves the revision open."""
    spec = read_parameter_file(find_parameter_file(PARAMS / f"{what}s", name, what), kind)
    commit = None if getattr(spec, "revision", None) else REVISIONS.get(str(getattr(spec, "source", "")))
    return spec.model_copy(update={"revision": commit}) if commit else spec


def load_model_config(name: str) -> Model:
    """`params/models/<name>.yaml`."""
    return load_file("model", name, Model)


def models_at_hand(models: Sequence[str]) -> list[str]:
    """Those of these models that can be asked: the others' responses come from a file, and nothing else does."""
    return [name for name in models if load_model_config(name).at_hand]


def load_dataset_config(name: str) -> Dataset:
    """`params/datasets/<name>.yaml`."""
    return load_file("dataset", name, Dataset)


LOADERS: dict[str, Callable[[str], Model | Dataset]] = {"model": load_model_config, "dataset": load_dataset_config}


def choose_one(kind: str, wanted: str, there: Sequence[str]) -> str:
    """The model or dataset (`kind`) that is shown: the one `wanted`, or, where that is empty or not among those of the
    run, the first of them. Raises UserError for a name without a file, and where the run has none."""
    return choose_some(kind, [wanted] if wanted else [], there)[0]


def choose_some(kind: str, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Those models or datasets (`kind`) of the run that are `wanted`; all of them, where none is. Raises UserError as
    `choose_one` does."""
    for name in [*there, *wanted]:
        find_parameter_file(PARAMS / f"{kind}s", name, kind)
    if not there:
        raise UserError(f"parameters: '{kind}s' names none; {nearest('', parameter_file_names(PARAMS / f'{kind}s'))}")
    return [name for name in there if name in wanted] or list(there)


def labels_by_name(kind: str, chosen: Sequence[str]) -> dict[str, str]:
    """The label of each of a run's models or datasets (`kind`). Raises UserError for what is no list of names, each
    once, each with a file."""
    check_declared({f"{kind}s": chosen})
    return {name: LOADERS[kind](name).label for name in chosen}


def check_declared(declared: Mapping[str, Any]) -> None:
    """Raises UserError for a value that no profile could hold, among what a notebook declares."""
    given = {name: declared[name] for name in Profile.model_fields
             if name in declared and not isinstance(declared[name], ModuleType)}  # fmt: skip
    try:
        Profile.model_validate({"models": ["any"], "datasets": ["any"]} | given)
    except ValidationError as error:
        raise UserError(explain_validation_error(error, Profile, "parameters")) from None


def load_profile(name: str) -> Profile:
    """`params/<name>.yaml`, with every model and dataset that it names."""
    profile = read_parameter_file(find_parameter_file(PARAMS, name, "profile"), Profile)
    for field, value in profile:
        kind = field.split("_")[-1].removesuffix("s")  # of `models`, `figure_model`, ...
        for named in filter(None, as_list(value)) if kind in LOADERS else ():
            LOADERS[kind](named)
    return profile
