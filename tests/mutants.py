"""Do the tests notice when the program computes otherwise? A fragment of a function is changed at
a time (an operator, comparison, constant, `and`, `or` or `not`); a test of those files that import
the module must then fail.

    python tests/mutants.py                     # tries the stored ones again: hours on two cores
    python tests/mutants.py workflow lib/score  # those of some rooms
    python tests/mutants.py lib/score/metrics   # of a module, and draws new ones until it has three
    python tests/mutants.py --places            # seconds: which fragment has the code no longer?
    python tests/mutants.py --one lib/score     # one at a time, else two: on a machine that works
    python tests/mutants.py --near lib/score    # on the nearest file of tests alone: minutes

mutants.json keeps a mutant to a line: its module, its function, the fragment before and after
(`fragments.py` says what a fragment is), and how it ended. The exit code is 1 where one that was
killed is no longer, or a fragment has no place in the code: it is to be stated anew on today's
code, as the same fault, or to move to `impossible`, with the reason. Mutants that no test can tell
from the code end as "alike", also with the reason. One whose test fails without it, too, has no
end. One that the nearest file does not kill keeps its end if no other file is tried.
"""

import ast
import copy
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import fragments
from clone import ENV, GIT, ROOT, copy_of_project
from fragments import Change

STORE = Path(__file__).with_suffix(".json")
COUNT = 3  # mutants that are drawn of a module
LONGEST = 60  # characters of a fragment that is drawn
FILES = 5  # files of tests that a mutant is tried on
SECONDS = 600  # after so long a mutant counts as killed
FAILURE = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)?)")
KILLED, SURVIVED, ALIKE = "killed", "survived", "alike"


@dataclass(frozen=True)
class Mutant:
    """A change of the code, how it ended, and for some the reason."""

    change: Change
    end: str = ""
    reason: str = ""

    @classmethod
    def parse(cls, line: dict[str, str]) -> "Mutant":
        names = ("module", "function", "before", "after")
        change = Change(*(line[name] for name in names))
        return cls(change, line["end"], line.get("reason", ""))

    def line(self) -> str:
        content = vars(self.change) | {"end": self.end}
        if self.reason:
            content["reason"] = self.reason
        return json.dumps(content, ensure_ascii=False)

    def is_in(self, words: list[str]) -> bool:
        """Whether it is in one of these rooms or modules; in any, if there are no words."""
        module = self.change.module
        return not words or any(f"{module}/".startswith(f"{word}/") for word in words)


# ---- new mutants

OTHER_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# keywords by which no number changes
WITHOUT_EFFECT = {"ignore_index", "drop", "index", "sort", "strict", "assume_finite"}


def change_node(node: ast.AST) -> ast.AST | None:
    """Return a node with another operator or constant; None for nodes without one."""
    other = copy.deepcopy(node)
    if isinstance(node, ast.BinOp | ast.BoolOp):
        return change_operator(other, "op", other.op)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        operators = change_operator(other, "ops", other.ops[0])
        if operators is not None:
            other.ops = [operators.ops]
        return operators
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    is_constant = isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant)
    if is_constant and node.arg not in WITHOUT_EFFECT:
        if isinstance(node.value.value, bool):
            other.value.value = not node.value.value
            return other
        if isinstance(node.value.value, int | float):
            other.value.value += 1
            return other
    return None


def change_operator(node: ast.AST, field: str, operator: ast.AST) -> ast.AST | None:
    """Give a node another operator and return it; None if there is none, or it joins paths."""
    joins_paths = isinstance(operator, ast.Div) and isinstance(
        node.right, ast.JoinedStr | ast.Constant
    )
    if type(operator) not in OTHER_OPERATORS or joins_paths:
        return None
    setattr(node, field, OTHER_OPERATORS[type(operator)]())
    return node


def list_changes(module: str) -> Iterator[Change]:
    """Yield the changes of a module's functions that `locate` places."""
    functions = fragments.functions_of(ast.parse(fragments.read_module(module)))
    for name, function in functions.items():
        if isinstance(function, ast.FunctionDef):
            for node in nodes_that_compute(function):
                other = change_node(node)
                before = ast.unparse(node)
                if other is not None and len(before) <= LONGEST:
                    change = Change(module, name, before, ast.unparse(other))
                    if fragments.spell(change) == change:
                        yield change


def nodes_that_compute(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body but those of what only raises or annotates."""
    skipped = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Raise | ast.Assert | ast.AnnAssign | ast.arguments):
            skipped.update(id(part) for part in ast.walk(node))
    for statement in function.body:
        for node in ast.walk(statement):
            if id(node) not in skipped:
                yield node


def draw_mutants(module: str, stored: list[Mutant]) -> list[Mutant]:
    """Return new mutants of a module, so many that with those stored it has COUNT."""
    known = [mutant.change for mutant in stored if mutant.is_in([module])]
    changes = [change for change in list_changes(module) if change not in known]
    random.Random(f"0 {module}").shuffle(changes)
    return [Mutant(change) for change in changes[: max(0, COUNT - len(known))]]


# ---- trying them


@cache
def parse_file(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported_names(tree: ast.AST) -> set[str]:
    """Return the names that code imports, with those of their modules: lib.score.metrics."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def functions_with_fixtures(path: Path) -> list[ast.AST]:
    """Return a file of tests, and the functions of tests/conftest.py whose results it takes."""
    functions = fragments.functions_of(parse_file(ROOT / "tests" / "conftest.py"))
    parts: list[ast.AST] = [parse_file(path)]
    for part in parts:
        for node in ast.walk(part):
            fixture = functions.get(node.arg) if isinstance(node, ast.arg) else None
            if fixture is not None and fixture not in parts:
                parts.append(fixture)
    return parts


@cache
def names_in_tests(path: Path) -> set[str]:
    """Return the names that a file of tests imports: itself, by a fixture, or by a module of
    tests/ that it imports."""
    names = set()
    for part in functions_with_fixtures(path):
        names |= imported_names(part)
    for name in sorted(names):
        helper = ROOT / "tests" / f"{name}.py"
        if helper.exists():
            names |= imported_names(parse_file(helper))
    return names


def files_that_import(module: str) -> list[Path]:
    """Return the files of tests that import a module."""
    files = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if module.replace("/", ".") in names_in_tests(path):
            files.append(path)
    return files


def files_that_use(module: str) -> list[Path]:
    """Return the files of tests that import a module, or one that imports it."""
    files = files_that_import(module)
    for other in fragments.modules():
        if module.replace("/", ".") in imported_names(parse_file(ROOT / f"{other}.py")):
            files += files_that_import(other)
    return sorted(set(files))


def stems(name: str) -> set[str]:
    """Return how the words of a name begin: `serving` and `served` alike."""
    return {word[:4] for word in name.split("_")}


@cache
def tests_of(module: str) -> list[str]:
    """Return the nearest files of tests that use a module, or those of its room's folder; and one
    that goes through every module."""
    top, *rooms, name = module.split("/")
    tests = ROOT / "tests"
    room = tests / "workflow" if top == "workflow" else tests / (rooms or ["files"])[0]
    words = stems(f"{name}_{rooms[-1]}" if rooms else name)
    imports_it = files_that_import(module)

    def distance(path: Path) -> tuple[int, ...]:
        shared_words = words & stems(path.stem)
        in_room = path.parent == room
        return (
            not (in_room and shared_words),
            not (in_room and path in imports_it),
            not shared_words,
            not in_room,
            path not in imports_it,
            -len(shared_words),
        )

    files = files_that_use(module) or sorted(room.glob("test_*.py"))
    files = sorted(files, key=distance)[:FILES]
    whole = "workflow/test_runs.py" if top == "workflow" else "demo/test_demo_numbers.py"
    if tests / whole not in files:
        files.append(tests / whole)
    return [str(path.relative_to(ROOT)) for path in files]


def copy_beside_shared(to: Path) -> Path:
    """Return a clone of the project with today's edits, beside what lies beside the project."""
    copy_of_project(to)
    if shutil.which("git"):
        for words in (("init", "-q"), ("add", "--force", "."), ("commit", "-qm", "today")):
            subprocess.run([*GIT, *words], cwd=to, check=True)
    if (ROOT.parent / "shared").exists():
        (to.parent / "shared").symlink_to(ROOT.parent / "shared")
    return to


def run_tests(path: Path, text: str, project: Path, *words: str) -> subprocess.CompletedProcess:
    """Run pytest in a copy of the project while a file has another text.

    No module is taken for what it was before.
    """
    before = path.read_bytes()
    options = ["-qx", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={project} scratch"]
    command = [sys.executable, "-m", "pytest", *options, *words]
    env = ENV | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    path.write_text(text, "utf-8")
    try:
        return subprocess.run(
            command, cwd=project, env=env, capture_output=True, text=True, timeout=SECONDS
        )
    finally:
        path.write_bytes(before)


def find_failure(project: Path, module: str, text: str, files: list[str]) -> str | None:
    """Return the first test of some files that fails with another text of a module: its file and
    function, or its file alone. None if all pass."""
    try:
        done = run_tests(project / f"{module}.py", text, project, *files)
    except subprocess.TimeoutExpired:
        return files[0]
    if done.returncode == 0:
        return None
    failure = FAILURE.search(done.stdout)
    return failure[1] if failure else files[0]


@cache
def passes_without_change(project: Path, module: str, test: str) -> bool:
    path = project / f"{module}.py"
    with suppress(subprocess.TimeoutExpired):
        return run_tests(path, path.read_text("utf-8"), project, test).returncode == 0
    return False


def end_of(mutant: Mutant, project: Path, near: bool) -> Mutant:
    """Return a mutant with how it ends now, perhaps on the nearest file of tests alone."""
    if mutant.end == ALIKE:
        return mutant
    module = mutant.change.module
    text = fragments.change_module(mutant.change)
    nearest, *others = tests_of(module)
    test = find_failure(project, module, text, [nearest])
    if test is None and not near:
        test = find_failure(project, module, text, others)
    if test is None:
        end = mutant.end if near else SURVIVED
    elif passes_without_change(project, module, test):
        end = KILLED
    else:
        print("fails without the mutant, too", flush=True)
        end = ""
    print(f"{end:9} {mutant.change}  {test or 'survives'}", flush=True)
    return replace(mutant, end=end)


def try_all(mutants: list[Mutant], projects: list[Path], near: bool) -> list[Mutant]:
    """Try a share of the mutants in each of some copies of the project, at the same time."""

    def try_share(number: int) -> list[Mutant]:
        share = mutants[number * size : (number + 1) * size]
        return [end_of(mutant, projects[number], near) for mutant in share]

    size = -(-len(mutants) // len(projects))
    with ThreadPoolExecutor(len(projects)) as pool:
        shares = pool.map(try_share, range(len(projects)))
    tried = []
    for share in shares:
        tried += share
    return tried


# ---- stored


def rate(mutants: list[Mutant]) -> str:
    ends = [mutant.end for mutant in mutants]
    killed = ends.count(KILLED)
    return f"{killed} of {killed + ends.count(SURVIVED)}"


def room_of(mutant: Mutant) -> str:
    return mutant.change.module.rpartition("/")[0]


def store(mutants: list[Mutant], impossible: list[dict[str, str]]) -> None:
    """Write the rate of each room, and a line for each mutant."""
    rates = {}
    for room in sorted({room_of(mutant) for mutant in mutants}):
        rates[room] = rate([mutant for mutant in mutants if room_of(mutant) == room])
    lines = ",\n".join(sorted(mutant.line() for mutant in mutants))
    head = json.dumps({"killed": rates, "impossible": impossible}, indent=1, ensure_ascii=False)
    STORE.write_text(f'{head[:-2]},\n "mutants": [\n{lines}\n]}}\n', "utf-8")


def place_all(mutants: list[Mutant]) -> tuple[list[Mutant], list[Mutant]]:
    """Return the mutants as today's code spells them, and those that have no place in it."""
    placed, lost = [], []
    for mutant in mutants:
        change = fragments.locate(mutant.change)
        if change is None:
            print(f"no place  {mutant.change}", flush=True)
            lost.append(mutant)
            continue
        if change != mutant.change:
            print(f"now       {change}", flush=True)
        placed.append(replace(mutant, change=change))
    return placed, lost


def try_by_module(
    placed: list[Mutant], others: list[Mutant], impossible: list[dict[str, str]], words: list[str]
) -> list[Mutant]:
    """Try mutants, a module after the other, and store all of them after each module."""
    copies = 1 if "--one" in words else 2
    tried: list[Mutant] = []
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, str(number), "a project") for number in range(copies)]
        projects = [copy_beside_shared(folder) for folder in folders]
        for module in dict.fromkeys(mutant.change.module for mutant in placed):
            of_module = [mutant for mutant in placed if mutant.is_in([module])]
            tried += try_all(of_module, projects, near="--near" in words)
            trying = {mutant.change for mutant in tried}
            untried = [mutant for mutant in placed if mutant.change not in trying]
            store(others + tried + untried, impossible)
    return tried


def main(words: list[str]) -> int:
    stored = json.loads(STORE.read_text("utf-8"))
    mutants = [Mutant.parse(line) for line in stored["mutants"]]
    rooms = [word for word in words if not word.startswith("--")]
    others = [mutant for mutant in mutants if not mutant.is_in(rooms)]
    placed, lost = place_all([mutant for mutant in mutants if mutant.is_in(rooms)])
    if "--places" in words:
        store(others + lost + placed, stored["impossible"])
        tried = placed
    else:
        for module in set(rooms) & set(fragments.modules()):
            placed += draw_mutants(module, placed)
        tried = try_by_module(placed, others + lost, stored["impossible"], words)
    print(f"{rate(placed)} killed then, {rate(tried)} now; {len(lost)} without a place")
    ends = {mutant.change: mutant.end for mutant in tried}
    risen = []
    for mutant in placed:
        if mutant.end == KILLED and ends[mutant.change] != KILLED:
            risen.append(mutant)
    return int(bool(risen or lost))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
