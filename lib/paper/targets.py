"""What 08 hands to the paper and to the report, each declared where it is made: name, captions, place in the paper.

An output of 08 that bears the name of a target is exported: `tab_...`, `fig_...`, `numbers`; `rep_...` goes into the
report alone.
"""

import functools
import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import lib.paper
from lib.paper.table import Table

Function = TypeVar("Function", bound=Callable)


@dataclass(frozen=True)
class Target:
    """`short` and `long` make the caption; `place` orders tables and figures as in the paper (others follow by name).
    `published`: the paper's own numbers suffice for it; if not, its cell in 08 has the tag `run`. `of` builds a table
    of numbers from all results."""

    name: str
    short: str = ""
    long: str = ""
    place: float = math.inf
    published: bool = False
    of: Callable[[Any], Table] | None = None


TARGETS: dict[str, Target] = {}


def target(name: str, short: str = "", long: str = "", place: float = math.inf,
           published: bool = False) -> Callable[[Function], Function]:  # fmt: skip
    """Declare what a function makes."""

    def declare(function: Function) -> Function:
        TARGETS[name] = Target(name, short, long, place, published)
        return function

    return declare


class Builder:
    """A function that builds a table from a frame; `of` builds it from all results (`lib.paper.results.Results`)."""

    def __init__(self, build: Callable[..., Table], arguments: Callable[[Any], tuple]):
        self.build, self.arguments = build, arguments
        functools.update_wrapper(self, build)

    def __call__(self, *arguments: Any, **options: Any) -> Table:
        return self.build(*arguments, **options)

    def of(self, results: Any) -> Table:
        return self.build(*self.arguments(results))


def table(name: str, short: str, long: str, place: float = math.inf, published: bool = True,
          arguments: Callable[[Any], tuple] | None = None) -> Callable[[Callable[..., Table]], Builder]:  # fmt: skip
    """Declare a table of numbers. What its builder takes from the results is by default the frame of its name and the
    labels of all models and datasets."""

    def of_its_frame(results: Any) -> tuple:
        return results.frames[name.removeprefix("tab_")], results.models, results.datasets, results.notes

    def declare(build: Callable[..., Table]) -> Builder:
        builder = Builder(build, arguments or of_its_frame)
        TARGETS[name] = Target(name, short, long, place, published, builder.of)
        return builder

    return declare


def all_targets() -> list[Target]:
    """All of them, in the order of the paper. The modules of this package are imported, for that declares them."""
    for module in pkgutil.iter_modules(lib.paper.__path__):
        importlib.import_module(f"lib.paper.{module.name}")
    return sorted(TARGETS.values(), key=lambda target: (target.place, target.name))


def captions() -> dict[str, tuple[str, str]]:
    """The two parts of each caption by name, in the order of the paper."""
    return {target.name: (target.short, target.long) for target in all_targets() if target.short}
