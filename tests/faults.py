"""Ten faults that a reorganization may make: does the net see each, and does it say what changed?

    python tests/faults.py [WORD...]      # all, some minutes; or those whose name holds one of the words

Each (faults.yaml) is made in a copy of the project, one at a time. The test that is to fail then
runs there, and its message must hold a word. By hand, never in CI: a text that the code holds no
more, or twice, is to be looked up anew.
"""

import sys
import tempfile
from pathlib import Path

import yaml
from mutants import copy_beside_shared, tested

FAULTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def failure(project: Path, fault: dict[str, str]) -> str:
    """The first line of a test's message, with the fault, that holds its word; or what came
    instead."""
    path = project / fault["file"]
    text = path.read_text("utf-8")
    if (count := text.count(fault["old"])) != 1:
        return f"NOT TRIED: {fault['file']} holds the text {count} times"
    done = tested(
        path,
        text.replace(fault["old"], fault["new"]),
        project,
        "--all",
        f"tests/blackbox/{fault['test']}",
    )
    said = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    return next(
        (line[:160] for line in said if fault["word"] in line),
        f"NOT SEEN: {done.returncode} {said[:1]}",
    )


if __name__ == "__main__":
    ends = []
    with tempfile.TemporaryDirectory() as scratch:
        project_ = copy_beside_shared(Path(scratch) / "a project")
        for one in FAULTS:
            if any(word in one["name"] for word in sys.argv[1:] or [""]):
                ends.append(failure(project_, one))
                print(f"{one['name']:40} {one['test']:70} {ends[-1]}", flush=True)
    sys.exit(any(end.startswith("NOT ") for end in ends))
