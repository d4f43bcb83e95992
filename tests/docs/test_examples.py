"""The examples of docstrings: all of them run, and the public functions of some packages have
one."""

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

RUN = (
    "lib", "lib.analysis", "lib.calibrate", "lib.paper", "lib.responses", "lib.score", "lib.tasks",
    "workflow.serving",
)  # fmt: skip
# each of their public functions has an example
COMPLETE = ("lib.score", "lib.tasks", "lib.calibrate")


def modules_of(packages):
    modules = []
    for package in packages:
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            modules.append(module.name)
    return modules


def public_functions(module):
    """Names of the functions that a module defines, without those that begin with `_`."""
    functions = inspect.getmembers(module, inspect.isroutine)
    defined = [name for name, value in functions if value.__module__ == module.__name__]
    return [name for name in defined if not name.startswith("_")]


@pytest.mark.parametrize("name", modules_of(RUN))
def test_the_examples_give_what_they_say(name):
    failed, _ = doctest.testmod(import_module(name))
    assert failed == 0


WITH_FUNCTIONS = [name for name in modules_of(COMPLETE) if public_functions(import_module(name))]


@pytest.mark.parametrize("name", WITH_FUNCTIONS)
def test_each_public_function_has_an_example(name):
    module = import_module(name)
    functions = public_functions(module)
    lacking = [
        function
        for function in functions
        if ">>> " not in (getattr(module, function).__doc__ or "")
    ]
    assert lacking == []
