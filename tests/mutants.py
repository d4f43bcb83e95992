"""Do the tests notice when the program computes otherwise? One operator, comparison, constant, `and`, `or` or `not` of
a module is changed at a time; a test of those files that import the module must then fail.

    python tests/mutants.py                     # draws three mutants of each new module, stores how they end
    python tests/mutants.py lib/score/metrics   # tries those of some modules, shows which survive, and stores nothing
    python tests/mutants.py compare [ROOM...]   # tries the stored ones again, wherever their lines stand now

mutants.json holds a mutant to a line: its module, the line before and after as `ast.unparse` sets it, and how it ended.
It is written after every module, so a run that was stopped goes on; without its list all are drawn anew. `compare`
finds a line in its module, else in its room, which is the folder, else wherever it was moved, and exits with 1 where a
room's tests kill fewer of the same mutants. Lines that no test can tell from those before stand in the file as "alike",
each with the reason.
"""

import ast
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from clone import ENV, ROOT, repository

STORE = Path(__file__).with_suffix(".json")
COUNT, LONGEST = 3, 300  # mutants that are drawn of a module; characters of their lines
FILES, SECONDS = 5, 600  # files of tests that a mutant is tried on; after so long it counts as killed
VISITED = {  # by room; of `lib` without what sets tables, figures and pages, or opens files of models
    "lib": "params random_streams row_cache store stored_columns",
    "lib/analysis": "*",
    "lib/calibrate": "*",
    "lib/generate": "bald batching generation mc_dropout p_true sampling seeded_dropout teacher_forcing",
    "lib/paper": "claims findings_1_2 findings_3_4 report_contents verdicts",
    "lib/score": "*",
    "lib/tasks": "answers datasets numbers prompts",
    "workflow": "*",
}
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


@dataclass(frozen=True)
class Mutant:
    module: str  # "lib/score/metrics"
    before: str
    after: str
    end: str = ""  # "killed", "survived" or "alike"

    @property
    def room(self) -> str:
        return self.module.rpartition("/")[0]


class Change(NamedTuple):
    """A mutant, and what is to be written in the place of which bytes of the file."""

    mutant: Mutant
    begin: int
    end: int
    new: bytes


# ---- mutants of a module


def changes_of(module: str) -> Iterator[Change]:
    """Every change of a module."""
    text = (ROOT / f"{module}.py").read_bytes()
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    for statement in statements(ast.parse(text)):
        before = line(statement)
        for node in parts(statement):
            for name, value in otherwise(node):
                kept = getattr(node, name)
                setattr(node, name, value)
                after, new = line(statement), ast.unparse(node)
                setattr(node, name, kept)
                new = new if isinstance(node, ast.Constant | ast.stmt) else f"({new})"
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                yield Change(Mutant(module, before, after), begin, end, new.encode())


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
    """What can be changed at a node: the name of a field, and its other value."""
    if type(getattr(node, "op", None)) in OTHER and not of_path(node):
        yield "op", OTHER[type(node.op)]()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield "operand", ast.UnaryOp(node.op, node.operand)
    if isinstance(node, ast.Compare):
        yield "ops", [OTHER[type(node.ops[0])](), *node.ops[1:]]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "value", not node.value if isinstance(node.value, bool) else node.value + 1


def of_path(node: ast.AST) -> bool:
    """Whether this is a division that leads to a file."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    word = isinstance(node.right, ast.JoinedStr) or isinstance(getattr(node.right, "value", None), str)
    return word or getattr(node.left, "id", "") == "ROOT"


def modules_of(room: str) -> list[str]:
    return sorted(f"{room}/{path.stem}" for path in (ROOT / room).glob("*.py"))


@cache
def changes_in(room: str) -> dict[tuple[str, str], list[Change]]:
    """All changes in a room, by the lines before and after."""
    found: dict[tuple[str, str], list[Change]] = {}
    for change in (change for module in modules_of(room) for change in changes_of(module)):
        found.setdefault((change.mutant.before, change.mutant.after), []).append(change)
    return found


def standing(mutant: Mutant) -> Change | None:
    """Where a mutant's line stands now: in its module, else in its room, else in any room."""
    key = mutant.before, mutant.after
    some = next(filter(None, (changes_in(room).get(key) for room in [mutant.room, *VISITED])), [])
    return max(some, key=lambda change: change.mutant.module == mutant.module, default=None)


def drawn(module: str) -> list[Change]:
    """Some changes of a module, among those whose lines stand once in its room."""
    room = module.rpartition("/")[0]
    here = [
        change
        for change, *others in changes_in(room).values()
        if change.mutant.module == module and not others and len(change.mutant.before) <= LONGEST
    ]
    return random.Random(f"0 {module}").sample(here, min(COUNT, len(here)))


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
    some = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if name in imported(path)]
    some.sort(
        key=lambda path: (path.parent != own, path.parent.name != "field", name not in path.stem, len(imported(path)))
    )
    return [str(path.relative_to(ROOT)) for path in some[:FILES] or sorted(own.glob("test_*.py"))]


def fails(project: Path, module: str) -> bool:
    """Whether a test of a module fails in a copy of the project."""
    words = ["-qx", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={project.parent / 'scratch'}", *tests_of(module)]
    env = ENV | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}  # so that no mutant is taken for another
    try:
        command = [sys.executable, "-m", "pytest", *words]
        return subprocess.run(command, cwd=project, env=env, capture_output=True, timeout=SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def tried(changes: Iterable[Change], project: Path, alike: Container[str]) -> Iterator[Mutant]:
    """The mutants of some changes, each with its end in this copy of the project, whose tests pass without it."""
    sound = cache(lambda module: not fails(project, module))
    for mutant, begin, end, new in changes:
        if mutant.after in alike:
            yield replace(mutant, end="alike")
            continue
        if not sound(mutant.module):
            sys.exit(f"tests fail without a mutant: {' '.join(tests_of(mutant.module))}")
        path = project / f"{mutant.module}.py"
        text = path.read_bytes()
        path.write_bytes(text[:begin] + new + text[end:])
        killed = fails(project, mutant.module)
        path.write_bytes(text)
        if not killed:
            print(f"  survives: {mutant.module}: {mutant.before} -> {mutant.after}", flush=True)
        yield replace(mutant, end="killed" if killed else "survived")


def rate(mutants: Iterable[Mutant]) -> tuple[int, int]:
    """How many were killed, of how many that are not alike."""
    ends = [mutant.end for mutant in mutants if mutant.end != "alike"]
    return ends.count("killed"), len(ends)


def share(mutants: Iterable[Mutant]) -> str:
    count, total = rate(mutants)
    return f"{count} of {total}, {count / max(total, 1):.0%}"


# ---- stored


def stored() -> tuple[dict[str, str], list[Mutant]]:
    """The lines that are alike, with the reasons, and the mutants."""
    text = json.loads(STORE.read_text("utf-8"))
    alike, mutants = text["alike"], [Mutant(**one) for one in text["mutants"]]
    return alike, [replace(one, end="alike") if one.after in alike else one for one in mutants]


def store(alike: dict[str, str], mutants: list[Mutant]) -> None:
    """Writes the rate of each room, and a line for each mutant."""
    rates = {room: share(one for one in mutants if one.room == room) for room in VISITED}
    lines = [json.dumps(asdict(one), ensure_ascii=False) for one in sorted(mutants, key=astuple)]
    text = json.dumps({"killed": rates, "alike": alike}, indent=1, sort_keys=True, ensure_ascii=False)
    STORE.write_text(text[:-2] + ',\n "mutants": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def draw(modules: list[str], project: Path) -> None:
    """Tries mutants of these modules; of all that have none stored, and stores them."""
    alike, mutants = stored()
    mutants = [one for one in mutants if standing(one)]
    known = {one.module for one in mutants}
    unknown = [
        module
        for room, names in VISITED.items()
        for module in modules_of(room)
        if module not in known and (names == "*" or module.rpartition("/")[2] in names.split())
    ]
    for module in modules or unknown:
        new = list(tried(drawn(module), project, alike))
        print(f"{module}: {share(new)} killed", flush=True)
        mutants += new
        if not modules:
            store(alike, mutants)


def compare(rooms: Iterable[str], project: Path) -> bool:
    """Tries the stored mutants again, and prints a row of how many were killed for each room; whether all are still."""
    alike, mutants = stored()
    worse = False
    print(f"{'room':14}{'stored':>16}{'gone':>6}{'others then':>16}{'now':>16}")
    for room in rooms:
        before = [one for one in mutants if one.room == room and one.end != "alike"]
        there = {one: change for one in before if (change := standing(one))}
        now = list(tried(there.values(), project, alike))
        gone = len(before) - len(there)
        print(f"{room:14}{share(before):>16}{gone:>6}{share(there):>16}{share(now):>16}", flush=True)
        worse |= rate(now)[0] < rate(there)[0]
    return not worse


if __name__ == "__main__":
    verb, words = sys.argv[1:2], sys.argv[2:]
    if verb == ["compare"] and (unknown_ := set(words) - VISITED.keys()):
        sys.exit(f"no room {', '.join(unknown_)}; there are {', '.join(VISITED)}")
    with tempfile.TemporaryDirectory() as scratch:
        project_ = repository(Path(scratch) / "a project")
        if verb != ["compare"]:
            draw(verb + words, project_)
        elif not compare(words or VISITED, project_):
            sys.exit(1)
