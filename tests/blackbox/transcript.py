"""The command's answers, word for word: transcript.txt holds what was typed, what was said, and the exit code.

    python tests/blackbox/transcript.py      # types everything again, shows what changed, and keeps it

A case is the files that are written first (`### path`, then their lines), a line that begins with `$`, what the command
said, and `= ` with its exit code. A new case is a `$` line with no answer yet.
"""

import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, copy_of_project  # noqa: E402

FILE = Path(__file__).with_name("transcript.txt")
ENVIRONMENT = ENV | {"LC_ALL": "C.UTF-8"}
FORKS = """
import json, os, sys
import pandas, torch, transformers
from workflow import run
for line in sys.stdin:
    words, *files = json.loads(line)
    if not (child := os.fork()):
        for number, path in enumerate([os.devnull, *files]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        code = run.main(words)
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
CASE = re.compile(r"((?:### .*\n(?:(?!\$ ).*\n)*)*)\$ (.*)\n((?:(?!= |\$ ).*\n)*)(?:= (\d+)\n)?")
WRITTEN = re.compile(r"### (.*)\n((?:(?!### ).*\n)*)")  # a file of a case
MEASURED = re.compile(r"\d+(\.\d+)?")  # numbers that `check` says are a machine's own, and so are its notes


@dataclass(frozen=True)
class Case:
    command: str
    files: dict[str, str] = field(default_factory=dict)
    said: str = ""
    code: int | None = None

    def __str__(self) -> str:
        files = "".join(f"### {name}\n{text}" for name, text in self.files.items())
        return f"{files}$ {self.command}\n{self.said}= {self.code}\n"


def parse(text: str) -> list[Case]:
    """The cases of a transcript."""
    cases = []
    for files, command, said, code in CASE.findall(text):
        cases.append(Case(command, dict(WRITTEN.findall(files)), said, int(code) if code else None))
    return cases


class Project:
    """A copy of the project, and two ways to give it a command: each tells the exit code and what was said."""

    def __init__(self, folder: Path):
        self.folder = copy_of_project(folder)

    def shell(self, command: str) -> tuple[int, str]:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=ENVIRONMENT, text=True, **both)
        return done.returncode, done.stdout

    def fork(self, command: str) -> tuple[int, str]:
        """Without run_all.sh, in a process that has imported already what takes long; `| tail -n 1` is done here."""
        words, _, tail = command.partition(" | ")
        files = [self.folder.with_name(f"{self.folder.name} {name}") for name in ("stdout", "stderr")]
        print(json.dumps([words.split()[1:], *map(str, files)]), file=self.door.stdin, flush=True)
        code = int(self.door.stdout.readline())
        said, complaint = (path.read_text("utf-8") for path in files)
        return code, complaint + "".join(said.splitlines(True)[-1 if tail else 0 :])

    @cached_property
    def door(self) -> subprocess.Popen:
        env = ENVIRONMENT | {"PYTHONPATH": str(self.folder), "CALLED_FROM": str(self.folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", FORKS], cwd=self.folder, env=env, text=True, **pipes)

    def close(self) -> None:
        if "door" in vars(self):
            self.door.communicate()
        shutil.rmtree(self.folder)


def listing(project: Path) -> dict[str, int]:
    """Every file of a project, with the time of its last change; a lock and what Python compiles are nobody's files."""
    files = (path for path in project.rglob("*") if path.is_file() and not path.name.endswith((".lock", ".pyc")))
    return {str(path.relative_to(project)): path.stat().st_mtime_ns for path in files}


def typed(project: Project, case: Case) -> Case:
    """The case with what the command says now, and where a refused one wrote all the same. Its files are there while it
    runs, and no others are."""
    paths = {project.folder / name: text for name, text in case.files.items()}
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = listing(project.folder)
    code, said = (project.fork if case.files else project.shell)(case.command)
    changed = {name.split("/")[0] for name, _ in before.items() ^ listing(project.folder).items()}
    for path in paths:
        path.unlink()
    said = said.replace(str(project.folder), "(here)")
    if "check demo" in case.command and not code:
        said = MEASURED.sub("N", "".join(line for line in said.splitlines(True) if not line.startswith("note")))
    said = said if not said or said.endswith("\n") else said + "\n"
    said += f"(wrote in: {', '.join(sorted(changed))})\n" if changed and (code or "check" in case.command) else ""
    return replace(case, said=said, code=code)


def all_typed(cases: list[Case], scratch: Path) -> list[Case]:
    """All of them, on two copies of the project."""
    projects = [Project(scratch / name) for name in ("a project", "another project")]
    halves = cases[::2], cases[1::2]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda project, half: [typed(project, case) for case in half], projects, halves))
    for project in projects:
        project.close()
    return [found[place % 2][place // 2] for place in range(len(cases))]


def differences(before: list[Case], after: list[Case]) -> list[str]:
    texts = ["".join(map(str, cases)).splitlines() for cases in (before, after)]
    return [line for line in difflib.unified_diff(*texts, lineterm="", n=3)][2:]


if __name__ == "__main__":
    kept = parse(FILE.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        now = all_typed(kept, Path(scratch))
    print(*differences(kept, now) or ["the same"], sep="\n")
    FILE.write_text("\n".join(map(str, now)), "utf-8")
