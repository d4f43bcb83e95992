"""Do the tests notice when the program computes otherwise? One operator, comparison, constant, `and`, `or` or `not` of
a module is changed at a time; a test of those files that import the module must then fail.

    python tests/mutants.py                     # tries the stored ones again, wherever their lines stand now
    python tests/mutants.py workflow lib/score  # those of some rooms
    python tests/mutants.py lib/score/metrics   # draws three of a module, and stores how they end

mutants.json holds a mutant to a line: its module, the line before and after as `ast.unparse` sets it, and how it ended.
The exit code is 1 where a stored one that was killed survives. Lines that no test can tell from those before stand in
the file as "alike", each with the reason; mutants whose line is gone are forgotten when others are stored.
"""

import ast
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from clone import ENV, ROOT, repository

STORE = Path(__file__).with_suffix(".json")
ROOMS = ("lib", "lib/analysis", "lib/calibrate", "lib/generate", "lib/paper", "lib/score", "lib/tasks", "workflow")
COUNT, LONGEST = 3, 300  # mutants that are drawn of a module; characters of their lines
FILES, SECONDS = 5, 600  # files of tests that a mutant is tried on; after so long it counts as killed
# keywords that change no number, but how rows are named and ordered, and what is checked
QUIET = ("ignore_index", "drop", "index", "sort", "strict", "assume_finite", "skip_parameter_validation")
UNTOUCHED = ("annotation", "returns", "decorator_list")  # fields of nodes
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
    ast.Or: ast.And, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.UAdd: ast.USub,
    ast.USub: ast.UAdd,
}  # fmt: skip


# ---- mutants of a module

MODULES = [f"{room}/{path.stem}" for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))]


def mutations(module: str) -> Iterator[tuple[str, str, ast.Module]]:
    """Every change of a module: a line before and after, and the module with it, as it is until the next one."""
    tree = ast.parse((ROOT / f"{module}.py").read_bytes())
    for statement in statements(tree):
        before = line(statement)
        for node, (name, value) in [(part, other) for part in parts(statement) for other in otherwise(part)]:
            kept = getattr(node, name)
            setattr(node, name, value)
            yield before, line(statement), tree
            setattr(node, name, kept)


def standing(mutant: dict) -> tuple[str, str] | None:
    """Where a mutant's line stands now, in its module or else in another, and that module with the change."""
    for module in sorted(MODULES, key=lambda name: name != mutant["module"]):
        for before, after, tree in mutations(module):
            if (before, after) == (mutant["before"], mutant["after"]):
                return module, ast.unparse(tree)
    return None


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements below a node, but not those of a script."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "__name__" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from statements(child)


def line(statement: ast.stmt) -> str:
    """A statement as `ast.unparse` sets it; of one that holds others the first line."""
    return next(line for line in ast.unparse(statement).splitlines() if not line.startswith("@"))


def parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement but those of statements below it. Annotations, and what only raises or names, stay."""
    waiting: list[ast.AST] = [] if isinstance(statement, ast.Raise | ast.Assert) else [statement]
    while waiting:
        node = waiting.pop()
        yield node
        fields = {name: value for name, value in ast.iter_fields(node) if name not in UNTOUCHED}
        waiting += [
            child
            for child in ast.iter_child_nodes(type(node)(**fields))
            if not isinstance(child, ast.stmt | ast.excepthandler | ast.JoinedStr)
            and not (isinstance(child, ast.keyword) and child.arg in QUIET)
        ]


def otherwise(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What can be changed at a node: the name of a field, and its other value. A division may lead to a file."""
    path = isinstance(node, ast.BinOp) and re.search(r"^ROOT /|/ f?['\"][^/]*$", ast.unparse(node))
    if type(getattr(node, "op", None)) in OTHER and not path:
        yield "op", OTHER[type(node.op)]()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield "operand", ast.UnaryOp(node.op, node.operand)
    if isinstance(node, ast.Compare):
        yield "ops", [OTHER[type(node.ops[0])](), *node.ops[1:]]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "value", not node.value if isinstance(node.value, bool) else node.value + 1


def drawn(module: str) -> list[dict]:
    """Some mutants of a module, among those whose lines stand once."""
    counts = Counter((before, after) for before, after, _ in mutations(module))
    here = [pair for pair, count in counts.items() if count == 1 and len(pair[0]) <= LONGEST]
    some = random.Random(f"0 {module}").sample(here, min(COUNT, len(here)))
    return [{"module": module, "before": before, "after": after} for before, after in some]


# ---- tried


@cache
def imported(path: Path) -> set[str]:
    """The words of a file's imports."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    lines = [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return set(re.findall(r"\w+", " ".join(lines)))


def tests_of(module: str) -> list[str]:
    """The files of tests that import a module, those of its room and its name first; else all of its room's folder."""
    room, _, name = module.rpartition("/")
    own = ROOT / "tests" / (room.removeprefix("lib").strip("/") or "files")
    through_all = own / "test_runs.py"  # of the folder of workflow: its runs go through every module
    some = [one for one in sorted((ROOT / "tests").rglob("test_*.py")) if name in imported(one) or one == through_all]
    some.sort(key=lambda path: (path.parent != own, path.parent.name != "field", name not in path.stem))
    return [str(path.relative_to(ROOT)) for path in some[:FILES] or sorted(own.glob("test_*.py"))]


@contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """Another text in a file, for a while."""
    before = path.read_bytes()
    path.write_text(text, "utf-8")
    yield
    path.write_bytes(before)


def tested(project: Path, *words: str) -> subprocess.CompletedProcess:
    """What pytest ends with in a copy of the project, in which no module is taken for what it was before."""
    command = [sys.executable, "-m", "pytest", "-qx", "-n", "0", "-p", "no:cacheprovider", *words]
    env = ENV | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=SECONDS)


def fails(project: Path, module: str, text: str) -> bool:
    """Whether a test of a module fails with another text of it."""
    with written(project / f"{module}.py", text), suppress(subprocess.TimeoutExpired):
        return tested(project, f"--basetemp={project.parent / 'scratch'}", *tests_of(module)).returncode != 0
    return True


@cache
def sound(project: Path, module: str) -> bool:
    return not fails(project, module, ast.unparse(ast.parse((ROOT / f"{module}.py").read_bytes())))


def end_of(mutant: dict, alike: dict[str, str], project: Path) -> str:
    """How a mutant ends now: killed, survived, alike, or gone."""
    if mutant["after"] in alike or not (found := standing(mutant)):
        return "alike" if mutant["after"] in alike else "gone"
    module, text = found
    if not sound(project, module):
        sys.exit(f"tests fail without a mutant: {' '.join(tests_of(module))}")
    ended = "killed" if fails(project, module, text) else "survived"
    print(f"{ended:9} {module}: {mutant['before']} -> {mutant['after']}", flush=True)
    return ended


def share(mutants: Iterable[dict]) -> str:
    ends = [mutant["end"] for mutant in mutants if mutant["end"] in ("killed", "survived")]
    return f"{ends.count('killed')} of {len(ends)}"


def room_of(mutant: dict) -> str:
    return mutant["module"].rpartition("/")[0]


def store(alike: dict[str, str], mutants: list[dict]) -> None:
    """Writes the rate of each room, and a line for each mutant."""
    rates = {room: share(one for one in mutants if room_of(one) == room) for room in ROOMS}
    lines = [json.dumps(one, ensure_ascii=False) for one in sorted(mutants, key=lambda one: list(one.values()))]
    text = json.dumps({"killed": rates, "alike": alike}, indent=1, ensure_ascii=False)
    STORE.write_text(text[:-2] + ',\n "mutants": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def main(words: list[str], project: Path) -> int:
    stored = json.loads(STORE.read_text("utf-8"))
    if modules := [word for word in words if word not in ROOMS]:
        kept = [one for one in stored["mutants"] if standing(one) and one["module"] not in modules]
        for module in modules:
            kept += [one | {"end": end_of(one, stored["alike"], project)} for one in drawn(module)]
            store(stored["alike"], kept)
        return 0
    worse = False
    for room in words or ROOMS:
        before = [one for one in stored["mutants"] if room_of(one) == room]
        now = [one | {"end": end_of(one, stored["alike"], project)} for one in before]
        gone = sum(one["end"] == "gone" for one in now)
        print(f"{room}: {share(before)} killed then, {share(now)} now, {gone} gone", flush=True)
        worse |= any(
            (one["end"], other["end"]) == ("killed", "survived") for one, other in zip(before, now, strict=True)
        )
    return int(worse)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(sys.argv[1:], repository(Path(scratch) / "a project")))
