"""Which quick tests run which functions, also in processes that they start; and pytest in a copy of the project.

All quick tests run once, with a hook in the modules that a process imports first, or runs. What they ran is kept in the
system's folder for scratch, and asked again where a file of tests, or the program, is another one.
"""

import hashlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BATCH = 8  # files of tests after which is stored what they ran
SHARE, FILES = 0.01, 5  # of the tests that are chosen for a function: of the seconds of all, and files at most
HOOK = """
def _watched():
    import os, re, sys

    known, path = set(), os.environ.get("FUNCTIONS")

    def note(frame, event, arg):
        code = frame.f_code
        if id(code) not in known:
            known.add(id(code))
            found = re.search(r"(lib/|lib/[a-z]+/|workflow/)[a-z_0-9]+[.]py$", code.co_filename)
            if found:
                with open(path, "a") as file:
                    file.write(f"{found[0][:-3]}:{getattr(code, 'co_qualname', code.co_name)}\\n")

    if path and not sys.gettrace():
        sys.known_functions = known
        sys.settrace(note)


_watched()
"""
Found = dict[str, tuple[float, list[str]]]  # by test: its seconds, its functions; by file: those of what is prepared


class Noting:
    """A plugin of pytest that notes what is found of each test."""

    def __init__(self, path: Path):
        self.path, self.found = path, Found()

    def noted(self, name: str) -> Iterator[None]:
        getattr(sys, "known_functions", set()).clear()
        self.path.write_text("")
        began = time.monotonic()
        result = yield
        seconds, functions = self.found.get(name, (0, []))
        functions = sorted({*functions, *self.path.read_text().splitlines()})
        self.found[name] = round(seconds + time.monotonic() - began, 3), functions
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        return (yield from self.noted(file_of(item.nodeid)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        return (yield from self.noted(item.nodeid))


class Wanted:
    """Leaves the wanted tests, and tells the first that fails."""

    def __init__(self, names: list[str], told: Path):
        self.names, self.told = names, told

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid in self.names]

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.told.write_text(report.nodeid)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def copied(to: Path) -> Path:
    """A copy of the project, beside what lies beside the project."""
    code = "import clone, pathlib, sys; clone.copy_of_project(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, to], cwd=ROOT / "tests", check=True)
    subprocess.run(["git", "init", "-q"], cwd=to, check=True)
    if (ROOT.parent / "shared").exists():
        (to.parent / "shared").symlink_to(ROOT.parent / "shared")
    return to


def play(folder: Path, files: list[str], plugin: Any, then: Any = int, seconds: int = 0) -> int:
    """How pytest ends in a copy of the project, in a process of its own, which does something more `then`. After so
    many seconds it is killed, with all that it started."""
    if child := os.fork():
        status = os.waitpid(child, 0)[1]
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return status
    os.setsid()
    signal.alarm(seconds)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1), os.dup2(silent, 2)
    os.chdir(folder)
    sys.path[:1] = [str(folder), str(folder / "tests")]
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder.parent / 'scratch'}", *files]
    code = int(pytest.main(words, plugins=[plugin]))
    then()
    os._exit(code)


def failing(folder: Path, tests: list[str], seconds: float) -> str:
    """The first of these tests that fails in a copy of the project; "?" where it can't be said which, "" for none. They
    are stopped where they take far more than so many seconds."""
    told, files = folder.parent / "told.txt", list(dict.fromkeys(map(file_of, tests)))
    told.unlink(missing_ok=True)
    status = play(folder, ["-x", *files], Wanted(tests, told), seconds=60 + round(5 * seconds))
    return told.read_text() if told.exists() else "?" if status else ""


def write(path: Path, data: bytes, clock: Iterator[int] = itertools.count(10**9)) -> None:  # noqa: B008
    """A file with a time of its own, so that no other is taken for what was compiled of it."""
    path.write_bytes(data)
    os.utime(path, (moment := next(clock), moment))


def digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]


def tests_of_functions(folder: Path) -> Found:
    """What is found of the quick tests that pass, in a copy of the project. The parent of all processes to come imports
    what they import of others."""
    scripts = {path for part in ("lib", "workflow", "demo", "tests") for path in (folder / part).rglob("*.py")}
    tests = {path for path in scripts if path.name.startswith("test_")}
    program = digest([path for path in scripts - tests if path.stem not in ("mutants", "covering")])
    store = Path(tempfile.gettempdir()) / f"functions-{program}.json"
    kept = json.loads(store.read_text()) if store.exists() else {"modules": [], "files": {}}
    sums = {str(path.relative_to(folder)): digest([path]) for path in tests}
    if new := sorted(name for name, value in sums.items() if kept["files"].get(name, [""])[0] != value):
        print(f"noting what {len(new)} files of tests run: this takes minutes", flush=True)
    for begin in range(0, len(new), BATCH):
        found, modules = noted(folder, some := new[begin : begin + BATCH])
        for name in some:
            of_file = {test: facts for test, facts in found.items() if file_of(test) == name}
            kept["files"][name] = [sums[name], of_file]
        kept["modules"] = sorted({*kept["modules"], *modules})
        store.write_text(json.dumps(kept))
    for name in kept["modules"]:
        with suppress(Exception):
            importlib.import_module(name)
    return {test: facts for name in sums for test, facts in kept["files"][name][1].items()}


def noted(folder: Path, files: list[str]) -> tuple[Found, list[str]]:
    """What is found of the tests of some files, and the modules of others that they import."""
    texts = {path: path.read_text() for path in (folder / "lib" / "__init__.py", *(folder / "workflow").glob("*.py"))}
    for path, text in texts.items():  # what every process imports first, or runs
        before, script, main = text.partition('if __name__ == "__main__":')
        path.write_text(before + HOOK + script + main if script or path.parent.name == "lib" else text)
    noting, result = Noting(folder.parent / "functions.txt"), folder.parent / "found.json"
    os.environ["FUNCTIONS"] = str(noting.path)
    play(folder, files, noting, lambda: result.write_text(json.dumps([noting.found, foreign(folder)])))
    del os.environ["FUNCTIONS"]
    for path, text in texts.items():
        path.write_text(text)
    return tuple(json.loads(result.read_text()))


def foreign(folder: Path) -> list[str]:
    """The modules that were imported from elsewhere, and so import nothing of the project."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return sorted(name for name, file in files.items() if file and not Path(file).is_relative_to(folder))


def chosen(found: Found, module: str, function: str) -> tuple[list[str], float]:
    """The tests that meet a mutant of a function (of a module, where none is named), and their seconds. First come
    those that run it themselves, and of these the most particular to its module; one of each before any with other
    parameters. Those for which it is only prepared fill up half of the time."""

    def runs(name: str) -> bool:
        return any(one == f"{module}:{function}" or not function and one.startswith(f"{module}:")
                   for one in found.get(name, (0, []))[1])  # fmt: skip

    def others(name: str) -> float:
        functions = found[name][1]
        return sum(not one.startswith(f"{module}:") for one in functions) / max(len(functions), 1)

    tests = [name for name in found if "::" in name and (runs(name) or runs(file_of(name)))]
    before: Counter[str] = Counter()
    order = {}
    for name in sorted(tests, key=others):
        kind = name.partition("[")[0]
        order[name] = not runs(name), before[kind]
        before[kind] += 1
    some, seconds, files, most = [], 0.0, set(), SHARE * sum(cost for cost, _ in found.values())
    for name in sorted(order, key=order.get):
        file = file_of(name)
        cost = found[name][0] + (0 if file in files else found.get(file, (0, []))[0])
        if seconds + cost <= most / (1 + order[name][0]) and (file in files or len(files) < FILES):
            seconds += cost
            files.add(file)
            some.append(name)
    return some, seconds
