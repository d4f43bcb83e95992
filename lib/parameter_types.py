"""Types of parameter values, and one-line validation errors with the nearest valid value."""

import re
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from lib.paths import UserError, nearest, public_path

Kind = TypeVar("Kind", bound="Strict")
Value = TypeVar("Value")


def check_distinct(values: list[Any]) -> list[Any]:
    """Raise ValueError for a list with duplicates."""
    if twice := [value for value in values if values.count(value) > 1]:
        raise ValueError(f"holds {twice[0]!r} twice")
    return values


def as_list(value: Any) -> Any:
    """Wrap a single string in a list."""
    return [value] if isinstance(value, str) else value


PRINTABLE = r"^[^\p{Cc}\p{Zl}\p{Zp}]*$"  # no control characters, no line breaks
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Rows = Annotated[int, Field(ge=0, le=10**9)]  # 0: all
Bins = Annotated[int, Field(ge=1, le=1000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # valid for every random generator
Text = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]
# a path, or a name on the hub
Place = Annotated[str, Field(min_length=1, max_length=1000, pattern=PRINTABLE), PlainSerializer(public_path)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Once = AfterValidator(check_distinct)
Names = Annotated[list[Name], Once]
Several = Annotated[list[Value], Field(min_length=1), Once]  # at least one


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())


def validate(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """Return the validated settings. Raise UserError, prefixed by `where`, for invalid values."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{where}: {explain_validation_error(error, kind)}") from None


def explain_validation_error(error: ValidationError, kind: type[Strict]) -> str:
    """Describe the first error, an unknown key before any other: a missing one may be that key misspelled."""
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    # without pydantic's names for the alternatives of a union
    loc = [str(part) for part in first["loc"] if not re.match(r"(function|constrained)-|dict\[", str(part))]
    key, said = ".".join(loc), first["msg"][0].lower() + first["msg"][1:]
    match first["type"]:
        case "extra_forbidden":
            return f"there is no parameter '{key}'" + (f"; {nearest(key, kind.model_fields)}" if len(loc) == 1 else "")
        case "missing":
            return f"'{key}' is missing"
        case "value_error":  # raised by a validator of ours
            return f"{f'{key!r} ' if loc else ''}{first['ctx']['error']}"
        case "string_type":
            said = "a text is meant: put it in quotes"
    return f"'{key}' is {reprlib.repr(first['input'])}; {said}"
