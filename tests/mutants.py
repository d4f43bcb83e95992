"""Do the tests notice when the program computes otherwise? One operator, comparison, constant,
`and`, `or` or `not` of a module is changed at a time; a test of those files that import the module
must then fail.

    python tests/mutants.py                     # tries the stored ones again, wherever their lines stand now
    python tests/mutants.py workflow lib/score  # those of some rooms
    python tests/mutants.py lib/score/metrics   # those of a module, and draws new ones until it has three

mutants.json keeps a mutant to a line: its module, the line before and after as `ast.unparse` sets
it, and how it ended. The exit code is 1 where one that was killed survives. Lines that no test can
tell from those before stand in the file as "alike", each with the reason; mutants whose line is
gone are forgotten.
"""

import ast
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from clone import ENV, ROOT, copy_of_project

STORE = Path(__file__).with_suffix(".json")
ROOMS = (
    "lib",
    "lib/analysis",
    "lib/calibrate",
    "lib/generate",
    "lib/paper",
    "lib/score",
    "lib/tasks",
    "workflow",
)
MODULES = [f"{room}/{path.stem}" for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))]
COUNT, LONGEST = 3, 300  # mutants of a module; characters of their lines
# files of tests that a mutant is tried on; after so long it counts as killed
FILES, SECONDS = 5, 600
OTHER = {
    "+": "-",
    "*": "/",
    "&": "|",
    "and": "or",
    "<": "<=",
    ">": ">=",
    "==": "!=",
    "True": "False",
}
OTHER |= {other: one for one, other in OTHER.items()}
OTHER |= {"//": "/", "**": "*", "%": "*", "@": "*", "is": "is not", "in": "not in", "not": ""}
# What only raises, annotates, unpacks or leads to a file, and keywords by which no number changes;
# § is before a token.
UNTOUCHED = re.compile(
    r"^ *(raise|assert|@|from|import|class|if __name__)\b|^ *(def |\w+: ).*§\||§\*+[^ ]|ROOT §/|§/ f?['\"]"
    r"|\b(ignore_index|drop|index|sort|strict|assume_finite|skip_parameter_validation)=§"
)


# ---- mutants of a module


def source(module: str) -> str:
    return ast.unparse(ast.parse((ROOT / f"{module}.py").read_bytes()))


def changed(module: str, before: str, after: str) -> str | None:
    """A module with another line, where the line stands there once and what comes of it is
    Python."""
    text, count = re.subn(
        rf"(?m)^( *){re.escape(before)}$", lambda line: line[1] + after, source(module)
    )
    with suppress(SyntaxError):
        return text if count == 1 and ast.parse(text) else None


def drawn(module: str, stored: list[dict]) -> list[dict]:
    """New mutants of a module, of which some are stored."""
    found, known = [], [(one["before"], one["after"]) for one in stored]
    for token in tokenize.generate_tokens(io.StringIO(source(module)).readline):
        line, start, other = token.line, token.start[1], OTHER.get(token.string)
        if token.type == tokenize.NUMBER:
            other = str(ast.literal_eval(token.string) + 1)
        if (
            other is not None
            and not UNTOUCHED.search(f"{line[:start]}§{line[start:]}")
            and len(line) <= LONGEST
        ):
            rest = other + line[token.end[1] :]
            found.append((line.strip(), (line[:start] + rest.lstrip()).strip()))
    random.Random(f"0 {module}").shuffle(found)
    some = [pair for pair in found if pair not in known and changed(module, *pair)][
        : max(0, COUNT - len(known))
    ]
    return [{"module": module, "before": before, "after": after} for before, after in some]


def standing(mutant: dict) -> Iterator[tuple[str, str]]:
    """The modules in which a mutant's line stands now, its own first, each with the change."""
    for module in sorted(MODULES, key=lambda name: name != mutant["module"]):
        if text := changed(module, mutant["before"], mutant["after"]):
            yield module, text


# ---- tried


@cache
def imported(path: Path) -> set[str]:
    """The words of a file's imports."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    lines = [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return set(re.findall(r"\w+", " ".join(lines)))


@cache
def tests_of(module: str) -> list[str]:
    """The files of tests that import a module, those of its room and its name first, or all of its
    room's folder; and one that goes through every module."""
    room, _, name = module.rpartition("/")
    own = ROOT / "tests" / (room.removeprefix("lib").strip("/") or "files")
    through_all = (
        ROOT
        / "tests"
        / ("workflow/test_runs.py" if room == "workflow" else "demo/test_demo_numbers.py")
    )
    some = [one for one in sorted((ROOT / "tests").rglob("test_*.py")) if name in imported(one)]
    some.sort(
        key=lambda path: (path.parent != own, path.parent.name != "field", name not in path.stem)
    )
    return [
        str(path.relative_to(ROOT))
        for path in (*(some[:FILES] or sorted(own.glob("test_*.py"))), through_all)
    ]


def copy_beside_shared(to: Path) -> Path:
    """A copy of the project, beside what lies beside the project."""
    copy_of_project(to)
    if (ROOT.parent / "shared").exists():
        (to.parent / "shared").symlink_to(ROOT.parent / "shared")
    return to


def tested(path: Path, text: str, project: Path, *words: str) -> subprocess.CompletedProcess:
    """What pytest ends with in a copy of the project while a file has another text. No module is
    taken for what it was before."""
    before, options = (
        path.read_bytes(),
        ("-qx", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={project} scratch"),
    )
    env = ENV | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    path.write_text(text, "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", *options, *words]
        return subprocess.run(
            command, cwd=project, env=env, capture_output=True, text=True, timeout=SECONDS
        )
    finally:
        path.write_bytes(before)


def fails(project: Path, module: str, text: str) -> bool:
    """Whether a test of a module fails with another text of it."""
    with suppress(subprocess.TimeoutExpired):
        return tested(project / f"{module}.py", text, project, *tests_of(module)).returncode != 0
    return True


@cache
def sound(project: Path, module: str) -> bool:
    return not fails(project, module, source(module))


def end_of(mutant: dict, project: Path) -> str:
    """How a mutant ends now: killed, or survived."""
    module, text = next(standing(mutant))
    if not sound(project, module):
        sys.exit(f"tests fail without a mutant: {' '.join(tests_of(module))}")
    ended = "killed" if fails(project, module, text) else "survived"
    print(f"{ended:9} {module}: {mutant['before']} -> {mutant['after']}", flush=True)
    return ended


# ---- stored


def is_of(mutant: dict, words: list[str]) -> bool:
    return mutant["module"] in words or mutant["module"].rpartition("/")[0] in words


def rate(mutants: list[dict]) -> str:
    ends = [one.get("end") for one in mutants]
    return f"{ends.count('killed')} of {ends.count('killed') + ends.count('survived')}"


def store(alike: dict[str, str], mutants: list[dict]) -> None:
    """Writes the rate of each room, and a line for each mutant."""
    rates = {room: rate([one for one in mutants if is_of(one, [room])]) for room in ROOMS}
    lines = [
        json.dumps(one, ensure_ascii=False)
        for one in sorted(mutants, key=lambda one: list(one.values()))
    ]
    text = json.dumps({"killed": rates, "alike": alike}, indent=1, ensure_ascii=False)
    STORE.write_text(text[:-2] + ',\n "mutants": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def main(words: list[str], scratch: Path) -> int:
    """Half of them are tried in one copy of the project, half in another at the same time."""
    alike, before = (json.loads(STORE.read_text("utf-8"))[name] for name in ("alike", "mutants"))
    others = [one for one in before if not is_of(one, words or ROOMS)]
    some = [one for one in before if one not in others and any(standing(one))]
    for module in set(words) & set(MODULES):
        some += drawn(module, [one for one in some if is_of(one, [module])])

    def ended(mutants: list[dict], name: str) -> list[dict]:
        project = copy_beside_shared(scratch / name / "a project")
        return [
            one | {"end": "alike" if one["after"] in alike else end_of(one, project)}
            for one in mutants
        ]

    half = len(some) // 2
    with ThreadPoolExecutor(2) as pool:
        now = [one for ends in pool.map(ended, (some[:half], some[half:]), "ab") for one in ends]
    print(f"{rate(some)} killed then, {rate(now)} now")
    store(alike, others + now)
    killed = {one["after"] for one in some if one.get("end") == "killed"}
    return int(any(one["end"] == "survived" and one["after"] in killed for one in now))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(sys.argv[1:], Path(folder)))
