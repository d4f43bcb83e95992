"""The command's answers, word for word: transcript.txt holds what was typed, what was said, and the
exit code.

    python tests/blackbox/transcript.py      # types all again, shows what changed, and keeps it

A case is the files that are written first (`### path`, then their lines), a line that begins with
`$`, what the command said, and `= ` with its exit code. A new case is a `$` line with no answer
yet.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, copy_of_project

FILE = Path(__file__).with_name("transcript.txt")
CASE = re.compile(r"((?:### .*\n(?:(?!\$ ).*\n)*)*)\$ (.*)\n((?:(?!= |\$ ).*\n)*)(?:= (\d+)\n)?")
WRITTEN = re.compile(r"### (.*)\n((?:(?!### ).*\n)*)")  # a file of a case
# numbers that `check` says are a machine's own, and so are its notes
MEASURED = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Case:
    command: str
    files: dict[str, str] = field(default_factory=dict)
    output: str = ""
    code: int | None = None

    def __str__(self) -> str:
        files = [f"### {name}\n{text}" for name, text in self.files.items()]
        return f"{''.join(files)}$ {self.command}\n{self.output}= {self.code}\n"


def parse(text: str) -> list[Case]:
    """The cases of a transcript."""
    cases = []
    for files, command, output, code in CASE.findall(text):
        files = dict(WRITTEN.findall(files))
        cases.append(Case(command, files, output, int(code) if code else None))
    return cases


# ---- in a copy of the project


def listing() -> dict[str, int]:
    """Every file, with the time of its last change; a lock and what Python compiles are nobody's
    files."""
    times = {}
    for path in Path().rglob("*"):
        if path.is_file() and not path.name.endswith((".lock", ".pyc")):
            times[str(path)] = path.stat().st_mtime_ns
    return times


def fork(words: list[str], output: int) -> None:
    """A command that is refused before its first job: none of its jobs needs a process that imports
    the libraries anew, for ten seconds, while models are looked at."""
    from workflow import run

    run.start_fork_server = lambda *_: None
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    sys.exit(run.main(words))


def answer(case: Case) -> tuple[int, str]:
    """What the command ends with and says. What reads a case's files is a process that has imported
    what takes long, without run_all.sh; none of it gets as far as `| tail`."""
    with tempfile.TemporaryFile("w+") as output:
        if case.files:
            words = case.command.partition(" | ")[0].split()[1:]
            process = get_context("fork").Process(target=fork, args=(words, output.fileno()))
            process.start()
            process.join()
            code = process.exitcode
        else:
            code = subprocess.run(
                ["bash", "-c", case.command], stdout=output, stderr=output
            ).returncode
        output.seek(0)
        return code, output.read().replace(os.getcwd(), "(here)")


def typed(case: Case) -> Case:
    """The case with what the command says now, and where a refused one wrote all the same. Its
    files are there while it runs, and no others are."""
    for name, text in case.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    before = listing()
    code, output = answer(case)
    written = before.items() ^ listing().items()
    changed = {name.split("/")[0] for name, _ in written}
    for name in case.files:
        Path(name).unlink()
    if "check demo" in case.command and not code:
        lines = [line for line in output.splitlines(True) if not line.startswith("note")]
        output = MEASURED.sub("N", "".join(lines))
    if changed and (code or "check" in case.command):
        output += f"(wrote in: {', '.join(sorted(changed))})\n"
    return replace(case, output=output, code=code)


# ---- beside it


def all_typed(cases: list[Case], scratch: Path) -> list[Case]:
    """All of them, in a copy of the project."""
    folder = copy_of_project(scratch / "a project")
    env = ENV | {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(folder), "CALLED_FROM": str(folder)}
    command = [sys.executable, folder / "tests/blackbox/transcript.py", "here"]
    text = "\n".join(map(str, cases))
    done = subprocess.run(
        command, cwd=folder, env=env, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return parse(done.stdout)


def differences(before: list[Case], after: list[Case]) -> list[str]:
    texts = ["".join(map(str, cases)).splitlines() for cases in (before, after)]
    return list(difflib.unified_diff(*texts, lineterm="", n=3))[2:]


if __name__ == "__main__":
    if sys.argv[1:]:  # in the copy, to which the cases come
        # once for all cases; of transformers what it leaves until a model is looked at, too
        model_code = "transformers.models.llama.modeling_llama"
        for library in ("pandas", "torch", model_code, "workflow.run"):
            import_module(library)
        for case_ in parse(sys.stdin.read()):
            print(typed(case_), flush=True)
    else:
        stored = parse(FILE.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder_:
            now = all_typed(stored, Path(folder_))
        print(*differences(stored, now) or ["the same"], sep="\n")
        FILE.write_text("\n".join(map(str, now)), "utf-8")
