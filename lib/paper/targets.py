"""What 08 hands to the paper and to the report, each declared where it is made: name, captions, place in the paper.

An output of 08 that bears the name of a target is exported: `tab_...`, `fig_...`, `numbers`; `rep_...` goes into the
report alone.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lib.paper


@dataclass(frozen=True)
class Target:
    """`short` and `long` make the caption; `place` orders tables and figures as in the paper (others follow by name).
    `published`: the paper's own numbers suffice for it; if not, its cell in 08 has the tag `run`. `of` builds a table
    from all results (`results.Results`). `extra`: no table of the paper, so its numbers are held against none."""

    name: str
    short: str = ""
    long: str = ""
    place: float = math.inf
    published: bool = False
    extra: bool = False
    of: Callable | None = None
    by: Any = None  # the function that makes it


TARGETS: dict[str, Target] = {}


def target(name: str, *captions: str, **facts: Any) -> Callable[[Any], Any]:
    """Declare what a function makes (the fields of `Target`)."""

    def declare(function: Any) -> Any:
        TARGETS[name] = Target(name, *captions, by=function, **facts)  # type: ignore[arg-type, misc]
        return function

    return declare


def table_target(name: str, *captions: str, arguments: Callable | None = None, **facts: Any) -> Callable[[Any], Any]:
    """Declare a table. Its builder gets an attribute `of` that builds it from all results; what it takes from them
    (`arguments`) is by default the frame of its name, with the labels of all models and datasets, and the notes."""

    def of_its_frame(results: Any) -> tuple:
        return results.frames[name.removeprefix("tab_")], results.models, results.datasets, results.notes

    def declare(build: Any) -> Any:
        build.of = lambda results: build(*(arguments or of_its_frame)(results))
        return target(name, *captions, of=build.of, **{"published": True, **facts})(build)

    return declare


def all_targets() -> list[Target]:
    """All of them, in the order of the paper. The modules of this package are imported, for that declares them."""
    for module in pkgutil.iter_modules(lib.paper.__path__):
        importlib.import_module(f"lib.paper.{module.name}")
    return sorted(TARGETS.values(), key=lambda target: (target.place, target.name))


def captions() -> dict[str, tuple[str, str]]:
    """The two parts of each caption by name, in the order of the paper."""
    return {target.name: (target.short, target.long) for target in all_targets() if target.short}
