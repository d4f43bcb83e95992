"""The command's answers, word for word: transcript.txt holds what was typed, what was said, and the exit code.

    python tests/blackbox/transcript.py      # types everything again, shows what changed, and keeps it

A case is the files that are written first (`### path`, then their lines), a line that begins with `$`, what the command
said, and `= ` with its exit code. A new case is a `$` line with no answer yet.
"""

import difflib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, copy_of_project  # noqa: E402

FILE = Path(__file__).with_name("transcript.txt")
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
    cases, files, said, name, command = [], {}, [], "", ""
    for line in text.splitlines(keepends=True):
        if line.startswith("### "):
            name = line[4:].strip()
            files[name] = ""
        elif line.startswith("$ "):
            command, said, name = line[2:].strip(), [], ""
        elif line.startswith("= ") and command:
            cases.append(Case(command, files, "".join(said), int(line[2:]) if line[2:].strip() != "None" else None))
            command, files = "", {}
        elif name:
            files[name] += line
        elif command:
            said.append(line)
    return cases


def listing(project: Path) -> dict[str, int]:
    """Every file of a project, with the time of its last change; a lock and what Python compiles are nobody's files."""
    files = (path for path in project.rglob("*") if path.is_file() and not path.name.endswith((".lock", ".pyc")))
    return {str(path.relative_to(project)): path.stat().st_mtime_ns for path in files}


def typed(project: Path, case: Case) -> Case:
    """The case with what the command says now, and where a refused one wrote all the same. Its files are there while it
    runs, and no others are."""
    paths = {project / name: text for name, text in case.files.items()}
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = listing(project)
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    shell = ["bash", "-o", "pipefail", "-c", case.command]
    done = subprocess.run(shell, cwd=project, env=ENV | {"LC_ALL": "C.UTF-8"}, text=True, timeout=300, **streams)
    changed = {name.split("/")[0] for name, _ in before.items() ^ listing(project).items()} if done.returncode else ()
    for path in paths:
        path.unlink()
    said = done.stdout.replace(str(project), "(here)")
    if "check demo" in case.command and not done.returncode:
        said = MEASURED.sub("N", "".join(line for line in said.splitlines(True) if not line.startswith("note")))
    said = said if not said or said.endswith("\n") else said + "\n"
    said += f"(wrote in: {', '.join(sorted(changed))})\n" if changed else ""
    return replace(case, said=said, code=done.returncode)


def all_typed(cases: list[Case], scratch: Path) -> list[Case]:
    """All of them, on two copies of the project."""
    copies = [copy_of_project(scratch / name) for name in ("a project", "another project")]
    halves = [cases[::2], cases[1::2]]
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(lambda job: [typed(job[0], case) for case in job[1]], zip(copies, halves, strict=True)))
    for copy in copies:
        shutil.rmtree(copy)
    return [halves[place % 2][place // 2] for place in range(len(cases))]


def differences(before: list[Case], after: list[Case]) -> list[str]:
    texts = ["".join(map(str, cases)).splitlines() for cases in (before, after)]
    return [line for line in difflib.unified_diff(*texts, lineterm="", n=3)][2:]


if __name__ == "__main__":
    kept = parse(FILE.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        now = all_typed(kept, Path(scratch))
    print(*differences(kept, now) or ["the same"], sep="\n")
    FILE.write_text("\n".join(map(str, now)), "utf-8")
