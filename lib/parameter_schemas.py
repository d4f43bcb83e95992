"""Schemas of parameters, from a number to a model or a dataset (`params/models/`,
`params/datasets/`), and one-line validation errors with the nearest valid value."""

import os
import re
import reprlib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
)

from lib.errors import UserError, nearest
from lib.paths import MODELS, is_path, local_path, of_project, public_path

SMALL = 25e6  # parameters; models with fewer run on the processor, in float32, on every machine
Schema = TypeVar("Schema", bound="StrictModel")
Value = TypeVar("Value")


def check_distinct(values: list[Any]) -> list[Any]:
    """Raise ValueError for a list with duplicates."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"holds {value!r} twice")
    return values


def as_list(value: Any) -> Any:
    """Wrap a single string in a list."""
    return [value] if isinstance(value, str) else value


# of an error's place: pydantic's names for the alternatives of a union
OF_PYDANTIC = re.compile(r"(function|constrained)-|dict\[")
EXPONENTIAL = r"[+-]?\d{1,9}(\.\d{1,9})?[eE][+-]?\d"
PRINTABLE = r"^[^\p{Cc}\p{Zl}\p{Zp}]*$"  # no control characters, no line breaks
Proportion = Annotated[float, Field(gt=0, lt=1)]  # strictly between 0 and 1
Count = Annotated[int, Field(ge=1, le=10**9)]
Rows = Annotated[int, Field(ge=0, le=10**9)]  # 0: all
Bins = Annotated[int, Field(ge=1, le=1000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # valid for every random generator
Text = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]
PathOrHubName = Annotated[
    str, Field(min_length=1, max_length=1000, pattern=PRINTABLE), PlainSerializer(public_path)
]
PathWithDataset = Annotated[PathOrHubName, Field(pattern=r"^(?:[^{}\p{Cc}]|\{dataset\})+$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Distinct = AfterValidator(check_distinct)
Names = Annotated[list[Name], Distinct]
AtLeastOne = Annotated[list[Value], Field(min_length=1), Distinct]


class StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


def validate(kind: type[Schema], values: Mapping[str, Any], where: str) -> Schema:
    """Return the validated settings. Raise UserError, prefixed by `where`, for invalid values."""
    try:
        return kind.model_validate(values)
    except pydantic.ValidationError as error:
        raise UserError(f"{where}: {explain_validation_error(error, kind)}") from None


def explain_validation_error(error: pydantic.ValidationError, kind: type[StrictModel]) -> str:
    """Describe the first error, an unknown key before any other: a missing one may be that key
    misspelled.
    """
    mistakes = error.errors(include_url=False)
    unknown = [mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"]
    mistake = unknown[0] if unknown else mistakes[0]
    steps = map(str, mistake["loc"])
    key = ".".join(step for step in steps if not OF_PYDANTIC.match(step))
    message = mistake["msg"][0].lower() + mistake["msg"][1:]
    match mistake["type"]:
        case "extra_forbidden":
            suggestion = "" if "." in key else f"; {nearest(key, kind.model_fields)}"
            return f"there is no parameter '{key}'{suggestion}"
        case "missing":
            return f"'{key}' is missing"
        case "value_error":  # raised by a validator of ours
            reason = mistake["ctx"]["error"]
            return f"{key!r} {reason}" if key else str(reason)
        case "string_type":
            message = "a text is meant: put it in quotes"
        case "float_type" | "int_type":
            message += suggest_number(mistake["input"])
    return f"'{key}' is {reprlib.repr(mistake['input'])}; {message}"


def refuse_zero(temperature: Any) -> Any:
    """Raise ValueError for the 0 that stands for greedy decoding elsewhere."""
    if type(temperature) in (int, float) and temperature == 0:
        raise ValueError("can't be 0: for the most probable token at every step, write `top_k: 1`")
    return temperature


def suggest_number(value: Any) -> str:
    """Return how YAML wants a number to be written that it has read as a text: `1e-1` as 0.1."""
    if isinstance(value, str) and re.fullmatch(EXPONENTIAL, value):
        return f": write {Decimal(value):f}"
    return ""


# ---- models and datasets


class Model(StrictModel):
    """A language model: where it is, and the decoding settings of tab:inference_settings."""

    label: Name
    # name on the hub, or a folder (from the project's root, or ~/...); empty: no weights, only
    # `responses`
    source: PathOrHubName = ""
    revision: Name | None = None
    # file in the source
    gguf: str | None = Field(None, pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*\.gguf$")
    sha256: Sha256 | None = None  # of that file
    # auto: bfloat16 on a GPU, float32 elsewhere
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # all: its layers are spread over every visible GPU, and its jobs run alone
    gpus: Literal["all"] | None = None
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    temperature: Annotated[float, BeforeValidator(refuse_zero)] = Field(1.0, ge=0.001, le=1000)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1, le=10**6)  # -1 (or 0): off
    min_p: float = Field(0.0, ge=0, lt=1)
    system_prompt: bool = True
    thinking: bool = False
    date_string: Name | None = None  # for chat templates that insert today's date
    max_new_tokens: Count | None = None
    # JSON lines of precomputed responses, or their folder ({dataset}: the dataset's name);
    # generation is skipped
    responses: PathWithDataset | None = None
    # merged into every body that a server is sent; null removes a field
    request: dict[Name, JsonValue] = {}

    @pydantic.model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not self.source and (self.gguf or self.revision or not self.responses):
            raise ValueError("'source' is missing")
        if bool(self.gguf) != bool(self.sha256):
            raise ValueError(
                "'gguf' names a file, and 'sha256' its checksum: one of them is missing"
            )
        return self

    @property
    def at_hand(self) -> bool:
        """Whether its weights are available; otherwise only its precomputed responses are."""
        return bool(self.source)

    @property
    def repository(self) -> str:
        """The repository of its source on the hub, `owner/name`; empty for a folder."""
        if "/" not in self.source or is_path(self.source):
            return ""
        return self.source

    @property
    def place(self) -> Path:
        """The local folder of its source, or of its GGUF file once that is checked."""
        if self.gguf:
            return of_project(MODELS) / str(self.sha256)
        return local_path(self.source)

    def responses_to(self, dataset: str) -> Path | None:
        """Return the file of its precomputed responses to a dataset; relative paths start from the
        project's root.

        In a folder, it is `<dataset>.responses.jsonl`.
        """
        if not self.responses:
            return None
        path = local_path(self.responses.format(dataset=dataset))
        if self.responses.endswith("/") or os.path.isdir(path):
            return path / f"{dataset}.responses.jsonl"
        return path


class PublishedFile(StrictModel):
    """A published file, by its path below DATA_FOLDER."""

    path: str = Field(pattern=r"^(?:\w[\w.-]*/)*\w[\w.-]*$")
    sha256: Sha256


class Dataset(StrictModel):
    """A set of questions: the source of its rows, the fields to read, and the split."""

    label: Name
    # name on the hub, a folder of files named by part, or files by part: {all: file}
    source: PathOrHubName | Annotated[dict[Name, PathOrHubName], Field(min_length=1)]
    revision: Name | None = None
    config: Name | None = None
    # joined by one space
    question: Annotated[Names, BeforeValidator(as_list), Field(min_length=1)] = ["question"]
    answer: Name = "answer"  # field with a number, or a text that ends in `#### number`
    id: Name | None = None  # field; null: `id` if a row has one, else split and row index
    # rows expected, checked at loading; neither, with a `seed`: halves
    calibration: Count | None = None
    evaluation: Rows | None = None
    parts: dict[Name, Literal["calibration", "evaluation"]] = {
        "train": "calibration", "test": "evaluation",
        "calibration": "calibration", "evaluation": "evaluation",
    }  # fmt: skip
    seed: Seed | None = None  # shuffles the rows of one file into the two splits
    split_ids: PathOrHubName | None = None  # file with the list of ids of each part
    # by part, and `split_ids`: the same rows below DATA_FOLDER
    files: dict[str, PublishedFile] = {}

    @pydantic.model_validator(mode="after")
    def _has_sizes(self) -> Self:
        if self.seed is not None and self.calibration is None and self.evaluation is None:
            return self
        for key, size in (("calibration", self.calibration), ("evaluation", self.evaluation)):
            if size is None:
                raise ValueError(f"'{key}' is missing; `seed: 0`, without both sizes, makes halves")
        return self

    @property
    def repository(self) -> str:
        """The repository of its source on the hub, also one of a single word, as `squad`; empty for
        local files.
        """
        if not isinstance(self.source, str) or is_path(self.source):
            return ""
        return self.source

    @property
    def folder(self) -> Path | None:
        """The folder of its published files, if DATA_FOLDER is set; relative paths start from the
        project's root.
        """
        folder = os.environ.get("DATA_FOLDER")
        return local_path(folder) if folder and self.files else None


def is_on_hub(spec: Model | Dataset) -> bool:
    """Whether it is read from its repository: neither from one GGUF file nor from published files
    in DATA_FOLDER.
    """
    file_or_folder = spec.gguf if isinstance(spec, Model) else spec.folder
    return bool(spec.repository) and not file_or_folder
