"""Ten faults that a reorganization may make: does the net see each, and does it say what changed?

    python tests/faults.py [WORD...]      # all, some minutes; or those whose name holds one of the words

Each (faults.yaml) is made in a copy of the project, one at a time. The test that is to fail then runs there, and its
message must hold a word. By hand, never in CI: a text that the code holds no more, or twice, is to be looked up anew.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml
from clone import ENV, repository


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str
    word: str


FAULTS = [Fault(**one) for one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())]


def failure(project: Path, fault: Fault) -> str:
    """The first line of a test's message, with the fault, that holds its word; or what came instead."""
    path = project / fault.file
    text = path.read_text("utf-8") if path.exists() else ""
    if (count := text.count(fault.old)) != 1:
        return f"NOT TRIED: {fault.file} holds the text {count} times"
    path.write_text(text.replace(fault.old, fault.new), "utf-8")
    words = ["-q", "-x", "-n", "0", "--all", "-p", "no:cacheprovider", f"tests/blackbox/{fault.test}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=project,
        capture_output=True,
        text=True,
        env=ENV | {"PYTHONPATH": str(project)},
    )
    path.write_text(text, "utf-8")
    said = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    if done.returncode != 1 or not said:
        return f"NOT SEEN: pytest ended with {done.returncode}"
    return next((line[:160] for line in said if fault.word in line), f"NOT SAID: {said[0][:160]}")


if __name__ == "__main__":
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or any(word in fault.name for word in sys.argv[1:])]
    unseen = 0
    with tempfile.TemporaryDirectory() as scratch:
        project_ = repository(Path(scratch) / "a project")
        for one in chosen:
            line_ = failure(project_, one)
            unseen += line_.startswith("NOT ")
            print(f"{one.name:40} {one.test:70} {line_}", flush=True)
    sys.exit(f"{unseen} of {len(chosen)} are not seen" if unseen else 0)
