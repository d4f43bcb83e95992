"""`python tests/benchmarks/mutants.py [HOW_MANY] [MODULE...]`: do the tests notice when a number is computed otherwise?

One operator, comparison, constant, `and` or `or` of a module is changed at a time; the tests of that module alone must
then fail. Prints the mutants that survive, and how many were killed of how many tried: HOW_MANY of each module (20 by
default), drawn with a fixed seed. Most live a second or two; SPARED are those that no test can kill, with the reason.
"""

import ast
import copy
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240  # a mutant that runs longer hangs, and is noticed by that
TESTS = {  # module of lib: its own tests
    "score/metrics": ("test_metrics",),
    "score/bootstrap": ("test_bootstrap",),
    "score/estimators": ("test_estimators",),
    "score/confidence": ("test_signals", "test_estimators"),
    "score/curves": ("test_signals",),
    "score/passes": ("test_signals", "test_extras"),
    "score/reading": ("test_choices", "test_estimators"),
    "score/one_row": ("test_one_row",),
    "calibrate/calibrators": ("test_calibration",),
    "calibrate/answer_logits": ("test_calibration",),
    "calibrate/evidence": ("test_experiments",),
    "calibrate/fitting": ("test_experiments",),
    "calibrate/sample_efficiency": ("test_experiments",),
    "calibrate/transfer": ("test_experiments",),
    "generate/bald": ("test_dropout",),
    "generate/token_logits": ("test_generation", "test_calibration"),
    "generate/temperatures": ("test_calibration",),
    "tasks/answers": ("test_answers",),
    "paper/rounding": ("test_rounding",),
}
LOADED = ("hypothesis", "matplotlib.figure", "pandas", "pyarrow.parquet", "pydantic", "scipy.stats", "sklearn.isotonic",
          "sklearn.linear_model", "torch", "transformers", "yaml")  # fmt: skip
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
    ast.Or: ast.And, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.UAdd: ast.USub,
    ast.USub: ast.UAdd, ast.Not: ast.UAdd, ast.Invert: ast.UAdd,
}  # fmt: skip


def mutants(tree: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """The module with one thing changed, and its line. Annotations, and what only raises or names, stay."""
    skipped = {id(part) for node in ast.walk(tree) for part in untouched(node)}
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for change in changes(node):
            new = copy.deepcopy(tree)
            change(list(ast.walk(new))[place])
            yield getattr(node, "lineno", 0), new


def untouched(node: ast.AST) -> list[ast.AST]:
    """Below a node, what changes no number: annotations, decorators, messages."""
    roots = [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "decorator_list", ())]
    roots += [node] if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom) else []
    return [part for root in roots if root for part in ast.walk(root)]


def changes(node: ast.AST) -> Iterator:
    """What can be changed at a node, as functions of its copy."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.AugAssign) and type(node.op) in OTHER:
        yield lambda other: setattr(other, "op", OTHER[type(other.op)]())
    if isinstance(node, ast.Compare):
        yield lambda other: other.ops.__setitem__(0, OTHER[type(other.ops[0])]())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda other: setattr(other, "value", not other.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield lambda other: setattr(other, "value", other.value + 1)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a module another source."""

    def __init__(self, module: str, path: Path, source: str):
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.module else None

    def exec_module(self, module):
        exec(compile(self.source, str(self.path), "exec"), vars(module))


def survives(name: str, source: str) -> bool:
    """Whether the module's tests pass with this source in place of its own, in a process of their own."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1), os.dup2(silent, 2)
    signal.alarm(SECONDS)
    sys.meta_path.insert(0, Changed(f"lib.{name.replace('/', '.')}", ROOT / f"lib/{name}.py", source))
    tests = [f"tests/{test}.py" for test in TESTS[name]]
    os._exit(int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])) != 0)


def main(words: list[str]) -> None:
    count = int(words[0]) if words and words[0].isdigit() else 20
    chosen = [word for word in words if not word.isdigit()] or list(TESTS)
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    for shared in LOADED:  # once, for all children
        importlib.import_module(shared)
    killed = tried = 0
    for name in chosen:
        text = (ROOT / f"lib/{name}.py").read_text(encoding="utf-8")
        lines, plain = text.splitlines(), ast.unparse(ast.parse(text)).splitlines()
        if not survives(name, text):
            sys.exit(f"{name}: its tests fail as it is")
        every = [(line, ast.unparse(ast.fix_missing_locations(new))) for line, new in mutants(ast.parse(text))]
        some, alive = random.Random(0).sample(every, min(count, len(every))), 0
        for line, source in sorted(some):
            if survives(name, source):
                alive += 1
                changed = " ".join(part.strip() for part in source.splitlines() if part not in plain)
                print(f"  survives: {name}:{line}: {lines[line - 1].strip()} -> {changed}", flush=True)
        killed, tried = killed + len(some) - alive, tried + len(some)
        print(f"{name}: {len(some) - alive} of {len(some)} killed, of {len(every)} that there are", flush=True)
    print(f"{killed} of {tried} killed, {killed / tried:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
